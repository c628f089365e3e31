"""p_knn: what the neighbours say, each weighing by its distance.

The kernel is the paper's exp(-d/σ). Every weight is divided by the nearest neighbour's before summing, because
exp(-104) is 0 in float32 and a far store would give 0/0.
"""

import numpy as np

KERNELS = ("laplacian", "gaussian", "uniform")


def kernel_weights(distances: np.ndarray, *, kernel: str, bandwidth: float) -> np.ndarray:
    """Weights of the neighbours, each query's nearest having weight 1.

    Args:
        distances: (n, k), Euclidean, not squared, k at least 1.
        kernel: one of `KERNELS`.
        bandwidth: σ, an absolute distance.

    Returns:
        float64 (n, k), in [0, 1].
    """
    scaled = np.asarray(distances, np.float64) / bandwidth
    if kernel == "uniform":
        return np.ones_like(scaled)
    if kernel == "gaussian":
        scaled = scaled * scaled
    weights: np.ndarray = np.exp(scaled.min(axis=1, keepdims=True) - scaled)
    return weights


def knn_probabilities(
    labels: np.ndarray, distances: np.ndarray, n_classes: int, *, kernel: str = "laplacian", bandwidth: float = 1.0
) -> np.ndarray:
    """p_knn(y|x) = Σ w_i·1[y_i = y] / Σ w_i.

    Args:
        labels: (n, k) class ids of the neighbours, k at least 1.
        distances: (n, k), Euclidean, not squared.
        n_classes: columns of the result.
        kernel: one of `KERNELS`.
        bandwidth: σ, an absolute distance.

    Returns:
        float64 (n, n_classes), rows summing to 1.
    """
    weights = kernel_weights(distances, kernel=kernel, bandwidth=bandwidth)
    weights /= weights.sum(axis=1, keepdims=True)
    cells = labels + n_classes * np.arange(len(labels))[:, None]
    summed = np.bincount(cells.ravel(), weights.ravel(), minlength=len(labels) * n_classes)
    return summed.reshape(len(labels), n_classes)
