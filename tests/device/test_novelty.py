"""Novelty: a rank among the distances that entries have from each other."""

import json

import numpy as np

from edge_sdk.novelty import Novelty


def test_one_in_a_hundred_of_what_is_like_the_entries_scores_above_99_percent() -> None:
    random = np.random.default_rng(0)
    scores = Novelty.of(random.gamma(3.0, size=1000)).scores(random.gamma(3.0, size=100_000))
    for level in (0.5, 0.9, 0.95, 0.99):
        assert abs((scores > level).mean() - (1 - level)) < 0.3 * (1 - level) + 0.01


def test_farther_than_every_entry_is_the_highest_score() -> None:
    novelty = Novelty.of(np.array([1.0, 2.0, 3.0]))
    assert novelty.scores(np.array([3.1]))[0] == 1.0
    assert novelty.scores(np.array([3.0]))[0] == 0.75
    assert novelty.scores(np.array([0.0]))[0] == 0.0


def test_scores_rise_with_the_distance() -> None:
    scores = Novelty.of(np.random.default_rng(1).random(200)).scores(np.linspace(0, 2, 300))
    assert (np.diff(scores) >= 0).all()
    assert scores.min() >= 0.0
    assert scores.max() == 1.0


def test_equal_distances_are_no_trouble() -> None:
    assert np.isfinite(Novelty.of(np.zeros(50)).scores(np.array([0.0, 1.0]))).all()


def test_yardstick_survives_the_manifest() -> None:
    novelty = Novelty.of(np.random.default_rng(2).random(300))
    assert Novelty.from_mapping(json.loads(json.dumps(novelty.__dict__))) == novelty
