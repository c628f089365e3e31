"""Every file that holds something of a user can be read by its owner alone, even where the umask takes nothing away."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_sdk import Datastore, InputSpec, ModelMetadata, Predictor
from edge_sdk.neighbors import ExactIndex, open_index
from tests.conftest import Outcome

Run = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    """As where new files are everybody's."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def store(run: Run, watch: Path, tmp_path: Path) -> Path:
    """A datastore of real entries with kept inputs, learnt, tuned and asked."""
    folder = tmp_path / "me.store"
    learn = watch / "users" / "1603" / "learn.npz"
    run("ingest", learn, "--model", watch / "watch.onnx", "--datastore", folder, "--keep-inputs", "1MB")
    return folder


def readable_by_others(folder: Path) -> list[str]:
    """Files and folders that are not their owner's alone."""
    paths = [folder, *folder.rglob("*")]
    return [str(path.relative_to(folder)) for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_learning_tuning_and_forgetting_write_private_files(store: Path, watch: Path) -> None:
    assert {path.name for path in store.rglob("*")} >= {"entries.npy", "inputs.npy", "self-check"}
    assert readable_by_others(store) == []
    with Predictor.open(watch / "watch.onnx", store, online=True) as predictor:
        predictor.forget(label="typing")
        predictor.learn(np.zeros((6, 100), np.float32), "typing")
        predictor.tune()
    assert readable_by_others(store) == []


def test_backup_is_as_private_as_the_store_and_so_is_what_is_restored(run: Run, store: Path, tmp_path: Path) -> None:
    assert run("backup", store, tmp_path / "me.backup").code == 0
    assert stat.S_IMODE((tmp_path / "me.backup").stat().st_mode) == 0o600
    assert run("restore", tmp_path / "me.backup", tmp_path / "other.store").code == 0
    assert readable_by_others(tmp_path / "other.store") == []


@pytest.mark.parametrize("has_links", [True, False])
def test_rebuilt_store_is_private_where_files_cannot_be_linked_too(
    run: Run, store: Path, watch: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    def refuse(*_: object) -> None:
        raise OSError

    if not has_links:
        monkeypatch.setattr(os, "link", refuse)
    assert run("reembed", store, "--model", watch / "watch.onnx").code == 0
    assert (store / "inputs.npy").is_file()
    assert readable_by_others(store) == []


@pytest.mark.xfail(
    reason="neighbors/projection_file.py does not open its files with owner_only yet", raises=AssertionError
)
def test_searching_writes_private_files(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    with _wide(tmp_path / "me.store") as datastore:
        embeddings = (random.standard_normal((3000, 8)) @ random.standard_normal((8, 256))).astype(np.float32)
        datastore.add(embeddings, ["run"] * 3000, np.ones((3000, 1), np.float32), sync=False)
        ExactIndex(datastore).search(embeddings[:1], 3)
        assert (datastore.folder / "index" / "projection.bin").is_file()
        assert readable_by_others(datastore.folder) == []


@pytest.mark.xfail(reason="neighbors/sealing.py does not open its files with owner_only yet", raises=AssertionError)
def test_annoy_segments_are_private_files(tmp_path: Path) -> None:
    pytest.importorskip("annoy", reason="annoy is not installed")
    random = np.random.default_rng(0)
    with _wide(tmp_path / "me.store") as datastore:
        embeddings = random.standard_normal((300, 256)).astype(np.float32)
        datastore.add(embeddings, ["run"] * 300, np.ones((300, 1), np.float32), sync=False)
        index = open_index("annoy", datastore, segment_entries=100, trees=5)
        index.build()  # type: ignore[attr-defined]
        assert len(list((datastore.folder / "index").glob("*.ann"))) == 3
        assert readable_by_others(datastore.folder) == []


@pytest.mark.xfail(reason="prototypes_file.py does not open its files with owner_only yet", raises=AssertionError)
def test_compressing_writes_private_files(run: Run, store: Path, watch: Path) -> None:
    pytest.importorskip("sklearn", reason="compressing needs the protonn extra")
    assert run("compress", store, "--model", watch / "watch.onnx", "--budget", "60KB", "--yes").code == 0
    assert (store / "prototypes.npz").is_file()
    assert readable_by_others(store) == []


def _wide(folder: Path) -> Datastore:
    model = ModelMetadata(("run",), InputSpec("input", (256,)), 256, "f" * 64, graph_crc32=0)
    return Datastore.create(folder, model=model, capacity=3000)
