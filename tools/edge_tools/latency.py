"""Latency of one prediction by part: encode, search, blend; of the whole; and of one learn.

Each part is timed on its own around the very objects that a `Predictor` uses, one sample at a time, after a warm-up;
what is reported are percentiles, since a mean hides the pauses that a user feels.
"""

import time
from collections.abc import Callable
from typing import TypedDict

import numpy as np

from edge_sdk import Encoder, InputSpec, Predictor
from edge_sdk.interpolation import blend, knn_probabilities

_WARM_UP = 10


class Percentiles(TypedDict):
    """Milliseconds."""

    p50: float
    p95: float
    p99: float


NOTHING = Percentiles(p50=0.0, p95=0.0, p99=0.0)
"""What a part costs that is not run."""


def measure_encoding(encoder: Encoder, samples: np.ndarray, *, repeats: int = 200) -> Percentiles:
    """Time the model alone, one sample a run.

    Args:
        encoder: the running model file.
        samples: (n, *input shape), gone through in turn, n at least 1.
        repeats: how often to time it.
    """
    return percentiles(lambda turn: encoder.encode(samples[turn % len(samples)][None]), repeats)


def measure_latency(predictor: Predictor, samples: np.ndarray, *, repeats: int = 200) -> dict[str, Percentiles]:
    """Time one prediction and its parts.

    Args:
        predictor: model file and datastore; with an empty datastore search and blend are 0. Its encoder should answer
            as it will on the device (`OwnEntries`).
        samples: (n, *input shape), gone through in turn, n at least 1.
        repeats: how often to time each part.

    Returns:
        "encode", "search", "blend" and "predict", which is the whole call with its checks.
    """
    encode = measure_encoding(predictor.encoder, samples, repeats=repeats)
    predict = percentiles(lambda turn: predictor.predict(samples[turn % len(samples)]), repeats)
    if not len(predictor.datastore):
        return {"encode": encode, "search": NOTHING, "blend": NOTHING, "predict": predict}
    index, settings = predictor.index, predictor.interpolation
    encoded = [predictor.encoder.encode(sample[None]) for sample in samples]
    search = percentiles(lambda turn: index.search(encoded[turn % len(encoded)].embeddings, settings.k), repeats)
    neighbors = [index.search(each.embeddings, settings.k) for each in encoded]
    n_classes = len(predictor.classes)
    global_probabilities = [predictor.with_new_classes(each.probabilities) for each in encoded]

    def blend_one(turn: int) -> None:
        found = neighbors[turn % len(neighbors)]
        knn = knn_probabilities(
            found.labels, found.distances, n_classes, kernel=settings.kernel, bandwidth=settings.bandwidth
        )
        blend(global_probabilities[turn % len(neighbors)], knn, interpolation_weight=settings.interpolation_weight)

    return {"encode": encode, "search": search, "blend": percentiles(blend_one, repeats), "predict": predict}


def measure_learning(predictor: Predictor, samples: np.ndarray, *, repeats: int = 200) -> Percentiles:
    """Time `learn` of one example, on the medium when it returns; the datastore changes, so hand over a copy.

    Tuning, which happens when the store has doubled, is left out.
    """
    label = predictor.classes[0]
    return percentiles(
        lambda turn: predictor.learn(samples[turn % len(samples)], label, allow_duplicates=True, tune=False), repeats
    )


def random_samples(spec: InputSpec, *, n: int = 32) -> np.ndarray:
    """Seeded random inputs (n, *input shape): what a run of the model takes does not depend on the values."""
    random = np.random.default_rng(0)
    if np.dtype(spec.dtype).kind == "f":
        return random.standard_normal((n, *spec.shape)).astype(spec.dtype)
    return random.integers(0, 127, (n, *spec.shape)).astype(spec.dtype)


def percentiles(work: Callable[[int], object], repeats: int) -> Percentiles:
    """Time `work(turn)` after a warm-up."""
    for turn in range(_WARM_UP):
        work(turn)
    elapsed = np.empty(repeats)
    for turn in range(repeats):
        start = time.perf_counter_ns()
        work(turn)
        elapsed[turn] = time.perf_counter_ns() - start
    p50, p95, p99 = np.percentile(elapsed / 1e6, (50, 95, 99))
    return Percentiles(p50=float(p50), p95=float(p95), p99=float(p99))
