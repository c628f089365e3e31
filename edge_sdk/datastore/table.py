"""SlotTable: what one process knows about every slot, without the embeddings.

Twenty-nine bytes a slot (290 KB at 10 000 slots). The age order is a ring of slot numbers, because in a full `fifo`
store every new entry leaves at one end and enters at the other: both are O(1). Any other change marks the ring as
stale and the next use sorts it.
"""

from collections.abc import Sequence

import numpy as np

_LOG_LENGTH = 4096


class SlotTable:
    """Sequence, label and source of each slot, the age order, the counts, and which slots changed lately.

    The arrays have one item a slot. Read them; only the datastore writes them. They are replaced by longer ones when a
    `concatenate` store grows.
    """

    def __init__(self, capacity: int, n_classes: int) -> None:
        self.sequences: np.ndarray = np.zeros(capacity, np.uint64)
        """uint64 (capacity,): 0 where the slot is empty or damaged."""
        self.labels: np.ndarray = np.zeros(capacity, np.int32)
        """int32 (capacity,): class ids; meaningless where `sequences` is 0."""
        self.sources: np.ndarray = np.zeros(capacity, np.uint64)
        """uint64 (capacity,): digest of the input, 0 for unknown."""
        self.damaged: np.ndarray = np.zeros(capacity, np.bool_)
        """bool (capacity,): neither empty nor a whole entry."""
        self.counts: list[int] = [0] * n_classes
        """Entries of each class."""
        self.filled = 0
        self.newest = 0
        """Highest sequence of an entry here, 0 for none."""
        self.version = 0
        """Grows by one with every slot that changes."""
        self._log: np.ndarray = np.zeros(_LOG_LENGTH, np.int32)
        self._log_starts = 0
        self._ring: np.ndarray = np.zeros(capacity, np.int32)
        self._head = 0
        self._ring_is_right = True
        self._order: np.ndarray = np.zeros(0, np.int32)
        self._order_version = 0
        self._take_cells()

    def _take_cells(self) -> None:
        """Views for reading and writing single items, twice as fast as indexing the arrays."""
        self._sequence_at, self._label_at, self._source_at = self.sequences.data, self.labels.data, self.sources.data
        self._ring_at, self._log_at = self._ring.data, self._log.data

    @property
    def capacity(self) -> int:
        """Slots."""
        return len(self.sequences)

    @property
    def order(self) -> np.ndarray:
        """int32 (filled,): the filled slots, oldest entry first. Do not write to it."""
        if self._order_version != self.version:
            self._mend_ring()
            end = self._head + self.filled
            first = self._ring[self._head : end]
            self._order = np.concatenate((first, self._ring[: max(0, end - self.capacity)]))
            self._order_version = self.version
        return self._order

    def oldest(self) -> int:
        """Slot of the oldest entry; the table must not be empty."""
        if not self._ring_is_right:
            self._mend_ring()
        return self._ring_at[self._head]

    def _mend_ring(self) -> None:
        """Sort the filled slots by sequence, where that is needed."""
        if self._ring_is_right:
            return
        filled = np.flatnonzero(self.sequences)
        self._ring[: self.filled] = filled[np.argsort(self.sequences[filled], kind="stable")]
        self._head = 0
        self._ring_is_right = True

    def free(self, n: int) -> np.ndarray:
        """Int (<= n,): slots without an entry, the damaged ones first."""
        if self.filled == self.capacity:
            return np.zeros(0, np.int64)
        free = np.flatnonzero(self.sequences == 0)
        damaged = self.damaged[free]
        return np.concatenate((free[damaged], free[~damaged]))[:n] if damaged.any() else free[:n]

    def put(self, slot: int, sequence: int, label: int, source: int) -> int:
        """An entry is in this slot now, whatever was there; returns the class that gave way, -1 for none."""
        evicted = -1
        sequences, counts, capacity = self._sequence_at, self.counts, len(self._sequence_at)
        if sequences[slot]:
            evicted = self._label_at[slot]
            counts[evicted] -= 1
            if self._ring_is_right and self._ring_at[self._head] == slot:
                self._head = (self._head + 1) % capacity
            else:
                self._ring_is_right = False
        else:
            self.filled += 1
            self.damaged[slot] = False
        sequences[slot] = sequence
        self._label_at[slot] = label
        self._source_at[slot] = source
        counts[label] += 1
        if sequence > self.newest:
            self.newest = sequence
            self._ring_at[(self._head + self.filled - 1) % capacity] = slot
        else:
            self._ring_is_right = False
        self._log_at[self.version % _LOG_LENGTH] = slot
        self.version += 1
        return evicted

    def clear(self, slot: int, *, damaged: bool) -> None:
        """No entry is in this slot now."""
        if self.sequences[slot]:
            self.counts[self.labels[slot]] -= 1
            if self._ring_is_right and self._ring[self._head] == slot:
                self._head = (self._head + 1) % self.capacity
            else:
                self._ring_is_right = False
            self.filled -= 1
        elif bool(self.damaged[slot]) == damaged:
            return
        was_newest = int(self.sequences[slot]) == self.newest
        self.sequences[slot] = self.labels[slot] = self.sources[slot] = 0
        if was_newest:
            self.newest = int(self.sequences.max())
        self.damaged[slot] = damaged
        self._log[self.version % _LOG_LENGTH] = slot
        self.version += 1

    def load(
        self, sequences: np.ndarray, labels: np.ndarray, sources: np.ndarray, damaged: np.ndarray, n_classes: int
    ) -> None:
        """Take the state of every slot at once (after reading the whole file)."""
        self.sequences, self.labels, self.sources, self.damaged = sequences, labels, sources, damaged
        self.filled = int(np.count_nonzero(sequences))
        self.newest = int(sequences.max())
        self.counts = np.bincount(labels[sequences != 0], minlength=n_classes).tolist()
        self._ring = np.zeros(len(sequences), np.int32)
        self._ring_is_right = False
        self._take_cells()
        self.start_again()

    def put_many(self, slots: np.ndarray, sequences: np.ndarray, labels: np.ndarray, sources: np.ndarray) -> None:
        """Entries with ascending sequences, newer than all, are in these distinct slots now."""
        held = slots[self.sequences[slots] != 0]
        for label, count in zip(*np.unique(self.labels[held], return_counts=True), strict=True):
            self.counts[label] -= int(count)
        for label, count in zip(*np.unique(labels, return_counts=True), strict=True):
            self.counts[label] += int(count)
        self.filled += len(slots) - len(held)
        self.sequences[slots] = sequences
        self.labels[slots] = labels
        self.sources[slots] = sources
        self.damaged[slots] = False
        self.newest = int(sequences[-1])
        self._ring_is_right = False
        self._note(slots)

    def grow(self, capacity: int) -> None:
        """Empty slots behind the others; slots keep their numbers."""
        order = self.order
        more = capacity - self.capacity
        self.sequences = np.concatenate((self.sequences, np.zeros(more, np.uint64)))
        self.labels = np.concatenate((self.labels, np.zeros(more, np.int32)))
        self.sources = np.concatenate((self.sources, np.zeros(more, np.uint64)))
        self.damaged = np.concatenate((self.damaged, np.zeros(more, np.bool_)))
        self._ring = np.concatenate((order, np.zeros(capacity - len(order), np.int32)))
        self._head = 0
        self._take_cells()
        self.start_again()

    def add_classes(self, n_classes: int) -> None:
        """Room in the counts for classes that are new."""
        self.counts.extend([0] * (n_classes - len(self.counts)))

    def _note(self, slots: np.ndarray) -> None:
        """Remember that these slots changed."""
        if len(slots) >= _LOG_LENGTH:
            self.start_again(len(slots))
            return
        self._log[np.arange(self.version, self.version + len(slots)) % _LOG_LENGTH] = slots
        self.version += len(slots)

    def start_again(self, changes: int = 1) -> None:
        """So much changed that `changed_since` an earlier version is everything."""
        self.version += changes
        self._log_starts = self.version

    def changed_since(self, version: int) -> np.ndarray | None:
        """int32 (m,): the slots that changed after `version`, each once, in no order; None: too many, look at all."""
        if version < max(self._log_starts, self.version - _LOG_LENGTH):
            return None
        if version == self.version - 1:  # what a reader that learns one by one asks: 1 instead of 5 µs
            return self._log[version % _LOG_LENGTH : version % _LOG_LENGTH + 1].copy()
        return np.unique(self._log[np.arange(version, self.version) % _LOG_LENGTH])

    def find_sources(self, sources: Sequence[int] | np.ndarray) -> np.ndarray:
        """int64 (m,): a slot whose entry came from each source, -1 where there is none (or the source is 0)."""
        wanted = np.asarray(sources, np.uint64).reshape(-1)
        if len(wanted) <= 4:  # a scan each (4 µs at 10 000 slots) before a sort (0.6 ms)
            matches = [np.flatnonzero(self.sources == source) if source else np.zeros(0, np.int64) for source in wanted]
            return np.array([slots[0] if len(slots) else -1 for slots in matches], np.int64)
        # Only sources that share their lowest 16 bits with a wanted one are sorted: 0.1 instead of 1.5 to 3 ms for 1024
        # among 50 000.
        is_wanted = np.zeros(1 << 16, np.bool_)
        is_wanted[wanted.astype(np.uint16)] = True
        near = np.flatnonzero(is_wanted[self.sources.astype(np.uint16)])
        if not len(near):
            return np.full(len(wanted), -1, np.int64)
        order = near[np.argsort(self.sources[near], kind="stable")]
        slots = order[np.searchsorted(self.sources[order], wanted).clip(max=len(order) - 1)]
        return np.where((self.sources[slots] == wanted) & (wanted != 0), slots, -1)
