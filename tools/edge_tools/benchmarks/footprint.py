"""What edge_sdk adds: to an import, to a prediction of MobileNetV2, to the memory of its process.

Every figure is a ratio or a difference of two things measured in turn in the same run, so it holds on a busy machine
about as well as on a quiet one. Figures:

- import: fresh interpreters, `import numpy, onnxruntime`, `import edge_sdk` (whose names load when first used) and
  `from edge_sdk import Predictor` (which loads all of it) in turn; the fastest time and the median resident memory;
- share: after every real run of the model, which leaves the processor's caches as it does on a device, one prediction
  by a `Predictor` whose model answers at once; the medians of both (the encoder's own checks count as the model's);
- memory: private anonymous bytes of fresh processes, with and without us; the medians.

    python -m edge_tools.benchmarks.footprint FOLDER    # a folder with mobilenetv2.onnx, see benchmarks.mobilenet
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from edge_sdk import ModelFile, Predictor
from edge_tools.benchmarks.full_store import fill_store
from edge_tools.latency import random_samples
from edge_tools.output import print_json, print_table, say, size
from edge_tools.own_entries import OwnEntries

N_ENTRIES = 10_000
_IMPORTS = 15
_PREDICTIONS = 200
_PICTURES = 16
_PROCESSES = 5
_BASE, _DOOR, _OURS = "import numpy, onnxruntime", "import edge_sdk", "from edge_sdk import Predictor"
_TIMED_IMPORT = """
import time
start = time.perf_counter()
{statement}
elapsed = time.perf_counter() - start
with open("/proc/self/status") as file:
    resident = next(line.split()[1] for line in file if line.startswith("VmRSS"))
print(elapsed, resident)
"""


class Share(NamedTuple):
    """Milliseconds, medians of calls in turn."""

    model: float
    """One run of the model."""

    added: float
    """All that a prediction does besides."""

    search: float
    """The search alone, of what is added."""


def main(folder: Path) -> None:
    """Measure, print the tables and at the end one JSON line."""
    model, datastore = folder / "mobilenetv2.onnx", folder / "mobilenetv2.store"
    fill_store(model, datastore, N_ENTRIES)
    times, residents = measure_imports()
    share = measure_share(model, datastore)
    bare, ours = measure_processes(model, datastore)
    print_table(
        "Import in a fresh interpreter",
        ("statement", "ms", "resident"),
        [
            (statement, f"{1000 * times[statement]:.1f}", size(1024 * residents[statement]))
            for statement in (_BASE, _DOOR, _OURS)
        ],
    )
    print_table(
        f"One prediction of MobileNetV2 at 224 with {N_ENTRIES} entries, one thread, ms",
        ("model", "added by the SDK", "of it search", "share"),
        [(f"{share.model:.2f}", f"{share.added:.3f}", f"{share.search:.3f}", f"{share.added / share.model:.3f}")],
    )
    print_table(
        "Memory after 50 predictions",
        ("process", "anonymous", "resident", "peak"),
        [
            (name, size(step["anonymous"]), size(step["resident"]), size(step["peak"]))
            for name, step in (("the session alone", bare), ("with the SDK", ours))
        ],
    )
    print_json(
        {
            "import_time_ratio": round(times[_DOOR] / times[_BASE], 3),
            "import_rss_ratio": round(residents[_DOOR] / residents[_BASE], 3),
            "predictor_time_ratio": round(times[_OURS] / times[_BASE], 3),
            "predictor_rss_ratio": round(residents[_OURS] / residents[_BASE], 3),
            "sdk_share_of_mobilenet": round(share.added / share.model, 4),
            "private_extra_mb_10000x1280": round((ours["anonymous"] - bare["anonymous"]) / (1 << 20), 2),
        }
    )


def measure_imports() -> tuple[dict[str, float], dict[str, float]]:
    """Seconds (the fastest) and resident KB (the median) after each of the statements."""
    found: dict[str, list[tuple[float, float]]] = {_BASE: [], _DOOR: [], _OURS: []}
    for _ in range(_IMPORTS):
        for statement in found:
            seconds, resident = _run("-c", _TIMED_IMPORT.format(statement=statement)).split()
            found[statement].append((float(seconds), float(resident)))
    return (
        {statement: min(seconds for seconds, _ in runs) for statement, runs in found.items()},
        {statement: statistics.median(resident for _, resident in runs) for statement, runs in found.items()},
    )


def measure_share(model: Path, datastore: Path) -> Share:
    """What a prediction takes besides the model, each timed right after a run of the model."""
    run, added, search = [], [], []
    with Predictor.open(model, datastore, read_only=True, threads=1) as opened:
        encoder, store, index = opened.encoder, opened.datastore, opened.index
        predictor = Predictor(OwnEntries(encoder, store, run=False), store, index)
        spec, k = encoder.metadata.input, predictor.interpolation.k
        queries = store.embeddings(store.table.order[:: len(store) // 64])
        pictures = random_samples(spec, n=_PICTURES)
        for turn in range(_PREDICTIONS + 10):  # the first ten warm up
            picture = pictures[turn % _PICTURES]
            run.append(_timed(lambda: encoder.encode(picture[None])))  # noqa: B023 (called at once)
            added.append(_timed(lambda: predictor.predict(picture)))  # noqa: B023
            encoder.encode(picture[None])
            search.append(_timed(lambda: index.search(queries[turn % 64][None], k)))  # noqa: B023
        say(f"index: {index.describe()}")
    return Share(*(1000 * statistics.median(times[10:]) for times in (run, added, search)))


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure_processes(model: Path, datastore: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a process uses after 50 predictions: the session alone, and with us; the run with the median memory."""
    shape = json.dumps(ModelFile.open(model).metadata.input.shape)
    bare, ours = [], []
    for _ in range(_PROCESSES):
        bare.append(json.loads(_run("-m", "edge_tools.benchmarks.bare", str(model), shape, "1", "50")))
        ours.append(
            json.loads(_run("-m", "edge_tools.benchmarks.personalised", str(model), str(datastore), "1", "50"))
        )
    return _median(bare), _median(ours)


def _median(steps: list[dict[str, Any]]) -> dict[str, Any]:
    return sorted(steps, key=lambda step: int(step["anonymous"]))[len(steps) // 2]


def _run(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
