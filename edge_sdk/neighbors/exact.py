"""ExactIndex: exactly the k nearest entries, most of them ruled out by a few numbers in memory.

"Exactly" means: the same sequences as float64 differences over the stored keys, ties newest first. Scores
(`projection.py`) bound every entry's distance from below; entries are measured (`measuring.py`) in the order of their
scores until no score is left below the k-th best distance (`refining.py`).

Which numbers are kept, or none, is chosen from measured cost (`choice.py`), stored in the datastore's `index/`
folder, and chosen again in the background when the store has doubled or turned over four times, or when clearly more
entries have to be measured than when it was chosen.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.errors import ConfigError, EdgeSDKError
from edge_sdk.neighbors.base import Index, Neighbors, excluded_slots, no_neighbors
from edge_sdk.neighbors.choice import PLAIN_VALUES, Choice, choose
from edge_sdk.neighbors.filter import Bounds, Scan
from edge_sdk.neighbors.projection import Scores
from edge_sdk.neighbors.projection_file import Kept, load_choice, save_choice
from edge_sdk.neighbors.refining import Found, Refiner
from edge_sdk.neighbors.stored_keys import StoredKeys
from edge_sdk.unused_memory import give_back

logger = logging.getLogger(__name__)

DEFAULT_RAM_BUDGET = 16 << 20
"""Bytes: a float32 copy of 10 000 keys of 400 values, or 41 numbers for each of 100 000 entries."""

_SCORES_AT_ONCE = 1 << 19  # scores of a batch held at once: 2 MB
_SMOOTHING = 1.0 / 32.0
_RECENT_QUERIES = 16
_REMEMBERED = 8  # every so many queries one is remembered
_TURNOVERS = 4
_FIRST_PATIENCE = 64  # queries before a choice may be doubted; doubled with each time that it was


Chooser = Callable[[Datastore, StoredKeys, np.ndarray, np.ndarray, int], Choice]
"""What makes a choice; see `choice.choose`."""


class Built(NamedTuple):
    """Bounds that are filled, and what they rest on."""

    bounds: Bounds
    choice: Choice
    n_entries: int
    version: int
    """Of the datastore; what changed since must still be taken in."""


class ExactIndex(Index):
    """Exact search."""

    kind: ClassVar[str] = "exact"

    def __init__(
        self, datastore: Datastore, *, ram_budget: int = DEFAULT_RAM_BUDGET, chooser: Chooser | None = None
    ) -> None:
        """Nothing is read before the first search.

        Args:
            datastore: what to search.
            ram_budget: most bytes of numbers. A store whose keys no filter shortens is searched fastest in a float32
                copy, (dim + 1) * 4 bytes an entry; where that is not granted every search reads all stored keys, which
                for float16 and int8 takes several times as long.
            chooser: decides instead of measured cost, for experiments; what it chooses is not kept in the folder.

        Raises:
            ConfigError: `ram_budget` is negative.
        """
        super().__init__(datastore)
        if ram_budget < 0:
            raise ConfigError(f"ram_budget must be at least 0 bytes, got {ram_budget}")
        self._ram_budget = ram_budget
        self._chooser = chooser
        self._keys = StoredKeys(datastore)
        self._built: Built | None = None
        self._version = -1
        self._rows = 0.0  # entries measured a query, smoothed
        self._recent = np.zeros((_RECENT_QUERIES, datastore.dim), np.float32)
        self._n_recent = 0
        self._n_queries = 0  # since the choice
        self._patience = _FIRST_PATIENCE
        self._next: _Building | None = None

    @property
    def ram_bytes(self) -> int:
        """Bytes of the numbers and the directions."""
        if self._built is None:
            return 0
        directions = self._built.bounds.projection.directions
        return self._built.bounds.ram_bytes + (0 if directions is None else directions.nbytes)

    def describe(self) -> dict[str, Any]:
        """See `Index.describe`.

        "method" is "projection filter", "matrix product" or "scan"; "columns" are the numbers an entry, "r" one less
        where there is a filter, "rows" the entries measured a query. A scan says what copy would spare it
        ("copy_bytes").
        """
        described: dict[str, Any] = {"kind": self.kind, "ram_bytes": self.ram_bytes, "ram_budget": self._ram_budget}
        if self._built is None:
            return described | {"method": "none yet"}
        bounds = self._built.bounds
        described |= {"rows": round(self._rows, 1), "columns": bounds.projection.n_columns}
        if isinstance(bounds, Scan):
            copy_bytes = 4 * bounds.projection.n_columns * len(self._datastore)
            return described | {"method": "scan", "columns": 1, "copy_bytes": copy_bytes}
        if bounds.projection.directions is None:
            return described | {"method": "matrix product"}
        return described | {"method": "projection filter", "r": bounds.projection.n_columns - 1}

    def wait(self) -> None:
        """Wait until a choice that is being made in the background is made; the next search uses it."""
        if self._next is not None:
            self._next.join()

    def close(self) -> None:
        """Wait for what runs in the background."""
        self.wait()

    def _search(self, queries: np.ndarray, k: int, exclude: np.ndarray | None) -> tuple[Neighbors, np.ndarray]:
        """The answers and their slots, from the map as it is now."""
        table = self._datastore.table
        hidden, n_hidden = excluded_slots(table, exclude, len(queries))
        k = min(k, table.filled - n_hidden)
        if k <= 0 or not len(queries):
            return no_neighbors(len(queries)), np.zeros(0, np.intp)
        bounds = self._update()
        asked = bounds.projection.scores(queries)
        refiner = Refiner(bounds.projection, self._keys, table.sequences)
        self._n_queries += len(queries)
        if len(queries) == 1:
            found = self._find(refiner, queries[0], bounds.scores(asked)[0], asked.half_norms[0], hidden, 0, k)
            slots, distances = found.slots[None], found.distances[None]
        else:
            slots, distances = np.empty((len(queries), k), np.intp), np.empty((len(queries), k))
            at_once = max(1, _SCORES_AT_ONCE // bounds.n_slots)
            for start in range(0, len(queries), at_once):
                part = slice(start, start + at_once)
                scores = bounds.scores(Scores(asked.weights[part], asked.half_norms[part]))
                for row, scored in enumerate(scores, start):
                    found = self._find(refiner, queries[row], scored, asked.half_norms[row], hidden, row, k)
                    slots[row], distances[row] = found.slots, found.distances
        return Neighbors(table.sequences[slots], distances, table.labels[slots]), slots

    def _find(
        self,
        refiner: Refiner,
        query: np.ndarray,
        scores: np.ndarray,
        half_norm: float,
        hidden: np.ndarray | None,
        row: int,
        k: int,
    ) -> Found:
        """The answer to one query, the `row`-th of its batch; what it cost is remembered."""
        if hidden is not None and hidden[row] >= 0:
            scores[hidden[row]] = np.inf
        found = refiner.find(query, scores, float(half_norm), k, expected=self._rows)
        self._rows += _SMOOTHING * (found.rows - self._rows)
        if self._n_queries % _REMEMBERED == 0:
            self._recent[self._n_recent % _RECENT_QUERIES] = query
            self._n_recent += 1
        return found

    # Keeping up

    def _update(self) -> Bounds:
        """Take in what changed in the datastore since the last search; the store is not empty."""
        built = self._built
        if built is None:
            built = self._use(self._begin())
        elif self._next is not None and not self._next.is_alive():
            built = self._take_next(self._next, built)
        if self._version != self._datastore.version:
            self._take_in(built.bounds)
        self._doubt(built)
        return built.bounds

    def _begin(self) -> Built:
        """The kept choice where it still fits, or a new one."""
        datastore = self._datastore
        kept = load_choice(datastore) if self._chooser is None else None
        n_entries = len(datastore)
        if (
            kept is not None
            and kept.ram_budget == self._ram_budget
            and n_entries <= 2 * kept.n_entries <= 8 * n_entries
        ):
            return build(datastore, self._keys, kept.choice, kept.n_entries)
        return choose_and_build(datastore, self._keys, self._recent[:0], self._ram_budget, self._chooser)

    def _use(self, built: Built) -> Built:
        self._built = built
        self._version = built.version
        self._rows = built.choice.rows
        self._n_queries = 0
        give_back()  # what building took, 20 MB at 10 000 x 1280
        return built

    def _take_next(self, building: "_Building", built: Built) -> Built:
        """Go over to what was built in the background; if that failed, stay with what there is."""
        self._next = None
        if building.built is not None:
            return self._use(building.built)
        logger.warning("%s: the index could not be chosen again: %s", self._datastore.folder, building.error)
        return self._use(built._replace(n_entries=len(self._datastore)))

    def _take_in(self, bounds: Bounds) -> None:
        """Catch up with the changed slots."""
        datastore = self._datastore
        version, slots = datastore.version, datastore.changed_slots(self._version)
        if self._keys.is_stale(datastore):
            self._keys = StoredKeys(datastore)
            if isinstance(bounds, Scan):
                bounds.keys = self._keys
        if slots is not None and len(slots) == 1 and slots[0] < bounds.n_slots and datastore.table.sequences[slots[0]]:
            one = slice(int(slots[0]), int(slots[0]) + 1)  # the window that moves by one entry: 14 instead of 24 µs
            bounds.put(one, self._keys.rows(one))
            self._version = version
            return
        filled = np.flatnonzero(datastore.table.sequences) if slots is None else slots
        if slots is None:
            bounds.clear(np.arange(bounds.n_slots))
        else:
            is_filled = datastore.table.sequences[slots] > 0
            empty, filled = slots[~is_filled], slots[is_filled]
            bounds.clear(empty[empty < bounds.n_slots])
        fill(bounds, datastore, self._keys, filled)
        self._version = version

    def _doubt(self, built: Built) -> None:
        """Choose again, in the background, when there is reason to."""
        datastore = self._datastore
        n_entries = len(datastore)
        if self._next is not None or n_entries * datastore.dim <= PLAIN_VALUES:
            return
        has_grown = n_entries >= 2 * built.n_entries
        has_turned_over = self._version - built.version > _TURNOVERS * n_entries
        has_drifted = self._n_queries > self._patience and self._rows > 1.5 * built.choice.rows + 32.0
        if has_drifted:
            self._patience *= 2
        if has_grown or has_turned_over or has_drifted:
            recent = self._recent[: min(self._n_recent, _RECENT_QUERIES)].copy()
            self._next = _Building(datastore, self._keys, recent, self._ram_budget, self._chooser)
            self._next.start()


class _Building(threading.Thread):
    """Chooses and fills bounds beside the searches. The entries are read under the datastore's lock, block by block."""

    def __init__(
        self, datastore: Datastore, keys: StoredKeys, recent: np.ndarray, ram_budget: int, chooser: Chooser | None
    ) -> None:
        super().__init__(name="edge-sdk index", daemon=True)
        self._arguments = (datastore, keys, recent, ram_budget, chooser)
        self.built: Built | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        """Leaves either `built` or `error`."""
        try:
            self.built = choose_and_build(*self._arguments)
        except (EdgeSDKError, OSError, ValueError, MemoryError) as error:  # a closed file or map is a ValueError
            self.error = error


def choose_and_build(
    datastore: Datastore, keys: StoredKeys, recent: np.ndarray, ram_budget: int, chooser: Chooser | None
) -> Built:
    """Choose anew, keep the choice in the datastore's folder, and fill."""
    with datastore.lock:
        slots = datastore.table.order.copy()
    choice = (chooser or choose)(datastore, keys, slots, recent, ram_budget)
    if chooser is None and len(slots) * datastore.dim > PLAIN_VALUES:
        save_choice(datastore, Kept(choice, len(slots), ram_budget))
    return build(datastore, keys, choice, len(slots))


def build(datastore: Datastore, keys: StoredKeys, choice: Choice, n_entries: int) -> Built:
    """Bounds with every entry of the datastore in them."""
    with datastore.lock:
        version, slots = datastore.version, np.flatnonzero(datastore.table.sequences)
    bounds = choice.build(keys)
    fill(bounds, datastore, keys, slots)
    return Built(bounds, choice, n_entries, version)


def fill(bounds: Bounds, datastore: Datastore, keys: StoredKeys, slots: np.ndarray) -> None:
    """Put the entries of some slots into bounds.

    A single entry comes from the map, many come checked by `pread`. What could not be read so (another process writes
    it now, or it has been damaged since the store was opened) is always measured until it changes again.
    """
    if not len(slots):
        return
    bounds.reserve(int(slots.max()) + 1, datastore.capacity)
    if len(slots) == 1:
        bounds.put(slots, keys.rows(slots))
        return
    bounds.distrust(slots)
    for block in datastore.read_blocks(slots):
        bounds.put(block.slots, block.embeddings)
