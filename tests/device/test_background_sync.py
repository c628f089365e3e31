"""A sync that goes on beside other work: what waits for it, what is at risk meanwhile, who is told of its failure."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_sdk import Encoder, Predictor
from edge_sdk.datastore import Datastore
from edge_sdk.datastore.storage import ENTRIES, Storage
from edge_sdk.errors import DatastoreError
from edge_sdk.inputs import Batch
from edge_sdk.inputs.ingest import ingest
from edge_sdk.neighbors import open_index


class WatchedStorage(Storage):
    """A storage that notes how many bytes of entries it writes and when it syncs them; a sync waits at the gate."""

    def __init__(self, folder: Path, *, writable: bool) -> None:
        super().__init__(folder, writable=writable)
        self.events: list[str | int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fails = False

    def write(self, name: str, data: bytes | bytearray | memoryview, offset: int) -> None:
        if name == ENTRIES:
            self.events.append(len(data))
        super().write(name, data, offset)

    def sync(self, name: str) -> None:
        if name == ENTRIES:
            self.events.append("begun")
            assert self.gate.wait(10)
        super().sync(name)
        if self.fails:
            self.fails = False
            raise DatastoreError("the card is gone")
        if name == ENTRIES:
            self.events.append("ended")


class WatchedDatastore(Datastore):
    _storage_class = WatchedStorage

    @property
    def watched(self) -> WatchedStorage:
        assert isinstance(self._storage, WatchedStorage)
        return self._storage


@pytest.fixture
def store(tmp_path: Path, repository: Path) -> Iterator[WatchedDatastore]:
    metadata = Encoder.open(repository / "tests" / "data" / "tiny.onnx").metadata
    with WatchedDatastore.create(tmp_path / "me.store", model=metadata, capacity=500) as opened:
        opened.watched.events.clear()
        yield opened


def add(store: Datastore, n: int) -> None:
    embeddings = np.ones((n, store.dim), np.float32)
    probabilities = np.full((n, store.n_model_classes), 1 / store.n_model_classes, np.float32)
    store.add(embeddings, [store.classes[0]] * n, probabilities, sync=False)


@pytest.mark.parametrize("n", [1, 3])
def test_next_change_is_written_after_the_sync_that_has_begun(store: WatchedDatastore, n: int) -> None:
    add(store, n)
    store.watched.gate.clear()
    store.start_sync()
    assert "ended" not in store.watched.events
    threading.Timer(0.05, store.watched.gate.set).start()
    add(store, n)
    written = n * store.keys.itemsize
    assert store.watched.events == [written, "begun", "ended", written]


def test_failed_sync_is_told_to_the_next_change_which_stores_nothing(store: WatchedDatastore) -> None:
    add(store, 2)
    store.watched.fails = True
    store.start_sync()
    with pytest.raises(DatastoreError, match="the card is gone"):
        add(store, 2)
    assert len(store) == 2
    add(store, 2)
    assert len(store) == 4


def test_failed_sync_is_told_to_whoever_closes_the_store(tmp_path: Path, repository: Path) -> None:
    metadata = Encoder.open(repository / "tests" / "data" / "tiny.onnx").metadata
    store = WatchedDatastore.create(tmp_path / "me.store", model=metadata, capacity=8)
    add(store, 2)
    store.watched.fails = True
    store.start_sync()
    with pytest.raises(DatastoreError, match="the card is gone"):
        store.close()


def test_without_a_thread_to_be_had_the_sync_is_done_at_once(
    store: WatchedDatastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    add(store, 2)
    store.start_sync()
    assert store.watched.events[-2:] == ["begun", "ended"]


@pytest.mark.parametrize("rows", [100, 40, 30])
def test_ingest_never_has_more_entries_at_risk_than_it_says(
    store: WatchedDatastore, repository: Path, rows: int
) -> None:
    encoder = Encoder.open(repository / "tests" / "data" / "tiny.onnx")
    predictor = Predictor(encoder, store, open_index(None, store))
    x = np.arange(800, dtype=np.float32).reshape(400, 2)
    parts = [x[start : start + rows] for start in range(0, len(x), rows)]
    batches = [Batch(part, ["left"] * len(part), ["x"] * len(part), []) for part in parts]
    assert ingest(batches, lambda: predictor, sync_every=100).added == 400
    at_risk = 0
    for event in store.watched.events:
        if isinstance(event, int):
            at_risk += event // store.keys.itemsize
            assert at_risk <= 100
        elif event == "ended":
            at_risk = 0
    assert at_risk == 0
    assert store.watched.events.count("begun") == 5
