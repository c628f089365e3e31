"""What searches are measured on: real embeddings, and two synthetic kinds between which real ones lie.

`low-rank` is the kind case (100 clusters in 24 dimensions with noise, after ReLU), `gaussian` the worst one: no
direction says more than another, so no filter can help. Queries are never in the store.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edge_tools.benchmarks.cifar import TrainingSettings, read_encoding

N_QUERIES = 200


class SearchSet(NamedTuple):
    """Keys to store and queries to ask."""

    keys: np.ndarray
    """float32 (n, dim), values that float16 holds."""

    queries: np.ndarray
    """float32 (N_QUERIES, dim)."""


def load_set(name: str, n: int, dim: int, *, data: Path | None, cache: Path) -> SearchSet | None:
    """A set by its name, None where its data or its encoder is not there.

    Args:
        name: one of `SETS`.
        n: keys.
        dim: width; "sentences" has 384 only, "watch" 128 only.
        data: folder of the data sets.
        cache: folder for what takes long to encode.
    """
    embeddings = SETS[name](n + N_QUERIES, dim, data, cache)
    if embeddings is None or embeddings.shape[1] != dim or len(embeddings) < n + N_QUERIES:
        return None
    keys = embeddings[:n].astype(np.float16).astype(np.float32)  # as a store keeps them, for every peer
    return SearchSet(keys, embeddings[n : n + N_QUERIES])


def low_rank(n: int, dim: int, data: Path | None = None, cache: Path | None = None, *, seed: int = 0) -> np.ndarray:
    """float32 (n, dim)."""
    random = np.random.default_rng(seed)
    basis, centers = random.standard_normal((24, dim)), 2.0 * random.standard_normal((100, 24))
    embeddings = np.empty((n, dim), np.float32)
    for start in range(0, n, 10_000):
        part = embeddings[start : start + 10_000]
        inside = centers[random.integers(0, 100, len(part))] + random.standard_normal((len(part), 24))
        part[:] = np.maximum(inside @ basis / 5.0 + 0.1 * random.standard_normal(part.shape), 0.0)
    return embeddings


def _gaussian(n: int, dim: int, data: Path | None, cache: Path) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, dim), np.float32)


def _cifar(n: int, dim: int, data: Path | None, cache: Path) -> np.ndarray | None:
    if data is None or not (data / "cifar10").is_dir():
        return None
    settings = TrainingSettings(dim=dim, epochs=1, n_images=10_000)
    return read_encoding(data, cache, settings).embeddings.astype(np.float32)


def _sentences(n: int, dim: int, data: Path | None, cache: Path) -> np.ndarray | None:
    kept = cache / "sentences-minilm.npy"
    if kept.is_file():
        embeddings: np.ndarray = np.load(kept, allow_pickle=False)
        return embeddings
    from edge_tools.benchmarks.sentences import embed_sentences, model_folder

    folder = model_folder()
    if folder is None or data is None or not (data / "shakespeare").is_dir():
        return None
    with np.load(data / "shakespeare" / "shakespeare.npz", allow_pickle=False) as archive:
        text = archive["text"].tobytes().decode("ascii").replace("\n", " ")
    found = (part.strip() for part in re.split(r"(?<=[.?!;])\s+", text))
    sentences = list(dict.fromkeys(part for part in found if 25 <= len(part) <= 200))
    chosen = np.random.default_rng(0).permutation(len(sentences))[:11_000]
    embeddings = embed_sentences([sentences[i] for i in chosen], folder)
    np.save(kept, embeddings)
    return embeddings


SETS: dict[str, Callable[[int, int, Path | None, Path], np.ndarray | None]] = {
    "cifar": _cifar,
    "sentences": _sentences,
    "low-rank": low_rank,
    "gaussian": _gaussian,
}
