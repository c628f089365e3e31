"""Writes a Predictor's answers to a recording into a file, so that two machines' answers can be compared.

    python tools/arm/answers.py MODEL DATASTORE RECORDING.npz ANSWERS.npz
"""

import sys
from pathlib import Path

import numpy as np

from edge_sdk import Predictor


def main(model: str, datastore: str, recording: str, answers: Path) -> None:
    """Predict every window of the recording; the datastore is only read."""
    with np.load(recording, allow_pickle=False) as archive:
        windows = archive["x"]
    with Predictor.open(model, datastore, read_only=True) as predictor:
        distributions = predictor.distributions(windows)
        np.savez(
            answers,
            blended=distributions.blended,
            alone=distributions.global_probabilities,
            labels=predictor.predict(windows),
            nearest=np.array([predictor.explain(window).voters[0].sequence for window in windows[:40]]),
        )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
