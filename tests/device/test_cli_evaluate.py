"""edge-sdk evaluate for several users, and its curves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk import Predictor

Run = Callable[..., Any]
USERS = ("1603", "1619")


@pytest.fixture
def command(watch: Path, tmp_path: Path) -> list[object]:
    """Two people's tests, with a datastore each."""
    words: list[object] = ["evaluate", *(watch / "users" / user / "test.npz" for user in USERS)]
    for user in USERS:
        with (
            np.load(watch / "users" / user / "learn.npz") as archive,
            Predictor.open(watch / "watch.onnx", tmp_path / f"{user}.store") as predictor,
        ):
            predictor.learn(archive["x"], archive["label"], sync=False)
        words += ["--datastore", tmp_path / f"{user}.store"]
    return [*words, "--model", watch / "watch.onnx"]


def test_several_users_get_an_average_and_a_worst_tenth(run: Run, command: list[object]) -> None:
    code, printed, _ = run(*command, "--json")
    document = json.loads(printed)
    assert code == 0
    assert len(document["users"]) == 2
    worst = min(user["personalised"]["accuracy"] for user in document["users"])
    assert document["personalised"]["decile"] == worst
    assert worst <= document["personalised"]["average"]
    assert document["personalised"]["average"] > document["global"]["average"]


def test_curves_reach_over_lambda_entries_k_bandwidth_and_capacity(run: Run, command: list[object]) -> None:
    code, printed, _ = run(*command, "--curves", "--json")
    document = json.loads(printed)
    curves = document["curves"]
    assert code == 0
    everything = curves["by_entries"]["250"]
    assert everything[0] == pytest.approx(document["global"]["average"])  # λ = 0
    assert max(everything) > everything[0] + 0.05
    assert curves["by_capacity"][-1][0] == 1.0
    assert curves["by_capacity"][-1][1] > curves["by_capacity"][0][1]


def test_each_input_needs_its_datastore(run: Run, command: list[object], watch: Path) -> None:
    code, _, told = run(*command[:1], command[1], *command[1:])
    assert (code, told.count("\n")) == (1, 1)
    assert "3 inputs and 2 datastores" in told


def test_plot_draws_the_curves(run: Run, command: list[object], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    code, printed, told = run(*command, "--plot", tmp_path / "plots")
    assert code == 0
    assert "Capacity" in printed
    names = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert names == ["capacity.png", "lambda.png", "settings.png"]
    assert all(name in told for name in names)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (tmp_path / "plots").iterdir())
