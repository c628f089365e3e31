"""A fine-tuned linear head: what a device with gradients would do, for comparison.

Fine-tuning the global model's last layer from where it stands is the same as learning an addition to it: with logits
log p_global + z·ΔW + Δb and Δ = 0 at the start, the softmax is the global model's own. Full-batch Adam with weight
decay on Δ; steps, rate and decay were chosen on clients of another partition (seed 5) and on the watch's training
people.
"""

from dataclasses import dataclass

import numpy as np

from edge_tools.benchmarks.reproduce.clients import Examples


@dataclass(frozen=True)
class FineTuning:
    """How the head is trained."""

    steps: int = 100
    rate: float = 0.03
    decay: float = 0.01
    """L2 penalty on ΔW, the embedding scaled to mean square 1 a value."""


def fine_tune(train: Examples, queries: Examples, settings: FineTuning) -> np.ndarray:
    """Answers of the fine-tuned head to `queries`, float32 (n, n_classes)."""
    scale = float(np.sqrt(np.mean(train.embeddings.astype(np.float64) ** 2))) or 1.0
    features = _features(train.embeddings, scale)
    offsets = _log(train.probabilities)
    wanted = np.eye(offsets.shape[1], dtype=np.float32)[train.labels]
    weights = np.zeros((features.shape[1], offsets.shape[1]), np.float32)
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, settings.steps + 1):
        gradient = (
            features.T @ (_softmax(offsets + features @ weights) - wanted) / len(wanted) + settings.decay * weights
        )
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        scaled = mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
        weights -= settings.rate * scaled / np.sqrt(features.shape[1])
    return _softmax(_log(queries.probabilities) + _features(queries.embeddings, scale) @ weights)


def _features(embeddings: np.ndarray, scale: float) -> np.ndarray:
    return np.column_stack((embeddings / scale, np.ones(len(embeddings)))).astype(np.float32)


def _log(probabilities: np.ndarray) -> np.ndarray:
    logs: np.ndarray = np.log(np.maximum(probabilities, np.float32(1e-4)))
    return logs


def _softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    softmax: np.ndarray = exponentials / exponentials.sum(axis=1, keepdims=True)
    return softmax
