"""Near copies of a burst are left out, and said so."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_sdk import ConfigError, Predictor


@pytest.fixture
def predictor(repository: Path, tmp_path: Path) -> Iterator[Predictor]:
    with Predictor.open(repository / "tests" / "data" / "tiny.onnx", tmp_path / "me.store", dtype="float32") as opened:
        yield opened


def test_burst_leaves_its_first_example(predictor: Predictor) -> None:
    learnt = predictor.learn([[0.0, 0.0], [0.05, 0.0], [0.0, 0.09], [1.0, 0.0]], ["up"] * 4, min_distance=0.1)
    assert (learnt.near, learnt.duplicates, learnt.rows.tolist()) == (2, 0, [0, 3])
    again = predictor.learn([[0.0, 0.02], [1.0, 0.2]], ["up"] * 2, min_distance=0.1)
    assert (again.near, again.rows.tolist()) == (1, [1])


def test_another_label_is_no_copy(predictor: Predictor) -> None:
    predictor.learn([0.0, 0.0], "up")
    assert predictor.learn([[0.0, 0.01], [0.0, 0.02]], ["left", "right"], min_distance=0.1).near == 0


def test_distance_is_not_reached_through_a_copy_that_was_left_out(predictor: Predictor) -> None:
    chain = [[0.08 * number, 0.0] for number in range(5)]  # only every second one lies 0.1 from the one kept before
    assert predictor.learn(chain, ["up"] * 5, min_distance=0.1).rows.tolist() == [0, 2, 4]


def test_zero_keeps_everything_and_nonsense_is_refused(predictor: Predictor) -> None:
    assert predictor.learn([[0.0, 0.0], [0.0, 1e-6]], ["up"] * 2).near == 0
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(ConfigError):
            predictor.learn([5.0, 5.0], "up", min_distance=wrong)
    assert len(predictor.datastore) == 2
