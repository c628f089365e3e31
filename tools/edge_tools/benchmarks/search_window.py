"""The moving window: learn one, evict the oldest, query one, at steady state.

    python -m edge_tools.benchmarks.search_window '{"scheme": "exact", "n": 10000, "dim": 512, "turnovers": 10, ...}'

prints one JSON object. Every scheme alternates with a numpy ring buffer in blocks of cycles in the same process.
"""

import importlib.util
import json
import shutil
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.neighbors import ExactIndex, Index, open_index
from edge_tools.benchmarks.search_case import private_bytes
from edge_tools.benchmarks.search_peers import Brute, Hnswlib, Usearch, make_store
from edge_tools.benchmarks.search_sets import low_rank

K = 10
_BLOCK = 100
_CHECKS = 20
_FRESH = 20_000  # different entries; the stream goes round


@dataclass
class WindowResult:
    """What was measured; a scheme that cannot be run has only `note`."""

    scheme: str
    n: int
    dim: int
    note: str = ""
    cycles_per_s: float = 0.0
    vs_ring: float = 0.0
    """Throughput as a multiple of the ring buffer's in the same run."""

    update_us: float = 0.0
    update_p99_ms: float = 0.0
    query_us: float = 0.0
    recall: dict[str, float] = field(default_factory=dict)
    """By turnover."""

    stale: int = 0
    """Answers that had left the window."""

    ram_mb: dict[str, float] = field(default_factory=dict)
    """Private memory by turnover."""

    vs_exact: float = 0.0
    """Query time as a multiple of the exact index's over the same store."""


class Scheme(ABC):
    """A window of the newest n entries; entry i of the stream is known as i."""

    @abstractmethod
    def update(self, number: int, key: np.ndarray) -> None:
        """Entry `number` comes, entry `number` - n goes."""

    @abstractmethod
    def query(self, query: np.ndarray) -> np.ndarray:
        """Numbers of the K nearest."""

    def close(self) -> None:
        """Give back what the end of the process would leave; for most schemes that is nothing."""
        return


class Ring(Scheme):
    """numpy ring buffer, brute force."""

    def __init__(self, keys: np.ndarray) -> None:
        self.brute = Brute(keys.copy(), 1)
        self.numbers = np.arange(len(keys))

    def update(self, number: int, key: np.ndarray) -> None:
        """See `Scheme.update`."""
        at = number % len(self.numbers)
        self.brute.keys[at] = key
        self.brute.squared_norms[at] = key @ key
        self.numbers[at] = number

    def query(self, query: np.ndarray) -> np.ndarray:
        """See `Scheme.query`."""
        return np.asarray(self.numbers[self.brute.search(query[None], K)[0]])


class Store(Scheme):
    """The SDK: a datastore on disk, unsynced, and an index over it."""

    def __init__(self, keys: np.ndarray, kind: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="edge-sdk-bench-"))
        self.datastore = make_store(self.folder / "me.store", keys)
        self.index: Index = open_index(kind, self.datastore)
        self.index.search(keys[:1], K)
        if kind == "annoy":
            self.index.build()  # type: ignore[attr-defined]
        self.probabilities = np.full((1, 2), 0.5, np.float32)

    def update(self, number: int, key: np.ndarray) -> None:
        """See `Scheme.update`."""
        self.datastore.add(key[None], ["a"], self.probabilities, sync=False)

    def query(self, query: np.ndarray) -> np.ndarray:
        """See `Scheme.query`."""
        return np.asarray(self.index.search(query[None], K).sequences[0], np.int64) - 1

    def close(self) -> None:
        """Remove the store."""
        self.index.close()
        self.datastore.close()
        shutil.rmtree(self.folder)


class HnswlibWindow(Scheme):
    """Deleted elements are replaced."""

    def __init__(self, keys: np.ndarray) -> None:
        self.graph = Hnswlib(keys, 1).graph
        self.graph.set_ef(64)
        self.n = len(keys)

    def update(self, number: int, key: np.ndarray) -> None:
        """See `Scheme.update`."""
        self.graph.mark_deleted(number - self.n)
        self.graph.add_items(key[None], np.array([number]), replace_deleted=True)

    def query(self, query: np.ndarray) -> np.ndarray:
        """See `Scheme.query`."""
        return np.asarray(self.graph.knn_query(query[None], K)[0][0].astype(np.int64))


class UsearchWindow(Scheme):
    """Remove and add."""

    def __init__(self, keys: np.ndarray) -> None:
        self.graph = Usearch(keys, 1).graph
        self.graph.expansion_search = 64
        self.n = len(keys)

    def update(self, number: int, key: np.ndarray) -> None:
        """See `Scheme.update`."""
        self.graph.remove(number - self.n)
        self.graph.add(number, key, threads=1)

    def query(self, query: np.ndarray) -> np.ndarray:
        """See `Scheme.query`."""
        return np.asarray(self.graph.search(query, K, threads=1).keys, np.int64)


class AnnoyRebuild(Scheme):
    """What users of annoy do: build all of it again for each new entry."""

    def __init__(self, keys: np.ndarray) -> None:
        self.keys, self.numbers = keys.copy(), np.arange(len(keys))
        self._build()

    def _build(self) -> None:
        from annoy import AnnoyIndex

        self.forest = AnnoyIndex(self.keys.shape[1], "euclidean")
        for row, key in enumerate(self.keys):
            self.forest.add_item(row, key)
        self.forest.build(10, 1)

    def update(self, number: int, key: np.ndarray) -> None:
        """See `Scheme.update`."""
        at = number % len(self.numbers)
        self.keys[at], self.numbers[at] = key, number
        self._build()

    def query(self, query: np.ndarray) -> np.ndarray:
        """See `Scheme.query`."""
        return np.asarray(self.numbers[self.forest.get_nns_by_vector(query.tolist(), K, 2000)])


SCHEMES: dict[str, tuple[str | None, Callable[[np.ndarray], Scheme]]] = {
    "exact": (None, lambda keys: Store(keys, "exact")),
    "annoy segments": ("annoy", lambda keys: Store(keys, "annoy")),
    "hnswlib": ("hnswlib", HnswlibWindow),
    "usearch": ("usearch", UsearchWindow),
    "annoy, rebuilt": ("annoy", AnnoyRebuild),
}


def run_window(
    scheme: str, n: int, dim: int, turnovers: float, *, block: int = _BLOCK, ring_every: int = 1
) -> WindowResult:
    """Turn the window and measure.

    Args:
        scheme: one of `SCHEMES`.
        n: entries in the window.
        dim: their width.
        turnovers: how often the window is replaced.
        block: cycles between two looks at the ring buffer.
        ring_every: every so many cycles the ring buffer answers a query, whose time counts that often.
    """
    module, make = SCHEMES[scheme]
    result = WindowResult(scheme, n, dim)
    if module is not None and importlib.util.find_spec(module) is None:
        result.note = f"{module} is not installed"
        return result
    stream = low_rank(n + _FRESH, dim).astype(np.float16).astype(np.float32)
    window, ring = make(stream[:n]), Ring(stream[:n])
    timed: dict[str, list[float]] = {"update": [], "query": [], "cycle": [], "ring": []}
    block_ratios: list[float] = []
    last = n + int(turnovers * n)
    checks = {n + int(turn * n): str(turn) for turn in (0, 1, 3, 10) if turn <= turnovers}
    number = n
    while True:
        for at in [at for at in checks if at <= number]:
            turn = checks.pop(at)
            result.recall[turn] = _recall(window, ring, stream)
            result.ram_mb[turn] = private_bytes() / 1e6
        if number >= last:
            break
        part = range(number, min(number + block, last))
        mine = _cycles(window, part, stream, timed)
        theirs = _ring_seconds(ring, part, stream, ring_every)
        timed["ring"].append(theirs / len(part))
        block_ratios.append(theirs / mine)
        result.stale += int((window.query(stream[part[0] % _FRESH]) <= part[-1] - n).sum())
        number = part[-1] + 1
    result.cycles_per_s = 1.0 / float(np.median(timed["cycle"]))
    result.vs_ring = float(np.median(block_ratios))
    result.update_us = 1e6 * float(np.median(timed["update"]))
    result.update_p99_ms = 1e3 * float(np.percentile(timed["update"], 99))
    result.query_us = 1e6 * float(np.median(timed["query"]))
    if scheme == "annoy segments" and isinstance(window, Store):
        result.vs_exact = _against_exact(window, stream)
    window.close()
    return result


def _entry(stream: np.ndarray, number: int) -> np.ndarray:
    """Entry `number` of an endless stream; a noise that depends on the number keeps repetitions apart."""
    entry = stream[number % len(stream)] * np.float32(1.0 + 1e-3 * (number // len(stream)))
    return np.asarray(entry.astype(np.float16).astype(np.float32))  # as a store keeps it


def _query(stream: np.ndarray, number: int) -> np.ndarray:
    """An entry that is to come."""
    return _entry(stream, number + 1)


def _cycles(window: Scheme, numbers: range, stream: np.ndarray, timed: dict[str, list[float]]) -> float:
    """Seconds of some cycles."""
    begin = time.perf_counter()
    for number in numbers:
        entry, query = _entry(stream, number), _query(stream, number)
        start = time.perf_counter()
        window.update(number, entry)
        middle = time.perf_counter()
        window.query(query)
        timed["update"].append(middle - start)
        timed["query"].append(time.perf_counter() - middle)
    elapsed = time.perf_counter() - begin
    timed["cycle"].append(elapsed / len(numbers))
    return elapsed


def _ring_seconds(ring: Ring, numbers: range, stream: np.ndarray, every: int) -> float:
    """Seconds the ring buffer takes for the same cycles."""
    start = time.perf_counter()
    for number in numbers:
        ring.update(number, _entry(stream, number))
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    asked = numbers[::every]
    for number in asked:
        ring.query(_query(stream, number))
    return seconds + (time.perf_counter() - start) * len(numbers) / len(asked)


def _recall(window: Scheme, ring: Ring, stream: np.ndarray) -> float:
    shares = [
        len(np.intersect1d(window.query(query), ring.query(query))) / K
        for query in stream[:: len(stream) // _CHECKS][:_CHECKS] * np.float32(1.01)
    ]
    return float(np.mean(shares))


def _against_exact(window: Store, stream: np.ndarray) -> float:
    """Query time of the window's index over the exact index's, on the same store."""
    exact = ExactIndex(window.datastore)
    exact.search(stream[:1], K)
    ratios = []
    for start in range(0, 350, 50):
        seconds = []
        for index in (window.index, exact):
            each = []
            for query in stream[start : start + 50]:
                begin = time.perf_counter()
                index.search(query[None], K)
                each.append(time.perf_counter() - begin)
            seconds.append(float(np.median(each)))
        ratios.append(seconds[0] / seconds[1])
    return float(np.median(ratios))


def main() -> None:
    """Run the scheme on the command line."""
    case: dict[str, Any] = json.loads(sys.argv[1])
    sys.stdout.write(json.dumps(asdict(run_window(**case))) + "\n")


if __name__ == "__main__":
    main()
