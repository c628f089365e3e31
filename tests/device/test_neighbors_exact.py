"""ExactIndex: what it chooses, keeps in the folder and holds in memory."""

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.datastore import Datastore
from edge_sdk.datastore.halves import widen
from edge_sdk.errors import ConfigError
from edge_sdk.model import InputSpec, ModelMetadata
from edge_sdk.neighbors import ExactIndex, Index, open_index
from edge_sdk.neighbors import exact as module
from edge_sdk.neighbors.choice import Choice
from edge_sdk.neighbors.projection import Projection
from edge_sdk.neighbors.stored_keys import StoredKeys

DIM = 200


def metadata(dim: int = DIM) -> ModelMetadata:
    return ModelMetadata(("run", "sit"), InputSpec("input", (dim,)), dim, "f" * 64, graph_crc32=0)


def low_rank(n: int, *, seed: int = 0, rank: int = 6, dim: int = DIM) -> np.ndarray:
    random = np.random.default_rng(seed)
    basis = np.random.default_rng(9).standard_normal((rank, dim))
    noise = 0.01 * random.standard_normal((n, dim))
    return (random.standard_normal((n, rank)) @ basis + noise).astype(np.float32)


def add(datastore: Datastore, embeddings: np.ndarray) -> None:
    labels = ["run", "sit"] * (len(embeddings) // 2) + ["run"] * (len(embeddings) % 2)
    datastore.add(embeddings, labels, np.full((len(embeddings), 2), 0.5, np.float32), sync=False)


def narrow(datastore: Datastore, keys: StoredKeys, slots: np.ndarray, recent: np.ndarray, ram_budget: int) -> Choice:
    """30 directions, so that tests need not wait for measured cost to say so."""
    rows = keys.rows(slots).astype(np.float64)
    directions = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][:30]
    return Choice(Projection(rows.mean(axis=0), 1.0, np.ascontiguousarray(directions)), 10.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Datastore]:
    with Datastore.create(tmp_path / "me.store", model=metadata(), capacity=2000, dtype="float32") as opened:
        yield opened


def nearest(datastore: Datastore, query: np.ndarray, k: int = 10) -> list[int]:
    slots = datastore.table.order
    distances = np.linalg.norm(datastore.embeddings(slots).astype(np.float64) - query, axis=1)
    sequences = datastore.table.sequences[slots].astype(np.int64)
    return sequences[np.lexsort((-sequences, distances))[:k]].tolist()  # type: ignore[no-any-return]


def assert_exact(index: Index, datastore: Datastore, queries: np.ndarray) -> None:
    for query, found in zip(queries, index.search(queries, 10).sequences.tolist(), strict=True):
        assert found == nearest(datastore, query)


def kept(datastore: Datastore) -> Path:
    return datastore.folder / "index" / "projection.bin"


def test_a_second_process_uses_the_kept_projection(store: Datastore, monkeypatch: pytest.MonkeyPatch) -> None:
    add(store, low_rank(600))
    first = ExactIndex(store)
    assert_exact(first, store, low_rank(5, seed=1))
    assert kept(store).is_file()

    def refuse(*_: object) -> Choice:
        raise AssertionError("it was chosen again")

    monkeypatch.setattr(module, "choose", refuse)
    with Datastore.open(store.folder, read_only=True) as reader:
        second = ExactIndex(reader)
        assert_exact(second, reader, low_rank(5, seed=1))
        assert second.describe()["columns"] == first.describe()["columns"]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "other model"])
def test_a_damaged_kept_projection_is_announced_and_made_again(
    store: Datastore, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    add(store, low_rank(600))
    ExactIndex(store).search(low_rank(1), 1)
    data = bytearray(kept(store).read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    elif damage == "other model":
        data = data.replace(b"f" * 64, b"e" * 64)
    kept(store).write_bytes(data[:100] if damage == "cut" else b"" if damage == "empty" else data)
    with caplog.at_level(logging.WARNING):
        assert_exact(ExactIndex(store), store, low_rank(5, seed=1))
    assert "made again" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        ExactIndex(store).search(low_rank(1), 1)
    assert not caplog.text


def test_a_read_only_store_is_searched_without_writing(store: Datastore) -> None:
    add(store, low_rank(600))
    with Datastore.open(store.folder, read_only=True) as reader:
        assert_exact(ExactIndex(reader), reader, low_rank(5, seed=1))
    assert not kept(store).exists()


def test_a_small_store_keeps_nothing(store: Datastore) -> None:
    add(store, low_rank(100))
    index = ExactIndex(store)
    assert_exact(index, store, low_rank(5, seed=1))
    assert index.describe()["method"] == "matrix product"
    assert not kept(store).exists()


def test_a_filter_holds_r_plus_1_numbers_an_entry(store: Datastore) -> None:
    add(store, low_rank(2000))
    index = ExactIndex(store, chooser=narrow)
    assert_exact(index, store, low_rank(5, seed=1))
    described = index.describe()
    assert described["method"] == "projection filter"
    assert index.ram_bytes == 2000 * (described["r"] + 1) * 4 + 30 * DIM * 8


def test_low_rank_embeddings_are_mostly_ruled_out(store: Datastore) -> None:
    add(store, low_rank(2000))
    index = ExactIndex(store, chooser=narrow)
    for query in low_rank(60, seed=1):
        index.search(query[None], 10)
    assert index.describe()["rows"] < 40


def test_no_memory_granted_means_a_scan_that_says_what_a_copy_would_take(store: Datastore) -> None:
    add(store, low_rank(600))
    index = ExactIndex(store, ram_budget=0)
    assert_exact(index, store, low_rank(5, seed=1))
    described = index.describe()
    assert described["method"] == "scan"
    assert described["copy_bytes"] == 600 * (DIM + 1) * 4
    assert index.ram_bytes < 600 * 8


def test_a_store_that_has_doubled_is_chosen_for_again_in_the_background(store: Datastore) -> None:
    add(store, low_rank(400))
    index = ExactIndex(store)
    index.search(low_rank(1), 1)
    before = kept(store).read_bytes()
    add(store, low_rank(500, seed=2))
    assert_exact(index, store, low_rank(5, seed=1))
    index.wait()
    assert kept(store).read_bytes() != before
    add(store, low_rank(3, seed=3))
    assert_exact(index, store, low_rank(5, seed=1))


def test_drift_makes_it_choose_again_and_answers_stay_exact(store: Datastore) -> None:
    calls: list[int] = []

    def counted(*arguments: object) -> Choice:
        calls.append(len(arguments))
        return narrow(*arguments)  # type: ignore[arg-type]

    add(store, low_rank(2000))
    index = ExactIndex(store, chooser=counted)
    index.search(low_rank(1), 1)
    other = np.random.default_rng(5).standard_normal((2000, DIM)).astype(np.float32)  # no direction says more
    for start in range(0, 2000, 20):
        add(store, other[start : start + 20])
        assert_exact(index, store, other[start : start + 1])
    index.wait()
    assert_exact(index, store, other[:3])
    assert len(calls) >= 2


def test_a_background_choice_that_fails_is_announced_and_the_old_one_stays(
    store: Datastore, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def failing(*arguments: object) -> Choice:
        calls.append(1)
        if len(calls) > 1:
            raise OSError("the card is gone")
        return narrow(*arguments)  # type: ignore[arg-type]

    add(store, low_rank(400))
    index = ExactIndex(store, chooser=failing)
    index.search(low_rank(1), 1)
    add(store, low_rank(600, seed=2))
    index.search(low_rank(1), 1)
    index.wait()
    with caplog.at_level(logging.WARNING):
        assert_exact(index, store, low_rank(5, seed=1))
    assert "the card is gone" in caplog.text


def test_negative_memory_is_refused(store: Datastore) -> None:
    with pytest.raises(ConfigError, match="ram_budget"):
        open_index("exact", store, ram_budget=-1)


def test_widening_gives_every_finite_float16_exactly() -> None:
    bits = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    halves = bits.view(np.float16)
    finite = np.isfinite(halves)
    assert np.array_equal(widen(bits.view(np.int16)[finite]), halves[finite].astype(np.float32))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_no_score_exceeds_the_limit_of_the_true_distance(scale: float) -> None:
    random = np.random.default_rng(0)
    keys = (random.standard_normal((500, 64)) * scale + 100).astype(np.float32)
    queries = (random.standard_normal((20, 64)) * scale + 100).astype(np.float32)
    for columns in (2, 8, 66):
        directions = np.linalg.qr(random.standard_normal((64, min(columns, 64))))[0].T
        spread = float(2.0 ** np.round(np.log2(scale)))
        projection = Projection(keys.astype(np.float64).mean(axis=0), spread, np.ascontiguousarray(directions))
        asked = projection.scores(queries)
        scores = asked.weights @ projection.numbers(keys)
        for row, query in enumerate(queries):
            squares = ((keys.astype(np.float64) - query) ** 2).sum(axis=1)
            limits = [projection.limit(square, asked.half_norms[row]) for square in squares]
            assert (scores[row] <= limits).all()
