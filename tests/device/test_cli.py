"""The command line on the watch example: the device's story, and what a user who types the wrong thing is told."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk import EdgeSDKError
from edge_tools import cli

Run = Callable[..., Any]


@pytest.fixture
def at(watch: Path, tmp_path: Path) -> tuple[object, ...]:
    """The options that name model and datastore."""
    return ("--model", watch / "watch.onnx", "--datastore", tmp_path / "me.store")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, but for the lock (whose counter tells readers that somebody looked)."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def test_the_device_story_gains_on_a_real_user(run: Run, watch: Path, tmp_path: Path, at: tuple[object, ...]) -> None:
    learn, test = watch / "users" / "1636" / "learn.npz", watch / "users" / "1636" / "test.npz"
    assert run("ingest", learn, *at).code == 0
    tuned = run("tune", tmp_path / "me.store", "--json").document
    assert tuned["chosen_by"] == "leave-one-out"
    scores = run("evaluate", test, *at, "--json").document
    assert scores["personalised"]["accuracy"] >= scores["global"]["accuracy"] + 0.08
    info = run("info", tmp_path / "me.store", "--json").document
    assert info["entries"] == sum(each["entries"] for each in info["classes"].values()) == 324
    lines = run("predict", test, *at, "--json").stdout.splitlines()
    right = [
        json.loads(line)["label"] == label
        for line, label in zip(lines, examples_of(watch, "1636", "test")["label"], strict=True)
    ]
    assert np.mean(right) == pytest.approx(scores["personalised"]["accuracy"])


def test_lambda_zero_scores_exactly_like_the_global_model(run: Run, watch: Path, at: tuple[object, ...]) -> None:
    run("ingest", watch / "users" / "1603" / "learn.npz", *at)
    scores = run("evaluate", watch / "users" / "1603" / "test.npz", *at, "--lambda", "0", "--json").document
    assert scores["personalised"] == scores["global"]


def test_tables_are_printed_for_people(run: Run, watch: Path, tmp_path: Path, at: tuple[object, ...]) -> None:
    run("ingest", watch / "users" / "1603" / "learn.npz", *at)
    for words in (
        ("info", tmp_path / "me.store"),
        ("evaluate", watch / "users" / "1603" / "test.npz", *at),
        ("tune", tmp_path / "me.store"),
        ("profile", watch / "watch.onnx", "--datastore", tmp_path / "me.store", "--repeats", "10"),
    ):
        outcome = run(*words)
        assert outcome.code == 0
        assert "─" in outcome.stdout


def examples_of(watch: Path, user: str, part: str) -> dict[str, np.ndarray]:
    """One person's windows and labels."""
    with np.load(watch / "users" / user / f"{part}.npz") as archive:
        return {"x": archive["x"], "label": archive["label"]}


def bad_npz(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "bad.npz", **arrays)
    return folder / "bad.npz"


def wrong_things(folder: Path, watch: Path) -> dict[str, tuple[str, Path]]:
    """What a user may hand to `ingest`, and a word that the answer must hold."""
    good = examples_of(watch, "1603", "learn")
    x, label = good["x"][:6], good["label"][:6]
    (folder / "picture.npz").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    cases = {"no such file": folder / "none.npz", "picture": folder / "picture.npz"}
    for name, arrays in {
        "labels": {"x": x, "label": label[:5]},
        "shape": {"x": x[:, :, :99], "label": label},
        "x": {"windows": x, "label": label},
    }.items():
        (folder / name).mkdir()
        cases[name] = bad_npz(folder / name, **arrays)
    return {name: (name.split()[0], path) for name, path in cases.items()}


@pytest.mark.parametrize("case", ["no such file", "picture", "labels", "shape", "x"])
def test_a_wrong_file_is_one_line_and_leaves_the_store_as_it_was(
    run: Run, watch: Path, tmp_path: Path, at: tuple[object, ...], case: str
) -> None:
    word, path = wrong_things(tmp_path, watch)[case]
    fresh = run("ingest", path, *at)
    assert (fresh.code, fresh.stderr.count("\n")) == (1, 1), fresh.stderr
    assert word in fresh.stderr
    assert not (tmp_path / "me.store").exists()
    run("ingest", watch / "users" / "1603" / "learn.npz", *at)
    before = contents(tmp_path / "me.store")
    assert run("ingest", path, *at).code == 1
    assert contents(tmp_path / "me.store") == before


def test_a_window_with_nan_is_named_and_the_rest_is_learnt(
    run: Run, watch: Path, tmp_path: Path, at: tuple[object, ...]
) -> None:
    good = examples_of(watch, "1603", "learn")
    x = good["x"][:6].astype(np.float32)
    x[2, 3, 4] = np.nan
    outcome = run("ingest", bad_npz(tmp_path, x=x, label=good["label"][:6]), *at, "--json")
    assert outcome.code == 4
    assert "[2]" in outcome.stderr
    assert run("info", tmp_path / "me.store", "--json").document["entries"] == 5


def test_an_unknown_label_is_refused_by_name_with_the_nearest_known_one(
    run: Run, watch: Path, tmp_path: Path, at: tuple[object, ...]
) -> None:
    good = examples_of(watch, "1603", "learn")
    labels = [*good["label"][:5], "tyipng"]
    outcome = run("ingest", bad_npz(tmp_path, x=good["x"][:6], label=np.array(labels)), *at)
    assert outcome.code == 4
    assert 'did you mean "typing"?' in outcome.stderr
    assert run("info", tmp_path / "me.store", "--json").document["entries"] == 5


def test_a_store_made_with_another_model_is_refused(run: Run, repository: Path, watch: Path, tmp_path: Path) -> None:
    store = tmp_path / "me.store"
    run("ingest", watch / "users" / "1603" / "learn.npz", "--model", watch / "watch.onnx", "--datastore", store)
    before = contents(store)
    np.savez(tmp_path / "plane.npz", x=np.zeros((2, 2), np.float32), label=["up", "left"])
    model = repository / "tests" / "data" / "tiny.onnx"
    outcome = run("ingest", tmp_path / "plane.npz", "--model", model, "--datastore", store)
    assert (outcome.code, outcome.stderr.count("\n")) == (1, 1)
    assert "another model" in outcome.stderr
    assert contents(store) == before


@pytest.mark.parametrize("command", ["ingest", "predict", "evaluate"])
def test_a_picture_named_model_is_one_line(run: Run, watch: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    examples = watch / "users" / "1603" / "learn.npz"
    outcome = run(command, examples, "--model", tmp_path / "model.onnx", "--datastore", tmp_path / "me.store")
    assert (outcome.code, outcome.stderr.count("\n")) == (1, 1)
    assert "not an ONNX file" in outcome.stderr
    assert not (tmp_path / "me.store").exists()


def test_a_damaged_model_file_is_one_line(run: Run, watch: Path, tmp_path: Path) -> None:
    shutil.copy(watch / "watch.onnx", tmp_path / "model.onnx")
    content = bytearray((tmp_path / "model.onnx").read_bytes())
    content[len(content) // 2] ^= 0x10
    (tmp_path / "model.onnx").write_bytes(content)
    outcome = run("profile", tmp_path / "model.onnx")
    assert (outcome.code, outcome.stderr.count("\n")) == (1, 1)
    assert "damaged model file" in outcome.stderr


def test_wrong_usage_is_exit_code_2(run: Run) -> None:
    assert run("ingest").code == 2
    assert run("no-such-command").code == 2
    assert run("evaluate", "x.npz", "--model", "m", "--datastore", "d", "--lambda", "1.5").code == 2


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.argv", ["edge-sdk", "info", str(tmp_path / "none.store"), "--debug"])
    with pytest.raises(EdgeSDKError):
        cli.main()


def test_help_of_every_command_ends_with_an_example(run: Run) -> None:
    names = [command.name for command in cli.app.registered_commands]
    assert {"export", "ingest", "predict", "tune", "evaluate", "info", "profile"} <= set(names)
    for name in names:
        assert f"Example: edge-sdk {name}" in " ".join(run(name, "--help").stdout.split())
