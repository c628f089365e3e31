"""Datastores that move: backups, kept inputs, and the rebuild for a new global model."""

import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.datastore import Datastore
from edge_sdk.datastore.backup import restore_backup, write_backup
from edge_sdk.datastore.rebuild import rebuild
from edge_sdk.errors import ConfigError, DatastoreError, InputError
from edge_sdk.model import InputSpec, ModelMetadata

OLD = ModelMetadata(("run", "sit"), InputSpec("input", (4,)), 3, "a" * 64, graph_crc32=0)
NEW = ModelMetadata(("sit", "run", "fly"), InputSpec("input", (4,)), 5, "b" * 64, graph_crc32=0)


def sample(source: int) -> np.ndarray:
    return np.full(4, source, np.float32)


def old_model(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return samples[:, :3] * 2, np.full((len(samples), 2), 0.5, np.float32)


def new_model(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(samples[:, :1] * 3, 5, axis=1), np.full((len(samples), 3), 1 / 3, np.float32)


def learn(store: Datastore, sources: list[int]) -> None:
    samples = np.stack([sample(source) for source in sources])
    digests = np.array(sources, np.uint64)
    store.keep(digests, samples)
    embeddings, probabilities = old_model(samples)
    store.add(embeddings, [("run", "sit")[source % 2] for source in sources], probabilities, sources=digests)


@pytest.fixture
def store(tmp_path: Path) -> Datastore:
    return Datastore.create(tmp_path / "me.store", model=OLD, capacity=6)


def content(store: Datastore) -> list[tuple[int, int, str, bytes]]:
    slots = store.table.order
    labels = [store.classes[label] for label in store.table.labels[slots]]
    rows = (row.tobytes() for row in store.embeddings(slots))
    return list(
        zip(store.table.sequences[slots].tolist(), store.table.sources[slots].tolist(), labels, rows, strict=True)
    )


def test_a_restored_store_holds_the_same_and_continues_the_sequences(store: Datastore, tmp_path: Path) -> None:
    store.keep_inputs(10_000, shape=(4,), dtype="float32")
    learn(store, list(range(1, 10)))
    store.forget(sequences=[9])
    store.save_interpolation({"interpolation_weight": 0.5})
    assert write_backup(store, tmp_path / "me.backup") == (tmp_path / "me.backup").stat().st_size
    expected = content(store)
    store.close()
    restore_backup(tmp_path / "me.backup", tmp_path / "other.store", model=OLD)
    with Datastore.open(tmp_path / "other.store", model=OLD) as other:
        assert content(other) == expected
        assert other.interpolation == {"interpolation_weight": 0.5}
        kept = other.kept_inputs
        assert kept is not None
        found = kept.find(8)
        assert found is not None
        assert found.tolist() == sample(8).tolist()
        learn(other, [50])
        assert other.table.newest == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["me.backup", "me.store", "other.store"]


def test_another_models_backup_is_refused_with_the_way_out(store: Datastore, tmp_path: Path) -> None:
    write_backup(store, tmp_path / "me.backup")
    with pytest.raises(DatastoreError, match=r"another model .*use a new folder"):
        restore_backup(tmp_path / "me.backup", tmp_path / "other.store", model=NEW)
    with pytest.raises(DatastoreError, match="exists already"):
        restore_backup(tmp_path / "me.backup", store.folder)
    assert not (tmp_path / "other.store").exists()


def test_a_damaged_backup_is_refused_and_leaves_nothing_behind(store: Datastore, tmp_path: Path) -> None:
    learn(store, [1, 2, 3])
    write_backup(store, tmp_path / "me.backup")
    right = (tmp_path / "me.backup").read_bytes()
    damaged = tmp_path / "damaged.backup"
    outcomes = set()
    cases = [right[:length] for length in range(0, len(right), 29)]
    cases += [right[:at] + bytes([right[at] ^ 0x55]) + right[at + 1 :] for at in range(0, len(right), 3)]
    for case in cases:
        damaged.write_bytes(case)
        try:
            restore_backup(damaged, tmp_path / "other.store")
        except DatastoreError:
            outcomes.add("refused")
        else:
            # Bytes of the zip file that say nothing about the members (times, attributes).
            with Datastore.open(tmp_path / "other.store") as other:
                assert content(other) == content(store)
            for path in (tmp_path / "other.store").iterdir():
                path.unlink()
            (tmp_path / "other.store").rmdir()
            outcomes.add("restored")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged.backup", "me.backup", "me.store"]
    assert outcomes == {"refused", "restored"}


def test_a_hostile_backup_is_refused_before_anything_is_written(store: Datastore, tmp_path: Path) -> None:
    write_backup(store, tmp_path / "me.backup")
    with zipfile.ZipFile(tmp_path / "me.backup") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    contents = json.loads(members["backup.json"])
    newer = json.dumps({**contents, "format_version": 2}).encode()
    cases = {
        "upgrade edge-sdk": {**members, "backup.json": newer},
        "has 1048576 bytes": {**members, "entries.npy": bytes(1 << 20)},
        "not a backup": {"../evil": b"x"},
        "not have the stated": {**members, "entries.npy": bytes(len(members["entries.npy"]))},
    }
    for message, changed in cases.items():
        with zipfile.ZipFile(tmp_path / "hostile.backup", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in changed.items():
                archive.writestr(name, data)
        with pytest.raises(DatastoreError, match=message):
            restore_backup(tmp_path / "hostile.backup", tmp_path / "sub.store")
        assert not (tmp_path / "sub.store").exists()
    assert not (tmp_path.parent / "evil").exists()


def test_a_store_is_rebuilt_for_a_new_model_from_its_kept_inputs(store: Datastore) -> None:
    store.keep_inputs(10_000, shape=(4,), dtype="float32")
    learn(store, [1, 2, 3, 4, 5, 6, 7])
    store.forget(sequences=[3])
    store.save_interpolation({"interpolation_weight": 0.5})
    with Datastore.open(store.folder) as other_process:
        assert rebuild(store, NEW, new_model) == (5, 0)
        with pytest.raises(DatastoreError, match="rebuilt for another model"):
            other_process.add(np.ones((1, 3), np.float32), ["run"], np.full((1, 2), 0.5, np.float32))
    with Datastore.open(store.folder, model=NEW) as new:
        assert new.classes == ("sit", "run", "fly")
        assert [(sequence, source, label) for sequence, source, label, _ in content(new)] == [
            (2, 2, "run"),
            (4, 4, "run"),
            (5, 5, "sit"),
            (6, 6, "run"),
            (7, 7, "sit"),
        ]
        assert new.embeddings(new.table.order)[:, 0].tolist() == [6.0, 12.0, 15.0, 18.0, 21.0]
        assert new.interpolation is None
        assert new.kept_inputs is not None
        new.add(np.ones((1, 5), np.float32), ["fly"], np.full((1, 3), 1 / 3, np.float32))
        assert new.table.newest == 8
    assert [path.name for path in store.folder.parent.iterdir()] == ["me.store"]


def test_a_failed_rebuild_leaves_the_old_store_as_it_was(store: Datastore) -> None:
    store.keep_inputs(10_000, shape=(4,), dtype="float32")
    learn(store, [1, 2, 3])
    expected = content(store)

    def failing(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        raise InputError("the model refused")

    with pytest.raises(InputError, match="the model refused"):
        rebuild(store, NEW, failing)
    with pytest.raises(InputError, match=r'does not know a label of the store: unknown label "run"'):
        rebuild(store, ModelMetadata(("sit",), NEW.input, 5, "c" * 64, 0), new_model)
    with pytest.raises(InputError, match=r"float32 of shape \(4,\), the model file takes float32 of shape \(9,\)"):
        rebuild(store, ModelMetadata(("sit", "run"), InputSpec("input", (9,)), 5, "c" * 64, 0), new_model)
    assert content(store) == expected
    learn(store, [4])
    assert [path.name for path in store.folder.parent.iterdir()] == ["me.store"]


def test_entries_without_a_kept_input_are_left_out_only_when_asked(store: Datastore) -> None:
    with pytest.raises(DatastoreError, match="keeps no inputs"):
        rebuild(store, NEW, new_model)
    learn(store, [1, 2])
    store.keep_inputs(10_000, shape=(4,), dtype="float32")
    learn(store, [3, 4])
    with pytest.raises(DatastoreError, match="2 of 4 entries have no kept input"):
        rebuild(store, NEW, new_model)
    assert rebuild(store, NEW, new_model, drop_missing=True) == (2, 2)


def test_kept_inputs_stay_within_their_bytes_and_the_newest_stay(store: Datastore) -> None:
    kept = store.keep_inputs(4096 + 3 * 40 + 39, shape=(4,), dtype="float32")
    path = store.folder / "inputs.npy"
    size = path.stat().st_size
    assert (kept.spec.slots, size) == (3, 4096 + 3 * 40)
    for source in range(1, 30):
        learn(store, [source])
    learn(store, [31, 32, 33, 34, 31])
    assert path.stat().st_size == size
    assert len(kept) == 3
    assert [source for source in range(40) if kept.find(source) is not None] == [31, 33, 34]
    with pytest.raises(ConfigError, match="keep no input"):
        store.keep_inputs(4100, shape=(4,), dtype="float32")
    with pytest.raises(ConfigError, match="keeps 3 inputs"):
        store.keep_inputs(10_000, shape=(4,), dtype="float32")
    with pytest.raises(InputError, match=r"keeps inputs of shape \(4,\)"):
        store.keep(np.array([7], np.uint64), np.zeros((1, 5), np.float32))


def test_forget_overwrites_kept_inputs_too(store: Datastore) -> None:
    store.keep_inputs(10_000, shape=(4,), dtype="float32")
    learn(store, [1001, 1002, 1003])
    assert sample(1002).tobytes() in (store.folder / "inputs.npy").read_bytes()
    store.forget(sequences=[2])
    raw = (store.folder / "inputs.npy").read_bytes()
    assert sample(1002).tobytes() not in raw
    assert sample(1003).tobytes() in raw


def test_a_damaged_kept_input_is_not_used(store: Datastore) -> None:
    kept = store.keep_inputs(10_000, shape=(4,), dtype="float32")
    learn(store, [1, 2])
    path = store.folder / "inputs.npy"
    with path.open("r+b") as file:
        file.seek(4096 + 30)
        file.write(b"\xff")
        os.fsync(file.fileno())
    assert kept.find(1) is None
    assert kept.find(2) is not None
