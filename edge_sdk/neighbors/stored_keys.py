"""StoredKeys: single rows of the datastore's map as float32, the way a search reads them."""

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.datastore.halves import widen


class StoredKeys:
    """The embeddings in their slots, exactly as stored. Ask `Datastore.overwritten` after reading."""

    def __init__(self, datastore: Datastore) -> None:
        self._mapped = slots = datastore.keys
        self.values: np.ndarray = slots["embedding"]
        """(capacity, dim), a read-only view of the map in the stored dtype."""
        self._scales: np.ndarray | None = slots["scale"] if datastore.dtype == "int8" else None
        self._halves = self.values.view(np.int16) if datastore.dtype == "float16" else None

    def is_stale(self, datastore: Datastore) -> bool:
        """Whether the datastore has been mapped anew (it grew)."""
        return self._mapped is not datastore.keys

    def rows(self, slots: np.ndarray | slice) -> np.ndarray:
        """float32 (m, dim), a copy."""
        if self._halves is not None:
            return widen(self._halves[slots])
        rows = self.values[slots].astype(np.float32)
        if self._scales is not None:
            rows *= self._scales[slots][:, None]
        return rows
