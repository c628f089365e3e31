"""NumPy array: one `.npy` of samples (n, *input shape), without labels.

Read by blocks like an archive. The file is not mapped: a card that fails under a map kills the process, under a read it
is an error that can be told.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import IO

from edge_sdk.errors import InputError
from edge_sdk.inputs.base import Batch, Example, Refused, Request, Source, rows_of_batch, screened
from edge_sdk.inputs.npy import NpyReader, check_rows


class NpySource(Source):
    """A `.npy` of samples."""

    kind = "NumPy array (.npy)"
    suffixes = (".npy",)

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        if not request.path.is_file():
            raise InputError(f"{request.path}: no such file")
        with request.path.open("rb") as file:
            self._count = self._reader(file).shape[0]

    @classmethod
    def recognises(cls, path: Path, head: bytes) -> bool:
        """NumPy's magic bytes."""
        return head.startswith(b"\x93NUMPY")

    @property
    def count(self) -> int:
        """Rows."""
        return self._count

    @property
    def has_labels(self) -> bool:
        """An array has none."""
        return False

    def examples(self) -> Iterator[Example | Refused]:
        """The rows one by one; `batches` is the fast way."""
        for batch in self.batches():
            yield from (Example(name, x) for name, x in zip(batch.names, batch.x, strict=True))
            yield from batch.refused

    def batches(self, size: int = 256) -> Iterator[Batch]:
        """Blocks of rows, screened as a whole."""
        start = 0
        with self.request.path.open("rb") as file:
            for block in self._reader(file).blocks(rows_of_batch(size, self.request.spec)):
                names = [f"{self.request.path.name}[{start + row}]" for row in range(len(block))]
                yield screened(block, None, names, self.request)
                start += len(block)

    def _reader(self, file: IO[bytes]) -> NpyReader:
        reader = NpyReader(file, self.request.path.stat().st_size, name=str(self.request.path), kinds="fiub")
        check_rows(reader, self.request.spec.shape, name=f"{self.request.path}: the array")
        return reader


SOURCE = NpySource
