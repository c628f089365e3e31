"""ProtoNN: a few learnt, labelled points in a projected space that stand for many entries.

Two departures from the paper, both because a device has hundreds of entries and not sixty thousand: all arrays are
trained together by Adam (the paper alternates over W, B and Z with a step size for each), and W stays fixed unless
asked for (D·d̂ free numbers on 300 entries overfit).
"""

from collections.abc import Callable

import numpy as np

from edge_protonn.adam import Adam
from edge_protonn.heads import (
    Batch,
    Parameters,
    hard_threshold,
    probability_loss,
    softmax,
    squared_distances,
    squared_loss,
)
from edge_protonn.settings import ProtoNNSettings
from edge_protonn.start import k_means, median_gamma, prototypes_per_class, start_projection
from edge_sdk.errors import InputError

_GAMMA_RANGE = np.log(8.0)
"""γ grows to at most 8 times its start: no gradient leads back from a kernel too narrow to reach an entry."""

_BLOCK = 256  # rows whose deviations are held at once

_CONFIDENT = 6.0  # logit of a prototype's own class at the start: softmax gives it 0.99 of 10 classes


class ProtoNN:
    """Prototypes, their labels and masses, a projection and γ, learnt from labelled embeddings.

    After `fit`: `projection_` (d̂, D), `prototypes_` (m, d̂), `labels_` (m, n_classes: soft labels on the simplex, or
    the squared head's Z), `masses_` (m,), `gamma_`, `losses_` (one a training epoch).
    """

    prototypes_: np.ndarray
    labels_: np.ndarray
    masses_: np.ndarray
    gamma_: float
    losses_: list[float]

    def __init__(self, settings: ProtoNNSettings | None = None) -> None:
        self.settings = settings or ProtoNNSettings()
        self._projection = np.zeros((0, 0))

    @property
    def projection_(self) -> np.ndarray:
        """W (d̂, D); made on demand where it is the identity, which takes 13 MB at 1280 dimensions."""
        return np.eye(self.prototypes_.shape[1]) if self._is_identity else self._projection

    @property
    def _is_identity(self) -> bool:
        return self.settings.projection == "none" and not self.settings.learn_projection

    def fit(
        self,
        x: np.ndarray,
        y: np.ndarray,
        *,
        n_classes: int,
        projection: np.ndarray | None = None,
        targets: np.ndarray | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> "ProtoNN":
        """Learn from labelled embeddings.

        Args:
            x: (n, D), finite, n at least 1; for the paper's head standardise it first.
            y: int (n,), class ids in [0, n_classes).
            n_classes: L.
            projection: W (d̂, D) for `projection="given"`.
            targets: distributions (n, n_classes) to learn instead of the one-hot labels, such as half of the labels and
                half of what full kNN says leave-one-out; on a few hundred entries that guards better against learning
                them by heart than fewer epochs or noise.
            progress: called with (epochs done, epochs in all) after every epoch.

        Returns:
            Itself.

        Raises:
            InputError: the shapes or values do not fit. Nothing learnt before is lost.
        """
        x, y = _checked(x, y, n_classes)
        if targets is not None and targets.shape != (len(x), n_classes):
            raise InputError(f"targets have shape {targets.shape}, expected {(len(x), n_classes)}")
        goals = np.eye(n_classes)[y] if targets is None else np.asarray(targets, np.float64)
        settings, random = self.settings, np.random.default_rng(self.settings.seed)
        parameters, labels = self._start(x, y, n_classes, projection, random)
        losses: list[float] = []
        if settings.epochs:
            seen = x if settings.learn_projection else self._projected(x, parameters.projection)
            noise = _spread_within(seen, y) * settings.jitter if settings.jitter else np.zeros(seen.shape[1])
            parameters, losses = self._train(parameters, seen, goals, noise, random, progress)
        self._projection, self.prototypes_ = parameters.projection, parameters.prototypes
        self.gamma_, self.losses_ = float(np.exp(parameters.log_gamma)), losses
        self.masses_ = np.exp(parameters.log_masses)
        if settings.head == "squared":
            self.labels_ = parameters.labels
        else:
            self.labels_ = softmax(parameters.labels) if settings.learn_labels else labels
        return self

    def scores(self, x: np.ndarray) -> np.ndarray:
        """Σ_j Z_j K_j (n, n_classes) of the squared head; class probabilities of the other."""
        distances = squared_distances(self._projected(np.asarray(x, np.float64), self._projection), self.prototypes_)
        exponents = -(self.gamma_**2) * distances
        if self.settings.head == "squared":
            scores: np.ndarray = np.exp(exponents) @ self.labels_
            return scores
        with np.errstate(divide="ignore"):  # a mass that fell to 0 has no vote
            answers: np.ndarray = softmax(exponents + np.log(self.masses_)) @ self.labels_
        return answers

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """Class probabilities (n, n_classes), rows summing to 1.

        The squared head's scores may be negative and sum to anything: max(s, 0) normalised, uniform where nothing is
        above 0.
        """
        scores = np.maximum(self.scores(x), 0.0)
        total = scores.sum(axis=1, keepdims=True)
        shares: np.ndarray = np.where(total > 0.0, scores / np.where(total > 0.0, total, 1.0), 1.0 / scores.shape[1])
        return shares

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Class ids int (n,)."""
        best: np.ndarray = self.scores(x).argmax(axis=1)
        return best

    def _start(
        self, x: np.ndarray, y: np.ndarray, n_classes: int, projection: np.ndarray | None, random: np.random.Generator
    ) -> tuple[Parameters, np.ndarray]:
        """Parameters before training, and the class distribution of each prototype's entries."""
        settings = self.settings
        if settings.projection == "given":
            if projection is None or projection.ndim != 2 or projection.shape[1] != x.shape[1]:
                found = None if projection is None else projection.shape
                raise InputError(f'projection="given" needs a matrix (d̂, {x.shape[1]}), got {found}')
            weights = np.asarray(projection, np.float64)
        elif self._is_identity:
            weights = np.zeros((0, x.shape[1]))
        else:
            weights = start_projection(x, settings.projection, settings.dim, random)
        projected = self._projected(x, weights)
        prototypes, labels, masses = self._start_prototypes(projected, y, n_classes, random)
        gamma = settings.gamma or median_gamma(projected, prototypes)
        start_labels = labels if settings.head == "squared" else _as_logits(labels, settings.learn_labels)
        return Parameters(weights, prototypes, start_labels, np.log(masses), np.asarray(np.log(gamma))), labels

    def _projected(self, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Wx of each row; x itself, not a copy of it, where W is the identity for good."""
        if self._is_identity:
            return x
        projected: np.ndarray = x @ weights.T
        return projected

    def _start_prototypes(
        self, projected: np.ndarray, y: np.ndarray, n_classes: int, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Prototypes (m, d̂), their label distributions (m, n_classes) and masses (m,)."""
        settings = self.settings
        if settings.start == "per-class":
            prototypes, labels, masses = prototypes_per_class(projected, y, settings.n_prototypes, settings.seed)
            return prototypes, np.eye(n_classes)[labels], masses
        if settings.start == "samples":
            rows = random.permutation(len(y))[: settings.n_prototypes]
            return projected[rows], np.eye(n_classes)[y[rows]], np.full(len(rows), len(y) / len(rows))
        prototypes, masses = k_means(projected, settings.n_prototypes, settings.seed)
        nearest = squared_distances(projected, prototypes).argmin(axis=1)
        counts = np.bincount(nearest * n_classes + y, minlength=len(prototypes) * n_classes).reshape(-1, n_classes)
        return prototypes, counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), masses

    def _train(
        self,
        parameters: Parameters,
        x: np.ndarray,
        targets: np.ndarray,
        noise: np.ndarray,
        random: np.random.Generator,
        progress: Callable[[int, int], None] | None,
    ) -> tuple[Parameters, list[float]]:
        """Mini-batch Adam; the learning rate falls along half a cosine.

        Args:
            parameters: the start.
            x: (n, D); (n, d̂) where the projection is not trained.
            targets: (n, n_classes).
            noise: like a row of x, deviation of the noise on each dimension.
            random: for batches and noise.
            progress: see `fit`.
        """
        settings = self.settings
        is_fixed = not settings.learn_projection
        loss_of = squared_loss if settings.head == "squared" else probability_loss
        optimiser = Adam(list(parameters), self._step_scales(parameters, x))
        narrowest = parameters.log_gamma + _GAMMA_RANGE
        n_batches = -(-len(x) // settings.batch)
        losses = []
        for epoch in range(settings.epochs):
            total = 0.0
            for number, rows in enumerate(np.array_split(random.permutation(len(x)), n_batches)):
                seen = x[rows] + noise * random.standard_normal((len(rows), x.shape[1])) if noise.any() else x[rows]
                loss, gradients = loss_of(parameters, Batch(seen, targets[rows], is_fixed))
                done = (epoch + number / n_batches) / settings.epochs
                rate = settings.learning_rate * 0.5 * (1.0 + np.cos(np.pi * done))
                moved = Parameters(*optimiser.step(list(parameters), list(gradients), rate))
                parameters = self._sparse(moved._replace(log_gamma=np.minimum(moved.log_gamma, narrowest)))
                total += loss * len(rows)
            losses.append(total / len(x))
            if progress is not None:
                progress(epoch + 1, settings.epochs)
        return parameters, losses

    def _step_scales(self, parameters: Parameters, x: np.ndarray) -> list[float]:
        """Adam's steps do not know the size of a number: give each array its natural unit (0: not trained)."""
        settings = self.settings
        projected = x @ parameters.projection.T if settings.learn_projection else x
        spread = float(_spread_within(projected, np.zeros(len(projected), int)).mean()) or 1.0
        is_probability = settings.head == "probability"
        label_step = 1.0 if not is_probability else 10.0 if settings.learn_labels else 0.0
        return [
            float(np.abs(parameters.projection).mean()) if settings.learn_projection else 0.0,
            spread if settings.learn_prototypes else 0.0,
            label_step,
            5.0 if is_probability and settings.learn_prototypes else 0.0,
            1.0 if settings.learn_gamma else 0.0,
        ]

    def _sparse(self, parameters: Parameters) -> Parameters:
        """The squared head's hard thresholding, after every step; W only where it is trained."""
        share = self.settings.sparsity
        if share >= 1.0:
            return parameters
        return parameters._replace(
            projection=hard_threshold(parameters.projection, share)
            if self.settings.learn_projection
            else parameters.projection,
            prototypes=hard_threshold(parameters.prototypes, share),
            labels=hard_threshold(parameters.labels, share),
        )


def _as_logits(labels: np.ndarray, is_soft: bool) -> np.ndarray:
    """Logits whose softmax is close to the label distributions; one-hot ones that are not trained stay exact (1 + e^-40
    is 1).
    """
    floor = np.exp(-_CONFIDENT) if is_soft else np.exp(-40.0)
    logits: np.ndarray = np.log(np.maximum(labels, floor))
    return logits


def _spread_within(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Standard deviation of each dimension about the class means, (D,)."""
    total = np.zeros(x.shape[1])
    for label in np.unique(y):
        members = np.flatnonzero(y == label)
        mean = x[members].mean(axis=0) if len(members) < len(x) else x.mean(axis=0)
        for start in range(0, len(members), _BLOCK):  # `x.std()` would take x once more
            total += ((x[members[start : start + _BLOCK]] - mean) ** 2).sum(axis=0)
    spread: np.ndarray = np.sqrt(total / len(x))
    return spread


def _checked(x: np.ndarray, y: np.ndarray, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """The data in float64 and int64.

    Raises:
        InputError: a shape or value does not fit.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y)
    if x.ndim != 2 or not len(x):
        raise InputError(f"x has shape {x.shape}, expected (n, D) with n at least 1")
    if y.shape != (len(x),) or y.dtype.kind not in "iu":
        raise InputError(f"y has shape {y.shape} and dtype {y.dtype}, expected {len(x)} integer class ids")
    if not np.isfinite(x).all():
        raise InputError(f"x holds NaN or infinity in row {int(np.flatnonzero(~np.isfinite(x).all(axis=1))[0])}")
    if y.min() < 0 or y.max() >= n_classes:
        raise InputError(f"y holds class ids {y.min()} to {y.max()}, expected 0 to {n_classes - 1}")
    return x, y.astype(np.int64)
