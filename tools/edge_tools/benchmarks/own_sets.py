"""ProtoNN on a data set of its own kind, without a global model: scikit-learn's digits, both heads against kNN.

Of the paper's public sets (letter, USPS, MNIST, ...) none is shipped by a package that this project uses; digits is the
nearest: handwritten digits like USPS, at 8 x 8 pixels. The paper's figures are for other data and are printed for
orientation only.
"""

import numpy as np
from sklearn.datasets import load_digits

from edge_protonn import ProtoNN, ProtoNNSettings
from edge_tools.memories import Entries, Kernel, Recipe, make_memory
from edge_tools.output import print_table

PAPER_USPS = {"paper: ProtoNN on USPS": (63_800, 0.9492), "paper: kNN on USPS": (7_291_000, 0.9407)}
"""Bytes and accuracy in the ProtoNN paper, table 2."""


def own_set_rows(*, seeds: int) -> dict[str, dict[str, object]]:
    """Print the table and give set -> method -> [bytes, accuracy]."""
    rows = digits_rows(seeds)
    print_table(
        f"scikit-learn digits, 1437 learnt and 360 tested, {seeds} splits, no global model",
        ("method", "bytes", "accuracy %"),
        [
            (name, f"{n_bytes:.0f}", f"{100 * accuracy:.2f}")
            for name, (n_bytes, accuracy) in {**rows, **PAPER_USPS}.items()
        ],
    )
    return {"digits": {name: [round(n_bytes), round(accuracy, 4)] for name, (n_bytes, accuracy) in rows.items()}}


def digits_rows(seeds: int) -> dict[str, tuple[float, float]]:
    """Mean bytes and accuracy of every method."""
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in range(seeds):
        learn, test = _split(seed)
        for name, n_bytes, accuracy in _one_split(learn, test, seed):
            found.setdefault(name, []).append((n_bytes, accuracy))
    return {
        name: (float(np.mean([b for b, _ in pairs])), float(np.mean([a for _, a in pairs])))
        for name, pairs in found.items()
    }


def _one_split(learn: Entries, test: Entries, seed: int) -> list[tuple[str, float, float]]:
    kernel = Kernel(bandwidth=4.0)
    recipes = {
        "float32 kNN": Recipe("keys", key_dtype="float32", kernel=kernel),
        "int8 keys": Recipe("keys", kernel=kernel),
        "PCA-24 int8 keys": Recipe("keys", dim=24, kernel=kernel),
        "k-means 60 x 16": Recipe("k-means", dim=16, n_prototypes=60, seed=seed, kernel=kernel),
        "protonn 60 x 16": Recipe("protonn", dim=16, n_prototypes=60, seed=seed, kernel=kernel),
        "protonn 60 x 16, learnt W": Recipe(
            "protonn", dim=16, n_prototypes=60, learn_projection=True, seed=seed, kernel=kernel
        ),
    }
    rows = []
    for name, recipe in recipes.items():
        memory = make_memory(recipe, learn)
        right = memory.probabilities(test.embeddings, 10).argmax(axis=1) == test.labels
        rows.append((name, float(memory.file_bytes), float(right.mean())))
    rows += [_paper_head(learn, test, seed, sparsity) for sparsity in (1.0, 0.8)]
    return rows


def _paper_head(learn: Entries, test: Entries, seed: int, sparsity: float) -> tuple[str, float, float]:
    """The original loss: squared, label vectors, W learnt from PCA, d 15 and 5 prototypes a class; bytes of the paper's
    formula.
    """
    settings = ProtoNNSettings(
        n_prototypes=50,
        dim=15,
        head="squared",
        learn_projection=True,
        sparsity=sparsity,
        epochs=100,
        learning_rate=0.01,
        seed=seed,
    )
    model = ProtoNN(settings).fit(learn.embeddings, learn.labels, n_classes=10)
    kept = min(1.0, 2.0 * sparsity)
    n_bytes = 4.0 * kept * (model.projection_.size + model.prototypes_.size + model.labels_.size)
    right = model.predict(test.embeddings) == test.labels
    return f"protonn, squared head, 50 x 15, sparsity {sparsity:g}", n_bytes, float(right.mean())


def _split(seed: int) -> tuple[Entries, Entries]:
    """A fifth for testing, standardised by the rest."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    learn, test = order[360:], order[:360]
    mean, deviation = x[learn].mean(axis=0), x[learn].std(axis=0)
    x = ((x - mean) / np.where(deviation > 0, deviation, 1.0)).astype(np.float32)
    uniform = np.full((len(y), 10), 0.1, np.float32)
    return (
        Entries(x[learn], y[learn].astype(np.int64), uniform[learn]),
        Entries(x[test], y[test].astype(np.int64), uniform[test]),
    )
