"""Run in a fresh interpreter: an application of a small board from start to end, and what it used at its peak.

    python -m edge_tools.benchmarks.applications watch MODEL DATASTORE LEARN.npz
    python -m edge_tools.benchmarks.applications pictures MODEL DATASTORE
"""

import sys

from edge_tools.probe import Reporter

_BATCH = 32


def watch(model: str, datastore: str, recording: str) -> None:
    """Ingest, 10 000 predictions, learn one by one, and tune."""
    import numpy as np

    from edge_sdk import Predictor

    with np.load(recording, allow_pickle=False) as archive:
        windows, labels = archive["x"], archive["label"]
    with Predictor.open(model, datastore) as predictor:
        for start in range(0, len(windows), _BATCH):
            predictor.learn(windows[start : start + _BATCH], labels[start : start + _BATCH], sync=False)
        for turn in range(10_000):
            predictor.predict(windows[turn % len(windows)])
        for window, label in zip(windows[:100], labels[:100], strict=True):
            predictor.learn(window, str(label), allow_duplicates=True)
        predictor.tune()


def pictures(model: str, datastore: str) -> None:
    """Predict and learn over a full datastore of a large model."""
    from edge_sdk import Predictor
    from edge_tools.latency import random_samples
    from edge_tools.own_entries import OwnEntries

    with Predictor.open(model, datastore) as opened:
        predictor = Predictor(OwnEntries(opened.encoder, opened.datastore), opened.datastore, opened.index)
        samples = random_samples(predictor.metadata.input, n=4)
        for turn in range(100):
            predictor.predict(samples[turn % len(samples)])
        for turn in range(20):
            predictor.learn(samples[turn % len(samples)], predictor.classes[0], allow_duplicates=True, tune=False)
            predictor.predict(samples[turn % len(samples)])


def main(name: str, arguments: list[str]) -> None:
    """Run one and report."""
    if name == "watch":
        watch(*arguments)
    else:
        pictures(*arguments)
    Reporter(0.0).step(name)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
