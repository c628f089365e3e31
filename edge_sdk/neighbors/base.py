"""Index and Neighbors: what every search structure gives.

An index is derived: it holds nothing that cannot be made again from the datastore, and it brings itself up to date at
the start of every search, so that nobody has to remember to tell it.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.datastore.table import SlotTable
from edge_sdk.errors import ConfigError, InputError

_TRIES = 3


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

    def search(self, queries: np.ndarray, k: int, *, exclude: np.ndarray | None = None) -> Neighbors:
        """The k nearest entries of each query.

        What other processes wrote counts. While they overtake a search it is made again; after three times they wait.

        Args:
            queries: float32 (n_queries, dim), finite.
            k: at least 1.
            exclude: uint64 (n_queries,): for each query the sequence of one entry that is no answer (leave-one-out), 0
                for none.

        Raises:
            InputError: `queries` has another width or a non-finite value, or `exclude` another length.
            ConfigError: k is below 1.
        """
        datastore = self._datastore
        queries = check_queries(queries, k, datastore.dim)
        with datastore.lock:
            if is_moderate(queries):
                return self._search_undisturbed(queries, k, exclude)
            with np.errstate(over="ignore", invalid="ignore"):
                return self._search_undisturbed(queries, k, exclude)

    def _search_undisturbed(self, queries: np.ndarray, k: int, exclude: np.ndarray | None) -> Neighbors:
        datastore = self._datastore
        for _ in range(_TRIES):
            datastore.refresh()
            found, slots = self._search(queries, k, exclude)
            if not datastore.overwritten(slots):
                return found
        with datastore.still():
            return self._search(queries, k, exclude)[0]

    @abstractmethod
    def _search(self, queries: np.ndarray, k: int, exclude: np.ndarray | None) -> tuple[Neighbors, np.ndarray]:
        """The answers, and their slots, from the map as it is now; checked arguments, the datastore's lock is held."""

    @property
    @abstractmethod
    def ram_bytes(self) -> int:
        """Bytes of private memory that the index holds."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What is in use, for `info` and `profile`: "kind", "ram_bytes" and what else tells this kind's state; JSON
        values.
        """

    def wait(self) -> None:
        """Wait until what is being made in the background is made; the next search uses it."""
        return

    def close(self) -> None:
        """Give back what the index holds besides memory; the datastore stays open. The second time does nothing."""
        return


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
    if not is_moderate(matrix) and not np.isfinite(matrix).all():
        row = int(np.argmin(np.isfinite(matrix).all(axis=1)))
        raise InputError(f"query {row} holds NaN or infinity; the encoder's input was out of range")
    return matrix


def is_moderate(matrix: np.ndarray) -> bool:
    """Whether the sum of all squares stays in float32's range: then every value is finite, and no difference to another
    finite float32 overflows (it would take two values above 10^31). One BLAS call; `vdot`, unlike `dot`, warns of
    nothing.
    """
    flat = matrix.reshape(-1)
    return float(np.vdot(flat, flat)) < np.inf


def excluded_slots(table: SlotTable, exclude: np.ndarray | None, n_queries: int) -> tuple[np.ndarray | None, int]:
    """Where the entries lie that are no answers.

    Args:
        table: the datastore's.
        exclude: uint64 (n_queries,) sequences, 0 for none, or None.
        n_queries: how many there must be.

    Returns:
        intp (n_queries,) slots, -1 for none, or None; and how many answers fewer than entries there can be (0 or 1).

    Raises:
        InputError: `exclude` has another length.
    """
    if exclude is None:
        return None, 0
    wanted = np.asarray(exclude, np.uint64)
    if wanted.shape != (n_queries,):
        raise InputError(f"exclude has shape {wanted.shape}, expected ({n_queries},): one sequence a query")
    order = table.order
    if not len(order):
        return None, 0
    sequences = table.sequences[order]
    at = np.searchsorted(sequences, wanted).clip(max=len(order) - 1)
    slots = np.where(sequences[at] == wanted, order[at], -1)
    return slots, int((slots >= 0).any())


def no_neighbors(n_queries: int) -> Neighbors:
    """The answer of an empty store."""
    return Neighbors(np.zeros((n_queries, 0), np.uint64), np.zeros((n_queries, 0)), np.zeros((n_queries, 0), np.int32))
