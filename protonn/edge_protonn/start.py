"""Where training starts: the projection, the prototypes by k-means, and γ by the median rule."""

import numpy as np
from scipy.linalg import eigh
from sklearn.cluster import KMeans

from edge_protonn.heads import squared_distances

_KMEANS_STARTS = 1  # the best of three moves the held-out accuracy by less than the seed does, and triples the time


def start_projection(x: np.ndarray, kind: str, dim: int, random: np.random.Generator) -> np.ndarray:
    """W (d̂, D) float64: "pca" (orthonormal rows, most variance first), "random" (Gaussian over √D) or "none"
    (identity).
    """
    width = x.shape[1]
    if kind == "none":
        return np.eye(width)
    if kind == "random":
        gaussian: np.ndarray = random.standard_normal((min(dim, width), width)) / np.sqrt(width)
        return gaussian
    return principal_directions(x, dim)


def principal_directions(x: np.ndarray, dim: int) -> np.ndarray:
    """The `dim` orthonormal directions of most variance about the mean, as rows (min(dim, D), D), float64.

    With fewer samples than dimensions there are at most n - 1 directions with variance; the others are orthonormal too.
    """
    centred = x - x.mean(axis=0, dtype=np.float64)
    if dim < len(x) < x.shape[1]:  # the smaller of the two Gram matrices: 500 x 1280 in a tenth of the time
        wanted = (len(x) - dim, len(x) - 1)  # all 1000 vectors of 1000 x 1280 and their workspace would take 24 MB
        values, vectors = eigh(centred @ centred.T, subset_by_index=wanted, overwrite_a=True)
        directions = vectors[:, ::-1].T @ centred
        directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-30)
        if values[0] > 1e-9 * values[-1]:
            return _with_fixed_signs(directions)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    return _with_fixed_signs(vectors[:, ::-1].T[:dim])


def _with_fixed_signs(directions: np.ndarray) -> np.ndarray:
    """Each row turned so that its largest component is positive: eigh leaves that open."""
    signs = np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)])
    return np.ascontiguousarray(directions * signs[:, None])


def prototypes_per_class(
    projected: np.ndarray, labels: np.ndarray, n_prototypes: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """k-means of each class: its share of the prototypes follows its share of the entries, at least one each.

    Args:
        projected: (n, d̂).
        labels: int (n,).
        n_prototypes: wanted in all; more when there are more classes.
        seed: of k-means.

    Returns:
        Prototypes (m, d̂), their labels int (m,), and the entries each stands for (m,).
    """
    classes, counts = np.unique(labels, return_counts=True)
    centres, centre_labels, masses = [], [], []
    for label, share in zip(classes, shares_of_classes(counts, n_prototypes), strict=True):
        found, sizes = k_means(projected[labels == label], int(share), seed)
        centres.append(found)
        masses.append(sizes)
        centre_labels.append(np.full(len(found), label))
    return np.concatenate(centres), np.concatenate(centre_labels), np.concatenate(masses)


def shares_of_classes(counts: np.ndarray, n_prototypes: int) -> np.ndarray:
    """Prototypes of each class, int, at least 1 and at most its entries, in all `n_prototypes` where that can be
    (largest averages).
    """
    shares = np.ones(len(counts), int)
    for _ in range(min(n_prototypes, int(counts.sum())) - len(counts)):
        room = np.where(shares < counts, counts / (shares + 0.5), -1.0)  # Sainte-Laguë: small classes are not starved
        shares[room.argmax()] += 1
    return shares


def k_means(points: np.ndarray, n_centres: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """At most `n_centres` centres (duplicates of points make fewer) and how many points each has."""
    distinct = np.unique(points, axis=0)
    if len(distinct) <= n_centres:
        nearest = squared_distances(points, distinct).argmin(axis=1)
        return distinct, np.bincount(nearest, minlength=len(distinct)).astype(float)
    found = KMeans(n_centres, n_init=_KMEANS_STARTS, random_state=seed).fit(points)
    sizes = np.bincount(found.labels_, minlength=n_centres).astype(float)
    return found.cluster_centers_[sizes > 0], sizes[sizes > 0]


def median_gamma(projected: np.ndarray, prototypes: np.ndarray) -> float:
    """The paper's rule γ = 2.5 / median ‖b_j - u_i‖ (not squared; two of the published codes differ by mistake)."""
    median = float(np.median(np.sqrt(squared_distances(projected, prototypes))))
    return 2.5 / median if median > 0.0 else 1.0
