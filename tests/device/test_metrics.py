"""Scores: the bottom decile's one order statistic, weights, and calibration by hand."""

import math

import numpy as np
import pytest

from edge_tools.metrics import accuracy, bottom_decile, calibration_error, weighted_average


@pytest.mark.parametrize(
    ("n_users", "place"), [(1, 1), (9, 1), (10, 1), (11, 1), (19, 1), (20, 2), (100, 10), (200, 20)]
)
def test_bottom_decile_is_the_tenth_part_worst_user(n_users: int, place: int) -> None:
    accuracies = np.random.default_rng(0).permutation(n_users) / n_users
    assert bottom_decile(accuracies.tolist(), [5] * n_users) == pytest.approx((place - 1) / n_users)


def test_user_without_test_samples_is_left_out() -> None:
    assert bottom_decile([float("nan"), 0.5, 0.7], [0, 3, 3]) == 0.5
    assert weighted_average([float("nan"), 0.5, 0.8], [0, 2, 1]) == pytest.approx(0.6)


def test_average_weighs_each_test_sample_alike() -> None:
    assert weighted_average([1.0, 0.0], [9, 1]) == pytest.approx(0.9)


def test_accuracy_of_nothing_does_not_exist() -> None:
    assert math.isnan(accuracy(np.zeros(0), np.zeros(0)))


def test_calibration_error_is_the_gap_between_confidence_and_accuracy() -> None:
    probabilities = np.tile([0.8, 0.2], (10, 1))
    assert calibration_error(probabilities, np.array([0] * 8 + [1] * 2)) == pytest.approx(0.0)
    assert calibration_error(probabilities, np.zeros(10, int)) == pytest.approx(0.2)
    assert calibration_error(np.array([[1.0, 0.0]]), np.array([0])) == 0.0
