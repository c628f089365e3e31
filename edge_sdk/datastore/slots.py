"""SlotLayout: how one entry lies in its slot of `entries.npy`, and how a slot is checked.

A slot is one item of an aligned structured dtype whose padding is zero, so the whole file is a plain NumPy file. The
file's header is padded to exactly 4 096 bytes (NumPy needs 128): no write to a slot ever touches a block that holds
the header. A slot's checksum is a CRC-32 and not a longer digest: it must find torn and rotten bytes, not an
adversary, and costs 0.9 µs for 2.6 KB where SHA-256 costs ten times that.
"""

import struct
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from edge_sdk.datastore.halves import narrow, widen
from edge_sdk.errors import InputError

HEADER_BYTES = 4096
"""Bytes before the first slot: one block of every common file system."""

DTYPES = {"float32": "<f4", "float16": "<f2", "int8": "|i1"}
"""Name of a stored dtype -> NumPy code of one embedding value."""

MAX_FULL_CLASSES = 256
"""Up to this many model classes every probability is stored; above, the `TOP_CLASSES` largest with their classes."""

TOP_CLASSES = 32

MAX_SEQUENCE = 2**63 - 1
"""A larger sequence in a slot is damage: 10^18 entries cannot have been learnt."""

FLOAT16_MAX = 65504.0
_FLOAT16_SMALLEST_NORMAL = 2.0**-14
LEAST_SQUARE, MOST_SQUARE = _FLOAT16_SMALLEST_NORMAL**2, FLOAT16_MAX**2
"""An embedding whose squared length lies between dim · the first and the second fits every dtype."""

_FLOAT16_ONE_BITS = 0x3C01  # of 1.001; larger numbers, negative ones, infinities and NaN all have larger bits
_FEW_BITS = 40  # up to here the built-in max beats NumPy's reduction (1.5 µs)

EMPTY, VALID, DAMAGED = 0, 1, 2
"""States of a slot: all bytes zero; checksum right; anything else."""

_MAGIC = b"\x93NUMPY\x01\x00"
_CHECKSUM = struct.Struct("<I")


def slot_bytes(dim: int, n_model_classes: int, dtype: str = "float16") -> int:
    """Bytes of one slot, a multiple of 8: 24 (28 for int8) + dim · value size + 2 · classes (192 above 256 classes)."""
    return SlotLayout(dim, n_model_classes, dtype).n_bytes


def entries_bytes(dim: int, n_model_classes: int, dtype: str = "float16", *, capacity: int) -> int:
    """Bytes of `entries.npy`: 4 096 + capacity · slot bytes. Constant from the first entry on."""
    return HEADER_BYTES + capacity * slot_bytes(dim, n_model_classes, dtype)


@dataclass(frozen=True)
class SlotLayout:
    """The shape of every slot of one store."""

    dim: int
    n_model_classes: int
    dtype: str
    """One of `DTYPES`."""

    @property
    def keeps_all_probabilities(self) -> bool:
        """Whether a slot holds a probability for every class of the model."""
        return self.n_model_classes <= MAX_FULL_CLASSES

    @cached_property
    def record(self) -> np.dtype[Any]:
        """The aligned structured dtype of one slot."""
        fields: list[tuple[Any, ...]] = [("sequence", "<u8"), ("source", "<u8"), ("label", "<i4")]
        if self.dtype == "int8":
            fields.append(("scale", "<f4"))
        fields += [("checksum", "<u4"), ("embedding", DTYPES[self.dtype], (self.dim,))]
        if self.keeps_all_probabilities:
            fields.append(("probabilities", "<f2", (self.n_model_classes,)))
        else:
            fields += [("probabilities", "<f2", (TOP_CLASSES,)), ("probability_classes", "<i4", (TOP_CLASSES,))]
        return np.dtype(fields, align=True)

    @property
    def n_bytes(self) -> int:
        """Bytes of one slot, a multiple of 8."""
        return self.record.itemsize

    def offset(self, field: str) -> int:
        """Where a field starts in the slot."""
        fields = self.record.fields
        return int(fields[field][1]) if fields else 0

    def header(self, capacity: int) -> bytes:
        """The `.npy` header of a file of `capacity` slots, padded to `HEADER_BYTES`."""
        return npy_header(self.record, capacity)

    def check(self, block: np.ndarray) -> np.ndarray:
        """State of each slot.

        Args:
            block: (m,) of `record`, contiguous.

        Returns:
            int8 (m,): `EMPTY`, `VALID` or `DAMAGED`.
        """
        states = np.full(len(block), DAMAGED, np.int8)
        raw = as_bytes(block)
        size, at = self.n_bytes, self.offset("checksum")
        sequences = block["sequence"].tolist()
        checksums = block["checksum"].tolist()
        crc32 = zlib.crc32
        for i, (sequence, checksum) in enumerate(zip(sequences, checksums, strict=True)):
            start = i * size
            if sequence == checksum == 0:
                states[i] = DAMAGED if block[i : i + 1].view(np.uint64).any() else EMPTY
            elif 0 < sequence <= MAX_SEQUENCE:
                right = crc32(raw[start + at + 4 : start + size], crc32(raw[start : start + at])) == checksum
                states[i] = VALID if right else DAMAGED
        return states

    def encode(
        self,
        embeddings: np.ndarray,
        probabilities: np.ndarray,
        labels: np.ndarray,
        sources: np.ndarray,
        sequences: np.ndarray,
    ) -> np.ndarray:
        """Entries as they lie on the medium, checksums included.

        Args:
            embeddings: float32 (n, dim), already checked by `check_embeddings`.
            probabilities: float (n, n_model_classes).
            labels: int32 (n,) class ids.
            sources: uint64 (n,).
            sequences: uint64 (n,).

        Returns:
            (n,) of `record`.
        """
        block = np.zeros(len(embeddings), self.record)
        block["sequence"] = sequences
        block["source"] = sources
        block["label"] = labels
        if self.dtype == "int8":
            block["embedding"], block["scale"] = quantise(embeddings)
        else:
            block["embedding"] = narrow(embeddings) if self.dtype == "float16" else embeddings
        if self.keeps_all_probabilities:
            block["probabilities"] = probabilities
        else:
            top = largest_classes(probabilities)
            block["probabilities"] = np.take_along_axis(probabilities, top, axis=1)
            block["probability_classes"] = top
        raw = as_bytes(block)
        size, at = self.n_bytes, self.offset("checksum")
        starts = range(0, size * len(block), size)
        block["checksum"] = [zlib.crc32(raw[i + at + 4 : i + size], zlib.crc32(raw[i : i + at])) for i in starts]
        return block

    def embeddings(self, rows: np.ndarray) -> np.ndarray:
        """float32 (m, dim) of slots, dequantised."""
        if self.dtype == "float16":
            return widen(rows["embedding"].view(np.int16))
        embeddings = rows["embedding"].astype(np.float32)
        if self.dtype == "int8":
            embeddings *= rows["scale"][:, None]
        return embeddings

    def probabilities(self, rows: np.ndarray, n_classes: int) -> np.ndarray:
        """float32 (m, n_classes): the model's answers as stored; classes that the model does not know get 0.

        Above 256 classes the mass outside the stored 32 is spread evenly over the others, so that a row still sums to
        1.
        """
        result = np.zeros((len(rows), n_classes), np.float32)
        stored = rows["probabilities"].astype(np.float32)
        if self.keeps_all_probabilities:
            result[:, : self.n_model_classes] = stored
            return result
        rest = np.clip(1.0 - stored.sum(axis=1, keepdims=True), 0.0, 1.0)
        result[:, : self.n_model_classes] = rest / (self.n_model_classes - TOP_CLASSES)
        np.put_along_axis(result, rows["probability_classes"].clip(0, self.n_model_classes - 1), stored, axis=1)
        return result


def npy_header(record: np.dtype[Any], length: int) -> bytes:
    """The header of a `.npy` file of `length` records, padded to `HEADER_BYTES`."""
    descr = np.lib.format.dtype_to_descr(record)
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': ({length},), }}"
    room = HEADER_BYTES - len(_MAGIC) - 2
    return _MAGIC + struct.pack("<H", room) + text.ljust(room - 1).encode("latin1") + b"\n"


def as_bytes(block: np.ndarray) -> memoryview:
    """The bytes of contiguous slots, without a copy."""
    return block.view(np.uint8).reshape(-1).data


class ScratchSlot:
    """One preallocated slot in memory, so that learning one entry allocates nothing and casts once.

    `layout.encode` does the same for many; this is its short path (a third of its time for one entry).
    """

    def __init__(self, layout: SlotLayout) -> None:
        self.buffer = memoryview(bytearray(layout.n_bytes))
        self._layout = layout
        slot = np.frombuffer(self.buffer, layout.record)
        self._scale: np.ndarray = np.zeros(1, np.float32)
        at = layout.offset("probabilities")
        bits = self.buffer[at : at + 2 * slot["probabilities"].size].cast("H")
        self._few_bits = bits if len(bits) <= _FEW_BITS else None
        self._many_bits = np.asarray(bits)
        self._embedding: np.ndarray = slot["embedding"]
        self._probabilities: np.ndarray = slot["probabilities"]
        self._probability_classes: np.ndarray | None = None
        if not layout.keeps_all_probabilities:
            self._probability_classes = slot["probability_classes"]
        self._is_int8 = layout.dtype == "int8"
        self._head = struct.Struct("<QQif" if self._is_int8 else "<QQi")
        self._before = self.buffer[: layout.offset("checksum")]
        self._after = self.buffer[layout.offset("checksum") + 4 :]
        self._checksum_at = layout.offset("checksum")

    def fill(self, embeddings: np.ndarray, probabilities: np.ndarray) -> None:
        """Put what the encoder said about one input into `buffer`; `stamp` completes it.

        Args:
            embeddings: float32 (1, dim), already checked by `check_embeddings`.
            probabilities: float32 (1, n_model_classes).

        Raises:
            InputError: a probability is not a number from 0 to 1.
        """
        if self._is_int8:
            self._embedding[...], self._scale = quantise(embeddings)
        else:
            self._embedding[...] = embeddings
        if self._probability_classes is None:
            self._probabilities[...] = probabilities
        else:
            top = largest_classes(probabilities)
            self._probability_classes[...] = top
            self._probabilities[...] = probabilities[0, top]
        bits = self._few_bits
        if (self._many_bits.max() if bits is None else max(bits)) > _FLOAT16_ONE_BITS:
            check_probabilities(probabilities)

    def stamp(self, sequence: int, source: int, label: int) -> None:
        """Write the other fields and the checksum."""
        if self._is_int8:
            self._head.pack_into(self.buffer, 0, sequence, source, label, self._scale[0])
        else:
            self._head.pack_into(self.buffer, 0, sequence, source, label)
        _CHECKSUM.pack_into(self.buffer, self._checksum_at, zlib.crc32(self._after, zlib.crc32(self._before)))


def quantise(embeddings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int8 (n, dim) and float32 scales (n,): value = scale · stored, scale = largest size / 127; error <= scale / 2."""
    scales = (np.abs(embeddings).max(axis=1) / np.float32(127)).astype(np.float32)
    divisors = np.where(scales > 0, scales, np.float32(1))
    return np.clip(np.rint(embeddings / divisors[:, None]), -127, 127).astype(np.int8), scales


def largest_classes(probabilities: np.ndarray) -> np.ndarray:
    """Int (n, TOP_CLASSES): the classes with the largest probabilities, largest first, ties by class."""
    return np.argsort(-probabilities, axis=1, kind="stable")[:, :TOP_CLASSES]


def check_embeddings(embeddings: np.ndarray, layout: SlotLayout) -> bool:
    """Refuse embeddings that a slot cannot hold.

    Args:
        embeddings: float32 (n, dim), contiguous.

    Returns:
        Whether float16 keeps the usual 11 bits of each; False when an embedding's largest value is below 6.1e-5.

    Raises:
        InputError: a value is not finite, or above what the dtype holds.
    """
    is_half = layout.dtype == "float16"
    finite = np.isfinite(embeddings).all(axis=1)
    if not len(embeddings):
        return True
    if not finite.all():
        raise InputError(f"embedding {int(np.argmin(finite))} holds a value that is not finite; nothing was stored")
    if not is_half:
        return True
    largest = np.abs(embeddings).max(axis=1)
    if largest.max() > FLOAT16_MAX:
        row = int(np.argmax(largest > FLOAT16_MAX))
        raise InputError(
            f"embedding {row} holds {largest[row]:g}, a float16 store holds up to {FLOAT16_MAX:g}; "
            'create the datastore with dtype="float32", or scale the model\'s embedding'
        )
    return _keeps_bits(embeddings)


def _keeps_bits(embeddings: np.ndarray) -> bool:
    """Whether the largest value of each embedding is zero or a normal float16."""
    largest = np.maximum(embeddings.max(axis=1), -embeddings.min(axis=1))
    return not bool(((largest > 0) & (largest < _FLOAT16_SMALLEST_NORMAL)).any())


def check_probabilities(probabilities: np.ndarray) -> None:
    """Raises InputError when a value is not a number from 0 to 1 (the rounding of a softmax is let off)."""
    if not (probabilities.min() >= 0.0 and probabilities.max() <= 1.001):
        raise InputError("probabilities are numbers from 0 to 1; is this the model's probability output?")
