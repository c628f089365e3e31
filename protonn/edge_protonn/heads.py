"""The two losses of ProtoNN and their gradients, one function each: parameters and a batch in, loss and gradients out.

Formulas: Gupta et al., "ProtoNN: Compressed and Accurate kNN for Resource-scarce Devices" (ICML 2017), equations 1 to
4, for the squared head; the probability head is kernel kNN's own estimator with m soft-labelled keys. Both are written
out, not differentiated by a library: training runs on boards where no such library is. The tests hold them against
finite differences and torch.

Shapes: X (n, D), projected U = XWᵀ (n, d̂), prototypes B (m, d̂), labels (m, L).
"""

from typing import NamedTuple

import numpy as np


class Parameters(NamedTuple):
    """What a fit learns; also the shape of its gradients."""

    projection: np.ndarray
    """W (d̂, D)."""

    prototypes: np.ndarray
    """B (m, d̂)."""

    labels: np.ndarray
    """Probability head: A (m, L), whose softmax is the soft label. Squared head: Z (m, L)."""

    log_masses: np.ndarray
    """log c (m,); the squared head has none and leaves it alone."""

    log_gamma: np.ndarray
    """log γ, shape ()."""


class Batch(NamedTuple):
    """Entries to learn from."""

    x: np.ndarray
    """(n, D); (n, d̂) where `is_projected`."""

    targets: np.ndarray
    """(n, L), each row a class distribution (one-hot, or softer)."""

    is_projected: bool = False
    """Whether `x` is Wx already, because W stays as it is: its gradient is left out (0)."""


def squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """‖a_i - b_j‖², (len(a), len(b)), never below 0."""
    sizes = [np.einsum("ij,ij->i", points, points) for points in (a, b)]  # `a * a` would take a once more
    squared: np.ndarray = np.maximum(sizes[0][:, None] + sizes[1] - 2.0 * (a @ b.T), 0.0)
    return squared


def softmax(x: np.ndarray) -> np.ndarray:
    """Along the last axis."""
    shifted = np.exp(x - x.max(axis=-1, keepdims=True))
    result: np.ndarray = shifted / shifted.sum(axis=-1, keepdims=True)
    return result


def probability_loss(parameters: Parameters, batch: Batch) -> tuple[float, Parameters]:
    """Mean cross-entropy -Σ_y t_y log p(y|x) of p(y|x) = Σ_j π_jy c_j K_j / Σ_j c_j K_j, K_j = exp(-γ²‖u - b_j‖²), and
    its gradients.
    """
    n = len(batch.x)
    gamma_squared = np.exp(2.0 * parameters.log_gamma)
    projected = batch.x if batch.is_projected else batch.x @ parameters.projection.T  # (n, d̂)
    distances = squared_distances(projected, parameters.prototypes)  # (n, m)
    shares = softmax(parameters.log_masses - gamma_squared * distances)  # (n, m), s_j
    soft_labels = softmax(parameters.labels)  # (m, L), π
    answers = np.maximum(shares @ soft_labels, 1e-12)  # (n, L)
    loss = -(batch.targets * np.log(answers)).sum() / n

    ratio = batch.targets / answers / n  # (n, L)
    credit = shares * (ratio @ soft_labels.T)  # (n, m); Σ over the labels of t_y q_j
    slope = shares * batch.targets.sum(axis=1, keepdims=True) / n - credit  # ∂/∂a_j
    per_label = soft_labels * (shares.T @ ratio)  # (m, L)
    labels = soft_labels * per_label.sum(axis=1, keepdims=True) - per_label
    return float(loss), _through_kernel(parameters, batch, projected, distances, slope, labels, slope.sum(axis=0))


def squared_loss(parameters: Parameters, batch: Batch) -> tuple[float, Parameters]:
    """Mean squared error ‖y - Σ_j Z_j K_j‖², K_j = exp(-γ²‖u - b_j‖²), and its gradients (the paper's loss)."""
    n = len(batch.x)
    gamma_squared = np.exp(2.0 * parameters.log_gamma)
    projected = batch.x if batch.is_projected else batch.x @ parameters.projection.T
    distances = squared_distances(projected, parameters.prototypes)
    kernel = np.exp(-gamma_squared * distances)  # (n, m)
    residual = kernel @ parameters.labels - batch.targets  # (n, L)
    loss = (residual**2).sum() / n
    slope = 2.0 * (residual @ parameters.labels.T) * kernel / n  # ∂/∂a_j, a_j = -γ²‖u - b_j‖²
    labels = 2.0 * (kernel.T @ residual) / n
    return float(loss), _through_kernel(
        parameters, batch, projected, distances, slope, labels, np.zeros_like(parameters.log_masses)
    )


def _through_kernel(
    parameters: Parameters,
    batch: Batch,
    projected: np.ndarray,
    distances: np.ndarray,
    slope: np.ndarray,
    labels: np.ndarray,
    log_masses: np.ndarray,
) -> Parameters:
    """Carry ∂/∂a_j, a_j = -γ²‖u - b_j‖², on to B, W and γ."""
    gamma_squared = np.exp(2.0 * parameters.log_gamma)
    # Σ_i slope_ij (u_i - b_j) and Σ_j slope_ij (u_i - b_j), without an (n, m, d̂) array
    prototypes = 2.0 * gamma_squared * (slope.T @ projected - slope.sum(axis=0)[:, None] * parameters.prototypes)
    projection = np.zeros(())
    if not batch.is_projected:
        toward = slope.sum(axis=1)[:, None] * projected - slope @ parameters.prototypes  # (n, d̂)
        projection = -2.0 * gamma_squared * (toward.T @ batch.x)
    return Parameters(
        projection=projection,
        prototypes=prototypes,
        labels=labels,
        log_masses=log_masses,
        log_gamma=np.asarray(-2.0 * gamma_squared * (slope * distances).sum()),
    )


def hard_threshold(values: np.ndarray, share: float) -> np.ndarray:
    """Keep the `share` largest |entries| of a matrix, at least one; the others become 0."""
    keep = max(1, round(share * values.size))
    if keep >= values.size:
        return values
    smallest = np.partition(np.abs(values).ravel(), values.size - keep)[values.size - keep]
    return np.where(np.abs(values) >= smallest, values, 0.0)
