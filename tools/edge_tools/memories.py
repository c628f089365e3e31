"""Recipes: every way to make a compressed memory from a store's entries, and the memory that each makes.

All of them end in the same `Prototypes`, so they are judged, counted and used alike.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from edge_protonn import ProtoNN, ProtoNNSettings
from edge_protonn.start import principal_directions
from edge_sdk.errors import ConfigError
from edge_sdk.interpolation import knn_probabilities
from edge_sdk.protonn import Prototypes

METHODS = ("keys", "kept entries", "k-means", "protonn")
_RATE_WITH_PROJECTION = 0.005  # W moves every entry at once: at 0.02 training diverges on some seeds
_BLOCK = 256  # rows whose distances to all entries are held at once


class Entries(NamedTuple):
    """The labelled entries that a memory is made of, oldest first."""

    embeddings: np.ndarray
    """float32 (n, dim)."""

    labels: np.ndarray
    """int64 (n,)."""

    probabilities: np.ndarray
    """float32 (n, n_classes), the global model's answers."""

    def rows(self, chosen: np.ndarray) -> "Entries":
        """Some of them, by number or by mask."""
        return Entries(self.embeddings[chosen], self.labels[chosen], self.probabilities[chosen])


class Projection(NamedTuple):
    """u = Wx + offset."""

    matrix: np.ndarray
    """float64 (d̂, dim)."""

    offset: np.ndarray
    """float64 (d̂,)."""

    def rows(self, dim: int) -> "Projection":
        """The first `dim` directions."""
        return Projection(self.matrix[:dim], self.offset[:dim])

    def __call__(self, embeddings: np.ndarray) -> np.ndarray:
        """(n, dim) -> float64 (n, d̂)."""
        projected = np.empty((len(embeddings), len(self.matrix)))
        for start in range(0, len(embeddings), _BLOCK):  # all at once would first become a float64 copy
            projected[start : start + _BLOCK] = embeddings[start : start + _BLOCK] @ self.matrix.T + self.offset
        return projected


class Kernel(NamedTuple):
    """How neighbours vote in the full store."""

    kernel: str = "laplacian"
    bandwidth: float = 1.0
    k: int = 10


DEFAULT_KERNEL = Kernel()


class Learning(NamedTuple):
    """How "protonn" learns and "k-means" fits its γ.

    The defaults are those that `edge_tools.benchmarks.compress_choose` chose, on people and images that no reported
    figure rests on.
    """

    jitter: float = 1.5
    """See `ProtoNNSettings`."""

    teacher_share: float = 0.0
    """What leave-one-out kNN has of the training targets; the labels have the rest."""

    entries_per_prototype: int = 24
    """The search offers no more than one prototype for so many entries: more would learn them by heart."""

    epochs: int = 160
    learning_rate: float = 0.05
    gamma_teacher_share: float = 0.7
    """The teacher's share of the targets that "k-means" fits its γ to: without jitter, labels alone make it too
    sharp."""


DEFAULT_LEARNING = Learning()


@dataclass(frozen=True)
class Recipe:
    """One way to make a memory."""

    method: str
    """"keys": every entry, rounded; "kept entries": the most useful ones; "k-means": centres of each class; "protonn":
    centres that are then learnt."""

    dim: int | None = None
    """Width after PCA; None: the embedding's own."""

    n_prototypes: int = 0
    """How many ("keys": all entries)."""

    key_dtype: str = "int8"
    seed: int = 0
    learning: Learning = DEFAULT_LEARNING
    learn_projection: bool = False

    kernel: Kernel = DEFAULT_KERNEL
    """Of the full store; "keys" keeps it, and the teacher of "protonn" uses it."""

    def __post_init__(self) -> None:
        """Check the method."""
        if self.method not in METHODS:
            raise ConfigError(f"method is one of {', '.join(METHODS)}, got {self.method!r}")

    @property
    def name(self) -> str:
        """For a table: method, width and rounding."""
        width = "" if self.dim is None else f" PCA-{self.dim}"
        learnt = " +W" if self.learn_projection else ""
        return f"{self.method}{width}{learnt} {self.key_dtype}"


def fit_projection(embeddings: np.ndarray, dim: int) -> Projection:
    """PCA: the `dim` directions of most variance, centred."""
    matrix = principal_directions(embeddings, dim)
    return Projection(matrix, -matrix @ embeddings.mean(axis=0, dtype=np.float64))


def make_memory(
    recipe: Recipe, entries: Entries, *, shared: Projection | None = None, own: Projection | None = None
) -> Prototypes:
    """The memory of some entries, rounded as it will be on disk, without λ_m.

    Args:
        recipe: how.
        entries: of what; at least 1.
        shared: a projection fitted elsewhere that the model file carries, instead of one of the memory's own: the
            memory then takes embeddings already projected by `shared.rows(recipe.dim)`.
        own: the entries' PCA, if the caller has it already, of at least `recipe.dim` directions.
    """
    projection = None
    x = entries.embeddings
    if recipe.dim is not None:
        fitted = shared if shared is not None else own
        projection = fit_projection(entries.embeddings, recipe.dim) if fitted is None else fitted.rows(recipe.dim)
        x = projection(x)
    if recipe.method == "protonn":
        memory = _learnt(recipe, entries, x, projection)
    elif recipe.method == "k-means":
        memory = _centres(recipe, entries, x)
    else:
        memory = _keys(recipe, entries, x)
    if projection is not None and shared is None and memory.projection is None:
        memory = _with_projection(memory, projection)
    return memory.rounded()


def _keys(recipe: Recipe, entries: Entries, x: np.ndarray) -> Prototypes:
    """Entries as prototypes, the k nearest voting as in the full store."""
    rows = np.arange(len(x))
    if recipe.method == "kept entries":
        rows = most_useful(np.asarray(x, np.float64), entries.labels, recipe.n_prototypes)
    kernel = recipe.kernel
    return Prototypes(
        keys=np.asarray(x[rows], np.float32),
        masses=np.ones(len(rows), np.float32),
        labels=entries.labels[rows],
        sharpness=1.0 / kernel.bandwidth,
        kernel="gaussian" if kernel.kernel == "gaussian" else "laplacian",
        k=kernel.k,
        key_dtype=recipe.key_dtype,
        n_entries=len(entries.labels),
        method=recipe.name,
    )


def _centres(recipe: Recipe, entries: Entries, x: np.ndarray) -> Prototypes:
    """k-means of each class; γ alone is fitted."""
    settings = ProtoNNSettings(
        n_prototypes=recipe.n_prototypes,
        projection="none",
        learn_prototypes=False,
        epochs=20,
        learning_rate=0.1,
        seed=recipe.seed,
    )
    return _as_memory(recipe, ProtoNN(settings), entries, x, x)


def _learnt(recipe: Recipe, entries: Entries, x: np.ndarray, projection: Projection | None) -> Prototypes:
    """ProtoNN."""
    learning = recipe.learning
    if not recipe.learn_projection or projection is None:
        settings = ProtoNNSettings(
            n_prototypes=recipe.n_prototypes,
            projection="none",
            epochs=learning.epochs,
            learning_rate=learning.learning_rate,
            jitter=learning.jitter,
            seed=recipe.seed,
        )
        return _as_memory(recipe, ProtoNN(settings), entries, x, x)
    settings = ProtoNNSettings(
        n_prototypes=recipe.n_prototypes,
        projection="given",
        learn_projection=True,
        learning_rate=_RATE_WITH_PROJECTION,
        epochs=learning.epochs,
        jitter=learning.jitter,
        seed=recipe.seed,
    )
    centre = entries.embeddings.mean(axis=0, dtype=np.float64)
    model = ProtoNN(settings)
    memory = _as_memory(recipe, model, entries, entries.embeddings - centre, x, projection.matrix)
    return _with_projection(memory, Projection(model.projection_, -model.projection_ @ centre))


def _as_memory(
    recipe: Recipe,
    model: ProtoNN,
    entries: Entries,
    x: np.ndarray,
    space: np.ndarray,
    projection: np.ndarray | None = None,
) -> Prototypes:
    """Fit, and take over what was learnt; `space` is where the teacher measures distances."""
    n_classes = entries.probabilities.shape[1]
    learning = recipe.learning
    share = learning.gamma_teacher_share if recipe.method == "k-means" else learning.teacher_share
    targets = (1.0 - share) * np.eye(n_classes)[entries.labels]
    if share:
        targets += share * teacher(entries.embeddings, entries.labels, n_classes, recipe.kernel)
    model.fit(x, entries.labels, n_classes=n_classes, targets=targets, projection=projection)
    # Ratios of masses are all that counts, float16 stores three digits of each.
    masses = model.masses_ * (len(entries.labels) / model.masses_.sum())
    return Prototypes(
        keys=model.prototypes_.astype(np.float32),
        masses=masses.astype(np.float32),
        labels=model.labels_.argmax(axis=1).astype(np.int64),
        sharpness=model.gamma_,
        key_dtype=recipe.key_dtype,
        n_entries=len(entries.labels),
        method=recipe.name,
    )


def _with_projection(memory: Prototypes, projection: Projection) -> Prototypes:
    return replace(memory, projection=projection.matrix.astype(np.float32), offset=projection.offset.astype(np.float32))


def teacher(embeddings: np.ndarray, labels: np.ndarray, n_classes: int, kernel: Kernel) -> np.ndarray:
    """p_knn of each entry from all the others, float64 (n, n_classes); with one entry, its label."""
    n = len(labels)
    if n < 2:
        own: np.ndarray = np.eye(n_classes)[labels]
        return own
    blocks = [slice(start, start + _BLOCK) for start in range(0, n, _BLOCK)]
    norms = np.concatenate([(embeddings[block].astype(np.float64) ** 2).sum(axis=1) for block in blocks])
    k = min(kernel.k, n - 1)
    nearest, distances = np.empty((n, k), np.int64), np.empty((n, k))
    for start in range(0, n, _BLOCK):  # 10 000 entries at once would take 800 MB
        rows = np.arange(start, min(start + _BLOCK, n))
        x = embeddings[rows].astype(np.float64)
        products = np.concatenate([x @ embeddings[block].astype(np.float64).T for block in blocks], axis=1)
        squared = norms[rows, None] + norms - 2.0 * products
        squared[rows - start, rows] = np.inf
        nearest[rows] = np.argpartition(squared, k - 1, axis=1)[:, :k]
        distances[rows] = np.sqrt(np.maximum(np.take_along_axis(squared, nearest[rows], axis=1), 0.0))
    return knn_probabilities(labels[nearest], distances, n_classes, kernel=kernel.kernel, bandwidth=kernel.bandwidth)


def most_useful(x: np.ndarray, labels: np.ndarray, n_kept: int) -> np.ndarray:
    """Condensation: the entry nearest to each class's mean, then again and again the entry that the kept ones get most
    wrong.

    Wrong is the nearest kept entry of its own class being far and that of another class near (Hart's condensed nearest
    neighbour rule, made a ranking so that any number can be kept).

    Args:
        x: (n, d̂).
        labels: int (n,).
        n_kept: wanted; at least one a class, at most n.

    Returns:
        Rows of `x`, int64, ascending.
    """
    kept = [int(rows[((x[rows] - x[rows].mean(axis=0)) ** 2).sum(axis=1).argmin()]) for rows in _rows_by_class(labels)]
    own, other = np.full(len(x), np.inf), np.full(len(x), np.inf)
    taken = np.zeros(len(x), bool)
    for row in kept:
        _approach(row, x, labels, own, other)
        taken[row] = True
    while len(kept) < min(n_kept, len(x)):
        margin = np.where(taken, -np.inf, np.sqrt(own) - np.sqrt(np.where(np.isfinite(other), other, 0.0)))
        row = int(margin.argmax())
        kept.append(row)
        taken[row] = True
        _approach(row, x, labels, own, other)
    return np.sort(np.array(kept, np.int64))


def _rows_by_class(labels: np.ndarray) -> list[np.ndarray]:
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def _approach(row: int, x: np.ndarray, labels: np.ndarray, own: np.ndarray, other: np.ndarray) -> None:
    """One more kept entry: lower the squared distances to the nearest kept one of the own and of another class, in
    place.
    """
    squared = ((x - x[row]) ** 2).sum(axis=1)
    same = labels == labels[row]
    np.minimum(own, squared, out=own, where=same)
    np.minimum(other, squared, out=other, where=~same)
