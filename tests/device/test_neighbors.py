"""Every index against one oracle: float64 distances over the stored keys, ties newest first."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from edge_sdk.datastore import Datastore
from edge_sdk.errors import ConfigError, InputError
from edge_sdk.model import InputSpec, ModelMetadata
from edge_sdk.neighbors import ExactIndex, Index, open_index
from edge_sdk.neighbors.choice import Choice
from edge_sdk.neighbors.projection import Projection
from edge_sdk.neighbors.stored_keys import StoredKeys

CLASSES = ("run", "sit", "walk")

Creator = Callable[..., Datastore]
Opener = Callable[[Datastore], Index]


def narrow_filter(
    datastore: Datastore, keys: StoredKeys, slots: np.ndarray, recent: np.ndarray, ram_budget: int
) -> Choice:
    """Any orthonormal directions give right answers; these two are poor ones, so that many entries must be measured."""
    random = np.random.default_rng(3)
    directions = np.linalg.qr(random.standard_normal((datastore.dim, min(2, datastore.dim))))[0].T
    rows = keys.rows(slots).astype(np.float64)
    spread = 2.0 ** np.clip(np.round(np.log2(rows.std() + 1e-300)), -120, 120)
    return Choice(Projection(rows.mean(axis=0), float(spread), np.ascontiguousarray(directions)), 1.0)


INDEXES: dict[str, Opener] = {
    "matrix product": ExactIndex,
    "filter": lambda datastore: ExactIndex(datastore, chooser=narrow_filter),
    "scan": lambda datastore: ExactIndex(datastore, ram_budget=0),
    "annoy": lambda datastore: open_index("annoy", datastore, segment_entries=40, search_k=100_000),
}
"""Annoy here looks at every node, so that its answers are exact too."""


@pytest.fixture(params=INDEXES)
def open_any(request: pytest.FixtureRequest) -> Opener:
    if request.param == "annoy" and importlib.util.find_spec("annoy") is None:
        pytest.skip("annoy is not installed")
    return INDEXES[request.param]


@pytest.fixture
def create(tmp_path: Path) -> Iterator[Creator]:
    opened: list[Datastore] = []

    def create_here(dim: int, **options: object) -> Datastore:
        metadata = ModelMetadata(CLASSES, InputSpec("input", (dim,)), dim, "f" * 64, graph_crc32=0)
        given = {"model": metadata, "capacity": 100, "dtype": "float32", **options}
        opened.append(Datastore.create(tmp_path / f"{len(opened)}.store", **given))  # type: ignore[arg-type]
        return opened[-1]

    yield create_here
    for datastore in opened:
        datastore.close()


def add(datastore: Datastore, embeddings: ArrayLike) -> np.ndarray:
    embeddings = np.asarray(embeddings, np.float32).reshape(-1, datastore.dim)
    labels = [CLASSES[i % 3] for i in range(len(embeddings))]
    return datastore.add(embeddings, labels, np.full((len(embeddings), 3), 1 / 3, np.float32), sync=False)


def oracle(datastore: Datastore, query: np.ndarray, k: int, *, exclude: int = 0) -> tuple[list[int], np.ndarray]:
    """Sequences and distances of the k nearest."""
    slots = datastore.table.order
    sequences = datastore.table.sequences[slots].astype(np.int64)
    distances = np.linalg.norm(datastore.embeddings(slots).astype(np.float64) - query, axis=1)
    distances[sequences == exclude] = np.inf
    best = np.lexsort((-sequences, distances))[: min(k, int((distances < np.inf).sum()))]
    return sequences[best].tolist(), distances[best]


def assert_exact(index: Index, datastore: Datastore, queries: np.ndarray, k: int) -> None:
    queries = np.asarray(queries, np.float32).reshape(-1, datastore.dim)
    found = index.search(queries, k)
    for row, query in enumerate(queries):
        sequences, distances = oracle(datastore, query, k)
        assert found.sequences[row].tolist() == sequences
        np.testing.assert_allclose(found.distances[row], distances, rtol=1e-12)
        slots = [int(np.flatnonzero(datastore.table.sequences == sequence)[0]) for sequence in sequences]
        assert found.labels[row].tolist() == datastore.table.labels[slots].tolist()
    assert found.sequences.dtype == np.uint64
    assert found.distances.dtype == np.float64
    assert found.labels.dtype == np.int32


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("dim", [1, 2, 17, 2000])
def test_answers_are_those_of_brute_force(open_any: Opener, create: Creator, dim: int, dtype: str) -> None:
    random = np.random.default_rng(dim)
    with create(dim, dtype=dtype) as datastore:
        add(datastore, random.standard_normal((90, dim)))
        assert_exact(open_any(datastore), datastore, random.standard_normal((7, dim)), 10)


@pytest.mark.parametrize("n", [0, 1, 9, 10, 11])
def test_about_k_entries_give_as_many_answers_as_there_are(open_any: Opener, create: Creator, n: int) -> None:
    datastore = create(3)
    add(datastore, np.random.default_rng(0).standard_normal((n, 3)))
    found = open_any(datastore).search(np.zeros((2, 3), np.float32), 10)
    assert found.sequences.shape == found.distances.shape == found.labels.shape == (2, min(n, 10))


def test_equal_distances_come_newest_first(open_any: Opener, create: Creator) -> None:
    datastore = create(2)
    add(datastore, [[1, 0], [0, 1], [-1, 0], [0, -1], [1, 0], [3, 3]])
    found = open_any(datastore).search(np.zeros((1, 2), np.float32), 4)
    assert found.sequences.tolist() == [[5, 4, 3, 2]]
    assert found.distances.tolist() == [[1.0] * 4]


def test_an_excluded_entry_is_no_answer(open_any: Opener, create: Creator) -> None:
    datastore = create(4)
    random = np.random.default_rng(0)
    sequences = add(datastore, random.standard_normal((60, 4)))
    index = open_any(datastore)
    queries = datastore.embeddings(datastore.table.order)
    found = index.search(queries, 5, exclude=sequences)
    for row in range(60):
        assert found.sequences[row].tolist() == oracle(datastore, queries[row], 5, exclude=int(sequences[row]))[0]
    assert index.search(queries[:2], 100, exclude=np.array([1, 0], np.uint64)).sequences.shape == (2, 59)
    assert index.search(queries[:1], 100, exclude=np.array([999], np.uint64)).sequences.shape == (1, 60)


def test_every_change_of_the_datastore_counts_in_the_next_search(open_any: Opener, create: Creator) -> None:
    datastore = create(5, capacity=50)
    random = np.random.default_rng(1)
    index = open_any(datastore)
    queries = random.standard_normal((3, 5))
    for round_number in range(40):
        add(datastore, random.standard_normal((1 + round_number % 4, 5)))
        if round_number % 7 == 3:
            datastore.forget(sequences=index.search(queries[:1].astype(np.float32), 2).sequences[0])
        assert_exact(index, datastore, queries, 6)
    datastore.forget(label="walk")
    assert_exact(index, datastore, queries, 6)
    datastore.forget(before=2**62)
    assert index.search(queries.astype(np.float32), 6).sequences.shape == (3, 0)
    add(datastore, queries)
    assert_exact(index, datastore, queries, 6)


def test_more_changes_than_the_datastore_remembers_are_taken_in(open_any: Opener, create: Creator) -> None:
    datastore = create(2, capacity=3000)
    random = np.random.default_rng(1)
    index = open_any(datastore)
    for _ in range(3):
        add(datastore, random.standard_normal((2500, 2)))
        assert_exact(index, datastore, random.standard_normal((2, 2)), 10)


def test_a_growing_store_is_followed_through_its_new_map(open_any: Opener, create: Creator) -> None:
    datastore = create(6, capacity=4, policy="concatenate")
    random = np.random.default_rng(1)
    index = open_any(datastore)
    for n in (3, 1, 1, 30, 100):
        add(datastore, random.standard_normal((n, 6)))
        assert_exact(index, datastore, random.standard_normal((2, 6)), 10)


def test_entries_of_another_process_are_found(open_any: Opener, create: Creator) -> None:
    datastore = create(3)
    add(datastore, np.random.default_rng(0).standard_normal((20, 3)))
    index = open_any(datastore)
    index.search(np.zeros((1, 3), np.float32), 5)
    with Datastore.open(datastore.folder) as other:
        add(other, np.zeros((1, 3)))
    assert index.search(np.zeros((1, 3), np.float32), 1).sequences.tolist() == [[21]]


@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1e-8, 1.0, 1e8, 1e18, 1e37])
def test_answers_do_not_depend_on_the_scale(open_any: Opener, create: Creator, scale: float) -> None:
    datastore = create(8)
    random = np.random.default_rng(2)
    add(datastore, random.standard_normal((70, 8)) * scale)
    index = open_any(datastore)
    assert_exact(index, datastore, random.standard_normal((4, 8)) * scale, 10)
    assert_exact(index, datastore, random.standard_normal((2, 8)) * 1e38, 10)
    assert_exact(index, datastore, random.standard_normal((2, 8)) * 1e-38, 10)


def test_tight_clusters_far_from_the_origin_are_told_apart(open_any: Opener, create: Creator) -> None:
    datastore = create(16)
    random = np.random.default_rng(2)
    entries = (1000 + random.standard_normal((80, 16)) * 1e-3).astype(np.float32)
    add(datastore, entries)
    assert_exact(open_any(datastore), datastore, entries[:5] + random.standard_normal((5, 16)) * 1e-4, 10)


def test_a_store_of_duplicates_answers_with_the_newest(open_any: Opener, create: Creator) -> None:
    datastore = create(3, capacity=600)
    add(datastore, np.ones((600, 3)))
    found = open_any(datastore).search(np.array([[1, 1, 1], [0, 0, 0]], np.float32), 3)
    assert found.sequences.tolist() == [[600, 599, 598]] * 2


def test_a_batch_gives_what_single_queries_give(open_any: Opener, create: Creator) -> None:
    datastore = create(9)
    random = np.random.default_rng(4)
    add(datastore, random.standard_normal((100, 9)))
    index = open_any(datastore)
    queries = random.standard_normal((40, 9)).astype(np.float32)
    batch = index.search(queries, 7)
    for row in range(40):
        single = index.search(queries[row : row + 1], 7)
        assert all(np.array_equal(a[row], b[0]) for a, b in zip(batch, single, strict=True))


@pytest.mark.parametrize("bad", [np.zeros((1, 4)), np.zeros(3), np.full((2, 3), np.nan), np.array([[0, np.inf, 0]])])
def test_a_wrong_query_is_refused_with_what_was_expected(open_any: Opener, create: Creator, bad: np.ndarray) -> None:
    datastore = create(3)
    add(datastore, np.eye(3))
    with pytest.raises(InputError):
        open_any(datastore).search(bad, 2)


def test_k_below_one_is_refused(open_any: Opener, create: Creator) -> None:
    with pytest.raises(ConfigError):
        open_any(create(3)).search(np.zeros((1, 3), np.float32), 0)


def test_describe_says_what_is_in_use(open_any: Opener, create: Creator) -> None:
    datastore = create(3)
    add(datastore, np.eye(3))
    index = open_any(datastore)
    index.search(np.zeros((1, 3), np.float32), 2)
    described = index.describe()
    assert described["kind"] == index.kind
    assert described["ram_bytes"] == index.ram_bytes


VALUES = st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e-4, 3.0, 1e4, 1e-30, 1e30, -1e30])
POINT = st.lists(VALUES, min_size=2, max_size=2)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("learn"), st.lists(POINT, min_size=1, max_size=5)),
        st.tuples(st.just("forget"), st.integers(1, 40)),
        st.tuples(st.just("query"), POINT),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(steps=STEPS, k=st.integers(1, 6), policy=st.sampled_from(["fifo", "balanced", "concatenate"]))
def test_any_sequence_of_learning_forgetting_and_asking_is_exact(
    open_any: Opener, create: Creator, steps: list[tuple[str, object]], k: int, policy: str
) -> None:
    datastore = create(2, capacity=8, policy=policy)
    index = open_any(datastore)
    for step, value in steps:
        if step == "learn":
            add(datastore, np.array(value))
        elif step == "forget":
            datastore.forget(sequences=[int(value)])  # type: ignore[call-overload]
        else:
            assert_exact(index, datastore, np.array([value]), k)
    assert_exact(index, datastore, np.zeros((1, 2)), k)
    index.close()
    datastore.close()
