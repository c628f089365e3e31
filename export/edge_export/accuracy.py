"""Accuracy on calibration data: of the model's own scores, and of its nearest neighbours."""

import numpy as np

NEIGHBORS = 10
_BLOCK = 256


def score_accuracy(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Share of rows whose largest probability is at their label; rows with label -1 do not count."""
    known = labels >= 0
    return float((probabilities[known].argmax(axis=1) == labels[known]).mean()) if known.any() else float("nan")


def neighbor_accuracy(embeddings: np.ndarray, labels: np.ndarray) -> float:
    """Leave-one-out share of rows whose `NEIGHBORS` nearest others vote for their label.

    Votes weigh exp(-d), the laplacian kernel with bandwidth 1, less the smallest distance, which cancels.

    Args:
        embeddings: (n, dim).
        labels: (n,), -1 where unknown: such rows do not count and do not vote.
    """
    known = labels >= 0
    keys, names = embeddings[known].astype(np.float64), labels[known]
    if len(keys) < 2:
        return float("nan")
    k = min(NEIGHBORS, len(keys) - 1)
    norms = (keys**2).sum(axis=1)
    right = 0
    for start in range(0, len(keys), _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, len(keys)))
        squared = norms[rows, None] + norms - 2 * keys[rows] @ keys.T  # (block, n)
        squared[np.arange(len(rows)), rows] = np.inf
        nearest = np.argpartition(squared, k - 1, axis=1)[:, :k]
        distances = np.sqrt(np.maximum(np.take_along_axis(squared, nearest, axis=1), 0))
        weights = np.exp(distances.min(axis=1, keepdims=True) - distances)
        votes = np.zeros((len(rows), int(names.max()) + 1))
        np.add.at(votes, (np.arange(len(rows))[:, None], names[nearest]), weights)
        right += int((votes.argmax(axis=1) == names[rows]).sum())
    return right / len(keys)
