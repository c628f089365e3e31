"""CSV and TSV: one row a sample, either its numbers (a feature table) or the path of its file (a manifest).

Separator, decimal comma, header and byte-order mark are found out, never guessed past a contradiction: each row must
have exactly the columns of the first, and every refusal names the line (and the column), so nothing shifts by one in
silence.
"""

import csv
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from edge_sdk.errors import InputError
from edge_sdk.inputs import columns
from edge_sdk.inputs.base import Example, Refused, Request, Source
from edge_sdk.inputs.columns import Columns
from edge_sdk.inputs.samples import SampleReader, shown
from edge_sdk.inputs.text import LARGEST_LINE, bounded_lines, is_clean, text_of

_SEPARATORS = (",", ";", "\t", "|")
_NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_NOT_FINITE = {"nan", "inf", "infinity", "na", "n/a", "null", "none", "-nan", "-inf", "+inf", "-infinity"}


class TableSource(Source):
    """A `.csv` or `.tsv`."""

    kind = "table of numbers, or of paths and labels (.csv, .tsv)"
    suffixes = (".csv", ".tsv", ".tab", ".psv")

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._path = request.path
        self._width = math.prod(request.spec.shape)
        self._largest_line = max(LARGEST_LINE, 32 * self._width)
        self._reader = SampleReader(request.spec)
        if not self._path.is_file():
            raise InputError(f"{self._path}: no such file")
        self._separator = self._find_separator()
        first = next((cells for _, cells in self._rows() if not isinstance(cells, str)), None)
        if first is None:
            raise InputError(f"{self._path}: holds no rows")
        self._n_columns = len(first)
        self._has_header = self._is_header(first)
        self._columns = self._choose(first)
        if request.labels == "required" and request.reads_labels and self._columns.label is None:
            raise InputError(
                f"{self._path}: no column of labels (such as label), found {columns.listed(first)}; "
                "name it with --label-column or give one label for all with --label L"
            )
        self._count = sum(1 for _ in self._rows()) - self._has_header

    @classmethod
    def recognises(cls, path: Path, head: bytes) -> bool:
        """Text whose first line has a separator in it."""
        line = head.split(b"\n")[0]
        return (
            bool(head)
            and b"\0" not in head
            and line[:1] not in (b"{", b"[")
            and any(s.encode() in line for s in _SEPARATORS)
        )

    @property
    def count(self) -> int:
        """Rows, without the header."""
        return self._count

    @property
    def has_labels(self) -> bool:
        """Whether a column holds labels."""
        return self._columns.label is not None

    @property
    def notes(self) -> list[str]:
        """About the files of a manifest."""
        return self._reader.notes()

    def examples(self) -> Iterator[Example | Refused]:
        """The rows in order."""
        rows = self._rows()
        if self._has_header:
            next(rows)
        style = _Decimals(separator=self._separator)
        for name, cells in rows:
            if isinstance(cells, str):
                yield Refused(name, cells)
            elif len(cells) != self._n_columns:
                yield Refused(name, f"has {len(cells)} values, expected {self._n_columns} as in the first row")
            elif not all(map(is_clean, cells)):
                yield Refused(name, "holds bytes that are no UTF-8; save the table as UTF-8")
            else:
                label = cells[self._columns.label] if self._columns.label is not None else None
                yield (
                    self._listed_file(name, cells, label)
                    if self._columns.path is not None
                    else self._numbers(name, cells, label, style)
                )

    def _numbers(self, name: str, cells: list[str], label: str | None, style: "_Decimals") -> Example | Refused:
        """A row of a feature table."""
        values = np.empty(self._width)
        for number, column in enumerate(self._columns.features):
            cell = cells[column]
            if not _NUMBER.fullmatch(cell):
                return Refused(name, f"column {column + 1} holds {_quoted(cell)}, expected a finite number")
            if not style.fits(cell):
                return Refused(
                    name, f'column {column + 1} holds {_quoted(cell)}, but the decimal mark is "{style.mark}"'
                )
            values[number] = float(cell.replace(",", "."))
        return Example(name, values.reshape(self.request.spec.shape), label)

    def _listed_file(self, name: str, cells: list[str], label: str | None) -> Example | Refused:
        """A row of a manifest; paths are relative to its folder."""
        path = cells[self._columns.path or 0].strip()
        name = f"{name} ({shown(path)})"
        if not path or "\0" in path:
            return Refused(name, "names no file")
        try:
            return Example(name, self._reader.read(self._path.parent / path), label)
        except InputError as error:
            return Refused(name, str(error))

    @contextmanager
    def _lines(self) -> Iterator[Iterator[str]]:
        with self._path.open("rb") as file:
            text = text_of(file, name=str(self._path))
            yield bounded_lines(text, name=str(self._path), largest=self._largest_line)

    def _rows(self) -> Iterator[tuple[str, list[str] | str]]:
        """(name, cells) of every row that is not blank; (name, reason) of one that cannot be cut into cells."""
        with self._lines() as lines:
            reader = csv.reader(lines, delimiter=self._separator)
            while True:
                start = reader.line_num + 1
                name = f"{self._path.name} line {start}"
                try:
                    cells = next(reader)
                    if reader.line_num > start:
                        name = f"{self._path.name} lines {start} to {reader.line_num}"
                except StopIteration:
                    return
                except csv.Error as error:
                    yield name, f"cannot be cut into cells ({error}); is a quote missing?"
                    continue
                if any(cell.strip() for cell in cells):
                    yield name, cells

    def _find_separator(self) -> str:
        """The separator of the first line: the one that gives the width the model needs, or else the most frequent."""
        with self._lines() as lines:
            first = next((line for line in lines if line.strip()), "")
        if not is_clean(first):
            raise InputError(f"{self._path}: its first line is no UTF-8; save the table as UTF-8")
        try:
            cut = {separator: next(csv.reader([first], delimiter=separator)) for separator in _SEPARATORS}
        except csv.Error as error:
            raise InputError(f"{self._path}: its first line cannot be cut into cells ({error})") from error
        for separator, cells in cut.items():
            if len(cells) > 1 and len(cells) in (self._width + 1, self._width) and self._plausible(cells, separator):
                return separator
        return max(_SEPARATORS, key=lambda separator: len(cut[separator]))

    @staticmethod
    def _plausible(cells: list[str], separator: str) -> bool:
        """Whether no cell still holds a stronger separator: "0,1;0,2" has two commas and one semicolon."""
        return separator != "," or not any(";" in cell or "\t" in cell for cell in cells)

    def _is_header(self, cells: list[str]) -> bool:
        """Whether the first row holds names: one that means label or path, or nothing that is a number."""
        lowered = [cell.strip().lower() for cell in cells]
        if any(name in columns.LABEL_NAMES or name in columns.PATH_NAMES for name in lowered):
            return True
        if self.request.label_column is not None and self.request.label_column.strip().lower() in lowered:
            return True
        if self.request.spec.kind != "array" and len(cells) <= 2 and (self._path.parent / cells[0].strip()).is_file():
            return False
        return not any(
            _NUMBER.fullmatch(cell) or name in _NOT_FINITE for cell, name in zip(cells, lowered, strict=True)
        )

    def _choose(self, first: list[str]) -> Columns:
        """What the columns are."""
        where = f"{self._path}: the header" if self._has_header else str(self._path)
        if self._has_header:
            return columns.choose(
                first,
                self._width,
                label=self.request.label_column,
                reads_labels=self.request.reads_labels,
                where=where,
            )
        if self.request.label_column is not None:
            raise InputError(
                f'{where}: has no header, so no column "{self.request.label_column}"; add a first line with names'
            )
        if len(first) == self._width and self._width > 2:
            return Columns(list(range(self._width)), None, None)
        words = [number for number, cell in enumerate(first) if not _NUMBER.fullmatch(cell)]
        if len(first) == self._width + 1:
            if words not in ([0], [self._width]):
                raise InputError(
                    f"{where}: has no header, and which of its {len(first)} columns is the label is not clear; add one"
                )
            features = [number for number in range(len(first)) if number != words[0]]
            return Columns(features, None, words[0] if self.request.reads_labels else None)
        if len(first) == self._width:
            return Columns(list(range(self._width)), None, None)
        if len(first) <= 2 and 0 in words:
            return Columns([], 0, 1 if len(first) == 2 and self.request.reads_labels else None)
        raise InputError(
            f"{where}: has {len(first)} columns, the model file takes {self._width} numbers a row (and a label)"
        )


class _Decimals:
    """The decimal mark of one table: whichever comes first, and then no other; "1.234" among "0,5" may mean 1234."""

    def __init__(self, *, separator: str) -> None:
        self.mark = "." if separator == "," else ""

    def fits(self, cell: str) -> bool:
        """Whether a number is written with this table's decimal mark, or none."""
        mark = "," if "," in cell else "." if "." in cell else ""
        self.mark = self.mark or mark
        return mark in ("", self.mark)


def _quoted(cell: str) -> str:
    """A cell for a message, cut and printable."""
    return f'"{shown(cell[:40])}"' if cell.strip() else "nothing"


SOURCE = TableSource
