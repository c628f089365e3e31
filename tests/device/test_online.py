"""The online λ_m: one step by hand, where it settles, and the record that it leaves."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.datastore import Datastore
from edge_sdk.errors import ConfigError
from edge_sdk.interpolation import Interpolation, OnlineWeight, mixture_weights
from edge_sdk.model import InputSpec, ModelMetadata
from edge_sdk.record import Record


def test_one_step_gives_the_reference_values() -> None:
    online = OnlineWeight(0.5, rate=0.1)
    online.update(0.8, 0.3, personalised_right=True, global_right=False)
    assert online.weight == pytest.approx(0.9 * 0.5 + 0.1 * 0.727273, abs=1e-6)


def test_stochastic_em_is_the_gradient_step_with_rate_gamma_lambda_one_minus_lambda() -> None:
    weight, rate, local, global_ = 0.3, 0.05, 0.6, 0.2
    online = OnlineWeight(weight, rate=rate)
    online.update(local, global_, personalised_right=True, global_right=True)
    gradient = -(local - global_) / (weight * local + (1 - weight) * global_)
    assert online.weight == pytest.approx(weight - rate * weight * (1 - weight) * gradient)


def test_weight_settles_where_em_over_everything_settles() -> None:
    random = np.random.default_rng(0)
    local, global_ = random.beta(3, 1, 4000), random.beta(2, 2, 4000)
    online = OnlineWeight(0.5, rate=0.005)
    for ours, theirs in zip(local.tolist(), global_.tolist(), strict=True):
        online.update(ours, theirs, personalised_right=True, global_right=True)
    assert online.weight == pytest.approx(mixture_weights(np.stack([local, global_]))[0], abs=0.06)


@pytest.mark.parametrize(("local", "global_", "edge"), [(1.0, 0.0, 0.99), (0.0, 1.0, 0.01)])
def test_weight_never_reaches_a_value_it_could_not_leave(local: float, global_: float, edge: float) -> None:
    online = OnlineWeight(0.5)
    for _ in range(500):
        online.update(local, global_, personalised_right=True, global_right=True)
    assert online.weight == pytest.approx(edge)
    for _ in range(200):
        online.update(global_, local, personalised_right=True, global_right=True)
    assert online.weight == pytest.approx(1.0 - edge)


def test_curve_has_at_most_64_points_and_counts_every_input() -> None:
    online = OnlineWeight(0.5)
    for number in range(5000):
        online.update(0.5, 0.5, personalised_right=True, global_right=number % 2 == 0)
    curve = online.curve()
    assert len(curve) <= 64
    assert curve[-1][0] == online.seen == 5000
    assert sum(online.global_right) == 2500
    assert all(ours == 1.0 and abs(theirs - 0.5) < 0.05 for _, theirs, ours in curve)
    assert online.accuracies() == (0.5, 1.0)


def test_nothing_seen_has_no_accuracy() -> None:
    assert all(math.isnan(value) for value in OnlineWeight(0.5).accuracies())


@pytest.mark.parametrize("rate", [0.0, 1.0, float("nan")])
def test_forgetting_rate_out_of_range_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError):
        OnlineWeight(0.5, rate=rate)


@pytest.fixture
def store(tmp_path: Path) -> Datastore:
    model = ModelMetadata(("a", "b"), InputSpec("input", (4,)), 4, "f" * 64, graph_crc32=0)
    return Datastore.create(tmp_path / "me.store", model=model, capacity=20)


def judge(record: Record, n: int, *, local_knows: bool, first: int = 1) -> bool:
    """Inputs of class 1; the memory is sure of class 1 or of class 0, the global model of neither."""
    local = np.tile([0.0, 1.0] if local_knows else [1.0, 0.0], (n, 1))
    return record.judge(local, np.full((n, 2), 0.5), np.ones(n, int), range(first, first + n))


def test_record_is_there_in_the_next_process_with_its_weight_in_force(store: Datastore) -> None:
    settings = Interpolation(0.25)
    record = Record.start(settings)
    judge(record, 10, local_knows=True)
    record.save_when_due(store, settings)
    assert Record.of(store) is None  # 10 are not due yet
    judge(record, 30, local_knows=True)
    record.save_when_due(store, settings)
    again = Record.of(store)
    assert again is not None
    assert again.weight == record.weight
    assert again.drift == record.drift
    stored = Interpolation.from_mapping(store.interpolation or {})
    assert (stored.interpolation_weight, stored.chosen_by) == (record.weight.weight, "online")
    json.dumps(store.interpolation)


def test_record_signals_when_the_memory_stops_being_right(store: Datastore) -> None:
    record = Record.start(Interpolation(0.9))
    assert not judge(record, 300, local_knows=True)
    assert judge(record, 60, local_knows=False, first=301)
    assert record.drift.changed_at in range(299, 305)
    assert record.weight.weight < 0.5


def test_empty_memory_leaves_the_weight_alone() -> None:
    record = Record.start(Interpolation(0.25))
    record.judge(None, np.array([[0.9, 0.1]]), np.array([1]), [1])
    assert record.weight.weight == 0.25
    assert record.weight.accuracies() == (0.0, 0.0)


def test_new_class_counts_against_both(store: Datastore) -> None:
    record = Record.start(Interpolation(0.25))
    record.judge(np.array([[0.9, 0.1]]), np.array([[0.9, 0.1]]), np.array([-1]), [1])
    assert record.weight.weight == pytest.approx(0.25)
    assert record.weight.accuracies() == (0.0, 0.0)
