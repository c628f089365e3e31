"""KeptInputs: the inputs behind the entries, so that a store can be rebuilt for a new global model.

A ring of equal slots in `inputs.npy`, allocated at once: the file takes what the user granted and never more. An
input is found by its source digest, as in the entries. It is stored as the model takes it (after decoding), so it
serves every later model file with the same input shape and dtype.
"""

import struct
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from edge_sdk.datastore.slots import HEADER_BYTES, as_bytes, npy_header
from edge_sdk.datastore.storage import Storage
from edge_sdk.errors import ConfigError, DatastoreError, InputError

INPUTS = "inputs.npy"

_CHECKSUM_BYTES = struct.calcsize("<I")


@dataclass(frozen=True)
class InputsSpec:
    """The shape of `inputs.npy`; stands in the manifest's extensions."""

    shape: tuple[int, ...]
    """Of one input."""

    dtype: str
    """NumPy name of its dtype."""

    slots: int
    """How many inputs there is room for."""

    @classmethod
    def within(cls, max_bytes: int, *, shape: tuple[int, ...], dtype: str, most: int | None) -> "InputsSpec":
        """The largest ring that takes at most `max_bytes`, and at most `most` slots.

        Raises:
            ConfigError: not one input fits.
        """
        slot = cls(shape, dtype, 1).record.itemsize
        slots = (max_bytes - HEADER_BYTES) // slot
        if slots < 1:
            raise ConfigError(f"{max_bytes} bytes keep no input: one takes {slot}, the file's header {HEADER_BYTES}")
        return cls(shape, dtype, slots if most is None else min(slots, most))

    @classmethod
    def from_mapping(cls, values: dict[str, Any]) -> "InputsSpec":
        """Read back from the manifest."""
        return cls(tuple(int(size) for size in values["shape"]), str(values["dtype"]), int(values["slots"]))

    def to_mapping(self) -> dict[str, Any]:
        """For the manifest."""
        return {"shape": list(self.shape), "dtype": self.dtype, "slots": self.slots}

    @cached_property
    def record(self) -> np.dtype[Any]:
        """Structured dtype of one slot; `order` counts up from 1, 0 is an empty slot."""
        value = np.dtype(self.dtype).newbyteorder("<")
        fields = [("source", "<u8"), ("order", "<u8"), ("checksum", "<u4"), ("input", value, self.shape)]
        return np.dtype(fields, align=True)

    @property
    def n_bytes(self) -> int:
        """Bytes of the file."""
        return HEADER_BYTES + self.slots * self.record.itemsize


class KeptInputs:
    """The ring. Whoever changes it holds the datastore's write lock."""

    def __init__(self, storage: Storage, spec: InputsSpec) -> None:
        """Open the file.

        Raises:
            DatastoreError: it is shorter than stated.
        """
        self.spec = spec
        self._storage = storage
        self._is_synced = True
        found = storage.size(INPUTS)
        if found < spec.n_bytes:
            raise DatastoreError(f"{storage.folder / INPUTS}: {found} bytes, expected {spec.n_bytes}; restore a backup")
        mapped = storage.map(INPUTS, spec.n_bytes)
        self._slots = np.frombuffer(mapped, spec.record, spec.slots, HEADER_BYTES)

    @classmethod
    def create(cls, storage: Storage, spec: InputsSpec) -> "KeptInputs":
        """Allocate the file (again from nothing, if a killed process left one that no manifest speaks of)."""
        storage.remove(INPUTS)
        storage.create(INPUTS)
        try:
            storage.allocate(INPUTS, spec.n_bytes)
        except DatastoreError:
            storage.remove(INPUTS)
            raise
        storage.write(INPUTS, npy_header(spec.record, spec.slots), 0)
        storage.sync(INPUTS)
        return cls(storage, spec)

    def __len__(self) -> int:
        return int(np.count_nonzero(self._slots["order"]))

    def put(self, sources: np.ndarray, samples: np.ndarray) -> None:
        """Keep inputs, over the oldest ones where there is no room; those that are kept already stay.

        Args:
            sources: uint64 (n,), digests; inputs with digest 0 are not kept.
            samples: (n, *shape).

        Raises:
            InputError: another shape. Nothing was kept.
        """
        if samples.shape[1:] != self.spec.shape:
            raise InputError(f"inputs of shape {samples.shape[1:]}, this store keeps inputs of shape {self.spec.shape}")
        kept = set(self._slots["source"].tolist())
        newest: dict[int, int] = {}
        for row, source in enumerate(sources.tolist()):
            newest.pop(source, None)
            if source and source not in kept:
                newest[source] = row
        rows = list(newest.values())[-self.spec.slots :]
        orders = self._slots["order"].copy()
        places = np.argsort(orders, kind="stable")[: len(rows)]
        first = int(orders.max()) + 1
        slot = np.zeros(1, self.spec.record)
        for order, (row, place) in enumerate(zip(rows, places.tolist(), strict=True), start=first):
            slot["source"], slot["order"], slot["input"] = sources[row], order, samples[row]
            slot["checksum"] = _checksum(slot)
            self._is_synced = False
            self._storage.write(INPUTS, as_bytes(slot), HEADER_BYTES + place * self.spec.record.itemsize)

    def sync(self) -> None:
        """Wait until every input is on the medium."""
        if not self._is_synced:
            self._is_synced = True
            self._storage.sync(INPUTS)

    def find(self, source: int) -> np.ndarray | None:
        """The input with this digest, None where it is not kept (any more) or damaged."""
        if source == 0:
            return None
        for place in np.flatnonzero(self._slots["source"] == np.uint64(source)).tolist():
            # By bytes: NumPy copies a structured item field by field and leaves its padding undefined.
            slot = np.frombuffer(bytes(as_bytes(self._slots[place : place + 1])), self.spec.record)
            if int(slot["checksum"][0]) == _checksum(slot):
                found: np.ndarray = slot["input"][0]
                return found
        return None

    def keep_only(self, sources: np.ndarray) -> None:
        """Overwrite all other inputs with zeros, on the medium when this returns."""
        gone = np.flatnonzero((self._slots["order"] != 0) & ~np.isin(self._slots["source"], sources))
        size = self.spec.record.itemsize
        for place in gone.tolist():
            self._is_synced = False
            self._storage.write(INPUTS, bytes(size), HEADER_BYTES + place * size)
        if len(gone):
            self.sync()


def _checksum(slot: np.ndarray) -> int:
    """CRC-32 of one slot but for the checksum itself."""
    fields = slot.dtype.fields
    at = int(fields["checksum"][1]) if fields else 0
    raw = as_bytes(slot)
    return zlib.crc32(raw[at + _CHECKSUM_BYTES :], zlib.crc32(raw[:at]))
