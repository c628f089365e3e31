"""NpyReader: one `.npy` stream, read by blocks of rows.

The header says how many bytes must follow, and that is held against what is there before any of it is believed: a
header that promises 10^12 rows allocates nothing. Object arrays are never loaded, because loading one runs its pickle.
"""

import io
import math
import tokenize
from collections.abc import Iterator
from typing import IO

import numpy as np
from numpy.lib import format as npy_format

from edge_sdk.errors import InputError

_LARGEST_FORTRAN = 256 << 20  # bytes; column order cannot be read by rows, so it is loaded whole
_LARGEST_VALUE = 4096  # bytes of one value; a text label of 1024 characters


class NpyReader:
    """A `.npy` stream whose header was found right."""

    def __init__(self, file: IO[bytes], size: int, *, name: str, kinds: str) -> None:
        """Read the header.

        Args:
            file: at the start of the `.npy`.
            size: bytes of the whole `.npy`.
            name: for messages.
            kinds: NumPy kind letters that are welcome: "fiub" numbers, "USiu" labels.

        Raises:
            InputError: not a `.npy`, cut short, objects, or of an unwelcome dtype.
        """
        self._file = file
        self._name = name
        self.shape, self._fortran, self.dtype = _read_header(file, name)
        if self.dtype.hasobject:
            raise InputError(f"{name}: holds Python objects, which are never loaded; save it as plain numbers or text")
        if self.dtype.kind not in kinds or self.dtype.itemsize > _LARGEST_VALUE:
            wanted = "numbers" if "f" in kinds else "text or integers"
            raise InputError(f"{name}: holds {self.dtype}, expected {wanted}")
        if not self.shape:
            raise InputError(f"{name}: holds a single value, expected an array with one row per input")
        expected = file.tell() + self.row_bytes * self.shape[0]
        if size != expected:
            raise InputError(
                f"{name}: cut short or damaged ({size} bytes, shape {self.shape} needs {expected}); save it again"
            )
        if self._fortran and expected > _LARGEST_FORTRAN:
            raise InputError(
                f"{name}: is stored by columns and too large to turn; save numpy.ascontiguousarray(...) of it"
            )

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def as_one_row(self) -> None:
        """Take the whole array as one row: a file that holds a single sample."""
        self.shape = (1, *self.shape)

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """The array in order, (at most `rows`, *shape[1:]) each.

        Raises:
            InputError: the stream breaks off.
        """
        if self._fortran:
            whole = np.frombuffer(self._read(self.row_bytes * self.shape[0]), self.dtype)
            turned = (
                whole.reshape(self.shape[::-1]).T if self.shape[0] != 1 else whole.reshape((*self.shape[:0:-1], 1)).T
            )
            for start in range(0, self.shape[0], rows):
                yield turned[start : start + rows]
            return
        for start in range(0, self.shape[0], rows):
            n = min(rows, self.shape[0] - start)
            yield np.frombuffer(self._read(n * self.row_bytes), self.dtype).reshape(n, *self.shape[1:])

    def _read(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) != size:
            raise InputError(f"{self._name}: breaks off while being read; copy it again")
        return data


def _read_header(file: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """(shape, by columns, dtype) of a `.npy`."""
    try:
        version = npy_format.read_magic(file)
        # Version 3 differs from 2 only in allowing field names outside latin-1; arrays with fields are not ours.
        read = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}[version]
        shape, fortran, dtype = read(file)
    except (
        ValueError,
        TypeError,
        KeyError,
        EOFError,
        SyntaxError,
        RecursionError,
        MemoryError,
        OverflowError,
    ) as error:
        raise InputError(f"{name}: not a NumPy array, or damaged; save it with numpy.save or numpy.savez") from error
    except tokenize.TokenError as error:
        raise InputError(f"{name}: damaged NumPy header; save it with numpy.save or numpy.savez") from error
    if any(isinstance(size, bool) or size < 0 for size in shape):
        raise InputError(f"{name}: damaged NumPy header (shape {shape}); save it again")
    return tuple(shape), bool(fortran), dtype


def check_rows(reader: NpyReader, shape: tuple[int, ...], *, name: str) -> None:
    """Hold an array of samples against the shape of one sample; a file of one sample becomes one row.

    Raises:
        InputError: neither (n, *shape) nor `shape`.
    """
    if reader.shape == shape:
        reader.as_one_row()
    elif reader.shape[1:] != shape:
        listed = ", ".join(str(size) for size in shape)
        raise InputError(
            f"{name} has shape {reader.shape}, the model file takes (n, {listed}); give windows of that shape"
        )


def read_small(data: bytes, *, name: str, kinds: str) -> np.ndarray:
    """A whole small `.npy` from memory."""
    reader = NpyReader(io.BytesIO(data), len(data), name=name, kinds=kinds)
    return np.concatenate([np.empty((0, *reader.shape[1:]), reader.dtype), *reader.blocks(max(1, reader.shape[0]))])
