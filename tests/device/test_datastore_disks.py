"""The datastore on disks that are full or cannot be written, in mount namespaces of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

_PRELUDE = """
import os, subprocess, sys
from pathlib import Path
import numpy as np
from edge_sdk import DatastoreError, Predictor
from edge_sdk.datastore import Datastore
from edge_sdk.model import ModelFile
top, model_file = Path(sys.argv[1]), sys.argv[2]
metadata = ModelFile.open(model_file).metadata
samples = np.random.default_rng(0).normal(size=(4000, *metadata.input.shape)).astype(np.float32)
label, other = metadata.classes[:2]

def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)

def fill(folder):
    with open(folder / "filler", "wb", buffering=0) as file:
        for size in (65536, 4096, 512, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
"""

_FULL = """
mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(top))
with Predictor.open(model_file, top / "me.store", capacity=300) as predictor:
    predictor.learn(samples[:300], [label] * 300, tune=False)
    fill(top)
    before = (top / "me.store" / "entries.npy").stat().st_size
    for sample in samples[300:1000]:
        predictor.learn(sample, other, tune=False)
    assert len(predictor.datastore) == 300
    assert predictor.datastore.table.newest == 1000
    assert (top / "me.store" / "entries.npy").stat().st_size == before
    assert len(predictor.predict(samples[:50])) == 50
    assert predictor.forget(sequences=[1000, 999]) == 2
    predictor.learn(samples[1000], label, tune=False)
    assert predictor.datastore.table.newest == 1001
    predictor.tune()
with Datastore.open(top / "me.store", model=metadata) as store:
    assert (len(store), store.table.newest) == (299, 1001)
try:
    Datastore.create(top / "other.store", model=metadata, capacity=300)
except DatastoreError as error:
    print(error)
print(sorted(path.name for path in top.iterdir()))
"""

_NO_ROOM_TO_GROW = """
mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(top))
with Predictor.open(model_file, top / "me.store", capacity=4, policy="concatenate") as predictor:
    predictor.learn(samples[:4], [label] * 4, tune=False)
    fill(top)
    for _ in range(2):
        try:
            predictor.learn(samples[4:3000], [other] * 2996, tune=False)
        except DatastoreError as error:
            print(error)
    assert predictor.datastore.capacity == 4
    assert predictor.datastore.table.newest == 4
    (top / "filler").unlink()
    predictor.learn(samples[4:40], [other] * 36, tune=False)
    assert len(predictor.datastore) == 40
with Datastore.open(top / "me.store", model=metadata) as store:
    assert len(store) == 40
"""

_READ_ONLY = """
with Predictor.open(model_file, top / "me.store", capacity=8) as predictor:
    predictor.learn(samples[:8], [other] * 8, tune=False)
    expected = predictor.predict_proba(samples[:8])
mount("--bind", str(top), str(top))
mount("-o", "remount,ro,bind", str(top))
with Predictor.open(model_file, top / "me.store") as predictor:
    assert predictor.datastore.read_only
    assert np.array_equal(predictor.predict_proba(samples[:8]), expected)
    for change in (lambda: predictor.learn(samples[0], label), lambda: predictor.forget(label=other), predictor.tune):
        try:
            change()
        except DatastoreError as error:
            print(error)
"""

_NO_ROOM_FOR_INPUTS = """
mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(top))
np.savez(top / "learn.npz", x=samples[:50], label=[label] * 50)
def ingest(name, *settings):
    command = [sys.executable, "-m", "edge_tools", "ingest", top / "learn.npz", "--model", model_file]
    command += ["--datastore", top / name, "--keep-inputs", "8MB", *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.returncode, done.stderr.strip())

with Predictor.open(model_file, top / "old.store", capacity=100, policy="concatenate") as predictor:
    predictor.learn(samples[0], label)
ingest("new.store", "--policy", "concatenate")
print(sorted(path.name for path in top.iterdir()))
ingest("old.store")
with Datastore.open(top / "old.store", model=metadata) as store:
    print(len(store), sorted(path.name for path in store.folder.iterdir() if "npy" in path.name))
"""


@pytest.fixture
def run(tmp_path: Path, repository: Path) -> object:
    model_file = repository / "tests" / "data" / "tiny.onnx"
    unshare = ["unshare", "--mount", "--map-root-user"]
    try:
        subprocess.run([*unshare, "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting is not permitted here, not even in a namespace")

    def run_script(script: str) -> list[str]:
        command = [*unshare, sys.executable, "-c", _PRELUDE + script, str(tmp_path), str(model_file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run_script


def test_on_a_full_disk_a_window_goes_on_learning_forgetting_and_predicting(run: object) -> None:
    assert callable(run)
    error, names = run(_FULL)
    assert "cannot allocate" in error
    assert "other.store" in error
    assert "bytes are free" in error
    assert names == "['filler', 'me.store']"


def test_a_store_that_cannot_grow_says_how_many_bytes_it_needs_and_stays_as_it_was(run: object) -> None:
    assert callable(run)
    first, second = run(_NO_ROOM_TO_GROW)
    assert first == second
    assert "cannot allocate" in first
    assert "me.store/entries.npy: no room, 0 bytes are free" in first


def test_on_a_read_only_mount_predictions_go_on_and_learning_says_why_not(run: object) -> None:
    assert callable(run)
    messages = run(_READ_ONLY)
    assert len(messages) == 3
    assert all("its folder is not writable; predictions go on" in message for message in messages)


def test_without_room_for_the_inputs_an_ingest_leaves_no_store_and_an_old_one_as_it_was(run: object) -> None:
    assert callable(run)
    made, names, old, left = run(_NO_ROOM_FOR_INPUTS)
    assert made.startswith("1 edge-sdk: cannot allocate")
    assert "new.store/inputs.npy: no room" in made
    assert names == "['learn.npz', 'old.store']"
    assert old.startswith("1 edge-sdk: cannot allocate")
    assert left == "1 ['entries.npy']"
