"""ExactIndex: exactly the k nearest entries, by one float32 matrix product.

"Exactly" means: the same sequences as float64 differences over the stored keys, ties newest first. The float32 product only
chooses candidates. Its error is bounded (see `_slack`), every entry that the error could let in is measured again in
float64, so rounding never decides. The price is a float32 copy of the keys: capacity * dim * 4 bytes.
"""

from typing import ClassVar

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.neighbors.base import Index, Neighbors, check_queries

_EPS = float(np.finfo(np.float32).eps)


class ExactIndex(Index):
    """Exact search with a float32 copy of the keys in memory."""

    kind: ClassVar[str] = "exact"

    def __init__(self, datastore: Datastore) -> None:
        super().__init__(datastore)
        self._keys = np.zeros((0, datastore.dim), np.float32)  # (capacity, dim), by slot
        self._squared_norms = np.zeros(0, np.float32)  # (capacity,), infinite where the slot is empty
        self._version = -1

    @property
    def ram_bytes(self) -> int:
        """Bytes of the float32 keys and their squared norms."""
        return self._keys.nbytes + self._squared_norms.nbytes

    def search(self, queries: np.ndarray, k: int, *, exclude: np.ndarray | None = None) -> Neighbors:
        """See `Index.search`. One matrix product serves the whole batch."""
        queries = check_queries(queries, k, self._datastore.dim)
        self._update()
        table = self._datastore.table
        excluded = np.zeros(len(queries), np.uint64) if exclude is None else exclude
        n_answers = min(k, len(self._datastore) - int(np.any(excluded)))
        if n_answers <= 0:
            empty = np.zeros((len(queries), 0))
            return Neighbors(empty.astype(np.uint64), empty, empty.astype(np.int32))
        squared_query_norms = np.einsum("qd,qd->q", queries, queries)
        squared = self._squared_norms - 2.0 * (queries @ self._keys.T) + squared_query_norms[:, None]  # (n_queries, capacity)
        slack = self._slack(squared_query_norms)
        slots = np.empty((len(queries), n_answers), np.intp)
        distances = np.empty((len(queries), n_answers))
        for row, query in enumerate(queries):
            if excluded[row]:
                squared[row, table.sequences == excluded[row]] = np.inf
            nearest = np.partition(squared[row] + slack[row], n_answers - 1)[n_answers - 1]
            candidates = np.flatnonzero(squared[row] - slack[row] <= nearest)
            slots[row], distances[row] = self._measure(query, candidates, n_answers)
        return Neighbors(table.sequences[slots], distances, table.labels[slots])

    def _slack(self, squared_query_norms: np.ndarray) -> np.ndarray:
        """Bound on the error of the float32 squared distance, (n_queries, capacity).

        A float32 sum of dim products is off by at most dim * eps * ‖x‖‖q‖ (and the norms likewise), together at most
        dim * eps * (‖x‖ + ‖q‖)², doubled for the three roundings of adding up.
        """
        norms = np.sqrt(np.where(np.isfinite(self._squared_norms), self._squared_norms, 0.0))
        total = norms + np.sqrt(squared_query_norms)[:, None]
        slack: np.ndarray = 2.0 * self._datastore.dim * _EPS * total * total
        return slack

    def _measure(self, query: np.ndarray, candidates: np.ndarray, n_answers: int) -> tuple[np.ndarray, np.ndarray]:
        """The nearest `n_answers` of the candidate slots and their float64 distances."""
        difference = self._keys[candidates].astype(np.float64) - query
        distances = np.sqrt(np.einsum("nd,nd->n", difference, difference))
        newest_first = np.iinfo(np.int64).max - self._datastore.table.sequences[candidates].astype(np.int64)
        best = np.lexsort((newest_first, distances))[:n_answers]
        return candidates[best], distances[best]

    def _update(self) -> None:
        """Take in what changed in the datastore since the last search."""
        datastore = self._datastore
        if self._version == datastore.version and len(self._keys) == datastore.capacity:
            return
        version = datastore.version
        slots = datastore.changed_slots(self._version) if self._version >= 0 else None
        if slots is None or len(self._keys) != datastore.capacity:
            self._keys = np.zeros((datastore.capacity, datastore.dim), np.float32)
            self._squared_norms = np.full(datastore.capacity, np.inf, np.float32)
            slots = datastore.table.order
        filled = slots[datastore.table.sequences[slots] > 0]
        self._squared_norms[slots] = np.inf
        if len(filled):
            self._keys[filled] = datastore.embeddings(filled)
            self._squared_norms[filled] = np.einsum("nd,nd->n", self._keys[filled], self._keys[filled])
        self._version = version
