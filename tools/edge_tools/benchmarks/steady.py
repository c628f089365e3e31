"""Steady use: predict and learn at an even pace for minutes, then almost nothing. Memory and latency stay flat.

    python -m edge_tools.benchmarks.steady [--minutes 5]       the last line is one JSON object; exit code 3: not flat

The window of 500 entries is full from the beginning, which is the life of a device: every entry that is learnt evicts
one, and the index, its choice and the tuned weight are kept up to date.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edge_sdk import Predictor
from edge_tools.output import print_json, say
from edge_tools.probe import read_fields

CAPACITY = 500
PER_SECOND = 50
LEARN_EVERY = 10
IDLE_SECONDS = 30
MOST_GROWTH = 2 << 20
MOST_SLOWDOWN = 1.5
MOST_IDLE_CPU = 0.02
_BUDGET_EXIT = 3
_PARTS = 10


class Part(NamedTuple):
    """A tenth of the time."""

    resident: int
    """Bytes at its end."""

    latency: float
    """Milliseconds, median of its predictions."""

    learning: float
    """Milliseconds, median of its learns."""


def main() -> None:
    """Run, print a line for each tenth and at the end one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--watch", type=Path, default=Path("examples/watch"), help="the watch example")
    options = parser.parse_args()
    with np.load(options.watch / "users" / "1603" / "learn.npz", allow_pickle=False) as archive:
        windows, labels = archive["x"], [str(label) for label in archive["label"]]
    with (
        tempfile.TemporaryDirectory(prefix="edge-sdk-steady-") as folder,
        Predictor.open(options.watch / "watch.onnx", Path(folder) / "me.store", capacity=CAPACITY) as predictor,
    ):
        while len(predictor.datastore) < CAPACITY:  # full, tuned and with its index chosen: what comes is the long run
            predictor.learn(windows, labels, allow_duplicates=True, sync=False)
        predictor.tune()
        parts = [_tenth(predictor, windows, labels, 60 * options.minutes / _PARTS) for _ in range(_PARTS)]
        idle = _idle(predictor, windows)
    growth = parts[-1].resident - parts[0].resident
    slowdown = parts[-1].latency / parts[0].latency
    is_flat = growth <= MOST_GROWTH and slowdown <= MOST_SLOWDOWN and idle < MOST_IDLE_CPU
    print_json(
        {
            "minutes": options.minutes,
            "resident_growth_mb": round(growth / (1 << 20), 2),
            "latency_last_to_first": round(slowdown, 2),
            "idle_cpu_percent": round(100 * idle, 2),
            "flat": is_flat,
        }
    )
    if not is_flat:
        sys.exit(_BUDGET_EXIT)


def _tenth(predictor: Predictor, windows: np.ndarray, labels: list[str], seconds: float) -> Part:
    """Predict `PER_SECOND` times a second, and learn every `LEARN_EVERY`th window."""
    predicting, learning = [], []
    start = next_at = time.monotonic()
    turn = 0
    while next_at - start < seconds:
        row = turn % len(windows)
        before = time.perf_counter()
        predictor.predict(windows[row])
        predicting.append(time.perf_counter() - before)
        if turn % LEARN_EVERY == 0:
            before = time.perf_counter()
            predictor.learn(windows[row], labels[row], allow_duplicates=True)
            learning.append(time.perf_counter() - before)
        turn += 1
        next_at += 1 / PER_SECOND
        time.sleep(max(0.0, next_at - time.monotonic()))
    part = Part(
        read_fields("/proc/self/status")["VmRSS"],
        1000 * statistics.median(predicting),
        1000 * statistics.median(learning),
    )
    say(
        f"{turn} predictions, {len(learning)} learns: resident {part.resident / (1 << 20):.1f} MB, "
        f"predict {part.latency:.2f} ms, learn {part.learning:.2f} ms"
    )
    return part


def _idle(predictor: Predictor, windows: np.ndarray) -> float:
    """Share of one processor while one prediction is made a second."""
    say(f"idle: one prediction a second for {IDLE_SECONDS} s")
    before = time.process_time()
    for second in range(IDLE_SECONDS):
        predictor.predict(windows[second % len(windows)])
        time.sleep(1)
    return (time.process_time() - before) / IDLE_SECONDS


if __name__ == "__main__":
    main()
