"""The command line on a user who changes: tune with the head, reject what is unlike the entries, the curve in info."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk import Predictor
from edge_tools.sparkline import sparkline

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def learnt(watch: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One person's entries, learnt one by one, without one activity."""
    folder = tmp_path_factory.mktemp("learnt") / "me.store"
    with (
        np.load(watch / "users" / "1603" / "learn.npz") as archive,
        Predictor.open(watch / "watch.onnx", folder, online=True) as predictor,
    ):
        kept = np.flatnonzero(archive["label"] != "clapping")
        for row in np.random.default_rng(0).permutation(kept).tolist():
            predictor.learn(archive["x"][row], str(archive["label"][row]), sync=False)
        predictor.tune()
    return folder


@pytest.fixture
def store(learnt: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(learnt, tmp_path / "me.store"))


def answers(run: Run, watch: Path, store: Path, *words: object) -> list[dict[str, Any]]:
    test = watch / "users" / "1603" / "test.npz"
    code, printed, _ = run("predict", test, "--model", watch / "watch.onnx", "--datastore", store, "--json", *words)
    assert code == 0
    return [json.loads(line) for line in printed.splitlines()]


def test_an_activity_that_was_never_learnt_is_rejected_far_more_often_than_known_ones(
    run: Run, watch: Path, store: Path
) -> None:
    with np.load(watch / "users" / "1603" / "test.npz") as archive:
        is_new = archive["label"] == "clapping"
    rejected = np.array([answer["label"] is None for answer in answers(run, watch, store, "--reject-above", "0.99")])
    assert rejected[~is_new].mean() < 0.05
    assert rejected[is_new].mean() > 0.4
    assert not any(answer["label"] is None for answer in answers(run, watch, store))


def test_table_says_none_of_these(run: Run, watch: Path, store: Path) -> None:
    words = ("--model", watch / "watch.onnx", "--datastore", store, "--reject-above", "0.5")
    assert "none of these" in run("predict", watch / "users" / "1603" / "test.npz", *words)[1]


def test_rejecting_needs_a_tuned_datastore(run: Run, watch: Path, tmp_path: Path) -> None:
    test = watch / "users" / "1603" / "test.npz"
    code, _, told = run("predict", test, "--model", watch / "watch.onnx", "--reject-above", "0.9")
    assert (code, "--datastore" in told) == (1, True)
    with (
        np.load(watch / "users" / "1603" / "learn.npz") as archive,
        Predictor.open(watch / "watch.onnx", tmp_path / "few.store") as predictor,
    ):
        predictor.learn(archive["x"][:5], archive["label"][:5])
    words = ("--model", watch / "watch.onnx", "--datastore", tmp_path / "few.store", "--reject-above", "0.9")
    code, _, told = run("predict", test, *words)
    assert (code, told.count("\n"), "edge-sdk tune" in told) == (1, 1, True)


def test_tuning_with_the_head_is_shown_and_stays(run: Run, store: Path) -> None:
    code, printed, _ = run("tune", store, "--experts", "knn+head", "--gap", 1, "--json")
    chosen = json.loads(printed)
    assert (code, chosen["experts"]) == (0, "knn+head")
    assert chosen["head"]["ridge"] > 0
    _, printed, _ = run("info", store)
    assert "knn+head" in printed
    _, printed, _ = run("tune", store, "--criterion", "grid", "--experts", "knn", "--json")
    assert json.loads(printed)["head"] is None


@pytest.mark.parametrize("words", [("--experts", "oracle"), ("--criterion", "luck")])
def test_unknown_choice_is_one_line_that_names_the_known_ones(run: Run, store: Path, words: tuple[str, str]) -> None:
    code, _, told = run("tune", store, *words)
    assert (code, told.count("\n")) == (1, 1)
    assert "choose one of" in told


def test_info_draws_how_good_predictions_were_before_their_inputs_were_learnt(run: Run, store: Path) -> None:
    online = json.loads(run("info", store, "--json")[1])["online"]
    assert online["curve"][-1]["seen"] == online["seen"] > 250
    late = online["curve"][-10:]
    assert np.mean([point["personalised"] for point in late]) > np.mean([point["global"] for point in late])
    assert "Predicted, then learnt" in run("info", store)[1]


def test_sparkline_goes_from_low_to_high() -> None:
    assert sparkline([0.0, 0.5, 1.0, 2.0, -1.0]) == "▁▅██▁"
