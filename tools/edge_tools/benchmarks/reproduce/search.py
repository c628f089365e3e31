"""Brute-force search over one client's examples, for experiments that need no datastore on disk."""

import numpy as np

from edge_sdk.interpolation import LeftOut
from edge_tools.benchmarks.reproduce.clients import Examples


def nearest(queries: np.ndarray, keys: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the k nearest keys and their Euclidean distances, both (n_queries, k), nearest first.

    float64 products: exact to 1e-6 of the distance, which no kernel here can tell.
    """
    squared = _squared_distances(queries, keys)
    rows = _smallest(squared, min(k, len(keys)))
    return rows, np.sqrt(np.take_along_axis(squared, rows, axis=1))


def left_out(train: Examples, k: int, *, most: int = 1000, gap: int = 0) -> LeftOut:
    """The newest `most` examples, each seen from all others but those within `gap` places.

    Args:
        train: at least 2 examples.
        k: neighbours.
        most: examples to leave out.
        gap: see `edge_sdk.interpolation.leave_one_out`.
    """
    n = len(train.labels)
    first = max(0, n - most)
    squared = _squared_distances(train.embeddings[first:], train.embeddings)
    squared[np.abs(np.arange(first, n)[:, None] - np.arange(n)) <= gap] = np.inf
    k = min(k, n - 1 - 2 * gap)
    rows = _smallest(squared, k)
    return LeftOut(
        labels=train.labels[first:].astype(np.int32),
        global_probabilities=train.probabilities[first:],
        neighbor_labels=train.labels[rows].astype(np.int32),
        neighbor_distances=np.sqrt(np.take_along_axis(squared, rows, axis=1)),
    )


def _smallest(values: np.ndarray, k: int) -> np.ndarray:
    """Columns of each row's k smallest values, ascending, (n, k)."""
    columns = np.argpartition(values, k - 1, axis=1)[:, :k]
    order = np.argsort(np.take_along_axis(values, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)


def _squared_distances(queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """(n_queries, n_keys), float64."""
    queries, keys = queries.astype(np.float64), keys.astype(np.float64)
    norms = np.einsum("nd,nd->n", keys, keys), np.einsum("nd,nd->n", queries, queries)
    squared: np.ndarray = np.maximum(norms[0] - 2.0 * queries @ keys.T + norms[1][:, None], 0.0)
    return squared
