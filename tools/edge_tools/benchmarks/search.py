"""Search: the SDK's indexes against numpy brute force and the libraries that people would take instead.

    python -m edge_tools.benchmarks.search --data FOLDER [--output docs] [--quick]

Each peer runs on each set in a process of its own, one BLAS thread (or all, where the row says so), alternating with
the reference. Writes `performance.md` and `performance.png` into the output folder and prints one JSON object last.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edge_tools.benchmarks.cifar import cache_folder
from edge_tools.benchmarks.search_report import LAST_LINE, draw, figures, markdown
from edge_tools.output import say

_ALL = len(os.sched_getaffinity(0))
_GRAPHS = ("hnswlib", "usearch", "faiss HNSW-SQ8")
_LIMIT_S = 900
_QUICK = ((10_000, 1280), (100_000, 512))


def cases(*, quick: bool) -> Iterator[dict[str, Any]]:
    """What to measure: the full grid for exact searches, the approximate ones where builds take minutes at most.

    `quick`: the sizes that the named figures are of, and nothing that takes more than a minute to build.
    """
    grid = [(n, dim) for n in (1_000, 10_000, 100_000) for dim in (64, 512, 1280)]
    for n, dim in _QUICK if quick else grid:
        sets = ("cifar", "low-rank", "gaussian") if n < 100_000 else ("low-rank", "gaussian")
        for name in sets:
            exact = ["exact", "scikit-learn"] + (["exact, copy granted"] if name == "gaussian" else ["faiss Flat"])
            if name == "gaussian":
                exact.append("exact, float32 store")
            for peer in exact:
                yield {"peer": peer, "set": name, "n": n, "dim": dim, "threads": 1}
            if not quick and n == 10_000:
                yield {"peer": "exact", "set": name, "n": n, "dim": dim, "threads": _ALL}
        if quick and n == 100_000:
            continue
        for name in sets[:1]:
            yield {"peer": "annoy", "set": name, "n": n, "dim": dim, "threads": 1, "recalls": [0.9, 0.99]}
            if n >= 10_000:
                yield {"peer": "annoy segments", "set": name, "n": n, "dim": dim, "threads": 1}
            if n * dim <= 60_000_000 and not quick:
                for peer in _GRAPHS:
                    yield {"peer": peer, "set": name, "n": n, "dim": dim, "threads": 1, "recalls": [0.99]}
    for peer in ("annoy", *_GRAPHS):
        yield {"peer": peer, "set": "low-rank", "n": 10_000, "dim": 1280, "threads": 1, "recalls": [0.99]}
    for peer in ("exact", "faiss Flat", "scikit-learn", "annoy segments"):
        yield {"peer": peer, "set": "sentences", "n": 10_000, "dim": 384, "threads": 1}
    for peer in ("annoy", *_GRAPHS):
        yield {"peer": peer, "set": "sentences", "n": 10_000, "dim": 384, "threads": 1, "recalls": [0.9, 0.99]}


def windows(*, quick: bool) -> Iterator[dict[str, Any]]:
    """The moving windows to measure."""
    turnovers = 1 if quick else 10
    for scheme in ("exact", "hnswlib", "usearch"):
        yield {"scheme": scheme, "n": 10_000, "dim": 512, "turnovers": turnovers}
    yield {"scheme": "annoy, rebuilt", "n": 10_000, "dim": 512, "turnovers": 0.0004, "block": 2}
    large = {"n": 100_000, "dim": 512, "ring_every": 100}
    yield {"scheme": "annoy segments", **large, "turnovers": 1 if quick else 3}


def main() -> None:
    """Measure everything, write the report, print the figures."""
    parser = argparse.ArgumentParser(description="Search against numpy brute force and other libraries.")
    parser.add_argument("--data", type=Path, default=os.environ.get("EDGE_SDK_DATA"), help="folder of the data sets")
    parser.add_argument("--cache", type=Path, help="folder for encodings (default: the user's cache folder)")
    parser.add_argument("--output", type=Path, help="folder for performance.md and performance.png")
    parser.add_argument("--quick", action="store_true", help="ten minutes: the named figures' sizes, short windows")
    arguments = parser.parse_args()
    fixed = {"data": str(arguments.data) if arguments.data else "", "cache": str(cache_folder(arguments.cache))}
    results: list[dict[str, Any]] = []
    for case in cases(quick=arguments.quick):
        found = run("search_case", {**case, **fixed}, case["threads"])
        results += found if found is not None else [{**case, "note": f"not done within {_LIMIT_S} s, or died"}]
        for result in results[-len(found or [0]) :]:
            say(" ".join(f"{key}={value}" for key, value in result.items() if value not in ("", 0, 0.0)))
    turned: list[dict[str, Any]] = []
    for window in windows(quick=arguments.quick):
        one = run("search_window", window, 1)
        turned.append(one if one is not None else {**window, "note": f"not done within {_LIMIT_S} s, or died"})
        say(str(turned[-1]))
    summary = figures(results, turned)
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "performance.md").write_text(markdown(results, turned, summary), encoding="utf-8")
        draw(results, turned, arguments.output / "performance.png")
    sys.stdout.write(json.dumps({name: summary[name] for name in LAST_LINE}) + "\n")


def run(module: str, case: dict[str, Any], threads: int) -> Any:
    """The result of a child process, None when it failed; its complaint goes to stderr."""
    environment = {**os.environ}
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        environment[name] = str(threads)
    command = [sys.executable, "-m", f"edge_tools.benchmarks.{module}", json.dumps(case)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        say(done.stderr[-2000:])
        return None
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
