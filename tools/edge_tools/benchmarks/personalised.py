"""Run in a fresh interpreter: the same predictions as `bare`, by a `Predictor` over a full datastore.

The arguments are the model file, the datastore, the session's threads, and how many predictions.
"""

import sys

from edge_tools.probe import Reporter


def main(model: str, datastore: str, threads: int, runs: int) -> None:
    """Predict and write one line as `edge_tools.probe` does."""
    import numpy as np

    from edge_sdk import Predictor
    from edge_tools.own_entries import OwnEntries

    with Predictor.open(model, datastore, read_only=True, threads=threads) as opened:
        predictor = Predictor(OwnEntries(opened.encoder, opened.datastore), opened.datastore, opened.index)
        sample = np.zeros(predictor.metadata.input.shape, np.float32)
        for _ in range(runs):
            predictor.predict(sample)
        Reporter(0.0).step("personalised")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
