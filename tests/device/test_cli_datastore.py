"""The command line on datastores: forget, backup, restore, kept inputs, a new model, and several processes at once."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk import Interpolation, ModelFile
from edge_sdk.datastore import Datastore
from edge_sdk.protonn import Prototypes
from edge_sdk.record import KEY as RECORD
from edge_sdk.record import Record

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def tiny(repository: Path) -> Path:
    return repository / "tests" / "data" / "tiny.onnx"


@pytest.fixture(scope="module")
def tiny_next(repository: Path) -> Path:
    return repository / "tests" / "data" / "tiny_next.onnx"


def examples(path: Path, n: int, *, seed: int = 0) -> Path:
    """Distinct points of the plane, labelled by side, as an npz file."""
    points = np.random.default_rng(seed).normal(size=(n, 2)).astype(np.float32)
    np.savez(path, x=points, label=np.where(points[:, 0] < 0, "left", "right"))
    return path


@pytest.fixture
def filled(run: Run, tiny: Path, tmp_path: Path) -> Path:
    """A datastore of 60 entries with kept inputs."""
    learn = examples(tmp_path / "learn.npz", 60)
    store = tmp_path / "me.store"
    outcome = run("ingest", learn, "--model", tiny, "--datastore", store, "--capacity", 80, "--keep-inputs", "64KB")
    assert outcome.code == 0, outcome.stderr
    return store


def test_forget_by_label_sequence_and_age(run: Run, filled: Path) -> None:
    assert run("forget", filled, "--sequence", 3, "--sequence", 60, "--json").document["forgotten"] == 2
    document = run("forget", filled, "--older-than", 49, "--json").document
    with Datastore.open(filled) as store:
        assert store.interpolation is not None
        assert document.pop("interpolation_weight") == pytest.approx(store.interpolation["interpolation_weight"])
    assert document == {"datastore": str(filled), "forgotten": 8, "entries": 50, "emptied_classes": []}
    outcome = run("forget", filled, "--label", "left")
    assert outcome.code == 0
    assert outcome.stderr.count('class "left" has just lost its last entry') == 1
    assert run("forget", filled, "--label", "lft").stderr.startswith('edge-sdk: unknown label "lft": did you mean')
    nothing_named = run("forget", filled)
    assert (nothing_named.code, nothing_named.stderr.count("\n")) == (1, 1)
    assert "--sequence, --label, --before or --older-than" in nothing_named.stderr


def test_forgetting_nothing_says_so_and_leaves_the_settings(run: Run, filled: Path) -> None:
    manifest = (filled / "manifest.json").read_bytes()
    outcome = run("forget", filled, "--sequence", 99999)
    assert (outcome.code, outcome.stderr) == (0, "nothing was forgotten: no entry meets the conditions\n")
    assert (filled / "manifest.json").read_bytes() == manifest


def test_forget_tunes_again_on_what_is_left(run: Run, filled: Path) -> None:
    run("tune", filled, "--experts", "knn+head")
    with Datastore.open(filled) as store:
        before = store.interpolation
        assert before is not None
        record = Record.start(Interpolation.from_mapping(before))
        store.save_interpolation({**before, RECORD: {"weight": record.weight.to_mapping(), "drift": {}}})
    outcome = run("forget", filled, "--sequence", 7)
    with Datastore.open(filled) as store:
        after = store.interpolation
    assert after is not None
    assert (after["n_entries"], after["experts"], RECORD in after) == (59, "knn+head", True)
    assert after["novelty"]["distances"] != before["novelty"]["distances"]
    assert f"λ_m is {after['interpolation_weight']:.3f} now" in outcome.stderr


def test_forgetting_everything_leaves_nothing_to_tune_on(run: Run, filled: Path) -> None:
    assert run("forget", filled, "--before", 61, "--json").document["interpolation_weight"] is None
    with Datastore.open(filled) as store:
        assert store.interpolation is None


@pytest.fixture
def compressed(filled: Path, tiny: Path) -> Path:
    """A compressed datastore: 3 prototypes for entries 1 to 60, and 8 entries learnt since."""
    with Datastore.open(filled, model=ModelFile.open(tiny).metadata) as store:
        ids = [store.classes.index(label) for label in ("left", "right", "right")]
        fingerprint = store.manifest.fingerprint
        store.forget(before=61)
        keys = np.array([[-1, 0, 0], [1, 0, 0], [2, 0, 0]], np.float32)
        sources = np.arange(8, dtype=np.uint64)
        probabilities = np.full((8, store.n_model_classes), 1 / store.n_model_classes, np.float32)
        keys = np.resize(keys, (3, store.dim))
        Prototypes(
            keys,
            np.array([30, 20, 10], np.float32),
            np.array(ids),
            sharpness=1.0,
            fingerprint=fingerprint,
            n_entries=60,
            newest_sequence=60,
            interpolation_weight=0.8,
        ).save(filled / "prototypes.npz")
        store.add(np.resize(keys, (8, store.dim)), ["left"] * 4 + ["right"] * 4, probabilities, sources=sources)
    return filled


def test_forget_counts_the_prototypes_of_a_compressed_store(run: Run, compressed: Path) -> None:
    document = run("forget", compressed, "--label", "right", "--json").document
    assert 0.0 < document.pop("interpolation_weight") < 1.0
    assert document == {
        "datastore": str(compressed),
        "forgotten": 4,
        "entries": 4,
        "prototypes_forgotten": 2,
        "prototypes": 1,
        "emptied_classes": ["right"],
    }
    assert "prototypes forgotten" in run("forget", compressed, "--label", "left").stdout
    assert "nothing was forgotten" in run("forget", compressed, "--label", "left").stderr


@pytest.mark.parametrize("age", [8, 30, 66])
def test_an_age_that_divides_the_prototypes_is_refused(run: Run, compressed: Path, age: int) -> None:
    outcome = run("forget", compressed, "--older-than", age)
    assert outcome.code == 1
    assert "holds entries 1 to 60 without their ages" in outcome.stderr


def test_ages_count_from_the_newest_prototype_where_nothing_was_learnt_since(run: Run, compressed: Path) -> None:
    run("forget", compressed, "--sequence", *" --sequence ".join(map(str, range(61, 69))).split())
    for age in (5, 40):
        assert "holds entries 1 to 60 without their ages" in run("forget", compressed, "--older-than", age).stderr
    assert "nothing was forgotten" in run("forget", compressed, "--older-than", 400).stderr


def test_info_says_what_the_files_must_take_and_which_class_is_gone(run: Run, filled: Path) -> None:
    run("forget", filled, "--label", "left")
    outcome = run("info", filled)
    assert 'class "left" has lost its last entry; it was forgotten' in outcome.stderr
    info = run("info", filled, "--json").document
    assert info["emptied_classes"] == ["left"]
    assert (info["kept_inputs"], info["kept_inputs_capacity"]) == (info["entries"], 80)
    for name in ("entries.npy", "inputs.npy", "lock"):
        assert info["bytes_by_formula"][name] == (filled / name).stat().st_size
        assert 0 <= info["bytes"][name] - info["bytes_by_formula"][name] < 4096
    raw = bytearray((filled / "entries.npy").read_bytes())
    for slot in np.flatnonzero(np.load(filled / "entries.npy")["sequence"])[:2]:
        raw[4096 + slot * np.load(filled / "entries.npy").itemsize + 30] ^= 1
    (filled / "entries.npy").write_bytes(raw)
    assert run("info", filled, "--json").document["damaged_slots"] == 2
    assert "2 slots are damaged" in run("info", filled).stderr


def test_backup_and_restore_move_a_store_to_another_device(run: Run, filled: Path, tiny: Path, tiny_next: Path) -> None:
    backup, other = filled.with_name("me.backup"), filled.with_name("other.store")
    assert run("backup", filled, backup, "--json").document["entries"] == 60
    refused = run("restore", backup, other, "--model", tiny_next)
    assert refused.code == 1
    assert "another model" in refused.stderr
    assert not other.exists()
    restored = run("restore", backup, other, "--model", tiny, "--json").document
    assert (restored["entries"], restored["next_sequence"]) == (60, 61)
    assert "exists already" in run("restore", backup, other).stderr
    assert run("info", other, "--json").document["entries"] == 60


def test_backup_asks_for_room_only_where_there_is_none(run: Run, filled: Path, tmp_path: Path) -> None:
    refused = run("backup", filled, tmp_path / "missing" / "me.backup")
    assert refused.code == 1
    assert refused.stderr.endswith("No such file or directory\n")


def test_documents_have_keys_in_snake_case(run: Run, filled: Path, tiny: Path, tmp_path: Path) -> None:
    backup = tmp_path / "me.backup"
    for words in (
        ("info", filled),
        ("index", filled),
        ("backup", filled, backup),
        ("restore", backup, tmp_path / "other.store"),
        ("reembed", filled, "--model", tiny),
        ("tune", filled),
        ("inspect", tiny),
    ):
        keys = run(*words, "--json").document.keys()
        assert [key for key in keys if not re.fullmatch(r"[a-z][a-z0-9_]*", key)] == [], words


def test_usage_shows_the_options_that_must_be_given(run: Run) -> None:
    usage = " ".join(run("ingest", "--help").stdout.split())
    assert "ingest --model MODEL --datastore DATASTORE [OPTIONS]" in usage
    assert "--debug" in run("--help").stdout


def test_what_is_no_datastore_is_told_with_what_it_is(run: Run, tiny: Path, tmp_path: Path) -> None:
    assert "a model file; try edge-sdk inspect" in run("info", tiny).stderr
    (tmp_path / "empty.store").mkdir()
    learn = examples(tmp_path / "learn.npz", 6)
    refused = run("ingest", learn, "--model", tiny, "--datastore", tmp_path / "empty.store")
    assert "exists and is no datastore" in refused.stderr
    for command in ("predict", "evaluate"):
        missing = run(command, learn, "--model", tiny, "--datastore", tmp_path / "none.store")
        assert missing.stderr.endswith("none.store: no such datastore; learn something first: edge-sdk ingest\n")


def test_reembed_is_proposed_only_where_inputs_were_kept(run: Run, tiny: Path, tiny_next: Path, tmp_path: Path) -> None:
    learn, store = examples(tmp_path / "learn.npz", 6), tmp_path / "bare.store"
    assert run("ingest", learn, "--model", tiny, "--datastore", store).code == 0
    refused = run("ingest", learn, "--model", tiny_next, "--datastore", store).stderr
    assert "it kept no inputs: open it with its own model, or use a new folder" in refused


def test_too_little_room_for_kept_inputs_makes_no_store(run: Run, tiny: Path, tmp_path: Path) -> None:
    learn, store = examples(tmp_path / "learn.npz", 6), tmp_path / "new.store"
    refused = run("ingest", learn, "--model", tiny, "--datastore", store, "--keep-inputs", 10)
    assert (refused.code, "10 bytes keep no input" in refused.stderr) == (1, True)
    assert not store.exists()


def test_reembed_rebuilds_the_store_for_a_new_model(run: Run, filled: Path, tiny: Path, tiny_next: Path) -> None:
    points = np.load(filled.with_name("learn.npz"))["x"]
    old = run("predict", filled.with_name("learn.npz"), "--model", tiny_next, "--datastore", filled)
    assert "edge-sdk reembed" in old.stderr
    done = run("reembed", filled, "--model", tiny_next, "--json").document
    assert (done["entries"], done["dropped"]) == (60, 0)
    with Datastore.open(filled, model=ModelFile.open(tiny_next).metadata) as store:
        stored = store.embeddings(store.table.order)
        assert store.table.sequences[store.table.order].tolist() == list(range(1, 61))
        assert np.allclose(stored[:, :2], 2 * points[:, ::-1], rtol=1e-3)
    again = run("reembed", filled, "--model", tiny, "--json").document
    assert again["entries"] == 60


def test_reembed_without_kept_inputs_says_how_to_start_anew(
    run: Run, tiny: Path, tiny_next: Path, tmp_path: Path
) -> None:
    run("ingest", examples(tmp_path / "learn.npz", 9), "--model", tiny, "--datastore", tmp_path / "me.store")
    outcome = run("reembed", tmp_path / "me.store", "--model", tiny_next)
    assert outcome.code == 1
    assert "keeps no inputs" in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_a_bound_that_keeps_no_input_is_refused(run: Run, tiny: Path, tmp_path: Path) -> None:
    at = ("--model", tiny, "--datastore", tmp_path / "me.store")
    learn = examples(tmp_path / "learn.npz", 9)
    assert "keep no input" in run("ingest", learn, *at, "--keep-inputs", "1KB").stderr
    assert run("ingest", learn, *at, "--keep-inputs", "much").code == 2


def start_ingest(learn: Path, model: Path, store: Path, *words: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "edge_tools",
        "ingest",
        str(learn),
        "--model",
        str(model),
        "--datastore",
        str(store),
    ]
    return subprocess.Popen([*command, "--no-tune", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_four_ingests_at_once_add_every_example(tiny: Path, tmp_path: Path) -> None:
    store = tmp_path / "me.store"
    files = [examples(tmp_path / f"{seed}.npz", 500, seed=seed) for seed in range(4)]
    processes = [start_ingest(file, tiny, store, "--capacity", "3000") for file in files]
    for process in processes:
        _, talk = process.communicate(timeout=120)
        assert process.returncode == 0, talk
    with Datastore.open(store) as opened:
        assert len(opened) == 2000
        assert np.unique(opened.table.sources[opened.table.order]).size == 2000


def test_four_ingests_that_do_not_wait_add_all_or_name_the_holder(tiny: Path, tmp_path: Path) -> None:
    store = tmp_path / "me.store"
    files = [examples(tmp_path / f"{seed}.npz", 500, seed=seed) for seed in range(4)]
    processes = [start_ingest(file, tiny, store, "--capacity", "3000", "--wait", "0") for file in files]
    numbers = [process.pid for process in processes]
    added = 0
    for process in processes:
        _, talk = process.communicate(timeout=120)
        if process.returncode == 0:
            added += 500
        else:
            assert any(f"process {number} is writing" in talk for number in numbers), talk
    with Datastore.open(store) as opened:
        assert len(opened) == added >= 500
