"""The libraries that a search is measured against, behind one small face each.

Each peer is measured in a process of its own: usearch shares C symbols with simsimd and numkong, and the memory that a
build takes can only be read where nothing else was built.
"""

import importlib
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.model import InputSpec, ModelMetadata
from edge_sdk.neighbors import Index, open_index

Answer = np.ndarray
"""int64 (n_queries, k): row numbers of the keys, nearest first."""


class Peer(ABC):
    """One way to search."""

    efforts: ClassVar[tuple[int, ...]] = (0,)
    """Settings of the search, cheapest first; more than one where recall is a matter of effort."""

    module: ClassVar[str | None] = None
    """What must be installed."""

    @abstractmethod
    def __init__(self, keys: np.ndarray, threads: int) -> None:
        """Build over float32 (n, dim)."""

    @abstractmethod
    def search(self, queries: np.ndarray, k: int, effort: int) -> Answer:
        """The k nearest of each query."""

    def ram_bytes(self) -> int | None:
        """Bytes of private memory, None: read it from the process."""
        return None

    def close(self) -> None:
        """Give back what the end of the process would leave; for most peers that is nothing."""
        return


class Brute(Peer):
    """numpy: the squared norms less twice one matrix product, argpartition, and a sort of k. The reference."""

    def __init__(self, keys: np.ndarray, threads: int) -> None:
        self.keys = keys
        self.squared_norms = np.einsum("nd,nd->n", keys, keys)

    def search(self, queries: np.ndarray, k: int, effort: int = 0) -> Answer:
        """See `Peer.search`."""
        if len(queries) == 1:
            return self._search_one(queries[0], k)[None]
        squares = self.squared_norms - 2.0 * (queries @ self.keys.T)
        nearest = np.argpartition(squares, k, axis=1)[:, :k]
        order = np.argsort(np.take_along_axis(squares, nearest, axis=1), axis=1)
        return np.take_along_axis(nearest, order, axis=1)

    def _search_one(self, query: np.ndarray, k: int) -> np.ndarray:
        squares = self.squared_norms - 2.0 * (self.keys @ query)
        nearest = np.argpartition(squares, k)[:k]
        found = squares[nearest]
        order = np.argsort(found)
        np.sqrt(np.maximum(found[order] + query @ query, 0.0))  # the distances that a caller wants
        answer: np.ndarray = nearest[order]
        return answer


class Ours(Peer):
    """The SDK over a datastore on disk."""

    kind: ClassVar[str] = "exact"
    dtype: ClassVar[str] = "float16"
    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, keys: np.ndarray, threads: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="edge-sdk-bench-"))
        self.datastore = make_store(self.folder / "me.store", keys, dtype=self.dtype)
        self.index: Index = open_index(self.kind, self.datastore, **self.options)
        self.index.search(keys[:1], 1)
        self.index.wait()
        self.index.search(keys[:1], 1)

    def search(self, queries: np.ndarray, k: int, effort: int) -> Answer:
        """See `Peer.search`."""
        return self.index.search(queries, k).sequences.astype(np.int64) - 1

    def ram_bytes(self) -> int | None:
        """What the index says of itself."""
        return self.index.ram_bytes

    def close(self) -> None:
        """Remove the store."""
        self.index.close()
        self.datastore.close()
        shutil.rmtree(self.folder)


class OursFloat32(Ours):
    """Keys stored as float32, no copy granted beyond the usual budget."""

    dtype = "float32"


class OursCopy(Ours):
    """float16 keys, a float32 copy in memory granted."""

    options: ClassVar[dict[str, Any]] = {"ram_budget": 1 << 30}


class OursAnnoy(Ours):
    """Sealed segments."""

    kind = "annoy"
    module = "annoy"

    def __init__(self, keys: np.ndarray, threads: int) -> None:
        super().__init__(keys, threads)
        self.index.build()  # type: ignore[attr-defined]


class Annoy(Peer):
    """The library itself, 50 trees."""

    efforts = (50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)
    module = "annoy"

    def __init__(self, keys: np.ndarray, threads: int) -> None:
        from annoy import AnnoyIndex

        self.forest = AnnoyIndex(keys.shape[1], "euclidean")
        self.forest.set_seed(1)
        for number, key in enumerate(keys):
            self.forest.add_item(number, key)
        self.forest.build(50, threads)

    def search(self, queries: np.ndarray, k: int, effort: int) -> Answer:
        """See `Peer.search`; padded with -1 where annoy finds fewer."""
        found = np.full((len(queries), k), -1)
        for row, query in enumerate(queries):
            items = self.forest.get_nns_by_vector(query.tolist(), k, effort)
            found[row, : len(items)] = items
        return found


class Graph(Peer):
    """A graph of near neighbours; the effort is the length of its list of candidates."""

    efforts = (10, 16, 32, 64, 128, 256, 512)


class Hnswlib(Graph):
    """M 16, ef_construction 128."""

    module = "hnswlib"

    def __init__(self, keys: np.ndarray, threads: int) -> None:
        self.graph: Any = importlib.import_module("hnswlib").Index("l2", keys.shape[1])
        self.graph.init_index(len(keys), ef_construction=128, M=16, random_seed=1, allow_replace_deleted=True)
        self.graph.set_num_threads(threads)
        self.graph.add_items(keys, np.arange(len(keys)))

    def search(self, queries: np.ndarray, k: int, effort: int) -> Answer:
        """See `Peer.search`."""
        self.graph.set_ef(max(k, effort))
        found: np.ndarray = self.graph.knn_query(queries, k)[0].astype(np.int64)
        return found


class Usearch(Graph):
    """float32 graph, connectivity 16, expansion_add 128."""

    module = "usearch"

    def __init__(self, keys: np.ndarray, threads: int) -> None:
        self.threads = threads
        graph_class: Any = importlib.import_module("usearch.index").Index
        self.graph = graph_class(ndim=keys.shape[1], metric="l2sq", dtype="f32", connectivity=16, expansion_add=128)
        self.graph.add(np.arange(len(keys)), keys, threads=threads)

    def search(self, queries: np.ndarray, k: int, effort: int) -> Answer:
        """See `Peer.search`."""
        self.graph.expansion_search = max(k, effort)
        found = self.graph.search(queries, k, threads=self.threads).keys
        return np.asarray(found, np.int64).reshape(len(queries), -1)


class FaissFlat(Peer):
    """Exact."""

    module = "faiss"

    def __init__(self, keys: np.ndarray, threads: int) -> None:
        faiss: Any = importlib.import_module("faiss")
        faiss.omp_set_num_threads(threads)
        self.flat = faiss.IndexFlatL2(keys.shape[1])
        self.flat.add(keys)

    def search(self, queries: np.ndarray, k: int, effort: int) -> Answer:
        """See `Peer.search`."""
        found: np.ndarray = self.flat.search(queries, k)[1]
        return found


class FaissHnsw(Graph):
    """Graph over 8-bit keys."""

    module = "faiss"

    def __init__(self, keys: np.ndarray, threads: int) -> None:
        faiss: Any = importlib.import_module("faiss")
        faiss.omp_set_num_threads(threads)
        self.graph = faiss.IndexHNSWSQ(keys.shape[1], faiss.ScalarQuantizer.QT_8bit, 16)
        self.graph.hnsw.efConstruction = 128
        self.graph.train(keys)
        self.graph.add(keys)

    def search(self, queries: np.ndarray, k: int, effort: int) -> Answer:
        """See `Peer.search`."""
        self.graph.hnsw.efSearch = max(k, effort)
        found: np.ndarray = self.graph.search(queries, k)[1]
        return found


class ScikitLearn(Peer):
    """NearestNeighbors(algorithm="brute")."""

    module = "sklearn"

    def __init__(self, keys: np.ndarray, threads: int) -> None:
        from sklearn.neighbors import NearestNeighbors

        self.brute = NearestNeighbors(algorithm="brute", n_jobs=1 if threads == 1 else None).fit(keys)

    def search(self, queries: np.ndarray, k: int, effort: int) -> Answer:
        """See `Peer.search`."""
        found: np.ndarray = self.brute.kneighbors(queries, k, return_distance=True)[1]
        return found


PEERS: dict[str, Callable[[np.ndarray, int], Peer]] = {
    "exact": Ours,
    "exact, float32 store": OursFloat32,
    "exact, copy granted": OursCopy,
    "annoy segments": OursAnnoy,
    "numpy": Brute,
    "annoy": Annoy,
    "hnswlib": Hnswlib,
    "usearch": Usearch,
    "faiss Flat": FaissFlat,
    "faiss HNSW-SQ8": FaissHnsw,
    "scikit-learn": ScikitLearn,
}


def make_store(folder: Path, keys: np.ndarray, *, dtype: str = "float16", capacity: int | None = None) -> Datastore:
    """A datastore with these keys as its entries, in order, so that key i has sequence i + 1."""
    classes = ("a", "b")
    metadata = ModelMetadata(classes, InputSpec("input", (1,)), keys.shape[1], "0" * 64, graph_crc32=0)
    datastore = Datastore.create(folder, model=metadata, capacity=capacity or len(keys), dtype=dtype)
    for start in range(0, len(keys), 1000):
        part = keys[start : start + 1000]
        labels = [classes[i % 2] for i in range(len(part))]
        datastore.add(part, labels, np.full((len(part), 2), 0.5, np.float32), sync=False)
    return datastore
