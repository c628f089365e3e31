"""Time of a compressed memory: training one of 64 KB, and answering against the exact index on the full store."""

import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from edge_sdk import Datastore, InputSpec, ModelMetadata
from edge_sdk.interpolation import knn_probabilities
from edge_sdk.neighbors import ExactIndex
from edge_sdk.prototypes_file import prototypes_bytes
from edge_tools.memories import Entries, Recipe, make_memory

_N, _DIM, _CLASSES, _BUDGET = 2000, 256, 10, 64 * 1024
_REPEATS = 400


@dataclass(frozen=True)
class SpeedReport:
    """Measured in one run on one machine; the ratio is what travels."""

    training_seconds: float
    """A learnt memory of at most 64 KB, projection included, from 2000 entries of 256."""

    memory_bytes: int
    compressed_ms: float
    """Median of one query to that memory."""

    exact_ms: float
    """Median of one query to the exact index on the full store, k = 10, and its vote."""

    def to_mapping(self) -> dict[str, float]:
        """For JSON."""
        return {name: round(value, 4) for name, value in asdict(self).items()}

    def rows(self) -> list[tuple[str, str]]:
        """For a table."""
        return [
            (f"training {self.memory_bytes} bytes from {_N} x {_DIM}", f"{self.training_seconds:.1f} s"),
            ("one answer, compressed", f"{self.compressed_ms:.3f} ms"),
            ("one answer, exact index on the full store", f"{self.exact_ms:.3f} ms"),
            ("compressed / exact", f"{self.compressed_ms / self.exact_ms:.2f}"),
        ]


def measure_speed() -> SpeedReport:
    """Train once, then ask both memories the same queries in turn."""
    entries = _entries(_N, seed=0)
    dim = 64
    each = prototypes_bytes(1, dim) - prototypes_bytes(0, dim)
    n_prototypes = (_BUDGET - prototypes_bytes(0, dim, projected_from=_DIM)) // each
    started = time.perf_counter()
    memory = make_memory(Recipe("protonn", dim=dim, n_prototypes=n_prototypes), entries)
    training = time.perf_counter() - started
    queries = _entries(_REPEATS, seed=1).embeddings
    with (
        tempfile.TemporaryDirectory(prefix="edge-sdk-") as folder,
        _store(Path(folder) / "full.store", entries) as store,
    ):
        index = ExactIndex(store)
        compressed, exact = [], []
        for number in range(_REPEATS):
            query = queries[number : number + 1]
            started = time.perf_counter()
            memory.probabilities(query, _CLASSES)
            compressed.append(time.perf_counter() - started)
            started = time.perf_counter()
            neighbors = index.search(query, 10)
            knn_probabilities(neighbors.labels, neighbors.distances, _CLASSES)
            exact.append(time.perf_counter() - started)
    return SpeedReport(training, memory.file_bytes, 1e3 * float(np.median(compressed)), 1e3 * float(np.median(exact)))


def _entries(n: int, *, seed: int) -> Entries:
    """Embeddings like a network's: low rank, not negative, classes as overlapping groups."""
    mixing = np.random.default_rng(7).standard_normal((32, _DIM))
    centres = 1.5 * np.random.default_rng(8).standard_normal((_CLASSES, 32))
    random = np.random.default_rng(seed)
    labels = random.integers(0, _CLASSES, n)
    embeddings = np.maximum((centres[labels] + random.standard_normal((n, 32))) @ mixing, 0.0).astype(np.float32)
    return Entries(embeddings, labels, np.full((n, _CLASSES), 1.0 / _CLASSES, np.float32))


def _store(folder: Path, entries: Entries) -> Datastore:
    classes = tuple(str(number) for number in range(_CLASSES))
    model = ModelMetadata(
        classes=classes, input=InputSpec(name="input", shape=(_DIM,)), dim=_DIM, fingerprint="0" * 64, graph_crc32=0
    )
    store = Datastore.create(folder, model=model, capacity=_N)
    store.add(entries.embeddings, [classes[label] for label in entries.labels], entries.probabilities)
    return store
