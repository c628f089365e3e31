"""Recall: how many of the true nearest entries an index finds on the user's own store.

Published figures do not carry over: the same Annoy settings find 0.85 of the neighbours of clustered embeddings and
0.47 of those of sentence embeddings.
"""

from dataclasses import dataclass

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.neighbors.base import Index
from edge_sdk.neighbors.exact import ExactIndex

_AT_ONCE = 32


@dataclass(frozen=True)
class Recall:
    """What was found of the k nearest."""

    recall: float
    """Mean share of the true k nearest that the index returned, in [0, 1]; NaN when nothing was asked."""

    k: int
    n_queries: int


def measure_recall(index: Index, datastore: Datastore, k: int = 10, *, n_queries: int = 200) -> Recall:
    """Compare with exact search, on the store's own entries, each left out of its own search.

    Args:
        index: any.
        datastore: what it searches.
        k: neighbours a query.
        n_queries: entries to ask for, spread over the store's age; fewer when the store is smaller.
    """
    datastore.refresh()
    order = datastore.table.order
    chosen = order[np.unique(np.linspace(0, len(order) - 1, min(n_queries, len(order))).astype(np.intp))]
    if len(order) < 2:
        return Recall(float("nan"), k, 0)
    exact = index if isinstance(index, ExactIndex) else ExactIndex(datastore)
    n_found = n_true = 0
    for start in range(0, len(chosen), _AT_ONCE):
        part = chosen[start : start + _AT_ONCE]
        queries, sequences = datastore.embeddings(part), datastore.table.sequences[part]
        expected = exact.search(queries, k, exclude=sequences).sequences
        found = expected if exact is index else index.search(queries, k, exclude=sequences).sequences
        n_true += expected.size
        n_found += sum(len(np.intersect1d(a, b)) for a, b in zip(expected, found, strict=True))
    return Recall(n_found / n_true, k, len(chosen))
