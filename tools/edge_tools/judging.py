"""Held-out judgement of a compressed memory: accuracy and λ_m on entries that it was not made of."""

from dataclasses import dataclass, replace

import numpy as np

from edge_sdk.interpolation import LARGEST_TUNED_WEIGHT, blend, log_loss, mixture_weights, shrink, winners
from edge_sdk.protonn import Prototypes
from edge_tools.memories import Entries, Projection, Recipe, fit_projection, make_memory

FOLDS = 4
_DOUBTFUL_NATS = 8.0
_BLOCK = 256  # queries answered at once


@dataclass(frozen=True)
class Judgement:
    """What one recipe reaches on entries held out from it."""

    recipe: Recipe
    accuracy: float
    """Of the blend with `interpolation_weight`."""

    memory_accuracy: float
    """Of the memory alone."""

    log_loss: float
    interpolation_weight: float
    """λ_m for a memory made of all entries."""

    n_held_out: int


def age_folds(labels: np.ndarray, n_folds: int = FOLDS) -> np.ndarray:
    """Fold of each entry, int (n,): the entries of a class, oldest first, in `n_folds` blocks.

    Neighbours in time are often near copies; in blocks few of them lie on both sides.
    """
    folds = np.zeros(len(labels), np.int64)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        # a class with fewer entries than folds spreads over different folds instead of all going first
        folds[rows] = (np.arange(len(rows)) * n_folds // len(rows) + (label if len(rows) < n_folds else 0)) % n_folds
    return folds


def judge(recipe: Recipe, entries: Entries, *, shared: Projection | None = None, n_folds: int = FOLDS) -> Judgement:
    """Judge one recipe, see `Judge`."""
    return Judge(entries, shared=shared, n_folds=n_folds).judge(recipe)


class Judge:
    """Makes memories without each fold in turn and lets them predict that fold; what folds share is made once."""

    def __init__(
        self, entries: Entries, *, shared: Projection | None = None, n_folds: int = FOLDS, n_rounds: int | None = None
    ) -> None:
        """Cut the entries.

        Args:
            entries: of the store, oldest first; at least 2.
            shared: see `make_memory`.
            n_folds: at least 2.
            n_rounds: only so many of the folds are held out (many entries need fewer); None: all.
        """
        self._entries, self._shared = entries, shared
        self._folds = age_folds(entries.labels, n_folds)
        self._rounds = [
            fold for fold in range(n_folds)[::-1][:n_rounds] if 0 < (self._folds == fold).sum() < len(self._folds)
        ]
        self._projections: dict[int, Projection] = {}

    def judge(self, recipe: Recipe) -> Judgement:
        """Accuracy and λ_m on held-out entries; the number of prototypes, meant for all entries, is scaled down with
        the fold.
        """
        entries, held_out_in_all = self._entries, np.isin(self._folds, self._rounds)
        answers = np.zeros(entries.probabilities.shape)
        for fold in self._rounds:
            held_out = self._folds == fold
            smaller = replace(recipe, n_prototypes=max(1, round(recipe.n_prototypes * float((~held_out).mean()))))
            memory = make_memory(
                smaller, entries.rows(~held_out), shared=self._shared, own=self._projection(fold, recipe.dim)
            )
            answers[held_out] = answer(memory, entries, held_out, self._shared)
        return _judged(recipe, answers[held_out_in_all], entries.rows(held_out_in_all), len(entries.labels))

    def _projection(self, fold: int, dim: int | None) -> Projection | None:
        """The PCA of all entries but a fold's."""
        if dim is None or self._shared is not None:
            return None
        if fold not in self._projections or len(self._projections[fold].matrix) < dim:
            self._projections[fold] = fit_projection(self._entries.embeddings[self._folds != fold], dim)
        return self._projections[fold]


def _judged(recipe: Recipe, answers: np.ndarray, held_out: Entries, n_entries: int) -> Judgement:
    rows = np.arange(len(held_out.labels))
    likelihoods = answers[rows, held_out.labels], held_out.probabilities[rows, held_out.labels]
    frequencies = class_frequencies(held_out.labels, held_out.probabilities.shape[1])
    weight = choose_weight(*likelihoods, frequencies, n_entries=n_entries)
    blended = blend(held_out.probabilities, answers, interpolation_weight=weight)
    return Judgement(
        recipe=recipe,
        accuracy=float((winners(blended, held_out.probabilities) == held_out.labels).mean()),
        memory_accuracy=float((answers.argmax(axis=1) == held_out.labels).mean()),
        log_loss=log_loss(blended[rows, held_out.labels]),
        interpolation_weight=weight,
        n_held_out=len(rows),
    )


def answer(memory: Prototypes, entries: Entries, chosen: np.ndarray, shared: Projection | None = None) -> np.ndarray:
    """The memory's distributions for some entries, (m, n_classes)."""
    x = entries.embeddings[chosen]
    if shared is not None and memory.dim != x.shape[1]:
        x = shared.rows(memory.dim)(x).astype(np.float32)
    n_classes = entries.probabilities.shape[1]
    answers = np.zeros((len(x), n_classes))
    for start in range(0, len(x), _BLOCK):
        answers[start : start + _BLOCK] = memory.probabilities(x[start : start + _BLOCK], n_classes)
    return answers


def choose_weight(
    memory_likelihoods: np.ndarray,
    global_likelihoods: np.ndarray,
    frequency_likelihoods: np.ndarray,
    *,
    n_entries: int,
) -> float:
    """λ_m by EM on held-out likelihoods of the true labels, shrunk towards 0 as everywhere.

    Labels that have nothing to do with the input are explained by the plain class frequencies as well as by a memory.
    So λ_m goes by x⁴ / (x⁴ + 8⁴), x being the nats that the memory explains beyond the global model and the
    frequencies: random labels give about 2, a hundred entries that mean something 20 or more.

    Args:
        memory_likelihoods: (n,).
        global_likelihoods: (n,).
        frequency_likelihoods: (n,).
        n_entries: in the whole store, for the shrinkage.
    """
    weight = min(float(mixture_weights(np.stack([memory_likelihoods, global_likelihoods]))[0]), LARGEST_TUNED_WEIGHT)
    others = np.stack([global_likelihoods, frequency_likelihoods])
    everyone = np.stack([*others, memory_likelihoods])
    losses = [log_loss(mixture_weights(experts) @ experts) for experts in (others, everyone)]
    nats = max(0.0, losses[0] - losses[1]) * len(memory_likelihoods)
    return shrink(weight * nats**4 / (nats**4 + _DOUBTFUL_NATS**4), n_entries)


def class_frequencies(labels: np.ndarray, n_classes: int) -> np.ndarray:
    """How often each entry's label occurs among the other entries, half a count added to each class, (n,)."""
    counts = np.bincount(labels, minlength=n_classes)
    frequencies: np.ndarray = (counts[labels] - 0.5) / (len(labels) - 1 + 0.5 * n_classes)
    return frequencies
