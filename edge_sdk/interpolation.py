"""The blend λ_m·p_knn + (1-λ_m)·p_global, and how λ_m is chosen.

Formulas: "Personalized Federated Learning through Local Memorization" (Marfoq et al., ICML 2022), equations for p_knn
    and the
mixture. The kernel is the paper's exp(-d/σ); every weight is divided by the nearest neighbour's before summing, because
exp(-104) is 0 in float32 and a far store would give 0/0.

λ_m is chosen leave-one-out: each entry is predicted from the others, never from itself (an entry that finds itself at
distance 0 drives λ_m to 1 on anything, random labels included).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.errors import ConfigError
from edge_sdk.neighbors import Index

KERNELS = ("laplacian", "gaussian", "uniform")
LARGEST_TUNED_WEIGHT = 0.99
"""At λ_m = 1 a class absent from the store could never be predicted; only a user may set that."""

SHRINKAGE_ENTRIES = 10
"""λ_m = λ·n/(n + 10): the global model until there is evidence."""

_UNTUNED_WEIGHT = 0.5
_SMALLEST_PROBABILITY = 1e-7  # what float16 can still tell from 0; keeps every logarithm finite
_MOST_LEFT_OUT = 1000  # entries predicted in one tuning; more changes λ_m by less than its own standard error of 0.015
_CANDIDATE_KS = (10, 7, 5, 15)
LEFT_OUT_K = max(_CANDIDATE_KS)
"""Neighbours that `tune` wants from `leave_one_out`."""

_CANDIDATE_BANDWIDTHS = (1.0, 0.5, 0.25, 2.0)  # multiples of the median distance to the nearest other entry


@dataclass(frozen=True)
class Interpolation:
    """The blend's settings and where they came from."""

    interpolation_weight: float
    """λ_m in [0, 1]; 0 is the global model alone."""

    kernel: str = "laplacian"
    """"laplacian" exp(-d/σ), "gaussian" exp(-d²/σ²) or "uniform" (every neighbour counts the same)."""

    bandwidth: float = 1.0
    """σ, an absolute distance, above 0."""

    k: int = 10
    """How many neighbours vote."""

    chosen_by: str = "default"
    """"default" (untuned), "leave-one-out" or "user"."""

    n_entries: int = 0
    """Entries in the store when this was chosen."""

    evidence: dict[str, float] = field(default_factory=dict)
    """What the choice rests on: leave-one-out accuracy and log-loss of the global model and of the blend."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0.0 <= self.interpolation_weight <= 1.0:
            raise ConfigError(f"the interpolation weight λ must lie in [0, 1], got {self.interpolation_weight}")
        if self.kernel not in KERNELS:
            raise ConfigError(f"unknown kernel {self.kernel!r}; choose one of {', '.join(KERNELS)}")
        if not (np.isfinite(self.bandwidth) and self.bandwidth > 0.0):
            raise ConfigError(f"the bandwidth must be a distance above 0, got {self.bandwidth}")
        if self.k < 1:
            raise ConfigError(f"k must be at least 1, got {self.k}")

    def to_mapping(self) -> dict[str, Any]:
        """The JSON mapping that the manifest stores."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, mapping: dict[str, Any]) -> "Interpolation":
        """Read back what `to_mapping` gave; unknown keys of later versions are ignored."""
        return cls(**{name: mapping[name] for name in cls.__dataclass_fields__ if name in mapping})

    @classmethod
    def untuned(cls, n_entries: int) -> "Interpolation":
        """The settings before any tuning: λ_m = 0.5·n/(n + 10)."""
        return cls(shrink(_UNTUNED_WEIGHT, n_entries), n_entries=n_entries)


def shrink(weight: float, n_entries: int) -> float:
    """λ·n/(n + 10), so that a handful of entries does not rule everything."""
    return weight * n_entries / (n_entries + SHRINKAGE_ENTRIES)


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


def blend(global_probabilities: np.ndarray, knn: np.ndarray, *, interpolation_weight: float) -> np.ndarray:
    """λ_m·p_knn + (1-λ_m)·p_global; both (n, n_classes) with rows summing to 1, and so is the float64 result."""
    blended: np.ndarray = (1.0 - interpolation_weight) * global_probabilities.astype(np.float64)
    blended += interpolation_weight * knn
    return blended


def winners(blended: np.ndarray, global_probabilities: np.ndarray) -> np.ndarray:
    """Class id of each row's largest probability; ties go to what the global model prefers, then to class order."""
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
    clipped = np.maximum(np.asarray(likelihoods, np.float64), _SMALLEST_PROBABILITY)
    weights = np.full(len(clipped), 1.0 / len(clipped))
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
    return float(-np.log(np.maximum(likelihoods, _SMALLEST_PROBABILITY)).mean())


@dataclass(frozen=True)
class LeftOut:
    """Entries predicted from the others: what tuning looks at."""

    labels: np.ndarray
    """int32 (n,), the true class ids."""

    global_probabilities: np.ndarray
    """float32 (n, n_classes), what the model said when each entry was learnt."""

    neighbor_labels: np.ndarray
    """int32 (n, k)."""

    neighbor_distances: np.ndarray
    """float64 (n, k), nearest first."""


def leave_one_out(datastore: Datastore, index: Index, *, k: int) -> LeftOut:
    """Predict each of the newest 1000 entries from all the others.

    Args:
        datastore: at least 2 entries.
        index: search over it.
        k: neighbours to ask for.
    """
    slots = datastore.table.order[-_MOST_LEFT_OUT:]
    neighbors = index.search(datastore.embeddings(slots), k, exclude=datastore.table.sequences[slots])
    return LeftOut(
        labels=datastore.table.labels[slots],
        global_probabilities=datastore.probabilities(slots),
        neighbor_labels=neighbors.labels,
        neighbor_distances=neighbors.distances,
    )


def tune_datastore(datastore: Datastore, index: Index) -> Interpolation:
    """Choose the blend's settings for a datastore and save them in it.

    With fewer than 2 entries there is nothing to leave out: the untuned settings are returned, nothing is saved.

    Raises:
        DatastoreError: read-only, or locked by another process. The saved settings stay as they were.
    """
    datastore.refresh()
    n_entries = len(datastore)
    if n_entries < 2:
        return Interpolation.untuned(n_entries)
    chosen = tune(leave_one_out(datastore, index, k=LEFT_OUT_K), n_entries=n_entries)
    datastore.save_interpolation(chosen.to_mapping())
    return chosen


def tune(left_out: LeftOut, *, n_entries: int, kernels: Sequence[str] = ("laplacian", "gaussian")) -> Interpolation:
    """Choose λ_m, kernel, bandwidth and k by leave-one-out log-loss.

    λ_m is the weight of p_knn in a mixture of three experts: p_knn, the global model, and the plain class frequencies.
    The third is there for labels that have nothing to do with the input: it explains those as well as the neighbours
    do. What the neighbours still seem to add by chance is taken back by the probability that they add anything at all
    (`_belief`).

    Args:
        left_out: from `leave_one_out`.
        n_entries: entries in the store, for the shrinkage towards 0.
        kernels: kernels to choose from.
    """
    rows = np.arange(len(left_out.labels))
    others = np.stack([left_out.global_probabilities[rows, left_out.labels], _class_frequencies(left_out)])
    best, best_loss = Interpolation.untuned(n_entries), np.inf
    for candidate in _candidates(left_out, kernels):
        experts = np.vstack([_knn_likelihood(left_out, candidate), others])
        weights = mixture_weights(experts)
        loss = log_loss(weights @ experts)
        if loss < best_loss - 1e-4:  # the earlier, plainer candidate wins what is no difference
            best, best_loss = replace(candidate, interpolation_weight=float(weights[0])), loss
    belief = _belief(log_loss(mixture_weights(others) @ others) - best_loss, len(rows))
    weight = min(shrink(best.interpolation_weight * belief, n_entries), LARGEST_TUNED_WEIGHT)
    chosen = replace(best, interpolation_weight=weight, n_entries=n_entries)
    return replace(chosen, chosen_by="leave-one-out", evidence=_evidence(left_out, chosen))


def _belief(gain: float, n: int) -> float:
    """Probability that the neighbours say more than the class frequencies, after Schwarz (1978).

    Args:
        gain: mean log-likelihood that they add, nats an entry.
        n: entries predicted.

    Returns:
        1 / (1 + exp(log n - n·gain)): the Bayes factor with a penalty of ½·log n for each of the two parameters
        (weight and bandwidth). 500 random labels seem to gain 2 to 4 nats in all, the penalty is 6.
    """
    return float(1.0 / (1.0 + np.exp(np.clip(np.log(n) - n * gain, -50.0, 50.0))))


def _candidates(left_out: LeftOut, kernels: Sequence[str]) -> list[Interpolation]:
    """Every kernel, bandwidth and k to try, the default first."""
    nearest = left_out.neighbor_distances[:, 0]
    scale = float(np.median(nearest[nearest > 0])) if (nearest > 0).any() else 1.0
    n_found = left_out.neighbor_distances.shape[1]
    ks = list(dict.fromkeys(min(k, n_found) for k in _CANDIDATE_KS))
    bandwidths = (1.0, *(multiple * scale for multiple in _CANDIDATE_BANDWIDTHS))
    return [
        Interpolation(0.0, kernel=kernel, bandwidth=bandwidth, k=k)
        for kernel in kernels
        for k in ks
        for bandwidth in bandwidths
    ]


def _knn_likelihood(left_out: LeftOut, settings: Interpolation) -> np.ndarray:
    """p_knn of the true label, (n,)."""
    weights = kernel_weights(
        left_out.neighbor_distances[:, : settings.k], kernel=settings.kernel, bandwidth=settings.bandwidth
    )
    agrees = left_out.neighbor_labels[:, : settings.k] == left_out.labels[:, None]
    likelihood: np.ndarray = (weights * agrees).sum(axis=1) / weights.sum(axis=1)
    return likelihood


def _class_frequencies(left_out: LeftOut) -> np.ndarray:
    """How often the true label occurs among the other entries, half a count added to each class, (n,)."""
    n_classes = left_out.global_probabilities.shape[1]
    counts = np.bincount(left_out.labels, minlength=n_classes)
    frequencies: np.ndarray = (counts[left_out.labels] - 0.5) / (len(left_out.labels) - 1 + 0.5 * n_classes)
    return frequencies


def _evidence(left_out: LeftOut, chosen: Interpolation) -> dict[str, float]:
    """Leave-one-out accuracy and log-loss, of the global model and of the blend."""
    n_classes = left_out.global_probabilities.shape[1]
    knn = knn_probabilities(
        left_out.neighbor_labels[:, : chosen.k],
        left_out.neighbor_distances[:, : chosen.k],
        n_classes,
        kernel=chosen.kernel,
        bandwidth=chosen.bandwidth,
    )
    blended = blend(left_out.global_probabilities, knn, interpolation_weight=chosen.interpolation_weight)
    rows = np.arange(len(left_out.labels))
    return {
        "left_out": float(len(rows)),
        "global_accuracy": float((left_out.global_probabilities.argmax(axis=1) == left_out.labels).mean()),
        "global_log_loss": log_loss(left_out.global_probabilities[rows, left_out.labels]),
        "accuracy": float((winners(blended, left_out.global_probabilities) == left_out.labels).mean()),
        "log_loss": log_loss(blended[rows, left_out.labels]),
    }
