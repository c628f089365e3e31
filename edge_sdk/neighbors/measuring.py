"""Measuring: the k nearest of some candidates, decided in float64 over the stored keys.

float32 differences come first, because their error is relative ((dim + 4) roundings of the squared distance, however
small it is): they leave about k rows, and only those are measured again in float64. The order is (distance, newest
first), with distances as `numpy.linalg.norm` gives them for the float64 rows.
"""

from typing import NamedTuple

import numpy as np

from edge_sdk.neighbors.projection import UNIT
from edge_sdk.neighbors.stored_keys import StoredKeys

_SMALLEST_SQUARE = 1e-30
"""Below this a float32 sum of squares may have lost terms to underflow; above it each loses less than 1e-38."""

_LARGEST_SQUARE = 1e38

CHUNK_VALUES = 1 << 18
"""Values of keys held at once: 1 MB of float32."""


class Measured(NamedTuple):
    """Candidates and what is known of their distances."""

    slots: np.ndarray
    """intp (m,)."""

    squares: np.ndarray
    """float32 (m,), squared distances, relative error below `relative_error(dim)`."""

    rows: np.ndarray | None
    """float32 (m, dim), None where they were not kept."""


def relative_error(dim: int) -> float:
    """Bound of the relative error of a float32 squared distance: (dim + 4)·u, doubled for second-order terms."""
    return 2.0 * (dim + 4) * UNIT


def measure(query: np.ndarray, slots: np.ndarray, keys: StoredKeys) -> Measured:
    """Squared distances of a query, float32 (dim,), to the entries in some slots."""
    rows = keys.rows(slots)
    differences = rows - query
    with np.errstate(over="ignore"):  # entries far out have infinite squares, which are measured again
        squares = np.matmul(differences[:, None, :], differences[:, :, None])[:, 0, 0]  # half the time of einsum
    return Measured(slots, squares, rows)


def measure_all(query: np.ndarray, slots: np.ndarray, keys: StoredKeys) -> Measured:
    """The same for any number of slots, in chunks of 1 MB; rows are kept only where there is one chunk."""
    step = max(1, CHUNK_VALUES // len(query))
    if len(slots) <= step:
        return measure(query, slots, keys)
    parts = [measure(query, slots[start : start + step], keys).squares for start in range(0, len(slots), step)]
    return Measured(slots, np.concatenate(parts), None)


def joined(first: Measured, second: Measured) -> Measured:
    """Both, which have no slot in common."""
    rows = None
    if first.rows is not None and second.rows is not None:
        rows = np.concatenate((first.rows, second.rows))
    slots, squares = np.concatenate((first.slots, second.slots)), np.concatenate((first.squares, second.squares))
    return Measured(slots, squares, rows)


def kth_square(squares: np.ndarray, k: int, dim: int) -> float:
    """A bound that the true k-th smallest squared distance does not exceed; infinite where float32 cannot tell."""
    kth = float(np.partition(squares, k - 1)[k - 1])
    if not kth < _LARGEST_SQUARE:
        return np.inf
    return max(kth, _SMALLEST_SQUARE) * (1.0 + relative_error(dim))


def nearest(
    query: np.ndarray, measured: Measured, k: int, limit: float, keys: StoredKeys, sequences: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest and their distances.

    Args:
        query: float32 (dim,).
        measured: at least k candidates.
        k: at least 1.
        limit: from `kth_square` of these candidates.
        keys: where to read rows that were not kept.
        sequences: uint64 (capacity,), by slot.

    Returns:
        intp (k,) slots and float64 (k,) distances.
    """
    slots = measured.slots
    rows = measured.rows
    if limit < np.inf:
        keep = (measured.squares <= limit * (1.0 + relative_error(len(query)))).nonzero()[0]
        slots = slots[keep]
        rows = rows[keep] if rows is not None else None
    if rows is not None and rows.size <= CHUNK_VALUES:
        distances = _distances(query, rows)
    else:
        distances = np.empty(len(slots))
        step = max(1, CHUNK_VALUES // len(query))
        for start in range(0, len(slots), step):
            part = slice(start, start + step)
            distances[part] = _distances(query, keys.rows(slots[part]) if rows is None else rows[part])
    best = np.lexsort((~sequences[slots], distances))[:k]
    return slots[best], distances[best]


def _distances(query: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """float64 (m,), with the operations of `numpy.linalg.norm`."""
    differences = np.subtract(rows, query, dtype=np.float64)
    np.multiply(differences, differences, out=differences)
    distances: np.ndarray = np.sqrt(np.add.reduce(differences, axis=1))
    return distances
