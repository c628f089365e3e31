"""Which index answers: chosen once for a datastore, used by every process, said by `info` and `profile`."""

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from edge_sdk import ConfigError, Datastore, DatastoreError, MissingExtraError, ModelFile, Predictor
from edge_sdk.neighbors import choose_index, chosen_index, open_index
from edge_tools.cli import app

annoy = pytest.importorskip("annoy", reason="annoy is not installed")


@pytest.fixture
def model(repository: Path) -> Path:
    return repository / "tests" / "data" / "tiny.onnx"


@pytest.fixture
def store(model: Path, tmp_path: Path) -> Path:
    """A datastore of 100 points of the plane, whose index nobody chose."""
    points = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    with Predictor.open(model, tmp_path / "me.store", capacity=100) as predictor:
        labels = [predictor.classes[int(point[0] > 0)] for point in points]
        predictor.learn(points, labels)
    return tmp_path / "me.store"


@pytest.fixture
def without_annoy(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "annoy" else find(name, *rest))


def run(*words: object) -> Any:
    outcome = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.stdout)


def kind_of(model: Path, store: Path, **options: Any) -> str:
    with Predictor.open(model, store, **options) as predictor:
        predictor.predict(np.zeros(2, np.float32))
        return str(predictor.index.describe()["kind"])


def test_nobody_chose_so_the_exact_index_answers(model: Path, store: Path) -> None:
    assert kind_of(model, store) == "exact"
    assert run("info", store, "--json")["index"] == "exact"


def test_what_a_predictor_was_opened_with_is_what_the_next_process_uses(model: Path, store: Path) -> None:
    assert kind_of(model, store, index="annoy") == "annoy"
    assert kind_of(model, store) == "annoy"
    assert kind_of(model, store, read_only=True) == "annoy"
    assert run("info", store, "--json")["index"] == "annoy"
    assert run("profile", model, "--datastore", store, "--repeats", 10, "--json")["index"]["kind"] == "annoy"
    assert kind_of(model, store, index="exact") == "exact"
    assert kind_of(model, store) == "exact"


def test_read_only_uses_what_is_asked_for_and_remembers_nothing(model: Path, store: Path) -> None:
    assert kind_of(model, store, index="annoy", read_only=True) == "annoy"
    assert kind_of(model, store) == "exact"


def test_command_chooses_the_index_with_its_options(model: Path, store: Path) -> None:
    found = run("index", store, "--kind", "annoy", "--trees", 7, "--json")
    assert (found["kind"], found["trees"]) == ("annoy", 7)
    facts = run("info", store, "--json")
    assert (facts["index"], facts["index_trees"]) == ("annoy", 7)
    with Predictor.open(model, store, index="annoy") as predictor:
        assert predictor.index.describe()["trees"] == 7
    assert run("index", store, "--json")["trees"] == 7


def test_option_of_the_other_kind_is_refused_by_name(store: Path) -> None:
    with Datastore.open(store) as datastore:
        with pytest.raises(
            ConfigError, match="index exact: takes ram_budget, got trees; trees is an option of kind annoy"
        ):
            open_index(None, datastore, trees=5)
        with pytest.raises(ConfigError, match="ram_budget is an option of kind exact"):
            choose_index(datastore, "annoy", ram_budget=5)
        with pytest.raises(ConfigError, match="index annoy: trees is a whole number, got '5'"):
            open_index("annoy", datastore, trees="5")


def test_stored_option_of_another_version_is_refused_with_the_cure(store: Path) -> None:
    with Datastore.open(store) as datastore:
        datastore.save_extension("index", {"kind": "exact", "leaves": 3})
        with pytest.raises(DatastoreError, match=r"another version: .*got leaves; .*edge-sdk index .* --kind exact"):
            open_index(None, datastore)


def test_choice_survives_forgetting_and_a_deleted_index_folder(model: Path, store: Path) -> None:
    run("index", store, "--kind", "annoy", "--json")
    with Predictor.open(model, store) as predictor:
        predictor.forget(before=5)
    shutil.rmtree(store / "index", ignore_errors=True)
    assert kind_of(model, store) == "annoy"


def test_both_indexes_give_the_same_answers_on_a_small_store(model: Path, store: Path) -> None:
    points = np.random.default_rng(1).normal(size=(50, 2)).astype(np.float32)
    with Predictor.open(model, store) as predictor:
        exact = predictor.predict_proba(points)
    with Predictor.open(model, store, index="annoy") as predictor:
        assert np.array_equal(exact, predictor.predict_proba(points))


@pytest.mark.usefixtures("without_annoy")
def test_missing_annoy_is_an_error_and_never_another_index(model: Path, store: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingExtraError, match=r"pip install annoy$"):
        Predictor.open(model, tmp_path / "new.store", index="annoy")
    assert not (tmp_path / "new.store").exists()
    with Datastore.open(store) as datastore:
        datastore.save_extension("index", {"kind": "annoy"})
    with pytest.raises(MissingExtraError, match=rf"pip install annoy; or .*edge-sdk index {store} --kind exact"):
        Predictor.open(model, store)
    outcome = CliRunner().invoke(app, ["info", str(store)])
    assert outcome.exit_code == 0
    assert "annoy is not installed" in outcome.stderr


def test_unknown_index_is_refused_before_anything_is_made(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='index is one of exact, annoy, got "faiss"'):
        Predictor.open(model, tmp_path / "new.store", index="faiss")
    assert not (tmp_path / "new.store").exists()


def test_an_index_of_a_later_version_is_refused_with_the_cure(model: Path, store: Path) -> None:
    with Datastore.open(store, model=ModelFile.open(model).metadata) as datastore:
        datastore.save_extension("index", {"kind": "graph", "m": 16})
        with pytest.raises(DatastoreError, match=r"edge-sdk index .* --kind exact"):
            open_index(None, datastore)
        assert chosen_index(datastore)["kind"] == "graph"
    assert run("index", store, "--kind", "exact", "--json")["kind"] == "exact"
    assert kind_of(model, store) == "exact"


def test_index_that_is_being_built_does_not_keep_a_predictor_from_closing(model: Path, tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(1200, 2)).astype(np.float32)
    with Predictor.open(model, tmp_path / "me.store", capacity=1200, index="annoy") as predictor:
        predictor.learn(points, [predictor.classes[0]] * 1200)
        predictor.predict(points[0])
        assert predictor.index.describe()["building"]
    with Predictor.open(model, tmp_path / "me.store", read_only=True) as predictor:
        predictor.predict(points[0])
        assert predictor.index.describe()["segments"] == 1
