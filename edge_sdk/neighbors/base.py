"""Index and Neighbors: what every search structure gives.

An index is derived: it holds nothing that cannot be made again from the datastore, and it brings itself up to date at the
start of every search, so that nobody has to remember to tell it.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.errors import ConfigError, InputError


class Neighbors(NamedTuple):
    """The nearest entries of each query, nearest first; entries at equal distance newest first.

    `k` here is the smaller of the k asked for and the number of entries, so nothing is ever padded.
    """

    sequences: np.ndarray
    """uint64 (n_queries, k)."""

    distances: np.ndarray
    """float64 (n_queries, k), Euclidean, not squared, over the keys as stored (rounded to the datastore's dtype)."""

    labels: np.ndarray
    """int32 (n_queries, k), class ids into `Datastore.classes`."""


class Index(ABC):
    """Search over one datastore."""

    kind: ClassVar[str]
    """The word for it on the command line and in `info`."""

    def __init__(self, datastore: Datastore) -> None:
        self._datastore = datastore

    @abstractmethod
    def search(self, queries: np.ndarray, k: int, *, exclude: np.ndarray | None = None) -> Neighbors:
        """The k nearest entries of each query.

        Args:
            queries: float32 (n_queries, dim), finite.
            k: at least 1.
            exclude: uint64 (n_queries,): for each query the sequence of one entry that is no answer (leave-one-out), 0 for none.

        Raises:
            InputError: `queries` has another width or a non-finite value.
            ConfigError: k is below 1.
        """

    @property
    @abstractmethod
    def ram_bytes(self) -> int:
        """Bytes of private memory that the index holds."""


def check_queries(queries: np.ndarray, k: int, dim: int) -> np.ndarray:
    """The queries as a C-contiguous float32 matrix (n_queries, dim).

    Raises:
        InputError: another width or a non-finite value.
        ConfigError: k is below 1.
    """
    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")
    matrix = np.ascontiguousarray(queries, np.float32)
    if matrix.ndim != 2 or matrix.shape[1] != dim:
        raise InputError(f"queries have shape {matrix.shape}, expected (n, {dim})")
    if not np.isfinite(matrix).all():
        raise InputError("a query holds NaN or infinity; the encoder's input was out of range")
    return matrix
