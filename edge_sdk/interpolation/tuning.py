"""Tuning: λ_m, kernel, bandwidth, k and the head's share, chosen leave-one-out.

λ_m is the weight of the memory in a mixture with the global model and, as a third expert, the plain class frequencies.
The third is there for labels that have nothing to do with the input: it explains those at least as well as the
neighbours do. Then, in this order (docs/interpolation.md has what each is worth):

- The log-loss's λ_m is a little low for the most right answers (neighbours that agree say 0 for all other classes, and
  one wrong 0 costs 16 nats), so it moves towards the nearest value that is within half a standard error of the best
  leave-one-out accuracy, as far as the evidence is no luck.
- Ten imaginary entries that found memory and global model equally good are counted in, and the whole is shrunk by
  n/(n + 10): with few entries this is about what an untuned store has.
- It is multiplied by the chance that the memory knows more than class frequencies at all (`_trust`).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.errors import ConfigError
from edge_sdk.head import HeadFit, choose_head
from edge_sdk.interpolation.kernel import kernel_weights, knn_probabilities
from edge_sdk.interpolation.left_out import LeftOut, leave_one_out
from edge_sdk.interpolation.mixture import blend, log_loss, mixture_weights, winners
from edge_sdk.interpolation.settings import LARGEST_TUNED_WEIGHT, Interpolation, check_experts, shrink
from edge_sdk.neighbors import Index
from edge_sdk.novelty import Novelty

CRITERIA = ("log-loss", "grid")
"""How λ_m is chosen: EM on the log-loss (see the module), or the paper's seven values by accuracy."""

PAPER_GRID = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)

_CANDIDATE_KS = (10, 7, 5, 15)
LEFT_OUT_K = max(_CANDIDATE_KS)
"""Neighbours that `tune` wants from `leave_one_out`."""

_CANDIDATE_BANDWIDTHS = (1.0, 0.5, 0.25, 2.0)  # multiples of the median distance to the nearest other entry
_FINE_GRID = np.linspace(0.0, LARGEST_TUNED_WEIGHT, 34)
_TOLERANCE = 0.5  # standard errors of the accuracy that are no difference
_DOUBTFUL_NATS = 8.0
_DOUBTFUL_Z = 5.0
_PRIOR_ENTRIES = 10
_PRIOR_WEIGHT = 0.5
_FEWEST_FOR_KERNELS = 100  # below, the choice among all 40 candidates finds more luck than truth
_FEWEST_FOR_HEAD = 10


def tune_datastore(
    datastore: Datastore, index: Index, *, experts: str | None = None, criterion: str = "log-loss", gap: int = 0
) -> Interpolation:
    """Choose the blend's settings for a datastore and save them in it.

    With fewer than 2 entries there is nothing to leave out: the untuned settings are returned, nothing is saved.

    Args:
        datastore: opened for writing.
        index: search over it.
        experts: one of `EXPERTS`; None: as saved, "knn" at first.
        criterion: one of `CRITERIA`.
        gap: see `leave_one_out`.

    Raises:
        ConfigError: unknown experts or criterion, or a gap below 0.
        DatastoreError: read-only, or locked by another process. The saved settings stay as they were.
    """
    datastore.refresh()
    saved = datastore.interpolation or {}
    experts = check_experts(experts or saved.get("experts", "knn"))
    n_entries = len(datastore)
    if n_entries < 2:
        return Interpolation.untuned(n_entries)
    left_out = leave_one_out(datastore, index, k=LEFT_OUT_K, gap=gap)
    fit = None
    if experts == "knn+head" and n_entries >= _FEWEST_FOR_HEAD:
        embeddings = datastore.embeddings(datastore.table.order[-len(left_out.labels) :])
        fit = HeadFit(embeddings, left_out.global_probabilities, left_out.labels)
    chosen = tune(left_out, n_entries=n_entries, head_fit=fit, criterion=criterion)
    chosen = replace(chosen, experts=experts, newest_sequence=datastore.table.newest)
    datastore.save_interpolation({**saved, **chosen.to_mapping()})
    return chosen


def tune(
    left_out: LeftOut,
    *,
    n_entries: int,
    kernels: Sequence[str] = ("laplacian", "gaussian"),
    head_fit: HeadFit | None = None,
    criterion: str = "log-loss",
) -> Interpolation:
    """Choose λ_m, kernel, bandwidth, k and, where a head is given, its settings and share.

    Args:
        left_out: from `leave_one_out`.
        n_entries: entries in the store, for the shrinkage towards 0.
        kernels: kernels to choose from.
        head_fit: over the entries of `left_out`, in their order; None: the neighbours alone.
        criterion: one of `CRITERIA`; "grid" keeps the paper's kernel (laplacian, σ = 1) and k = 10.

    Raises:
        ConfigError: unknown criterion.
    """
    if criterion not in CRITERIA:
        raise ConfigError(f"unknown criterion {criterion!r}; choose one of {', '.join(CRITERIA)}")
    rows = np.arange(len(left_out.labels))
    if criterion == "grid":
        settings = Interpolation(0.0, k=min(10, left_out.neighbor_distances.shape[1]))
    else:
        settings = _best_candidate(left_out, kernels)
    experts = [knn_of(left_out, settings)]
    if head_fit is not None:
        head, head_probabilities = choose_head(head_fit, left_out.labels)
        settings = replace(settings, head=head, experts="knn+head")
        experts.append(head_probabilities)
    likelihoods = [expert[rows, left_out.labels] for expert in experts]
    weights = mixture_weights(np.stack([*likelihoods, _global_likelihood(left_out), _class_frequencies(left_out)]))
    memory_weight = float(weights[:-2].sum())
    share = float(weights[1] / memory_weight) if head_fit is not None and memory_weight > 0.0 else 0.0
    local = experts[0] if share == 0.0 else (1.0 - share) * experts[0] + share * experts[1]
    if criterion == "grid":
        weight = _grid_weight(left_out, local)
    else:
        moved = _accurate_weight(left_out, local, memory_weight)
        weight = memory_weight + _surely(_gain(left_out, local), _DOUBTFUL_NATS) * (moved - memory_weight)
        weight = (len(rows) * weight + _PRIOR_ENTRIES * _PRIOR_WEIGHT) / (len(rows) + _PRIOR_ENTRIES)
        weight *= _trust(left_out, local)
    chosen = replace(
        settings,
        interpolation_weight=shrink(min(weight, LARGEST_TUNED_WEIGHT), n_entries),
        head_share=share,
        n_entries=n_entries,
        chosen_by="leave-one-out",
        novelty=Novelty.of(left_out.neighbor_distances[:, 0]),
    )
    return replace(chosen, evidence=_evidence(left_out, local, chosen.interpolation_weight))


def knn_of(left_out: LeftOut, settings: Interpolation) -> np.ndarray:
    """p_knn of every left-out entry, (n, n_classes)."""
    return knn_probabilities(
        left_out.neighbor_labels[:, : settings.k],
        left_out.neighbor_distances[:, : settings.k],
        left_out.global_probabilities.shape[1],
        kernel=settings.kernel,
        bandwidth=settings.bandwidth,
    )


def _best_candidate(left_out: LeftOut, kernels: Sequence[str]) -> Interpolation:
    """Kernel, bandwidth and k with the least log-loss, each with its own best λ_m."""
    global_likelihood, frequency_likelihood = _global_likelihood(left_out), _class_frequencies(left_out)
    candidates = _candidates(left_out, kernels)
    best, best_loss = candidates[0], np.inf
    for candidate in candidates:
        knn_likelihood = _knn_likelihood(left_out, candidate)
        weights = mixture_weights(np.stack([knn_likelihood, global_likelihood, frequency_likelihood]), iterations=50)
        weight = min(float(weights[0]), LARGEST_TUNED_WEIGHT)
        loss = log_loss(weight * knn_likelihood + (1.0 - weight) * global_likelihood)
        if loss < best_loss - 1e-4:  # the earlier, plainer candidate wins what is no difference
            best, best_loss = candidate, loss
    return best


def _candidates(left_out: LeftOut, kernels: Sequence[str]) -> list[Interpolation]:
    """Every kernel, bandwidth and k to try, the default first."""
    nearest = left_out.neighbor_distances[:, 0]
    scale = float(np.median(nearest[nearest > 0])) if (nearest > 0).any() else 1.0
    n_entries, n_found = left_out.neighbor_distances.shape
    ks = list(dict.fromkeys(min(k, n_found) for k in _CANDIDATE_KS))
    if n_entries < _FEWEST_FOR_KERNELS:
        kernels, ks = kernels[:1], ks[:1]
    bandwidths = (1.0, *(multiple * scale for multiple in _CANDIDATE_BANDWIDTHS))
    return [
        Interpolation(0.0, kernel=kernel, bandwidth=bandwidth, k=k)
        for kernel in kernels
        for k in ks
        for bandwidth in bandwidths
    ]


def _grid_weight(left_out: LeftOut, local: np.ndarray) -> float:
    """The paper's rule: the value with the best accuracy; ties go to the lower log-loss, then to the smaller value."""
    accuracies, losses = _scores(left_out, local, np.array(PAPER_GRID))
    return min(zip(-accuracies, losses, PAPER_GRID, strict=True))[2]


def _accurate_weight(left_out: LeftOut, local: np.ndarray, weight: float) -> float:
    """`weight`, moved to the nearest value that is about as accurate as any.

    Args:
        left_out: the entries.
        local: (n, n_classes), the memory's answers.
        weight: the log-loss's optimum.
    """
    accuracies, _ = _scores(left_out, local, _FINE_GRID)
    best = accuracies.max()
    about_as_good = _FINE_GRID[
        accuracies >= best - _TOLERANCE * np.sqrt(best * (1.0 - best) / len(left_out.labels)) - 1e-9
    ]
    if about_as_good[0] <= weight <= about_as_good[-1]:
        return weight
    return float(about_as_good[np.abs(about_as_good - weight).argmin()])


def _trust(left_out: LeftOut, local: np.ndarray) -> float:
    """The chance that the memory knows anything: near 0 for random labels, near 1 for real ones.

    The larger of two. First the posterior of two blends with the untuned λ_m, one with the memory and one with the
    class frequencies in its place, equally likely before: 1/(1 + e^-d) for the d nats by which the memory explains
    the labels better (neighbours of random labels rule out what then comes, so d falls with every entry). Second, for
    the user whose labels are all alike, where frequencies explain everything, how sure it is that the memory is right
    more often than the global model: z⁴/(z⁴ + 5⁴) for McNemar's z.
    """
    rows = np.arange(len(left_out.labels))
    prior = shrink(_PRIOR_WEIGHT, len(rows))
    rest = (1.0 - prior) * _global_likelihood(left_out)
    with_memory = log_loss(rest + prior * local[rows, left_out.labels])
    with_frequencies = log_loss(rest + prior * _class_frequencies(left_out))
    nats = float(np.clip((with_frequencies - with_memory) * len(rows), -50.0, 50.0))
    memory_right = winners(local, left_out.global_probabilities) == left_out.labels
    global_right = left_out.global_probabilities.argmax(axis=1) == left_out.labels
    won, lost = int((memory_right & ~global_right).sum()), int((global_right & ~memory_right).sum())
    z = (won - lost) / np.sqrt(max(1, won + lost))
    return max(1.0 / (1.0 + float(np.exp(-nats))), _surely(z, _DOUBTFUL_Z))


def _gain(left_out: LeftOut, local: np.ndarray) -> float:
    """Nats that the memory explains beyond global model and class frequencies; up to 6 by luck, 100 for a CIFAR
    client.
    """
    others = np.stack([_global_likelihood(left_out), _class_frequencies(left_out)])
    everyone = np.stack([*others, local[np.arange(len(left_out.labels)), left_out.labels]])
    losses = [log_loss(mixture_weights(experts) @ experts) for experts in (others, everyone)]
    return (losses[0] - losses[1]) * len(left_out.labels)


def _surely(value: float, doubtful: float) -> float:
    """0 at 0 and below, 1/2 at `doubtful`, 1 far above."""
    return max(0.0, value) ** 4 / (max(0.0, value) ** 4 + doubtful**4)


def _scores(left_out: LeftOut, local: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leave-one-out accuracy and log-loss for each λ_m, both (n_weights,)."""
    rows = np.arange(len(left_out.labels))
    accuracies, losses = [], []
    for weight in weights.tolist():
        blended = blend(left_out.global_probabilities, local, interpolation_weight=weight)
        accuracies.append(float((winners(blended, left_out.global_probabilities) == left_out.labels).mean()))
        losses.append(log_loss(blended[rows, left_out.labels]))
    return np.array(accuracies), np.array(losses)


def _knn_likelihood(left_out: LeftOut, settings: Interpolation) -> np.ndarray:
    """p_knn of the true label, (n,)."""
    distances = left_out.neighbor_distances[:, : settings.k]
    weights = kernel_weights(distances, kernel=settings.kernel, bandwidth=settings.bandwidth)
    agrees = left_out.neighbor_labels[:, : settings.k] == left_out.labels[:, None]
    likelihood: np.ndarray = (weights * agrees).sum(axis=1) / weights.sum(axis=1)
    return likelihood


def _global_likelihood(left_out: LeftOut) -> np.ndarray:
    """p_global of the true label, (n,)."""
    likelihood: np.ndarray = left_out.global_probabilities[np.arange(len(left_out.labels)), left_out.labels]
    return likelihood


def _class_frequencies(left_out: LeftOut) -> np.ndarray:
    """How often the true label occurs among the other entries, half a count added to each class, (n,)."""
    n_classes = left_out.global_probabilities.shape[1]
    counts = np.bincount(left_out.labels, minlength=n_classes)
    frequencies: np.ndarray = (counts[left_out.labels] - 0.5) / (len(left_out.labels) - 1 + 0.5 * n_classes)
    return frequencies


def _evidence(left_out: LeftOut, local: np.ndarray, weight: float) -> dict[str, float]:
    """Leave-one-out accuracy and log-loss, of the global model and of the blend."""
    rows = np.arange(len(left_out.labels))
    blended = blend(left_out.global_probabilities, local, interpolation_weight=weight)
    return {
        "left_out": float(len(rows)),
        "global_accuracy": float((left_out.global_probabilities.argmax(axis=1) == left_out.labels).mean()),
        "global_log_loss": log_loss(_global_likelihood(left_out)),
        "accuracy": float((winners(blended, left_out.global_probabilities) == left_out.labels).mean()),
        "log_loss": log_loss(blended[rows, left_out.labels]),
    }
