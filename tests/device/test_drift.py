"""The drift signal: soon after a change, hardly ever without one, and the curve of predict-then-learn."""

import json

import numpy as np
import pytest

from edge_sdk.drift import DriftDetector


def signals(errors: np.ndarray) -> list[int]:
    detector = DriftDetector()
    return [number for number, error in enumerate(errors.tolist(), start=1) if detector.update(error, number)]


@pytest.mark.parametrize("rate", [0.02, 0.15, 0.3, 0.5])
def test_signals_less_than_once_in_ten_thousand_entries_without_drift(rate: float) -> None:
    errors = (np.random.default_rng(0).random(100_000) < rate).astype(float)
    assert len(signals(errors)) < 10


@pytest.mark.parametrize(("before", "after"), [(0.1, 0.5), (0.2, 0.6), (0.3, 0.7)])
def test_signals_within_a_hundred_entries_of_a_change_and_says_where_it_began(before: float, after: float) -> None:
    random = np.random.default_rng(1)
    detector = DriftDetector()
    for number in range(1, 3001):
        rate = before if number <= 2000 else after
        if detector.update(float(random.random() < rate), number):
            break
    assert 2000 < number <= 2100
    assert 1990 <= detector.changed_at <= 2020


def test_a_store_that_gets_better_is_no_drift() -> None:
    rates = np.linspace(0.6, 0.1, 5000)
    assert signals((np.random.default_rng(2).random(5000) < rates).astype(float)) == []


def test_errors_of_the_first_entries_are_no_drift() -> None:
    assert signals(np.ones(25)) == []


def test_state_survives_the_manifest() -> None:
    detector = DriftDetector()
    for number in range(50):
        detector.update(float(number % 3 == 0), number)
    assert DriftDetector.from_mapping(json.loads(json.dumps(detector.to_mapping()))) == detector
