"""Choosing a filter: how many directions pay on this store and this machine, or whether none do.

Nobody can tell from the dimension: of 10 000 embeddings a filter of 32 columns lets 40 rows through where the
embeddings have low rank, and 9 400 of 10 000 on sentence embeddings, where 128 columns let 190 through. So some of
the store's own entries are taken as queries, the entries that each number of columns would let through are counted,
and counts become seconds by timing one matrix product and one reading of rows, here and now.

A bound in two steps (all entries by few columns, what is left of them by more) was tried on paper with measured parts
and left out: on sentences 160 columns leave 1 100 entries, and gathering further columns of those takes what the
narrower product saves (185 to 195 µs a search instead of 195, of 215 by brute force).
"""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.neighbors.filter import Bounds, Filter, Scan
from edge_sdk.neighbors.measuring import measure
from edge_sdk.neighbors.projection import Projection
from edge_sdk.neighbors.stored_keys import StoredKeys

PLAIN_VALUES = 1 << 16
"""Up to this many values in a store (256 KB of float32) the plain matrix product takes less time than deciding."""

NARROW = (16, 32, 48, 64, 80)
WIDE = (96, 128, 160, 192, 224, 256)
"""Numbers of columns to choose from; the wide ones are looked at where the narrow ones leave much to gain."""

_WIDE_PENALTY, _PLAIN_PENALTY = 1.2, 1.25
"""More memory must buy this much speed."""

_SAMPLE = 4096  # entries that directions and counts rest on; a count's standard error is then a few percent
_QUERIES = 24
_K = 10
_FARTHER = 6  # new queries lie farther out than own entries: on sentences twice as many rows had to be measured
_PASSES = 2  # of subspace iteration: more improve no count by a twentieth on the sets of docs/performance.md
_OUTLIER = 1e4  # entries farther out than this many spreads say nothing about directions
_FEW_ROWS = 8 * _K  # with so few rows left to measure more columns have little to save
_REPEATS = 15  # of which the fastest counts
_SPREAD_OF_ROWS = 1.3  # a query that needs more rows than the mean pays for a second round of measuring
_STEPS = 6  # a search has so many steps that cost about as much as measuring a handful of rows
_TIMED_SLOTS = 20000  # a matrix product is timed on at most so many slots


class Choice(NamedTuple):
    """What a search shall use."""

    projection: Projection | None
    """None: read every key."""

    rows: float
    """Entries it lets through to be measured, mean over the queries tried."""

    def build(self, keys: StoredKeys) -> Bounds:
        """The empty structure."""
        return Scan(keys) if self.projection is None else Filter(self.projection)


def choose(datastore: Datastore, keys: StoredKeys, slots: np.ndarray, recent: np.ndarray, ram_budget: int) -> Choice:
    """Choose for the entries in `slots`.

    Args:
        datastore: to read them from.
        keys: its rows.
        slots: int (n,), filled ones, oldest first.
        recent: float32 (m, dim), the latest queries, which count beside the store's own entries.
        ram_budget: most bytes of numbers.
    """
    n_entries, dim = len(slots), datastore.dim
    store = _Sampled(datastore, slots, recent)
    plain = _plain(store, ram_budget)
    if plain is not None and n_entries * dim <= PLAIN_VALUES:
        return plain
    clock = _Clock(keys, slots)
    if plain is not None:
        options = [(_PLAIN_PENALTY * (clock.product(plain_columns(dim), n_entries) + clock.rows(_K)), plain)]
    else:
        options = [(clock.scan(dim, n_entries) + clock.rows(_K), Choice(None, _K))]
    for columns, penalty in ((NARROW, 1.0), (WIDE, _WIDE_PENALTY)):
        fitting = [c for c in columns if c <= 0.75 * dim and 4 * c * n_entries <= ram_budget]
        if store.is_degenerate or not fitting:
            break
        filters = store.filters(fitting)
        for n_columns, filter_choice in zip(fitting, filters, strict=True):
            seconds = clock.filter(n_columns, n_entries) + clock.rows(_SPREAD_OF_ROWS * filter_choice.rows)
            options.append((penalty * seconds, filter_choice))
        if filters[-1].rows < _FEW_ROWS:
            break
    return min(options, key=lambda option: option[0])[1]


def plain_columns(dim: int) -> int:
    """Columns of the plain matrix product."""
    return dim + 1


def _plain(store: "_Sampled", ram_budget: int) -> Choice | None:
    """The plain matrix product, None where its float32 copy is not granted."""
    if 4 * plain_columns(len(store.center)) * store.n_entries > ram_budget:
        return None
    return Choice(Projection(store.center, store.spread, None), _K)


def spread_out(slots: np.ndarray, count: int) -> np.ndarray:
    """`count` of the slots, or all, evenly spread."""
    return slots[np.unique(np.linspace(0, len(slots) - 1, min(count, len(slots))).astype(np.intp))]


class _Sampled:
    """What choosing needs to know of a store, gathered in bounded blocks."""

    def __init__(self, datastore: Datastore, slots: np.ndarray, recent: np.ndarray) -> None:
        self._datastore = datastore
        self._slots = slots
        self.n_entries = len(slots)
        self._sample = spread_out(slots, _SAMPLE)
        self._recent = recent
        self.center, self.spread, self.is_degenerate = self._moments()
        self._near: tuple[np.ndarray, np.ndarray] | None = None
        self._basis = np.zeros((datastore.dim, 0))

    def filters(self, columns: list[int]) -> list[Choice]:
        """For each number of columns the projection and how many entries it lets through."""
        directions = self._principal_directions(max(columns) - 2)
        queries, squares = self._queries()
        projected = queries @ directions.T
        remaining = np.einsum("qd,qd->q", queries, queries)
        passed = np.zeros((len(columns), len(queries)))
        n_seen = 0
        for block in self._blocks(self._sample):
            n_seen += len(block)
            entries = block @ directions.T
            norms = np.einsum("nd,nd->n", block, block)
            for i, n_columns in enumerate(columns):
                r = n_columns - 2
                mine, theirs = entries[:, :r], projected[:, :r]
                my_squares, their_squares = np.einsum("nd,nd->n", mine, mine), np.einsum("qd,qd->q", theirs, theirs)
                my_rest = np.sqrt(np.maximum(norms - my_squares, 0.0))
                their_rest = np.sqrt(np.maximum(remaining - their_squares, 0.0))
                bounds = norms[:, None] + remaining - 2.0 * (mine @ theirs.T + np.outer(my_rest, their_rest))
                passed[i] += (bounds <= squares).sum(axis=0)
        rows = np.maximum(passed.mean(axis=1) * (self.n_entries / max(1, n_seen)), _K)
        return [
            Choice(Projection(self.center, self.spread, directions[: n_columns - 2]), float(row))
            for n_columns, row in zip(columns, rows, strict=True)
        ]

    def _moments(self) -> tuple[np.ndarray, float, bool]:
        """Mean, spread as a power of two, and whether there is no spread at all."""
        total, squares, count = np.zeros(self._datastore.dim), 0.0, 0
        for block in self._datastore.read_blocks(self._sample):
            rows = block.embeddings.astype(np.float64)
            total += rows.sum(axis=0)
            squares += float(np.einsum("nd,nd->", rows, rows))
            count += len(rows)
        center = total / max(1, count)
        variance = squares / max(1, count) - float(center @ center)
        if not variance > 0.0:
            return center, 1.0, True
        return center, float(2.0 ** np.clip(np.round(0.5 * np.log2(variance)), -120, 120)), False

    def _blocks(self, slots: np.ndarray) -> Iterator[np.ndarray]:
        """float32 (m, dim) of entries, centred and scaled, outliers left out."""
        for block in self._datastore.read_blocks(slots):
            yield self._scaled(block.embeddings)

    def _scaled(self, embeddings: np.ndarray) -> np.ndarray:
        centred = (embeddings - self.center) * (1.0 / self.spread)
        inside = np.abs(centred).max(axis=1, initial=0.0) < _OUTLIER
        kept: np.ndarray = centred[inside].astype(np.float32)
        return kept

    def _principal_directions(self, count: int) -> np.ndarray:
        """float64 (count, dim), orthonormal, the leading one first, by subspace iteration over the sample."""
        basis = np.random.default_rng(0).standard_normal((self._datastore.dim, count))
        basis[:, : self._basis.shape[1]] = self._basis
        for _ in range(_PASSES):
            narrow = np.linalg.qr(basis)[0].astype(np.float32)
            basis = np.zeros((self._datastore.dim, count))
            for block in self._blocks(self._sample):
                basis += block.T @ (block @ narrow)
        basis = np.linalg.qr(basis)[0]
        moments = np.zeros((count, count))
        for block in self._blocks(self._sample):
            inside = block @ basis.astype(np.float32)
            moments += inside.T @ inside
        self._basis = np.linalg.qr(basis @ np.linalg.eigh(moments)[1][:, ::-1])[0]
        return np.ascontiguousarray(self._basis.T)

    def _queries(self) -> tuple[np.ndarray, np.ndarray]:
        """Queries to try, float32 (m, dim), and the square of the distance to the k-th nearest entry of each."""
        if self._near is None:
            own = spread_out(self._slots, max(8, _QUERIES - len(self._recent)))
            tried = np.concatenate([block.embeddings for block in self._datastore.read_blocks(own)] + [self._recent])
            queries = self._scaled(tried)
            k = min(_K + 1 + _FARTHER, self.n_entries)  # an own entry finds itself
            best = np.full((len(queries), k), np.inf, np.float32)
            norms = np.einsum("qd,qd->q", queries, queries)
            for block in self._blocks(self._slots):
                squares = np.einsum("nd,nd->n", block, block) - 2.0 * (queries @ block.T) + norms[:, None]
                best = np.partition(np.concatenate((best, squares), axis=1), k - 1, axis=1)[:, :k]
            self._near = queries, best.max(axis=1)
        return self._near


class _Clock:
    """Seconds that steps of a search take on this machine."""

    def __init__(self, keys: StoredKeys, slots: np.ndarray) -> None:
        self._random = np.random.default_rng(0)
        self._keys = keys
        self._slots = slots
        self._query = keys.rows(slots[:1])[0]
        self._lines: dict[int, tuple[float, float]] = {}
        few, many = 8, 128
        # The many first: they bring the map's pages in, which would otherwise count as what the few cost (24 for 9 µs).
        long, short = _shortest_in_turn([self._measuring(many), self._measuring(few)])
        self._per_row = max(0.0, long - short) / (many - few)
        self._fixed = _STEPS * short

    def _measuring(self, count: int) -> Callable[[], object]:
        """Measuring entries that were not measured just before, so that they come from where rows usually come from."""
        chosen = iter(self._random.choice(self._slots, (_REPEATS, count)))
        return lambda: measure(self._query, next(chosen), self._keys)

    def rows(self, count: float) -> float:
        """Measuring so many rows, and all that a search does besides."""
        return self._fixed + self._per_row * count

    def filter(self, n_columns: int, n_slots: int) -> float:
        """One query against the numbers of a filter, on the line through the times of two widths.

        Timed one by one on a busy machine, widths that differ by 2 µs in truth came out 80 µs apart, and 192 columns
        were taken for sentences (1.3 x brute force) where 256 need 0.9 x.
        """
        narrow, wide = NARROW[1], WIDE[-1]
        if n_slots not in self._lines:
            works = [self._product(width, min(n_slots, _TIMED_SLOTS)) for width in (narrow, wide)]
            short, long = _shortest_in_turn(works)
            self._lines[n_slots] = short, max(0.0, long - short) / (wide - narrow)
        start, slope = self._lines[n_slots]
        return max(0.0, start + slope * (n_columns - narrow)) * n_slots / min(n_slots, _TIMED_SLOTS)

    def product(self, n_columns: int, n_slots: int) -> float:
        """One query against all numbers."""
        timed = min(n_slots, _TIMED_SLOTS)
        return _shortest(self._product(n_columns, timed)) * n_slots / timed

    @staticmethod
    def _product(n_columns: int, n_slots: int) -> Callable[[], object]:
        numbers, weights = np.ones((n_columns, n_slots), np.float32), np.ones((1, n_columns), np.float32)
        return lambda: weights @ numbers

    def scan(self, dim: int, n_slots: int) -> float:
        """One query against all keys where they lie."""
        timed = min(n_slots, max(1, (1 << 20) // dim))
        scan = Scan(self._keys)
        scan.reserve(timed, timed)
        queries = scan.projection.scores(self._keys.rows(self._slots[:1]))
        return _shortest(lambda: scan.scores(queries)) * n_slots / timed


def _shortest(work: Callable[[], object]) -> float:
    """Seconds of the fastest of some runs: what it takes when nobody else runs."""
    return _shortest_in_turn([work])[0]


def _shortest_in_turn(works: list[Callable[[], object]]) -> list[float]:
    """The same for several, in turn, so that what else the machine does hits all of them."""
    best = [np.inf] * len(works)
    for _ in range(_REPEATS):
        for number, work in enumerate(works):
            start = time.perf_counter()
            work()
            best[number] = min(best[number], time.perf_counter() - start)
    return best
