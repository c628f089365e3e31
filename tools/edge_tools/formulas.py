"""Formulas: bytes on disk and in RAM of a datastore of any capacity, without making it.

`profile` prints each beside what it measures, so that nobody has to trust a formula.
"""

from dataclasses import dataclass

from edge_sdk.datastore import entries_bytes, slot_bytes
from edge_sdk.datastore.notices import LOCK_BYTES
from edge_sdk.neighbors.exact import DEFAULT_RAM_BUDGET

TABLE_BYTES = 29
"""RAM a slot: sequence 8, source 8, label 4, damaged 1, and the age order as a ring and as a list, 4 each."""

LOG_BYTES = 4 * 4096
"""RAM for the log of changed slots."""

SEGMENT_BYTES = 28
"""RAM that the annoy index takes a slot: which segment it is in 8, its place in the tail 8, an item's sequence 8 and
slot 4. The Annoy files are mapped."""

FILTER_COLUMNS = 33
"""What the filter keeps an entry on most stores; the user's own store says it exactly."""


@dataclass(frozen=True)
class Prediction:
    """What a full datastore takes."""

    capacity: int
    slot_bytes: int
    entries_bytes: int
    """Bytes of `entries.npy`, exact."""

    disk_bytes: int
    """Entries and lock; the manifest, its spare and the kept index choice (a few KB) are not in it."""

    table_bytes: int
    """RAM for sequences, labels, sources and the age order."""

    index_bytes: int
    """RAM for the index's numbers."""

    @property
    def ram_bytes(self) -> int:
        """RAM that grows with the capacity."""
        return self.table_bytes + self.index_bytes


def predict(
    capacity: int, *, dim: int, n_model_classes: int, dtype: str, columns: int | None = None, index: str = "exact"
) -> Prediction:
    """What a datastore will take when it is full.

    Args:
        capacity: the most entries.
        dim: width of an embedding.
        n_model_classes: classes of the model file.
        dtype: of the stored embeddings.
        columns: float32 numbers that the index keeps an entry, as measured on a store; None: a float32 copy where
            it fits in the index's budget, otherwise the usual filter.
        index: its kind. Of annoy's half of the store is searched exactly just before a segment is sealed: the most.
    """
    if columns is None:
        copy = 4 * (dim + 1) * capacity
        columns = dim + 1 if copy <= DEFAULT_RAM_BUDGET else FILTER_COLUMNS
    index_bytes = 4 * columns * capacity
    if index == "annoy":
        index_bytes = SEGMENT_BYTES * capacity + (4 * columns + 8) * max(min(capacity, 1000), capacity // 2)
    entries = entries_bytes(dim, n_model_classes, dtype, capacity=capacity)
    return Prediction(
        capacity=capacity,
        slot_bytes=slot_bytes(dim, n_model_classes, dtype),
        entries_bytes=entries,
        disk_bytes=entries + LOCK_BYTES,
        table_bytes=LOG_BYTES + TABLE_BYTES * capacity,
        index_bytes=index_bytes,
    )
