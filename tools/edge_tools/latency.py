"""Latency of one prediction by part: encode, search, blend.

Each part is timed on its own around the very objects that a `Predictor` uses, one sample at a time, after a warm-up;
what is reported are percentiles, since a mean hides the pauses that a user feels.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edge_sdk import Encoder, InputSpec, Predictor
from edge_sdk.interpolation import blend, knn_probabilities

_WARM_UP = 10


@dataclass(frozen=True)
class Percentiles:
    """Milliseconds of one part."""

    p50: float
    p95: float
    p99: float


NOTHING = Percentiles(0.0, 0.0, 0.0)
"""What a part costs that is not run."""


@dataclass(frozen=True)
class Latency:
    """Milliseconds of one prediction, by part."""

    encode: Percentiles
    search: Percentiles
    blend: Percentiles
    repeats: int
    """How often each part was timed."""


def measure_encoding(encoder: Encoder, samples: np.ndarray, *, repeats: int = 200) -> Percentiles:
    """Time the model alone, one sample a run.

    Args:
        encoder: the running model file.
        samples: (n, *input shape), gone through in turn, n at least 1.
        repeats: how often to time it.
    """
    return _time(lambda turn: encoder.encode(samples[turn % len(samples)][None]), repeats)


def measure_latency(predictor: Predictor, samples: np.ndarray, *, repeats: int = 200) -> Latency:
    """Time the parts of one prediction.

    Args:
        predictor: model file and datastore; with an empty datastore search and blend are 0.
        samples: (n, *input shape), gone through in turn, n at least 1.
        repeats: how often to time each part.
    """
    encode = measure_encoding(predictor.encoder, samples, repeats=repeats)
    if not len(predictor.datastore):
        return Latency(encode, NOTHING, NOTHING, repeats)
    index, settings = predictor.index, predictor.interpolation
    encoded = [predictor.encoder.encode(sample[None]) for sample in samples]
    search = _time(lambda turn: index.search(encoded[turn % len(encoded)].embeddings, settings.k), repeats)
    neighbors = [index.search(each.embeddings, settings.k) for each in encoded]
    n_classes = len(predictor.classes)
    global_probabilities = [predictor.with_new_classes(each.probabilities) for each in encoded]

    def blend_one(turn: int) -> None:
        found = neighbors[turn % len(neighbors)]
        knn = knn_probabilities(
            found.labels, found.distances, n_classes, kernel=settings.kernel, bandwidth=settings.bandwidth
        )
        blend(global_probabilities[turn % len(neighbors)], knn, interpolation_weight=settings.interpolation_weight)

    return Latency(encode, search, _time(blend_one, repeats), repeats)


def random_samples(spec: InputSpec, *, n: int = 32) -> np.ndarray:
    """Seeded random inputs (n, *input shape): latency does not depend on the values."""
    random = np.random.default_rng(0)
    if np.dtype(spec.dtype).kind == "f":
        return random.standard_normal((n, *spec.shape)).astype(spec.dtype)
    return random.integers(0, 127, (n, *spec.shape)).astype(spec.dtype)


def _time(work: Callable[[int], object], repeats: int) -> Percentiles:
    """Percentiles of `work`, in milliseconds."""
    for turn in range(_WARM_UP):
        work(turn)
    elapsed = np.empty(repeats)
    for turn in range(repeats):
        start = time.perf_counter_ns()
        work(turn)
        elapsed[turn] = time.perf_counter_ns() - start
    p50, p95, p99 = np.percentile(elapsed / 1e6, (50, 95, 99))
    return Percentiles(float(p50), float(p95), float(p99))
