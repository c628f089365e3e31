"""The mixture of the global model and the memory, and its weights by expectation-maximisation."""

import numpy as np

SMALLEST_PROBABILITY = 1e-7
"""What float16 can still tell from 0; keeps every logarithm finite."""


def blend(global_probabilities: np.ndarray, local: np.ndarray, *, interpolation_weight: float) -> np.ndarray:
    """λ_m·p_local + (1-λ_m)·p_global; both (n, n_classes) with rows summing to 1, and so is the float64 result.

    p_local is p_knn, or its mixture with the head's answer.
    """
    blended: np.ndarray = interpolation_weight * local + (1.0 - interpolation_weight) * global_probabilities.astype(
        np.float64
    )
    return blended


def winners(blended: np.ndarray, global_probabilities: np.ndarray) -> np.ndarray:
    """Class id of each row's largest probability; ties: the class the global model prefers, then class order."""
    tied = blended == blended.max(axis=1, keepdims=True)
    best: np.ndarray = np.where(tied, global_probabilities, -1.0).argmax(axis=1)
    return best


def mixture_weights(likelihoods: np.ndarray, *, iterations: int = 200) -> np.ndarray:
    """Maximum-likelihood weights of a mixture of experts, by EM.

    The log-loss is convex in the weights, so EM's monotone ascent ends at the one optimum.

    Args:
        likelihoods: (n_experts, n), the probability each expert gave to the true label.
        iterations: most EM steps; it stops earlier when no weight moves by 1e-6.

    Returns:
        float64 (n_experts,), summing to 1.
    """
    clipped = np.maximum(np.asarray(likelihoods, np.float64), SMALLEST_PROBABILITY)
    weights: np.ndarray = np.full(len(clipped), 1.0 / len(clipped))
    for _ in range(iterations):
        responsibilities = weights[:, None] * clipped
        responsibilities /= responsibilities.sum(axis=0)
        updated: np.ndarray = responsibilities.mean(axis=1)
        if np.abs(updated - weights).max() < 1e-6:
            return updated
        weights = updated
    return weights


def log_loss(likelihoods: np.ndarray) -> float:
    """Mean negative logarithm of the probability given to the true label, clipped at 1e-7."""
    return float(-np.log(np.maximum(likelihoods, SMALLEST_PROBABILITY)).mean())
