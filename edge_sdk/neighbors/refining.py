"""Refining: from scores of all slots to the k nearest entries, measuring as few of them as the scores allow."""

from typing import NamedTuple

import numpy as np

from edge_sdk.neighbors.measuring import CHUNK_VALUES, Measured, kth_square, measure, nearest
from edge_sdk.neighbors.projection import Projection
from edge_sdk.neighbors.stored_keys import StoredKeys

_LARGEST_SCORE = float(np.finfo(np.float32).max)
_GROUP = 64
_GROUPS_PER_SCORE = 6


class Found(NamedTuple):
    """The answer to one query."""

    slots: np.ndarray
    """intp (k,), nearest first, at equal distance newest first."""

    distances: np.ndarray
    """float64 (k,)."""

    rows: int
    """Entries that no search by these scores could have spared."""


class Refiner:
    """One query at a time against the scores of one set of bounds."""

    def __init__(self, projection: Projection, keys: StoredKeys, sequences: np.ndarray) -> None:
        """Look at these.

        Args:
            projection: what the scores were computed with.
            keys: the stored keys.
            sequences: uint64 (capacity,), by slot.
        """
        self._projection = projection
        self._keys = keys
        self._sequences = sequences

    def find(self, query: np.ndarray, scores: np.ndarray, half_norm: float, k: int, *, expected: float) -> Found:
        """The k nearest entries.

        Args:
            query: float32 (dim,).
            scores: float32 (n_slots,), +inf where no answer is; at least k are below that.
            half_norm: the query's, from `Projection.scores`.
            k: at least 1.
            expected: how many entries will have to be measured; a good guess spares a second round.
        """
        if self._projection.is_wild(half_norm):
            slots = (scores < np.inf).nonzero()[0]
            found = self._measure_in_order(query, scores, slots, np.inf, k)
            return self._answer(query, found, kth_square(found.squares, k, len(query)), k, len(slots))
        bound = lowest_scores_bound(scores, max(k, int(expected * 1.05) + 2))
        first = (scores <= bound).nonzero()[0]
        if len(first) * len(query) <= 2 * CHUNK_VALUES:
            found = measure(query, first, self._keys)
        else:
            found = self._measure_in_order(query, scores, first, half_norm, k)
        limit = kth_square(found.squares, k, len(query))
        highest = self._highest_score(limit, half_norm)
        if highest <= bound:
            return self._answer(query, found, limit, k, int(np.count_nonzero(scores[first] <= highest)))
        rest = ((scores > bound) & (scores <= highest)).nonzero()[0]
        if len(rest):
            found = self._measure_in_order(query, scores, rest, half_norm, k, found)
            limit = kth_square(found.squares, k, len(query))
        return self._answer(query, found, limit, k, len(first) + len(rest))

    def _answer(self, query: np.ndarray, found: Measured, limit: float, k: int, rows: int) -> Found:
        return Found(*nearest(query, found, k, limit, self._keys, self._sequences), rows)

    def _highest_score(self, squared_distance: float, half_norm: float) -> float:
        """No entry within √`squared_distance` scores above this."""
        if half_norm == np.inf:
            return _LARGEST_SCORE
        return min(self._projection.limit(squared_distance, half_norm), _LARGEST_SCORE)

    def _measure_in_order(
        self,
        query: np.ndarray,
        scores: np.ndarray,
        slots: np.ndarray,
        half_norm: float,
        k: int,
        found: Measured | None = None,
    ) -> Measured:
        """Measure from the lowest score on, in chunks of 1 MB, until the scores exceed the k-th best of what was found.

        Rows are not kept, and of what is found only what may still be an answer.
        """
        slots = slots[np.argsort(scores[slots])]
        squares = np.zeros(0, np.float32) if found is None else found.squares
        kept = slots[:0] if found is None else found.slots
        limit = np.inf
        step = max(1, CHUNK_VALUES // len(query))
        for start in range(0, len(slots), step):
            if len(squares) >= k:
                limit = kth_square(squares, k, len(query))
            part = slots[start : start + step]
            part = part[scores[part] <= self._highest_score(limit, half_norm)]
            if not len(part):
                break
            kept = np.concatenate((kept, part))
            squares = np.concatenate((squares, measure(query, part, self._keys).squares))
        return Measured(kept, squares, None)


def lowest_scores_bound(scores: np.ndarray, count: int) -> np.float32:
    """A score that at least `count` scores do not exceed, and few others.

    The least of each group of slots: `count` of them are `count` different scores. With 6 groups for each wanted score
    a twelfth more come along.

    Args:
        scores: float32 (n,), no NaN.
        count: at least 1; the largest finite float32 comes back when fewer are finite.
    """
    n = len(scores)
    if count < n:
        group = min(_GROUP, n // (_GROUPS_PER_SCORE * count))
        if group > 1:
            n_groups = n // group
            scores = scores[: n_groups * group].reshape(group, n_groups).min(axis=0)
        bound: np.float32 = np.partition(scores, count - 1)[count - 1]
        return min(bound, np.float32(_LARGEST_SCORE))
    return np.float32(_LARGEST_SCORE)
