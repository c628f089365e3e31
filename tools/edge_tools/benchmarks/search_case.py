"""One peer on one set, timed against numpy brute force in the same process: candidate and reference alternate.

    python -m edge_tools.benchmarks.search_case '{"peer": "exact", "set": "low-rank", "n": 10000, "dim": 512, ...}'

prints one JSON object. The ratio of the two medians is taken in each round and the median of the rounds reported, so
other work on the machine, which comes and goes more slowly than a round, hits both.
"""

import gc
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edge_tools.benchmarks.search_peers import PEERS, Brute, Peer
from edge_tools.benchmarks.search_sets import load_set

K = 10
ROUNDS = 7
_CALLS = {1: 40, 32: 5}  # calls a round, by batch


@dataclass(frozen=True)
class CaseResult:
    """What was measured; a case that cannot be run has only `note`."""

    peer: str
    set: str
    n: int
    dim: int
    threads: int
    note: str = ""
    effort: int = 0
    recall: float = 0.0
    ratio: float = 0.0
    """Median time of a single query, as a multiple of numpy brute force in the same run."""

    ratio_p99: float = 0.0
    """The same of the slowest hundredth, over the median of brute force."""

    ratio_batch: float = 0.0
    """Batches of 32."""

    ms: float = 0.0
    ram_mb: float = 0.0
    build_s: float = 0.0
    method: str = ""


def run_case(case: dict[str, Any], *, data: Path | None, cache: Path) -> list[CaseResult]:
    """Build and time one peer; one result for each recall that is asked for ("recalls")."""
    place = {key: case[key] for key in ("peer", "set", "n", "dim", "threads")}
    peer_class = PEERS[case["peer"]]
    module = getattr(peer_class, "module", None)
    if module is not None and importlib.util.find_spec(module) is None:
        return [CaseResult(**place, note=f"{module} is not installed")]
    loaded = load_set(case["set"], case["n"], case["dim"], data=data, cache=cache)
    if loaded is None:
        return [CaseResult(**place, note="its data or encoder is not there")]
    keys, queries = loaded
    gc.collect()
    before, start = private_bytes(), time.perf_counter()
    peer = peer_class(keys, case["threads"])
    build_s = time.perf_counter() - start
    stated = peer.ram_bytes()
    ram = private_bytes() - before if stated is None else stated
    brute = Brute(keys, 1)
    truth = true_nearest(keys, queries)
    results = []
    for wanted in case.get("recalls", [0.0]):
        effort = lowest_effort(peer, queries, truth, wanted)
        if effort is None:
            results.append(CaseResult(**place, note=f"no effort reaches recall {wanted}"))
            continue
        found = np.concatenate([peer.search(query[None], K, effort) for query in queries])
        single, many = (
            alternate(partial(_search, peer, effort), partial(_search, brute, 0), queries, batch=b) for b in (1, 32)
        )
        index = getattr(peer, "index", None)
        results.append(
            CaseResult(
                **place,
                effort=effort,
                recall=recall(found, truth),
                ratio=single["ratio"],
                ratio_p99=single["p99"],
                ratio_batch=many["ratio"],
                ms=single["ms"],
                ram_mb=ram / 1e6,
                build_s=build_s,
                method="" if index is None else describe(index.describe()),
            )
        )
    peer.close()
    return results


def _search(peer: Peer, effort: int, queries: np.ndarray) -> np.ndarray:
    return peer.search(queries, K, effort)


def describe(described: dict[str, Any]) -> str:
    """An index in a few words."""
    if described["kind"] == "annoy":
        return f"{described['segments']} segments"
    return f"{described['method']}, {described['columns']} columns, {described['rows']:.0f} rows measured"


def true_nearest(keys: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Row numbers of the K nearest keys, by float64 differences over a shortlist that cannot miss one in practice."""
    shortlist = Brute(keys, 1).search(queries, 4 * K)
    nearest = np.empty((len(queries), K), np.int64)
    for row, (query, candidates) in enumerate(zip(queries, shortlist, strict=True)):
        distances = np.linalg.norm(keys[candidates].astype(np.float64) - query, axis=1)
        nearest[row] = candidates[np.argsort(distances, kind="stable")[:K]]
    return nearest


def recall(found: np.ndarray, truth: np.ndarray) -> float:
    """Mean share of the true neighbours that were found."""
    return float(np.mean([len(np.intersect1d(a, b)) / len(b) for a, b in zip(found, truth, strict=True)]))


def lowest_effort(peer: Peer, queries: np.ndarray, truth: np.ndarray, wanted: float) -> int | None:
    """The cheapest setting that reaches a recall."""
    for effort in peer.efforts:
        if wanted == 0.0 or recall(np.concatenate([peer.search(q[None], K, effort) for q in queries]), truth) >= wanted:
            return effort
    return None


def alternate(
    candidate: Callable[[np.ndarray], object],
    reference: Callable[[np.ndarray], object],
    queries: np.ndarray,
    *,
    batch: int,
) -> dict[str, float]:
    """Median and slowest hundredth of a candidate as multiples of the reference's median."""
    calls = _CALLS[batch]
    batches = [queries[np.arange(start, start + batch) % len(queries)] for start in range(0, calls * batch, batch)]
    for work in (candidate, reference):
        for each in batches[:3]:
            work(each)
    ratios, candidate_s, reference_s = [], [], []
    for _ in range(ROUNDS):
        mine, theirs = (_times(work, batches) for work in (candidate, reference))
        ratios.append(float(np.median(mine) / np.median(theirs)))
        candidate_s += mine
        reference_s += theirs
    p99 = float(np.percentile(candidate_s, 99) / np.median(reference_s))
    return {"ratio": float(np.median(ratios)), "p99": p99, "ms": 1e3 * float(np.median(candidate_s))}


def _times(work: Callable[[np.ndarray], object], batches: list[np.ndarray]) -> list[float]:
    seconds = []
    for each in batches:
        start = time.perf_counter()
        work(each)
        seconds.append(time.perf_counter() - start)
    return seconds


def private_bytes() -> int:
    """Anonymous memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def main() -> None:
    """Run the case on the command line."""
    case = json.loads(sys.argv[1])
    data = Path(case["data"]) if case.get("data") else None
    results = run_case(case, data=data, cache=Path(case["cache"]))
    sys.stdout.write(json.dumps([asdict(result) for result in results]) + "\n")


if __name__ == "__main__":
    main()
