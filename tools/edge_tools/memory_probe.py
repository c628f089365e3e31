"""Run in a fresh interpreter: the device's steps, one after the other, and the memory after each as one JSON line.

Everything is imported where its step begins, because what an import costs is what this measures.
"""

import json
import sys


def main(model: str, datastore: str | None) -> None:
    """Go through the steps; `datastore` may be None."""
    report("interpreter")
    import numpy as np

    report("numpy")
    import onnxruntime  # noqa: F401

    report("onnxruntime")
    from edge_sdk import Encoder, Predictor

    report("edge_sdk")
    encoder = Encoder.open(model)
    report("model file opened")
    spec = encoder.metadata.input
    sample = np.zeros((1, *spec.shape), spec.dtype)
    encoder.encode(sample)
    report("first encoding")
    if datastore is None:
        return
    del encoder
    with Predictor.open(model, datastore, read_only=True) as predictor:
        report("datastore opened")
        predictor.predict(sample)
        report("first prediction")
        for _ in range(999):
            predictor.predict(sample)
        report("1000 predictions")


def report(name: str) -> None:
    """Print resident, private and peak bytes of this process."""
    rollup = _fields("/proc/self/smaps_rollup")
    peak = _fields("/proc/self/status")["VmHWM"]
    private = rollup["Private_Clean"] + rollup["Private_Dirty"]
    sys.stdout.write(json.dumps({"name": name, "resident": rollup["Rss"], "private": private, "peak": peak}) + "\n")


def _fields(path: str) -> dict[str, int]:
    """The "Name: 12 kB" lines of a /proc file, in bytes."""
    fields = {}
    with open(path, encoding="ascii") as file:
        for line in file:
            name, _, value = line.partition(":")
            if value.rstrip().endswith(" kB"):
                fields[name] = int(value.split()[0]) * 1024
    return fields


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
