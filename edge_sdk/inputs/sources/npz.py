"""NumPy archive: `x` (n, *input shape) and labels (n,), text or integers.

Both members are read in step, block by block, so an archive of any size takes one block of memory. Before the first
block is given out both are read through once, so that a damaged archive is refused before anything of it was learnt;
that costs one more decompression and never a second copy.
"""

import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import numpy as np

from edge_sdk.errors import InputError
from edge_sdk.inputs.base import Batch, Example, Refused, Request, Source, rows_of_batch, screened
from edge_sdk.inputs.npy import NpyReader, check_rows, read_small
from edge_sdk.inputs.samples import shown

LABEL_NAMES = ("label", "labels", "y")
"""Arrays that are labels, when `label_column` names none."""

CLASS_NAMES = "label_names"
"""Optional array of text: integer labels are then positions in it."""

_CHUNK = 1 << 20
_LARGEST_CLASS_NAMES = 16 << 20  # bytes
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
)
"""What zipfile raises over damaged, encrypted or foreign archives."""


class NpzSource(Source):
    """A `.npz` with `x` and labels."""

    kind = "NumPy archive (.npz)"
    suffixes = (".npz",)

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._path = request.path
        with self._opened() as archive, ExitStack() as stack:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            self._label_name = self._choose_label(members)
            if "x" not in members:
                raise InputError(
                    f"{self._path}: no array x, found {_listed(members)}; "
                    "save it with numpy.savez(path, x=..., label=...)"
                )
            for name in [name for name in ("x", self._label_name) if name is not None]:
                self._read_through(archive, members[name])
            x, labels = self._readers(archive, stack)
            self._count = x.shape[0]
            if labels is not None and labels.shape != (self._count,):
                raise InputError(
                    f"{self._path}: {self._label_name} has shape {labels.shape}, x has {self._count} inputs; "
                    "give one label for each input"
                )
            self._class_names = (
                self._read_class_names(archive, members) if labels is not None and labels.dtype.kind in "iu" else None
            )

    @classmethod
    def recognises(cls, path: Path, head: bytes) -> bool:
        """A zip; what is in it is looked at when it is opened."""
        return head.startswith(b"PK\x03\x04")

    @property
    def count(self) -> int:
        """Rows of x."""
        return self._count

    @property
    def has_labels(self) -> bool:
        """Whether there is an array of labels."""
        return self._label_name is not None

    def examples(self) -> Iterator[Example | Refused]:
        """The rows one by one; `batches` is the fast way."""
        for batch in self.batches():
            labels: Sequence[object] = batch.labels or [None] * len(batch)
            yield from (Example(name, x, label) for name, x, label in zip(batch.names, batch.x, labels, strict=True))
            yield from batch.refused

    def batches(self, size: int = 256) -> Iterator[Batch]:
        """Blocks of rows, screened as a whole."""
        rows = rows_of_batch(size, self.request.spec)
        with self._opened() as archive, ExitStack() as stack:
            x, labels = self._readers(archive, stack)
            label_blocks = labels.blocks(rows) if labels is not None else None
            start = 0
            for block in x.blocks(rows):
                names = [f"{self._path.name}[{start + row}]" for row in range(len(block))]
                texts = self._texts(next(label_blocks)) if label_blocks is not None else None
                yield screened(block, texts, names, self.request)
                start += len(block)

    def _opened(self) -> "_Archive":
        return _Archive(self._path)

    def _choose_label(self, members: dict[str, zipfile.ZipInfo]) -> str | None:
        """The array that holds the labels, or None."""
        if not self.request.reads_labels:
            return None
        if self.request.label_column is not None:
            if self.request.label_column not in members:
                raise InputError(f"{self._path}: no array {self.request.label_column}, found {_listed(members)}")
            return self.request.label_column
        found = [name for name in LABEL_NAMES if name in members]
        if len(found) > 1:
            raise InputError(
                f"{self._path}: holds both {' and '.join(found)}; say which with --label-column {found[0]}"
            )
        if not found and self.request.labels == "required":
            raise InputError(
                f"{self._path}: no labels (an array called label, labels or y), found {_listed(members)}; "
                "add one or give one label for all with --label L"
            )
        return found[0] if found else None

    def _readers(self, archive: zipfile.ZipFile, stack: ExitStack) -> tuple[NpyReader, NpyReader | None]:
        """Readers of x and, if there are any, of the labels."""
        x = self._reader(archive, stack, "x", "fiub")
        check_rows(x, self.request.spec.shape, name=f"{self._path}: x")
        labels = self._reader(archive, stack, self._label_name, "USiu") if self._label_name is not None else None
        return x, labels

    def _reader(self, archive: zipfile.ZipFile, stack: ExitStack, name: str, kinds: str) -> NpyReader:
        info = archive.getinfo(f"{name}.npy")
        file: IO[bytes] = stack.enter_context(archive.open(info))
        return NpyReader(file, info.file_size, name=f"{self._path}: {name}", kinds=kinds)

    def _read_through(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
        """Read a member to its end, where zipfile compares the CRC."""
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(
                f"{self._path}: {info.filename} is compressed in a way NumPy does not write; save it with numpy.savez"
            )
        with archive.open(info) as file:
            while file.read(_CHUNK):
                continue

    def _read_class_names(self, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> list[str] | None:
        """The text behind integer labels, if the archive brings it."""
        info = members.get(CLASS_NAMES)
        if info is None:
            return None
        if info.file_size > _LARGEST_CLASS_NAMES:
            raise InputError(f"{self._path}: {CLASS_NAMES} has {info.file_size} bytes, expected a short list of text")
        names = read_small(archive.read(info), name=f"{self._path}: {CLASS_NAMES}", kinds="US")
        if names.ndim != 1:
            raise InputError(f"{self._path}: {CLASS_NAMES} has shape {names.shape}, expected one axis of text")
        return [_text(name) for name in names.tolist()]

    def _texts(self, labels: np.ndarray) -> list[object]:
        """Labels of one block as the label rule takes them."""
        values = labels.tolist()
        if self._class_names is None:
            return [_text(value) if isinstance(value, bytes) else value for value in values]
        names = self._class_names
        # A position outside the list stays a number: it is then an unknown label, and named.
        return [names[value] if 0 <= value < len(names) else value for value in values]


class _Archive(zipfile.ZipFile):
    """A zip whose damage, found at any moment while it is open, is an `InputError`."""

    def __init__(self, path: object) -> None:
        self._name = str(path)
        try:
            super().__init__(self._name)
        except _DAMAGE as error:
            raise InputError(
                f"{path}: not a NumPy archive, or damaged; save it with numpy.savez(path, x=..., label=...)"
            ) from error

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()
        if isinstance(error, _DAMAGE) and not isinstance(error, InputError):
            raise InputError(f"{self._name}: damaged archive ({_first_line(error)}); copy or save it again") from error


def _text(value: object) -> str:
    """Text of a str or bytes value; bytes that are no UTF-8 keep a mark that no label has."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _first_line(error: BaseException) -> str:
    return shown((str(error) or type(error).__name__).splitlines()[0][:200])


def _listed(names: object) -> str:
    listed = sorted(shown(str(name)[:40]) for name in names)[:10] if isinstance(names, dict) else []
    return ", ".join(listed) or "nothing"


SOURCE = NpzSource
