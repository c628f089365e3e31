"""AnnoyIndex: approximate search for large windows, in sealed segments and an exactly searched tail.

Annoy can neither insert nor delete, so a window that moves is a list of segments: half of the store becomes an Annoy
file when that many entries have gathered in the tail, built by a thread beside the searches. Entries that left are
filtered from what Annoy returns, after asking for more; a segment with few left is dissolved into the tail. Every
candidate is measured again in the stored keys, so distances are exact and ties are in order (distance, newest first);
what Annoy decides is only which entries are looked at.

Annoy 1.17.3 has been seen to return one neighbour whatever was asked, when built by some compilers, so it has to
answer a question with a known answer once a process. If it fails, the log says so and everything is searched in the
tail.
"""

import functools
import logging
from typing import Any, ClassVar

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.errors import ConfigError, DatastoreError
from edge_sdk.neighbors.base import Index, Neighbors, excluded_slots, no_neighbors
from edge_sdk.neighbors.choice import choose
from edge_sdk.neighbors.exact import DEFAULT_RAM_BUDGET
from edge_sdk.neighbors.measuring import Measured, joined, kth_square, measure_all, nearest
from edge_sdk.neighbors.projection import Projection, Scores
from edge_sdk.neighbors.projection_file import load_choice
from edge_sdk.neighbors.sealing import ForestClass, Order, Sealed, Sealer, clean, open_sealed
from edge_sdk.neighbors.segment import DamagedSegmentError, header_path, names
from edge_sdk.neighbors.stored_keys import StoredKeys
from edge_sdk.neighbors.tail import Tail

logger = logging.getLogger(__name__)

DEFAULT_TREES = 50
_FEWEST_PER_SEGMENT = 1000
_SEGMENTS = 2  # a segment costs a leaf of about dim entries however little is asked: 75 µs at dim 512
_EFFORT = 1  # search_k = trees * k over all segments: what Annoy itself takes
_FEWEST_ALIVE = 0.3  # a segment with a smaller share left is dissolved into the tail


class AnnoyIndex(Index):
    """Search by Annoy."""

    kind: ClassVar[str] = "annoy"

    def __init__(
        self,
        datastore: Datastore,
        *,
        trees: int = DEFAULT_TREES,
        search_k: int | None = None,
        segment_entries: int | None = None,
    ) -> None:
        """Nothing is read before the first search.

        Args:
            datastore: what to search.
            trees: of each new segment; more find more and take longer to build.
            search_k: nodes looked at in a search, over all segments; default trees * k.
            segment_entries: entries of a segment; default half of the store, at least 1000.

        Raises:
            ConfigError: an option is below 1.
        """
        super().__init__(datastore)
        for name, value in (("trees", trees), ("search_k", search_k), ("segment_entries", segment_entries)):
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")
        self._trees = trees
        self._search_k = search_k
        self._segment_entries = segment_entries
        self._works = self_test()
        if not self._works:
            logger.warning("annoy fails its self-test on this machine: every search of %s is exact", datastore.folder)
        self._folder = datastore.folder / "index"
        self._keys = StoredKeys(datastore)
        self._tail: Tail | None = None
        self._sealed: list[Sealed] = []
        self._owner = np.zeros(0, np.int64)
        """int64 (capacity,): number of the segment that holds a slot's entry, -1 for none."""
        self._version = -1
        self._sealer: Sealer | None = None
        self._seal_again_at = 0
        self._looked_at = 0

    @property
    def ram_bytes(self) -> int:
        """Bytes of the tail and of each segment's list of entries; the Annoy files themselves are mapped."""
        lists = sum(s.segment.sequences.nbytes + s.segment.slots.nbytes for s in self._sealed)
        return (0 if self._tail is None else self._tail.ram_bytes) + self._owner.nbytes + lists

    def describe(self) -> dict[str, Any]:
        """See `Index.describe`; "tail" are the entries searched exactly, by so many "columns" of numbers, "building"
        tells whether a segment is being made.
        """
        return {
            "kind": self.kind,
            "ram_bytes": self.ram_bytes,
            "method": "annoy" if self._works else "exact, because annoy fails its self-test on this machine",
            "trees": self._trees,
            "search_k": self._search_k,
            "segments": len(self._sealed),
            "segment_bytes": sum(s.segment.n_bytes for s in self._sealed),
            "in_segments": sum(s.n_alive for s in self._sealed),
            "tail": 0 if self._tail is None else len(self._tail),
            "columns": 0 if self._tail is None else self._tail.projection.n_columns,
            "building": self._sealer is not None,
        }

    def build(self) -> None:
        """Seal what can be sealed, and wait for it.

        Raises:
            DatastoreError: read-only.
        """
        if self._datastore.read_only:
            raise DatastoreError(f"{self._datastore.folder} is opened read-only: its index cannot be built")
        while True:
            with self._datastore.lock:
                self._datastore.refresh()
                if not len(self._datastore):
                    return
                self._update()
            if self._sealer is None:
                return
            self.wait()

    def wait(self) -> None:
        """Wait until a segment that is being built is built; the next search uses it."""
        if self._sealer is not None:
            self._sealer.join()

    def close(self) -> None:
        """Wait for what is being built and unmap the segments."""
        self.wait()
        with self._datastore.lock:
            if self._sealer is not None:
                self._take_sealed(self._sealer)
            for sealed in self._sealed:
                sealed.close()
            self._sealed, self._tail, self._version = [], None, -1

    # Searching

    def _search(self, queries: np.ndarray, k: int, exclude: np.ndarray | None) -> tuple[Neighbors, np.ndarray]:
        """See `Index._search`."""
        table = self._datastore.table
        hidden, n_hidden = excluded_slots(table, exclude, len(queries))
        k = min(k, table.filled - n_hidden)
        if k <= 0 or not len(queries):
            return no_neighbors(len(queries)), np.zeros(0, np.intp)
        tail = self._update()
        asked = tail.projection.scores(queries)
        slots = np.empty((len(queries), k), np.intp)
        distances = np.empty((len(queries), k))
        for row, query in enumerate(queries):
            part = slice(row, row + 1)
            mine = Scores(asked.weights[part], asked.half_norms[part])
            measured = self._measure(tail, query, mine, -1 if hidden is None else int(hidden[row]), k)
            limit = kth_square(measured.squares, k, len(query))
            slots[row], distances[row] = nearest(query, measured, k, limit, self._keys, table.sequences)
        return Neighbors(table.sequences[slots], distances, table.labels[slots]), slots

    def _measure(self, tail: Tail, query: np.ndarray, asked: Scores, hidden: int, k: int) -> Measured:
        """The entries among which the k nearest are sought, measured: at least k.

        The segments come first: an entry of the tail farther away than the k-th best of theirs is no answer, which
        leaves a third of what the tail would have to measure for its own k nearest.
        """
        sequences = self._datastore.table.sequences
        if tail.projection.is_wild(float(asked.half_norms[0])):
            return measure_all(query, np.setdiff1d(np.flatnonzero(sequences), [hidden]), self._keys)
        candidates = self._in_segments(query, hidden, k)
        slots = None
        if len(candidates) >= k:
            found = measure_all(query, candidates, self._keys)
            slots = tail.within(asked, hidden, kth_square(found.squares, k, len(query)))
        if slots is None:
            slots = tail.find(query, asked, hidden, k, self._keys, sequences)
            return measure_all(query, np.concatenate((slots, candidates)), self._keys)
        return joined(found, measure_all(query, slots, self._keys)) if len(slots) else found

    def _in_segments(self, query: np.ndarray, hidden: int, k: int) -> np.ndarray:
        """Slots of what Annoy finds, each once and none of the tail's: one segment answers for an entry."""
        parts = [np.zeros(0, np.intp)]
        n_items = sum(len(s.segment.sequences) for s in self._sealed)
        effort = self._search_k or _EFFORT * self._trees * k
        vectors: dict[tuple[float, bytes], list[float]] = {}  # segments of one process share centre and spread
        for sealed in self._sealed:
            segment = sealed.segment
            if segment.scaling not in vectors:
                vectors[segment.scaling] = segment.vectors(query).tolist()
            share = max(1, effort * len(segment.sequences) // n_items)
            parts.append(sealed.find(vectors[segment.scaling], k, share, self._owner, hidden))
        return np.concatenate(parts)

    # Keeping up

    def _update(self) -> Tail:
        """Take in what changed since the last search; the store is not empty."""
        datastore = self._datastore
        if self._keys.is_stale(datastore):
            self._keys = StoredKeys(datastore)
        if len(self._owner) < datastore.capacity:
            fresh = np.full(datastore.capacity - len(self._owner), -1, np.int64)
            self._owner = np.concatenate((self._owner, fresh))
        tail = self._tail
        if tail is None:
            tail = self._tail = Tail(self._tail_projection(), datastore.capacity)
            self._begin(tail)
        elif self._version != datastore.version:
            self._take_in(tail)
        if self._sealer is not None and not self._sealer.is_alive():
            self._take_sealed(self._sealer)
        if self._works:
            self._consider_sealing(tail)
        return tail

    def _tail_projection(self) -> Projection:
        """The store's kept projection or a new choice; the axes themselves where no filter pays."""
        datastore = self._datastore
        kept = load_choice(datastore)
        if kept is None:
            slots = datastore.table.order
            recent = np.zeros((0, datastore.dim), np.float32)
            choice = choose(datastore, self._keys, slots, recent, _SEGMENTS * DEFAULT_RAM_BUDGET)
        else:
            choice = kept.choice
        return choice.projection or Projection(np.zeros(datastore.dim), 1.0, None)

    def _begin(self, tail: Tail) -> None:
        """Open the segments in the folder; everything else is tail."""
        datastore = self._datastore
        self._version = datastore.version
        self._owner[:] = -1
        if self._works:
            clean(datastore, self._folder)
            self._look(tail)
        filled = np.flatnonzero(datastore.table.sequences)
        self._to_tail(tail, filled[self._owner[filled] < 0])

    def _take_in(self, tail: Tail) -> None:
        """Catch up with the changed slots."""
        datastore = self._datastore
        sequences = datastore.table.sequences
        version, slots = datastore.version, datastore.changed_slots(self._version)
        if slots is None:
            self._recount()
            tail.remove(tail.slots)
            filled = np.flatnonzero(sequences)
            self._to_tail(tail, filled[self._owner[filled] < 0])
            self._mend_forgotten(tail, {s.number for s in self._sealed})
        else:
            owners = self._owner[slots]
            for sealed in self._sealed if (owners >= 0).any() else ():
                sealed.n_alive -= int((owners == sealed.number).sum())
            self._owner[slots] = -1
            is_empty = sequences[slots] == 0
            if is_empty.any():
                tail.remove(slots[is_empty])
                self._mend_forgotten(tail, set(owners[is_empty].tolist()))
            self._to_tail(tail, slots[~is_empty])
        self._version = version
        for sealed in [s for s in self._sealed if s.n_alive < _FEWEST_ALIVE * len(s.segment.sequences)]:
            self._dissolve(tail, sealed)

    def _recount(self) -> None:
        """Which slots each segment still holds."""
        self._owner[:] = -1
        for sealed in self._sealed:
            self._own(sealed)

    def _own(self, sealed: Sealed) -> np.ndarray:
        """The slots that this segment holds from now on."""
        slots: np.ndarray = sealed.segment.slots[sealed.segment.is_alive(self._datastore.table.sequences)]
        slots = slots[self._owner[slots] < 0]
        self._owner[slots] = sealed.number
        sealed.n_alive = len(slots)
        return slots

    def _to_tail(self, tail: Tail, slots: np.ndarray) -> None:
        """Put entries into the tail; one from the map, many checked by `pread`."""
        if not len(slots):
            return
        if len(slots) == 1:
            tail.put(slots, self._keys.rows(slots))
            return
        tail.distrust(slots)
        for block in self._datastore.read_blocks(slots):
            tail.put(block.slots, block.embeddings)

    def _dissolve(self, tail: Tail, sealed: Sealed) -> None:
        """Move what is left of a segment into the tail and remove its files."""
        slots = np.flatnonzero(self._owner == sealed.number)
        self._owner[slots] = -1
        self._sealed.remove(sealed)
        self._to_tail(tail, slots)
        sealed.close()
        if not self._datastore.read_only:
            sealed.remove_files()

    def _mend_forgotten(self, tail: Tail, owners: set[int]) -> None:
        """After `forget`, which removes every file of the folder.

        Entries leave at once the segments that held a forgotten one (`owners`); the others are written again from the
        file that is still open.
        """
        for sealed in list(self._sealed):
            if not header_path(self._folder, sealed.segment.name).exists():
                if sealed.number in owners:
                    self._dissolve(tail, sealed)
                else:
                    sealed.is_saved = False

    def _look(self, tail: Tail | None) -> None:
        """Open segments that are new in the folder, and drop those that hold nothing any more."""
        datastore = self._datastore
        self._looked_at = datastore.version
        known = {s.segment.name for s in self._sealed}
        for name in names(self._folder):
            if name in known:
                continue
            try:
                fingerprint = datastore.manifest.fingerprint
                sealed = open_sealed(self._folder, name, annoy_class(), dim=datastore.dim, fingerprint=fingerprint)
            except DamagedSegmentError as error:
                logger.warning("segment of the index is damaged and is built again: %s", error)
                if not datastore.read_only:
                    Sealed.remove_named(self._folder, name)
                continue
            self._register(tail, sealed)

    def _register(self, tail: Tail | None, sealed: Sealed) -> None:
        """Search this segment from now on."""
        slots = self._own(sealed)
        if sealed.n_alive < _FEWEST_ALIVE * len(sealed.segment.sequences):
            self._owner[slots] = -1
            sealed.close()
            if not self._datastore.read_only:
                sealed.remove_files()
            return
        self._sealed.append(sealed)
        if tail is not None:
            tail.remove(slots)

    def _consider_sealing(self, tail: Tail) -> None:
        """Seal the oldest entries of a long tail in the background."""
        datastore = self._datastore
        wanted = self._segment_entries or max(_FEWEST_PER_SEGMENT, len(datastore) // _SEGMENTS)
        unsaved = [s for s in self._sealed if not s.is_saved]
        if self._sealer is not None or (len(tail) < max(wanted, self._seal_again_at) and not unsaved):
            return
        if datastore.version >= self._looked_at + wanted // _SEGMENTS:
            self._look(tail)
        if datastore.read_only or (len(tail) < wanted and not unsaved):
            return
        self._sealer = Sealer(self._order(tail, wanted) if len(tail) >= wanted else None, unsaved)
        self._sealer.start()

    def _order(self, tail: Tail, n_entries: int) -> Order:
        """A segment of the oldest entries of the tail."""
        sequences = self._datastore.table.sequences
        slots: np.ndarray = tail.slots
        slots = slots[np.argsort(sequences[slots])][:n_entries]
        return Order(
            datastore=self._datastore,
            folder=self._folder,
            slots=slots,
            sequences=sequences[slots],
            trees=self._trees,
            center=tail.projection.center,
            spread=tail.projection.spread,
            forest_class=annoy_class(),
        )

    def _take_sealed(self, sealer: Sealer) -> None:
        """Use what was built in the background; if that failed, try again when the tail has grown by a quarter."""
        self._sealer = None
        if sealer.error is not None:
            logger.warning("%s: no segment could be built: %s", self._folder, sealer.error)
        if sealer.sealed is not None:
            self._seal_again_at = 0
            if header_path(self._folder, sealer.sealed.segment.name).exists():
                self._register(self._tail, sealer.sealed)
            else:
                sealer.sealed.close()  # removed by `forget` since
        elif sealer.had_order:
            self._seal_again_at = 5 * (0 if self._tail is None else len(self._tail)) // 4


def annoy_class() -> ForestClass:
    """annoy.AnnoyIndex; the one place that imports it."""
    from annoy import AnnoyIndex as Annoy

    return Annoy  # type: ignore[return-value]  # its stub spells each metric out


@functools.cache
def self_test() -> bool:
    """Whether Annoy finds the 10 nearest of 100 points when it looks at all of them."""
    points = np.random.default_rng(0).standard_normal((100, 8)).astype(np.float32)
    forest = annoy_class()(8, "euclidean")
    forest.set_seed(1)
    for number, point in enumerate(points):
        forest.add_item(number, point.tolist())
    forest.build(4, 1)
    for query in points[:3]:
        expected = np.argsort(((points - query) ** 2).sum(axis=1))[:10].tolist()
        if list(forest.get_nns_by_vector(query.tolist(), 10, 10_000)) != expected:
            return False
    return True
