"""A user who changes, on real datastores: every policy keeps its promise, and the drift is noticed."""

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.datastore import Datastore
from edge_sdk.model import InputSpec, ModelMetadata
from edge_tools.benchmarks.reproduce.clients import Examples
from edge_tools.benchmarks.reproduce.shift import Life, regained

CAPACITY, DIM = 120, 6
CENTRES = np.random.default_rng(7).standard_normal((4, DIM)) * 4.0


def examples(n: int, *, swapped: bool, seed: int) -> Examples:
    """Four clusters; the user calls them 0 1 2 3, later 1 0 3 2. The global model knows nothing."""
    random = np.random.default_rng(seed)
    cluster = random.integers(0, 4, n)
    embeddings = (CENTRES[cluster] + random.standard_normal((n, DIM))).astype(np.float32)
    return Examples(embeddings, np.full((n, 4), 0.25, np.float32), cluster ^ 1 if swapped else cluster)


def live(tmp_path: Path, policy: str, *, forgets: bool = False) -> tuple[list[float], int]:
    """Accuracies after each step of 20 entries, ten before the change and twelve after; entries to the signal."""
    model = ModelMetadata(tuple("0123"), InputSpec("input", (DIM,)), DIM, "f" * 64, graph_crc32=0)
    accuracies, signal = [], -1
    with Datastore.create(tmp_path / "me.store", model=model, capacity=CAPACITY, policy=policy) as store:
        life = Life(store, forgets=forgets)
        for step in range(22):
            swapped = step >= 10
            if life.learn(examples(20, swapped=swapped, seed=step)) and signal < 0:
                signal = (step - 9) * 20
            accuracies.append(life.accuracy(examples(200, swapped=swapped, seed=100 + step)))
    return accuracies, signal


def test_fifo_recovers_within_one_capacity_and_the_change_is_noticed(tmp_path: Path) -> None:
    accuracies, signal = live(tmp_path, "fifo")
    assert min(accuracies[8:10]) > 0.9
    assert accuracies[10] < 0.6
    assert accuracies[10 + CAPACITY // 20] > 0.9
    assert 0 < signal <= CAPACITY // 2


def test_fixed_stays_down(tmp_path: Path) -> None:
    accuracies, _ = live(tmp_path, "fixed")
    assert accuracies[9] > 0.9
    assert max(accuracies[10:]) < 0.1


def test_concatenate_recovers_later_than_fifo(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    fifo, _ = live(tmp_path / "a", "fifo")
    (tmp_path / "b").mkdir()
    concatenate, _ = live(tmp_path / "b", "concatenate")
    middle = 10 + CAPACITY // 20 - 1
    assert 0.1 < concatenate[middle] < fifo[middle] - 0.1


def test_forgetting_at_drift_recovers_sooner_than_the_window(tmp_path: Path) -> None:
    accuracies, signal = live(tmp_path, "fifo", forgets=True)
    assert accuracies[10 + signal // 20 + 1] > 0.85


def test_regained_is_all_for_who_comes_back_and_nothing_for_who_stays_down() -> None:
    down = [0.8] * 20 + [0.2] * 30
    assert regained([0.8] * 50, down) == pytest.approx(1.0)
    assert regained(down, down) == pytest.approx(0.0)
