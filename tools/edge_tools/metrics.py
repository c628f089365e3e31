"""Scores of predictions: accuracy, log-loss, calibration error, and the worst tenth of users."""

from collections.abc import Sequence

import numpy as np


def accuracy(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Share of equal class ids; NaN when there are none to compare."""
    return float((predicted == labels).mean()) if len(labels) else float("nan")


def calibration_error(probabilities: np.ndarray, labels: np.ndarray, *, bins: int = 15) -> float:
    """Expected calibration error: mean |confidence - accuracy| over equal-width bins of confidence, weighted by their
    counts.

    Args:
        probabilities: (n, n_classes), rows summing to 1.
        labels: (n,) class ids.
        bins: number of bins over [0, 1].
    """
    if not len(labels):
        return float("nan")
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(bin_of, right.astype(float) - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(labels))


def weighted_average(accuracies: Sequence[float], counts: Sequence[int]) -> float:
    """Accuracy over all users' test samples: each user weighs as many samples as he has."""
    weights = np.asarray(counts, float)
    used = weights > 0
    return float(np.average(np.asarray(accuracies, float)[used], weights=weights[used]))


def bottom_decile(accuracies: Sequence[float], counts: Sequence[int]) -> float:
    """Accuracy of the (M/10)-th worst of M users, one order statistic: ascending, 1-based, index max(1, ⌊M/10⌋).

    Users without test samples are dropped first. With fewer than 20 users this is the worst one.
    """
    ranked = sorted(value for value, count in zip(accuracies, counts, strict=True) if count > 0)
    return ranked[max(1, len(ranked) // 10) - 1]
