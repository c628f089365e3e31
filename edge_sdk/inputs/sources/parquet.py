"""Parquet: one row a sample, its numbers in columns of their own or in one list column called `x`.

Read by pyarrow where it is installed (170 MB, so no extra asks for it), in record batches: a table of any size takes
one batch of memory.
"""

import importlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.errors import InputError
from edge_sdk.inputs import columns
from edge_sdk.inputs.base import Example, Refused, Request, Source
from edge_sdk.inputs.columns import Columns
from edge_sdk.inputs.samples import SampleReader, shown

_ROWS_AT_ONCE = 256
_X_NAMES = ("x", "input", "features", "embedding")


class ParquetSource(Source):
    """A `.parquet`."""

    kind = "Parquet table (.parquet; needs pyarrow)"
    suffixes = (".parquet", ".pq")

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._path = request.path
        self._width = math.prod(request.spec.shape)
        self._reader = SampleReader(request.spec)
        if not self._path.is_file():
            raise InputError(f"{self._path}: no such file")
        try:
            self._parquet: Any = importlib.import_module("pyarrow.parquet")
        except ImportError as error:
            raise InputError(f"{self._path}: reading Parquet needs pyarrow: pip install pyarrow") from error
        table = self._opened()
        self._names: list[str] = list(table.schema_arrow.names)
        self._count = int(table.metadata.num_rows)
        lists = [name for name in self._names if name.strip().lower() in _X_NAMES and self._is_list(table, name)]
        self._list_column = lists[0] if lists else None
        self._columns = self._choose()
        if request.labels == "required" and request.reads_labels and self._columns.label is None:
            raise InputError(
                f"{self._path}: no column of labels (such as label), found {columns.listed(self._names)}; "
                "name it with --label-column or give one label for all with --label L"
            )

    @classmethod
    def recognises(cls, path: Path, head: bytes) -> bool:
        """Parquet's magic bytes."""
        return head.startswith(b"PAR1")

    @property
    def count(self) -> int:
        """Rows."""
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
        row = 0
        try:
            for block in self._opened().iter_batches(batch_size=_ROWS_AT_ONCE):
                for example in self._block(block, row):
                    yield example
                    row += 1
        except (OSError, ValueError, RuntimeError) as error:  # pyarrow's own errors derive from these
            raise InputError(f"{self._path}: damaged after row {row} ({_one_line(error)}); copy it again") from error

    def _block(self, block: Any, start: int) -> Iterator[Example | Refused]:
        """The rows of one record batch."""
        label_at = self._columns.label
        labels: list[object] = block.column(label_at).to_pylist() if label_at is not None else [None] * block.num_rows
        values = self._values(block)
        for number, (value, label) in enumerate(zip(values, labels, strict=True)):
            name = f"{self._path.name} row {start + number}"
            if label_at is not None and label is None:
                yield Refused(name, "has no label")
            elif isinstance(value, str):
                yield self._listed_file(name, value, label)
            elif isinstance(value, np.ndarray) and value.dtype.kind in "fiu" and value.size == self._width:
                yield Example(name, value.reshape(self.request.spec.shape), label)
            else:
                yield Refused(name, f"does not hold {self._width} numbers")

    def _values(self, block: Any) -> list[object]:
        """What each row's sample is made from: an array, or the path of a file."""
        if self._columns.path is not None:
            return [value if isinstance(value, str) else None for value in block.column(self._columns.path).to_pylist()]
        if self._list_column is not None:
            return [_as_array(value) for value in block.column(self._names.index(self._list_column)).to_pylist()]
        # A missing value becomes NaN and is refused with its position.
        matrix = np.stack(
            [np.asarray(block.column(column).to_numpy(zero_copy_only=False)) for column in self._columns.features],
            axis=1,
        )
        return [_as_array(row) for row in matrix]

    def _listed_file(self, name: str, path: str, label: object) -> Example | Refused:
        """A row of a manifest; paths are relative to its folder."""
        name = f"{name} ({shown(path)})"
        if "\0" in path or not path.strip():
            return Refused(name, "names no file")
        try:
            return Example(name, self._reader.read(self._path.parent / path), label)
        except InputError as error:
            return Refused(name, str(error))

    def _choose(self) -> Columns:
        """What the columns are."""
        if self._list_column is not None:
            label = columns.find(self._names, self.request.label_column)
            return Columns([], None, label if self.request.reads_labels else None)
        return columns.choose(
            self._names,
            self._width,
            label=self.request.label_column,
            reads_labels=self.request.reads_labels,
            where=str(self._path),
        )

    def _opened(self) -> Any:
        try:
            return self._parquet.ParquetFile(self._path)
        except (OSError, ValueError, RuntimeError) as error:
            raise InputError(
                f"{self._path}: no Parquet table, or damaged ({_one_line(error)}); save it again"
            ) from error

    @staticmethod
    def _is_list(table: Any, name: str) -> bool:
        return "list" in str(table.schema_arrow.field(name).type)


def _as_array(value: object) -> object:
    """Numbers as an array, anything else as it is."""
    try:
        return np.asarray(value, np.float64 if isinstance(value, np.ndarray) and value.dtype == object else None)
    except (ValueError, TypeError):
        return None


def _one_line(error: BaseException) -> str:
    return shown(" ".join((str(error) or type(error).__name__).split())[:200])


SOURCE = ParquetSource
