"""Tail: the entries that are in no sealed segment yet, searched exactly.

The same filter as `ExactIndex`, over positions instead of slots: entries join at the end, so the scores of a tail
cost what its own length costs, however large the store is.
"""

import numpy as np

from edge_sdk.neighbors.filter import Filter
from edge_sdk.neighbors.projection import Projection, Scores
from edge_sdk.neighbors.refining import Refiner
from edge_sdk.neighbors.stored_keys import StoredKeys

_MOST_FREE = 256
_SMOOTHING = 1.0 / 32.0
_MOST_WITHIN = 1000
_LARGEST_SCORE = float(np.finfo(np.float32).max)  # an empty position scores infinity


class _TailKeys(StoredKeys):
    """Rows by position in the tail."""

    def __init__(self, keys: StoredKeys, slots: np.ndarray) -> None:
        self._keys = keys
        self._slots = slots

    def rows(self, slots: np.ndarray | slice) -> np.ndarray:
        """float32 (m, dim)."""
        return self._keys.rows(self._slots[slots])


class Tail:
    """Some slots of a datastore, exactly searched."""

    def __init__(self, projection: Projection, capacity: int) -> None:
        """An empty one.

        Args:
            projection: any that fits the store's dimension; a good one spares measuring.
            capacity: slots of the store.
        """
        self.projection = projection
        self._filter = Filter(projection)
        self._slots = np.zeros(0, np.intp)
        self._n_positions = 0
        self._position = np.full(capacity, -1, np.intp)
        self._free: list[int] = []
        self._rows = 0.0

    def __len__(self) -> int:
        return self._n_positions - len(self._free)

    @property
    def ram_bytes(self) -> int:
        """Bytes of the numbers and the positions."""
        return self._filter.ram_bytes + self._slots.nbytes + self._position.nbytes

    @property
    def slots(self) -> np.ndarray:
        """Intp (m,): the slots in the tail."""
        return np.flatnonzero(self._position >= 0)

    def put(self, slots: np.ndarray, keys: np.ndarray) -> None:
        """These slots hold these keys now, float32 (m, dim)."""
        self._filter.put(self._positions(slots), keys)

    def distrust(self, slots: np.ndarray) -> None:
        """These slots hold entries that must always be measured."""
        self._filter.distrust(self._positions(slots))

    def remove(self, slots: np.ndarray) -> None:
        """These slots are not, or no longer, in the tail."""
        slots = slots[slots < len(self._position)]
        positions = self._position[slots]
        positions = positions[positions >= 0]
        if len(positions):
            self._filter.clear(positions)
            self._position[self._slots[positions]] = -1
            self._free.extend(positions.tolist())
        if len(self._free) > max(_MOST_FREE, self._n_positions // 2):
            self._close_gaps()

    def _close_gaps(self) -> None:
        """Move the entries together, so that searches do not score empty positions."""
        slots = self.slots
        self._filter.keep(self._position[slots])
        self._slots = slots
        self._n_positions = len(slots)
        self._position[slots] = np.arange(len(slots))
        self._free = []

    def _positions(self, slots: np.ndarray) -> np.ndarray:
        """The positions of slots, new ones where there are none."""
        highest = int(slots.max()) + 1
        if highest > len(self._position):
            grown = np.full(max(highest, 2 * len(self._position)), -1, np.intp)
            grown[: len(self._position)] = self._position
            self._position = grown
        for slot in slots[self._position[slots] < 0].tolist():
            self._position[slot] = self._new_position(slot)
        positions: np.ndarray = self._position[slots]
        return positions

    def _new_position(self, slot: int) -> int:
        if self._free:
            position = self._free.pop()
        else:
            position = self._n_positions
            self._n_positions += 1
            if position >= len(self._slots):
                self._slots = np.concatenate((self._slots, np.zeros(max(64, len(self._slots) // 2), np.intp)))
            self._filter.reserve(self._n_positions, len(self._slots))
        self._slots[position] = slot
        return position

    def within(self, asked: Scores, hidden: int, squared_distance: float) -> np.ndarray | None:
        """Slots of the entries that may be within a distance of a query; None where so many are that `find` is faster.

        Args:
            asked: its weights, from this tail's projection.
            hidden: slot of an entry that is no answer, -1 for none.
            squared_distance: in the store's own units.
        """
        scores = self._filter.scores(asked)[0]
        highest = self.projection.limit(squared_distance, float(asked.half_norms[0]))
        positions = (scores <= min(highest, _LARGEST_SCORE)).nonzero()[0]
        if len(positions) > _MOST_WITHIN:
            return None
        slots: np.ndarray = self._slots[positions]
        return slots[slots != hidden] if hidden >= 0 else slots

    def find(
        self, query: np.ndarray, asked: Scores, hidden: int, k: int, keys: StoredKeys, sequences: np.ndarray
    ) -> np.ndarray:
        """The slots of the k nearest entries of the tail, fewer when it holds fewer.

        Args:
            query: float32 (dim,).
            asked: its weights, from this tail's projection.
            hidden: slot of an entry that is no answer, -1 for none.
            k: at least 1.
            keys: the stored keys.
            sequences: uint64 (capacity,), by slot.
        """
        n_entries = len(self)
        hidden_position = int(self._position[hidden]) if 0 <= hidden < len(self._position) else -1
        k = min(k, n_entries - (hidden_position >= 0))
        if k <= 0:
            return self._slots[:0]
        scores = self._filter.scores(asked)[0]
        if hidden_position >= 0:
            scores[hidden_position] = np.inf
        slots = self._slots[: self._n_positions]
        refiner = Refiner(self.projection, _TailKeys(keys, slots), sequences[slots])
        found = refiner.find(query, scores, float(asked.half_norms[0]), k, expected=self._rows)
        self._rows += _SMOOTHING * (found.rows - self._rows)
        answers: np.ndarray = slots[found.slots]
        return answers
