"""Run in a fresh interpreter: the device's steps, memory and time after each, then the latencies; one JSON line each.

Everything is imported where its step begins, because what an import costs is what this measures. The argument is one
JSON object with the fields of `edge_tools.measurement.Order`.
"""

import json
import os
import sys
import time
from typing import Any


def main(order: dict[str, Any]) -> None:
    """Go through the steps."""
    reporter = Reporter(order["started"])
    reporter.step("interpreter")
    import numpy as np

    reporter.step("numpy")
    import onnxruntime  # noqa: F401

    reporter.step("onnxruntime")
    from edge_sdk import Encoder, Predictor

    reporter.step("edge_sdk")
    model, datastore, repeats = order["model"], order["datastore"], order["repeats"]
    encoder = Encoder.open(model)
    reporter.step("model file opened")
    spec = encoder.metadata.input
    sample = np.zeros((1, *spec.shape), spec.dtype)
    encoder.encode(sample)
    reporter.step("first encoding")
    if datastore is None:
        reporter.result(_measure_encoder(encoder, repeats))
        return
    del encoder
    with Predictor.open(model, datastore, read_only=True) as predictor:
        reporter.step("datastore opened")
        usual = _as_on_the_device(predictor)
        usual.predict(sample)
        reporter.step("first prediction")
        for _ in range(999):
            usual.predict(sample)
        reporter.step("1000 predictions")
        result = _measure_predictor(usual, repeats)
    if order["scratch"] is not None:
        with Predictor.open(model, order["scratch"]) as predictor:
            result["latency_ms"]["learn"] = _measure_learning(predictor, repeats)
    reporter.result(result)


class Reporter:
    """Writes what this process uses, one JSON line a step."""

    def __init__(self, started: float) -> None:
        self._started = started

    def step(self, name: str) -> None:
        """Resident, private, anonymous and peak bytes, and milliseconds since the process was asked for."""
        elapsed = 1000 * (time.perf_counter() - self._started)  # one clock for all processes on Linux
        rollup = read_fields("/proc/self/smaps_rollup")
        self._write(
            {
                "name": name,
                "resident": rollup["Rss"],
                "private": rollup["Private_Clean"] + rollup["Private_Dirty"],
                "anonymous": rollup["Anonymous"],
                "peak": read_fields("/proc/self/status")["VmHWM"],
                "milliseconds": elapsed,
            }
        )

    def result(self, result: dict[str, Any]) -> None:
        """What was measured at the end."""
        self._write({**result, "threads": {**result["threads"], "process": len(os.listdir("/proc/self/task"))}})

    def _write(self, value: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(value) + "\n")


def read_fields(path: str) -> dict[str, int]:
    """The "Name: 12 kB" lines of a /proc file, in bytes."""
    fields = {}
    with open(path, encoding="ascii") as file:
        for line in file:
            name, _, value = line.partition(":")
            if value.rstrip().endswith(" kB"):
                fields[name] = int(value.split()[0]) * 1024
    return fields


def _as_on_the_device(predictor: Any) -> Any:
    """The same parts, asked for what they will be asked for."""
    from edge_sdk import Predictor
    from edge_tools.own_entries import OwnEntries

    if not len(predictor.datastore):
        return predictor
    return Predictor(OwnEntries(predictor.encoder, predictor.datastore), predictor.datastore, predictor.index)


def _measure_encoder(encoder: Any, repeats: int) -> dict[str, Any]:
    from edge_tools import latency

    samples = latency.random_samples(encoder.metadata.input)
    return {
        "latency_ms": {"encode": latency.measure_encoding(encoder, samples, repeats=repeats)},
        "threads": {"inference": encoder.settings.n_threads()},
        "index": None,
        "recall": None,
    }


def _measure_predictor(predictor: Any, repeats: int) -> dict[str, Any]:
    from edge_sdk.neighbors import measure_recall
    from edge_tools import latency

    samples = latency.random_samples(predictor.metadata.input)
    recall = measure_recall(predictor.index, predictor.datastore, predictor.interpolation.k)
    return {
        "latency_ms": latency.measure_latency(predictor, samples, repeats=repeats),
        "threads": {"inference": predictor.encoder.settings.n_threads()},
        "index": predictor.index.describe(),
        "recall": {"recall": recall.recall, "k": recall.k, "n_queries": recall.n_queries} if recall.n_queries else None,
    }


def _measure_learning(predictor: Any, repeats: int) -> Any:
    from edge_tools import latency

    return latency.measure_learning(predictor, latency.random_samples(predictor.metadata.input), repeats=repeats)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
