"""Filter and Scan: the scores of all entries for a query, from numbers in memory or from the stored keys themselves.

The numbers of a Filter lie column by column, so that a query is one matrix-vector product over long rows (15 instead of
24 µs for 33 columns of 10 000 entries) and any number of columns is equally fast. A Scan keeps one number an entry
and reads every key: for stores whose keys no filter shortens and whose float32 copy is not granted.
"""

from abc import ABC, abstractmethod

import numpy as np

from edge_sdk.neighbors.projection import Projection, Scores
from edge_sdk.neighbors.stored_keys import StoredKeys

_BLOCK_VALUES = 1 << 18
"""Values of keys widened at once by a Scan: 1 MB of float32, which stays in a second-level cache."""

_GROWTH = 1.25


class Bounds(ABC):
    """Something that scores every slot: the lower the score, the nearer the entry may be.

    A slot without an entry scores +inf, one that must always be measured -inf.
    """

    def __init__(self, projection: Projection, n_columns: int) -> None:
        self.projection = projection
        self.n_slots = 0
        """Slots up to the last one ever filled: what a search looks at."""
        self._numbers: np.ndarray = np.empty((n_columns, 0), np.float32)

    @property
    def ram_bytes(self) -> int:
        """Bytes of the numbers."""
        return self._numbers.nbytes

    @property
    def is_scan(self) -> bool:
        """Whether a search reads every key."""
        return False

    def reserve(self, n_slots: int, capacity: int) -> None:
        """Room for slots up to `n_slots`, new ones empty; grows by a quarter at least, to `capacity` at most."""
        room = self._numbers.shape[1]
        if n_slots > room:
            wanted = min(capacity, max(n_slots, int(_GROWTH * room)))
            grown = np.zeros((len(self._numbers), wanted), np.float32)
            grown[:, :room] = self._numbers
            grown[-1, room:] = np.inf
            self._numbers = grown
        self.n_slots = max(self.n_slots, n_slots)

    def clear(self, slots: np.ndarray) -> None:
        """These slots hold no entry."""
        self._numbers[:, slots] = 0.0
        self._numbers[-1, slots] = np.inf

    def distrust(self, slots: np.ndarray) -> None:
        """These slots hold an entry of which nothing is known: always measure it."""
        self._numbers[:, slots] = 0.0
        self._numbers[-1, slots] = -np.inf

    def keep(self, slots: np.ndarray) -> None:
        """Only these slots remain, in this order, as slots 0, 1, ..."""
        self._numbers = np.ascontiguousarray(self._numbers[:, slots])
        self.n_slots = len(slots)

    @abstractmethod
    def put(self, slots: np.ndarray | slice, keys: np.ndarray) -> None:
        """These slots hold these keys, float32 (m, dim)."""

    @abstractmethod
    def scores(self, queries: Scores) -> np.ndarray:
        """float32 (n_queries, n_slots), freshly made."""


class Filter(Bounds):
    """Scores from numbers in memory."""

    def __init__(self, projection: Projection) -> None:
        super().__init__(projection, projection.n_columns)

    def put(self, slots: np.ndarray | slice, keys: np.ndarray) -> None:
        """See `Bounds.put`."""
        self._numbers[:, slots] = self.projection.numbers(keys)

    def scores(self, queries: Scores) -> np.ndarray:
        """One matrix product."""
        scores: np.ndarray = queries.weights @ self._numbers[:, : self.n_slots]
        return scores


class Scan(Bounds):
    """Scores from the stored keys, which are as they are: neither centred nor scaled."""

    def __init__(self, keys: StoredKeys) -> None:
        super().__init__(Projection(np.zeros(keys.values.shape[1]), 1.0, None), 1)
        self.keys = keys

    @property
    def is_scan(self) -> bool:
        """True."""
        return True

    def put(self, slots: np.ndarray | slice, keys: np.ndarray) -> None:
        """See `Bounds.put`."""
        self._numbers[0, slots] = self.projection.half_numbers(keys)

    def scores(self, queries: Scores) -> np.ndarray:
        """One matrix product over float32 keys where they lie in the map, one a widened block for others."""
        with np.errstate(over="ignore", invalid="ignore"):  # of entries whose score is replaced below
            return self._scores(queries.weights[:, :-1])

    def _scores(self, weights: np.ndarray) -> np.ndarray:
        scores = np.empty((len(weights), self.n_slots), np.float32)
        if self.keys.values.dtype == np.float32:
            _multiply(weights, self.keys.values[: self.n_slots], scores)
        else:
            rows = max(1, _BLOCK_VALUES // weights.shape[1])
            for start in range(0, self.n_slots, rows):
                block = slice(start, min(start + rows, self.n_slots))
                _multiply(weights, self.keys.rows(block), scores[:, block])
        scores += self._numbers[0, : self.n_slots]
        scores[:, np.isposinf(self._numbers[0, : self.n_slots])] = np.inf  # an empty slot may hold anything, NaN too
        scores[:, np.isneginf(self._numbers[0, : self.n_slots])] = -np.inf
        return scores


def _multiply(weights: np.ndarray, rows: np.ndarray, products: np.ndarray) -> None:
    """`products` = weights · rowsᵀ; a single query as matrix times vector, which takes two thirds of the time.

    Rows with gaps between them, as in the map, `matmul` takes as they are and `dot` copies first (7 x the time).
    """
    if len(weights) == 1:
        np.matmul(rows, weights[0], out=products[0])
    else:
        np.matmul(weights, rows.T, out=products)
