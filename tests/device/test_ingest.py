"""`edge-sdk ingest` and `predict`: what they add, what they refuse, what they leave as it was."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pytest

from edge_sdk import Datastore, Predictor
from edge_tools import cli


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        return dict(json.loads(self.out))


class Run(Protocol):
    def __call__(self, *arguments: object) -> Outcome: ...


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """The command line in this process."""

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr("sys.argv", ["edge-sdk", *map(str, arguments)])
        capfd.readouterr()
        try:
            cli.main()
            code = 0
        except SystemExit as leave:
            code = int(leave.code or 0)
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return Outcome(code, out, err)

    return call


@pytest.fixture
def model(repository: Path) -> Path:
    return repository / "tests" / "data" / "tiny.onnx"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "me.store"


def points(n: int) -> np.ndarray:
    return np.stack([np.arange(n), np.arange(n) % 7], axis=1).astype(np.float32)


def labels(n: int) -> np.ndarray:
    return np.array(["left", "right", "up"])[np.arange(n) % 3]


def saved(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_every_example_is_added_in_order_and_the_store_is_tuned(
    run: Run, model: Path, store: Path, tmp_path: Path
) -> None:
    source = saved(tmp_path / "learn.npz", x=points(600), label=labels(600))
    outcome = run("ingest", source, "--model", model, "--datastore", store, "--json")
    assert outcome.code == 0
    assert {name: outcome.document[name] for name in ("added", "duplicates", "refused", "entries")} == {
        "added": 600,
        "duplicates": 0,
        "refused": 0,
        "entries": 600,
    }
    assert outcome.document["per_class"]["up"] == {"added": 200, "entries": 200}
    with Predictor.open(model, store, read_only=True) as predictor:
        assert predictor.datastore.table.newest == 600
        assert predictor.interpolation.chosen_by == "leave-one-out"
        assert predictor.index.search(points(600)[599:], 1).sequences.tolist() == [[600]]


def test_running_the_same_ingest_twice_adds_nothing(run: Run, model: Path, store: Path, tmp_path: Path) -> None:
    source = saved(tmp_path / "learn.npz", x=points(300), label=labels(300))
    run("ingest", source, "--model", model, "--datastore", store)
    again = run("ingest", source, "--model", model, "--datastore", store, "--json")
    assert (again.code, again.document["added"], again.document["duplicates"]) == (0, 0, 300)
    more = run("ingest", source, "--model", model, "--datastore", store, "--allow-duplicates", "--json")
    assert (more.document["added"], more.document["entries"]) == (300, 600)


def test_interrupted_ingest_continues(run: Run, model: Path, store: Path, tmp_path: Path) -> None:
    x, y = points(500), labels(500)
    run("ingest", saved(tmp_path / "half.npz", x=x[:290], label=y[:290]), "--model", model, "--datastore", store)
    whole = saved(tmp_path / "whole.npz", x=x, label=y)
    outcome = run("ingest", whole, "--model", model, "--datastore", store, "--json").document
    assert (outcome["added"], outcome["duplicates"], outcome["entries"]) == (210, 290, 500)
    assert {name: each["added"] for name, each in outcome["per_class"].items()} == {"left": 70, "right": 70, "up": 70}


def test_refused_inputs_are_named_counted_and_give_code_4(run: Run, model: Path, store: Path, tmp_path: Path) -> None:
    x, y = points(20), labels(20).astype("U20")
    x[7, 1] = np.nan
    y[9] = "rihgt"
    outcome = run("ingest", saved(tmp_path / "a.npz", x=x, label=y), "--model", model, "--datastore", store, "--json")
    assert (outcome.code, outcome.document["added"], outcome.document["refused"]) == (4, 18, 2)
    assert "a.npz[7]: holds nan at [1]" in outcome.err
    assert 'a.npz[9]: unknown label "rihgt": did you mean "right"?' in outcome.err
    assert len(outcome.err.splitlines()) == 2


def test_known_labels_are_listed_once_and_new_ones_offered_where_they_can_be(
    run: Run, model: Path, store: Path, tmp_path: Path
) -> None:
    y = labels(20).astype("U20")
    y[[3, 9]] = "down", "rihgt"
    source = saved(tmp_path / "a.npz", x=points(20), label=y)
    first, second = run("ingest", source, "--model", model, "--datastore", store, "--json").err.splitlines()
    assert first.endswith("to learn others too, make the datastore with --allow-new-classes")
    assert "known are" in first
    assert second.endswith('a.npz[9]: unknown label "rihgt": did you mean "right"?')
    again = run("ingest", source, "--model", model, "--datastore", store, "--json").err
    assert again.count("known are") == 1
    assert "--allow-new-classes" not in again


def test_ctrl_c_says_what_was_kept_and_how_to_go_on(model: Path, store: Path) -> None:
    words = ("ingest", "-", "--model", model, "--datastore", store, "--sync-every", "1")
    with subprocess.Popen(
        [sys.executable, "-m", "edge_tools", *map(str, words)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        for number in range(3):
            process.stdin.write(json.dumps({"x": [number, 1.0], "label": "left"}) + "\n")
        process.stdin.flush()
        while not store.exists() or len_of(store) < 3:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate()
    assert (process.returncode, stderr) == (130, "interrupted; 3 entries kept, run it again to continue\n")


def len_of(store: Path) -> int:
    with Datastore.open(store, read_only=True) as datastore:
        return len(datastore)


def test_ctrl_c_while_libraries_load_is_one_word() -> None:
    program = """
import os, signal, sys
class PressCtrlC:
    def find_spec(self, name, *rest):
        if name == "numpy":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, PressCtrlC())
from edge_tools.start import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_reader_that_leaves_early_ends_predict_quietly(model: Path, tmp_path: Path) -> None:
    source = saved(tmp_path / "a.npz", x=points(5000))
    for json_option in ([], ["--json"]):
        words = ("predict", str(source), "--model", str(model), *json_option)
        with subprocess.Popen(
            [sys.executable, "-m", "edge_tools", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.stdout.close()
            _, stderr = process.communicate()
        # 0 where one large write was cut short, which Python itself does not tell
        assert (process.returncode in (0, 141), stderr) == (True, "")


def test_predict_answers_each_line_of_a_stream_before_the_next(model: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "edge_tools", "predict", "-", "--model", str(model)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in (-2.0, 2.0):
            process.stdin.write(json.dumps({"x": [number, 0.0]}) + "\n")
            process.stdin.flush()
            name, label, probability = process.stdout.readline().rsplit(maxsplit=2)
            assert name.startswith("stdin line")
            assert label in ("left", "right", "up", "down")
            assert 0.0 <= float(probability) <= 1.0
        process.stdin.close()
        assert process.stdout.read() == ""
    assert process.returncode == 0


def test_strict_stops_at_the_first_and_adds_nothing(run: Run, model: Path, store: Path, tmp_path: Path) -> None:
    x = points(700)
    x[650, 0] = np.inf
    outcome = run(
        "ingest", saved(tmp_path / "a.npz", x=x, label=labels(700)), "--model", model, "--datastore", store, "--strict"
    )
    assert outcome.code == 1
    assert "a.npz[650]" in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert not store.exists()


@pytest.mark.parametrize("case", ["no x", "shape", "labels", "junk", "missing"])
def test_source_wrong_as_a_whole_leaves_the_store_as_it_was(
    run: Run, model: Path, store: Path, tmp_path: Path, case: str
) -> None:
    source = tmp_path / "bad.npz"
    if case == "junk":
        source.write_bytes(b"junk")
    elif case != "missing":
        arrays = {"x": points(9), "label": labels(9)}
        arrays |= {"no x": {}, "shape": {"x": np.zeros((9, 3), np.float32)}, "labels": {"label": labels(8)}}[case]
        saved(source, **{("data" if case == "no x" and name == "x" else name): value for name, value in arrays.items()})
    outcome = run("ingest", source, "--model", model, "--datastore", store)
    assert outcome.code == 1
    assert len(outcome.err.splitlines()) == 1
    assert "bad.npz" in outcome.err
    assert not store.exists()
    run("ingest", saved(tmp_path / "good.npz", x=points(9), label=labels(9)), "--model", model, "--datastore", store)
    before = contents(store)
    assert run("ingest", source, "--model", model, "--datastore", store).code == 1
    assert contents(store) == before


def test_only_refused_inputs_make_no_store(run: Run, model: Path, store: Path, tmp_path: Path) -> None:
    outcome = run(
        "ingest", saved(tmp_path / "a.npz", x=points(3), label=["a", "b", "c"]), "--model", model, "--datastore", store
    )
    assert outcome.code == 4
    assert not store.exists()


def test_empty_folder_is_refused_as_a_datastore_and_stays_empty(
    run: Run, model: Path, store: Path, tmp_path: Path
) -> None:
    store.mkdir()
    source = saved(tmp_path / "a.npz", x=points(3), label=labels(3))
    for more in ((), ("--dry-run",), ("--strict",), ("--keep-inputs", "1MB")):
        outcome = run("ingest", source, "--model", model, "--datastore", store, *more)
        assert (outcome.code, outcome.out) == (1, "")
        assert outcome.err == (
            f"edge-sdk: {store}: exists and is no datastore (no manifest.json); "
            "to make one, name a folder that does not exist\n"
        )
        assert list(store.iterdir()) == []


def test_dry_run_counts_and_adds_nothing(run: Run, model: Path, store: Path, tmp_path: Path) -> None:
    source = saved(tmp_path / "a.npz", x=points(12), label=labels(12))
    outcome = run("ingest", source, "--model", model, "--datastore", store, "--dry-run", "--json")
    assert (outcome.code, outcome.document["added"]) == (0, 12)
    assert not store.exists()


def test_dry_run_says_how_many_are_stored_already_or_come_twice(
    run: Run, model: Path, store: Path, tmp_path: Path
) -> None:
    command = ["--model", model, "--datastore", store, "--json"]
    run("ingest", saved(tmp_path / "half.npz", x=points(600)[:200], label=labels(600)[:200]), *command)
    before = contents(store)
    x, y = np.concatenate([points(1300), points(30)]), np.concatenate([labels(1300), labels(30)])
    whole = saved(tmp_path / "whole.npz", x=x, label=y)
    outcome = run("ingest", whole, *command, "--dry-run").document
    assert (outcome["added"], outcome["duplicates"], outcome["entries"]) == (1100, 230, 200)
    assert {name: each["added"] for name, each in outcome["per_class"].items()} == {
        "left": 367,
        "right": 366,
        "up": 367,
    }
    again = run("ingest", whole, *command, "--dry-run", "--allow-duplicates").document
    assert (again["added"], again["duplicates"]) == (1330, 0)
    assert contents(store) == before


def test_dry_run_for_a_new_store_counts_as_the_ingest_does(run: Run, model: Path, store: Path, tmp_path: Path) -> None:
    x, y = np.concatenate([points(1200), points(40)]), np.concatenate([labels(1200), labels(40)])
    source = saved(tmp_path / "twice.npz", x=x, label=y)
    for capacity, duplicates in ((2000, 40), (500, 0)):
        folder = store.with_suffix(f".{capacity}")
        command = ["ingest", source, "--model", model, "--datastore", folder, "--capacity", capacity, "--json"]
        rehearsed = run(*command, "--dry-run").document
        assert not folder.exists()
        done = run(*command).document
        assert (rehearsed["added"], rehearsed["duplicates"]) == (done["added"], done["duplicates"])
        assert done["duplicates"] == duplicates


def test_new_classes_get_columns_of_their_own_where_they_are_allowed(
    run: Run, model: Path, store: Path, tmp_path: Path
) -> None:
    source = saved(tmp_path / "a.npz", x=points(6), label=["zebra", "left", "zebra", "up", "é", "e\u0301"])
    outcome = run("ingest", source, "--model", model, "--datastore", store, "--allow-new-classes", "--json")
    assert (outcome.code, outcome.document["added"]) == (0, 6)
    with Datastore.open(store, read_only=True) as opened:
        assert opened.classes == ("left", "right", "up", "zebra", "é")


def test_settings_reach_the_new_store(run: Run, model: Path, store: Path, tmp_path: Path) -> None:
    source = saved(tmp_path / "a.npz", x=points(30), label=labels(30))
    arguments = ("--capacity", 10, "--policy", "balanced", "--no-tune", "--sync-every", 4)
    assert run("ingest", source, "--model", model, "--datastore", store, *arguments).code == 0
    with Datastore.open(store, read_only=True) as opened:
        assert (len(opened), opened.capacity, opened.policy, opened.interpolation) == (10, 10, "balanced", None)


def test_label_for_all(run: Run, model: Path, store: Path, tmp_path: Path) -> None:
    source = saved(tmp_path / "a.npz", x=points(5))
    assert "--label" in run("ingest", source, "--model", model, "--datastore", store).err
    outcome = run("ingest", source, "--model", model, "--datastore", store, "--label", "up", "--json")
    assert outcome.document["per_class"]["up"] == {"added": 5, "entries": 5}


def test_predict_gives_one_line_an_input(run: Run, model: Path, store: Path, tmp_path: Path) -> None:
    x = points(40)
    x[3, 0] = np.nan
    source = saved(tmp_path / "test.npz", x=x)
    outcome = run("predict", source, "--model", model, "--json")
    answers = [json.loads(line) for line in outcome.out.splitlines()]
    assert (outcome.code, len(answers)) == (4, 39)
    assert answers[0] == {"name": "test.npz[0]", "label": "left", "probability": pytest.approx(1 / 3, abs=1e-6)}
    assert "test.npz[3]" in outcome.err
    run("ingest", saved(tmp_path / "a.npz", x=points(40), label=["up"] * 40), "--model", model, "--datastore", store)
    mixed = run("predict", source, "--model", model, "--datastore", store, "--lambda", 1, "--json")
    assert {json.loads(line)["label"] for line in mixed.out.splitlines()} == {"up"}


def test_predict_answers_as_the_predictor_does(run: Run, model: Path, store: Path, tmp_path: Path) -> None:
    source = saved(tmp_path / "a.npz", x=points(60), label=labels(60))
    run("ingest", source, "--model", model, "--datastore", store)
    out = run("predict", source, "--model", model, "--datastore", store, "--json").out
    with Predictor.open(model, store, read_only=True) as predictor:
        assert [json.loads(line)["label"] for line in out.splitlines()] == list(predictor.predict(points(60)))


def test_predict_without_a_store_takes_no_lambda(run: Run, model: Path, tmp_path: Path) -> None:
    outcome = run("predict", saved(tmp_path / "a.npz", x=points(2)), "--model", model, "--lambda", 0.5)
    assert (outcome.code, len(outcome.err.splitlines())) == (1, 1)


def test_near_copies_are_left_out_and_counted(run: Run, model: Path, store: Path, tmp_path: Path) -> None:
    burst = np.repeat(points(5), 10, axis=0) + np.tile(np.arange(10)[:, None] * 0.001, (5, 1)).astype(np.float32)
    source = saved(tmp_path / "a.npz", x=burst, label=["up"] * 50)
    outcome = run("ingest", source, "--model", model, "--datastore", store, "--min-distance", 0.5, "--json").document
    assert (outcome["added"], outcome["near"], outcome["duplicates"]) == (5, 45, 0)


def test_eviction_by_the_ingest_itself_is_said(run: Run, model: Path, store: Path, tmp_path: Path) -> None:
    source = saved(tmp_path / "a.npz", x=points(30), label=labels(30))
    outcome = run("ingest", source, "--model", model, "--datastore", store, "--capacity", 10, "--no-tune")
    assert "20 of the 30 added examples were evicted again" in outcome.err


@pytest.mark.parametrize("strict", [False, True])
def test_json_lines_come_through_a_pipe(
    run: Run, model: Path, store: Path, monkeypatch: pytest.MonkeyPatch, strict: bool
) -> None:
    lines = [json.dumps({"x": [float(number), 0.0], "label": "up"}) for number in range(300)]
    lines[20] = '{"x": [1'
    content = io.BytesIO("\n".join(lines).encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(content))
    outcome = run("ingest", "-", "--model", model, "--datastore", store, "--json", *(["--strict"] if strict else []))
    assert "stdin" in outcome.err
    assert "line 21: is not JSON" in outcome.err
    if strict:
        assert (outcome.code, store.exists()) == (1, False)
    else:
        assert (outcome.code, outcome.document["added"], outcome.document["refused"]) == (4, 299, 1)


def test_predict_answers_each_line_of_a_pipe_before_the_next_is_written(model: Path) -> None:
    command = [sys.executable, "-m", "edge_tools", "predict", "-", "--model", str(model), "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number, label in ((5.0, "right"), (-5.0, "left")):
            process.stdin.write(json.dumps({"x": [number, 0.0], "name": label}) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["label"] == label
        process.stdin.close()
        assert process.wait(30) == 0


def test_table_of_features_is_learnt_and_predicted(run: Run, model: Path, store: Path, tmp_path: Path) -> None:
    table = tmp_path / "points.csv"
    table.write_text("a;b;activity\n0,5;1,5;up\n1,5;2;left\n2;nan;up\n")
    outcome = run("ingest", table, "--model", model, "--datastore", store, "--label-column", "activity", "--json")
    assert (outcome.code, outcome.document["added"]) == (4, 2)
    assert 'points.csv line 4: column 2 holds "nan"' in outcome.err
    arguments = ("predict", table, "--model", model, "--datastore", store, "--lambda", 1, "--json")
    assert "is one of them the label?" in run(*arguments).err
    again = run(*arguments, "--label-column", "activity")
    assert (again.code, len(again.out.splitlines())) == (4, 2)
