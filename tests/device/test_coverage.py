"""A memory that has not met every class: how far it may speak."""

from pathlib import Path

import numpy as np
import pytest

from edge_sdk import Predictor
from edge_sdk.interpolation.coverage import deferring, unseen_probability


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([0], 1.0),
        ([0, 0, 0, 1, 1, 1, 2], 1.0),  # taught one after the other: the next one is new again
        ([0, 1, 0, 1, 0, 1], 0.0),  # two classes in changing order
        ([0, 0, 1, 0, 2, 2], 0.5),  # four runs, of which 1 and 2 are discoveries
    ],
)
def test_unseen_probability_is_the_share_of_runs_that_were_discoveries(labels: list[int], expected: float) -> None:
    assert unseen_probability(np.array(labels)) == expected


def test_memory_keeps_quiet_as_far_as_the_global_model_speaks_of_unmet_classes() -> None:
    local, model = np.array([[1.0, 0.0, 0.0]]), np.array([[0.1, 0.2, 0.7]])
    is_met = np.array([True, True, False])
    far, near = np.ones(1), np.zeros(1)
    found = deferring(local, model, is_met=is_met, n_model_classes=3, unseen=1.0, novelty=far)
    np.testing.assert_allclose(found, 0.3 * local + 0.7 * model)
    found = deferring(local, model, is_met=is_met, n_model_classes=3, unseen=1.0, novelty=near)
    np.testing.assert_array_equal(found, local)
    assert deferring(local, model, is_met=is_met, n_model_classes=3, unseen=0.0, novelty=far) is local
    assert deferring(local, model, is_met=np.ones(3, np.bool_), n_model_classes=3, unseen=1.0, novelty=far) is local


def test_memory_speaks_of_a_class_that_only_it_knows() -> None:
    local, model = np.array([[0.0, 0.0, 1.0]]), np.array([[0.5, 0.5, 0.0]])
    is_met = np.array([False, False, True])
    found = deferring(local, model, is_met=is_met, n_model_classes=2, unseen=1.0, novelty=np.ones(1))
    np.testing.assert_array_equal(found, local)


@pytest.mark.parametrize("user", ["1603", "1619", "1636"])
def test_classes_taught_one_after_the_other_never_cost_more_than_three_points(
    repository: Path, tmp_path: Path, user: str
) -> None:
    watch = repository / "examples" / "watch"
    learn, test = (np.load(watch / "users" / user / f"{part}.npz") for part in ("learn", "test"))
    with Predictor.open(watch / "watch.onnx", datastore=tmp_path / "me.store") as predictor:
        before = np.mean(predictor.predict(test["x"]) == test["label"])
        for start in range(0, len(learn["x"]), 36):
            rows = slice(start, start + 36)
            predictor.learn(learn["x"][rows], learn["label"][rows], sync=False)
            predictor.tune()
            assert np.mean(predictor.predict(test["x"]) == test["label"]) > before - 0.03
        assert np.mean(predictor.predict(test["x"]) == test["label"]) > before + 0.04
