"""AnnoyIndex: windows that move, files that are damaged, and what Annoy itself would do to the process."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.datastore import Datastore
from edge_sdk.errors import ConfigError, DatastoreError, MissingExtraError
from edge_sdk.model import InputSpec, ModelMetadata
from edge_sdk.neighbors import ExactIndex, Index, measure_recall, open_index
from edge_sdk.neighbors.segment import names, read_header

annoy = pytest.importorskip("annoy", reason="annoy is not installed")

DIM = 12
CLASSES = ("run", "sit")

Creator = Callable[..., Datastore]


@pytest.fixture
def create(tmp_path: Path) -> Iterator[Creator]:
    opened: list[Datastore] = []

    def create_here(capacity: int = 400, **options: object) -> Datastore:
        dim = int(options.pop("dim", DIM))  # type: ignore[call-overload]
        metadata = ModelMetadata(CLASSES, InputSpec("input", (dim,)), dim, "f" * 64, graph_crc32=0)
        path = tmp_path / f"{len(opened)}.store"
        opened.append(Datastore.create(path, model=metadata, capacity=capacity, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield create_here
    for datastore in opened:
        datastore.close()


def clustered(n: int, *, seed: int = 0, dim: int = DIM) -> np.ndarray:
    random = np.random.default_rng(seed)
    centers = np.random.default_rng(99).standard_normal((8, dim)) * 3
    return (centers[random.integers(0, 8, n)] + random.standard_normal((n, dim))).astype(np.float32)


def add(datastore: Datastore, embeddings: np.ndarray) -> np.ndarray:
    labels = [CLASSES[i % 2] for i in range(len(embeddings))]
    return datastore.add(embeddings, labels, np.full((len(embeddings), 2), 0.5, np.float32), sync=False)


def open_annoy(datastore: Datastore, **options: int) -> Index:
    return open_index("annoy", datastore, **{"segment_entries": 100, "trees": 20, **options})


def build(datastore: Datastore, **options: int) -> Index:
    index = open_annoy(datastore, **options)
    index.build()  # type: ignore[attr-defined]
    return index


def annoy_files(datastore: Datastore) -> list[Path]:
    return sorted((datastore.folder / "index").glob("*.ann"))


def recall(index: Index, datastore: Datastore, queries: np.ndarray, k: int = 10) -> float:
    expected = ExactIndex(datastore).search(queries, k).sequences
    found = index.search(queries, k).sequences
    return float(np.mean([len(np.intersect1d(a, b)) / k for a, b in zip(expected, found, strict=True)]))


def test_a_full_store_is_answered_from_its_segments(create: Creator) -> None:
    datastore = create()
    add(datastore, clustered(400))
    index = build(datastore)
    described = index.describe()
    assert described["segments"] == 4
    assert described["in_segments"] == 400
    assert described["tail"] == 0
    assert recall(index, datastore, clustered(50, seed=5)) > 0.95


def test_distances_are_exact_and_ordered_whatever_annoy_says(create: Creator) -> None:
    datastore = create(dtype="float16")
    add(datastore, clustered(400))
    index = build(datastore)
    found = index.search(clustered(5, seed=3), 10)
    for query, sequences, distances in zip(clustered(5, seed=3), found.sequences, found.distances, strict=True):
        slots = [int(np.flatnonzero(datastore.table.sequences == each)[0]) for each in sequences]
        true = np.linalg.norm(datastore.embeddings(np.array(slots)).astype(np.float64) - query, axis=1)
        np.testing.assert_allclose(distances, true, rtol=1e-12)
        assert (np.diff(distances) >= 0).all()


def test_a_moving_window_never_returns_an_evicted_entry(create: Creator) -> None:
    datastore = create(capacity=300)
    index = open_annoy(datastore, segment_entries=60)
    entries = clustered(1500)
    shares = []
    for start in range(0, 1500, 10):
        add(datastore, entries[start : start + 10])
        found = index.search(entries[start : start + 2], 10)
        assert (found.sequences > max(0, start + 10 - 300)).all()
        index.wait()
        if start % 100 == 0:
            shares.append(recall(index, datastore, clustered(20, seed=start), 5))
    assert index.describe()["segments"] >= 2
    assert np.mean(shares) > 0.95


def test_the_newest_entry_is_found_at_once(create: Creator) -> None:
    datastore = create()
    add(datastore, clustered(400))
    index = build(datastore)
    new = np.full((1, DIM), 50, np.float32)
    sequence = add(datastore, new)
    assert index.search(new, 1).sequences.tolist() == [sequence.tolist()]


def test_a_forgotten_entry_leaves_its_segment_and_the_folder_at_once(create: Creator) -> None:
    datastore = create()
    entries = clustered(400)
    add(datastore, entries)
    index = build(datastore)
    assert index.search(entries[:1], 1).sequences.tolist() == [[1]]
    datastore.forget(sequences=[1])
    assert not annoy_files(datastore)
    assert 1 not in index.search(entries[:1], 10).sequences
    described = index.describe()
    assert described["segments"] == 3
    assert described["tail"] == 99
    index.wait()
    index.search(entries[:1], 10)
    assert len(annoy_files(datastore)) == 3, "the segments that held nothing forgotten are written again"
    again = open_annoy(datastore)
    assert recall(again, datastore, entries[:20]) > 0.95
    assert again.describe()["segments"] == 3


def test_k_answers_come_even_when_most_of_a_segment_is_gone(create: Creator) -> None:
    datastore = create(capacity=1000)
    entries = clustered(1000)
    add(datastore, entries)
    index = build(datastore, segment_entries=1000)
    datastore.forget(sequences=np.arange(1, 601, dtype=np.uint64))
    found = index.search(entries[:20], 10)
    assert found.sequences.shape == (20, 10)
    assert (found.sequences > 600).all()


def test_evictions_in_any_order_dissolve_a_segment_before_it_is_mostly_dead(create: Creator) -> None:
    datastore = create(capacity=200, policy="balanced")
    add(datastore, clustered(200))
    index = build(datastore)
    for start in range(0, 300, 5):
        add(datastore, clustered(5, seed=start))
        assert index.search(clustered(1), 10).sequences.shape == (1, 10)
    index.wait()
    index.search(clustered(1), 10)
    assert index.describe()["in_segments"] + index.describe()["tail"] == 200
    assert recall(index, datastore, clustered(20, seed=4)) > 0.9


def test_another_process_opens_the_segments_without_building(create: Creator) -> None:
    datastore = create()
    add(datastore, clustered(400))
    build(datastore)
    before = [path.stat().st_mtime_ns for path in annoy_files(datastore)]
    with Datastore.open(datastore.folder, read_only=True) as reader:
        index = open_annoy(reader)
        assert recall(index, reader, clustered(20, seed=4)) > 0.95
        assert index.describe()["segments"] == 4
        index.close()
    assert [path.stat().st_mtime_ns for path in annoy_files(datastore)] == before


def test_a_reader_takes_up_segments_that_another_process_builds_later(create: Creator) -> None:
    datastore = create()
    add(datastore, clustered(200))
    with Datastore.open(datastore.folder, read_only=True) as reader:
        index = open_annoy(reader)
        index.search(clustered(1), 5)
        assert index.describe()["segments"] == 0
        add(datastore, clustered(200, seed=1))
        build(datastore)
        index.search(clustered(1), 5)
        assert index.describe()["segments"] == 4
        index.close()


def test_an_entry_that_two_processes_sealed_is_answered_once(create: Creator) -> None:
    datastore = create()
    add(datastore, clustered(400))
    with Datastore.open(datastore.folder) as other:
        mine, theirs = open_annoy(datastore, segment_entries=100), open_annoy(other, segment_entries=70)
        for index in (mine, theirs):  # both begin to build before either sees the other's segments
            index.search(clustered(1), 10)
        for index in (mine, theirs):
            index.build()  # type: ignore[attr-defined]
            index.close()
    index = open_annoy(datastore)
    queries = clustered(20, seed=5)
    found = index.search(queries, 30)
    assert all(len(np.unique(row)) == 30 for row in found.sequences)
    described = index.describe()
    assert described["in_segments"] + described["tail"] == 400
    assert described["segments"] > 4
    assert recall(index, datastore, queries) > 0.9
    datastore.forget(before=150)
    found = index.search(queries, 30)
    assert all(len(np.unique(row)) == 30 for row in found.sequences)
    assert (found.sequences >= 150).all()


def test_building_twice_gives_the_same_answers_bit_for_bit(create: Creator) -> None:
    queries = clustered(20, seed=8)
    answers = []
    for _ in range(2):
        datastore = create()
        add(datastore, clustered(400))
        answers.append(build(datastore, search_k=60).search(queries, 10))
    assert all(np.array_equal(a, b) for a, b in zip(*answers, strict=True))


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def damage_zero_tail(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))


def damage_flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for position in range(0, len(data), 97):
        data[position] ^= 0x55
    path.write_bytes(bytes(data))


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


def damage_missing(path: Path) -> None:
    path.unlink()


DAMAGES = [damage_cut, damage_zero_tail, damage_flip, damage_empty, damage_missing]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("ending", ["ann", "segment"])
def test_a_damaged_segment_is_announced_and_built_again(
    create: Creator, damage: Callable[[Path], None], ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    datastore = create()
    add(datastore, clustered(400))
    build(datastore).close()
    damage(next((datastore.folder / "index").glob(f"*.{ending}")))
    with caplog.at_level(logging.WARNING):
        index = open_annoy(datastore)
        assert recall(index, datastore, clustered(30, seed=2)) > 0.95
    if (damage, ending) != (damage_missing, "segment"):  # an Annoy file without a header was never a segment
        assert "built again" in caplog.text
    index.build()  # type: ignore[attr-defined]
    assert index.describe()["segments"] == 4
    index.close()


def test_a_segment_of_another_dimension_model_or_metric_is_not_opened(
    create: Creator, caplog: pytest.LogCaptureFixture
) -> None:
    narrow, wide = create(), create(dim=4)
    add(narrow, clustered(400))
    add(wide, clustered(400, dim=4))
    build(narrow).close()
    build(wide).close()
    for path in (wide.folder / "index").iterdir():
        os.replace(path, narrow.folder / "index" / path.name)
    with caplog.at_level(logging.WARNING):
        index = open_annoy(narrow)
        assert recall(index, narrow, clustered(30, seed=2)) > 0.95
    assert "dim 4, expected 12" in caplog.text
    index.close()


def test_a_swapped_annoy_file_is_not_opened(create: Creator, caplog: pytest.LogCaptureFixture) -> None:
    datastore = create()
    add(datastore, clustered(400))
    build(datastore).close()
    first, second = annoy_files(datastore)[:2]
    first.write_bytes(second.read_bytes())
    with caplog.at_level(logging.WARNING):
        index = open_annoy(datastore)
        assert recall(index, datastore, clustered(30, seed=2)) > 0.95
    assert "vouches for" in caplog.text
    index.close()


def test_what_a_dead_builder_left_is_cleared_away(create: Creator) -> None:
    datastore = create()
    add(datastore, clustered(400))
    build(datastore).close()
    child = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    left = datastore.folder / "index" / f"segment-1.ann.by-{int(child.stdout)}"
    left.write_bytes(b"half")
    stray = datastore.folder / "index" / "stray.ann"
    stray.write_bytes(b"no header")
    open_annoy(datastore).search(clustered(1), 5)
    assert not left.exists()
    assert not stray.exists()


def test_forgetting_while_a_segment_is_built_keeps_nothing_of_it(create: Creator) -> None:
    datastore = create()
    add(datastore, clustered(400))
    index = open_annoy(datastore, segment_entries=400, trees=200)
    index.search(clustered(1), 5)  # starts to build
    datastore.forget(sequences=[7])
    index.wait()
    assert 7 not in index.search(clustered(400)[6:7], 10).sequences
    folder = datastore.folder / "index"
    for name in names(folder):  # one may be there that was begun after the entry was forgotten
        assert 7 not in read_header(folder, name, dim=DIM, fingerprint="f" * 64).sequences
    assert index.describe()["segments"] == len(list(names(folder)))
    index.close()


def test_an_annoy_that_gives_one_neighbour_is_not_trusted(
    create: Creator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from edge_sdk.neighbors import annoy as module

    class Broken(annoy.AnnoyIndex):  # type: ignore[misc, name-defined]
        def get_nns_by_vector(self, *_: object, **__: object) -> list[int]:
            return [0]

    module.self_test.cache_clear()
    monkeypatch.setattr(annoy, "AnnoyIndex", Broken)
    datastore = create()
    add(datastore, clustered(400))
    with caplog.at_level(logging.WARNING):
        index = open_annoy(datastore)
    module.self_test.cache_clear()
    assert "self-test" in caplog.text
    assert recall(index, datastore, clustered(10, seed=2)) == 1.0
    assert "self-test" in index.describe()["method"]


def test_missing_annoy_names_what_to_install(create: Creator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install annoy$"):
        open_annoy(create())


@pytest.mark.parametrize("option", ["trees", "search_k", "segment_entries"])
def test_options_below_one_are_refused(create: Creator, option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        open_annoy(create(), **{option: 0})


def test_unknown_kind_and_unknown_option_are_refused(create: Creator) -> None:
    with pytest.raises(ConfigError, match="exact, annoy"):
        open_index("faiss", create())
    with pytest.raises(ConfigError, match="leaves"):
        open_index("annoy", create(), leaves=3)


def test_building_read_only_is_refused(create: Creator) -> None:
    datastore = create()
    with Datastore.open(datastore.folder, read_only=True) as reader, pytest.raises(DatastoreError, match="read-only"):
        build(reader)


def test_recall_is_measured_against_exact_search(create: Creator) -> None:
    datastore = create(capacity=600)
    add(datastore, np.random.default_rng(0).standard_normal((600, DIM)).astype(np.float32))
    assert measure_recall(ExactIndex(datastore), datastore).recall == 1.0
    poor = measure_recall(build(datastore, segment_entries=600, trees=1, search_k=1), datastore, n_queries=50)
    assert poor.n_queries == 50
    assert 0.0 < poor.recall < 0.9
