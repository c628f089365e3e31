"""The blend's arithmetic: the vectors of the paper's formula, its edges, and how λ_m is chosen."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.datastore import Datastore
from edge_sdk.errors import ConfigError
from edge_sdk.interpolation import (
    Interpolation,
    LeftOut,
    blend,
    kernel_weights,
    knn_probabilities,
    leave_one_out,
    log_loss,
    mixture_weights,
    shrink,
    tune,
    tune_datastore,
    winners,
)
from edge_sdk.model import InputSpec, ModelMetadata
from edge_sdk.neighbors import ExactIndex

# Keys (0,0)->0, (0,1)->1, (1,0)->0, (3,4)->1 seen from (0, 0.5); the tie of the first two is ordered newest first.
DISTANCES = np.sqrt([[0.25, 0.25, 1.25, 21.25]])
LABELS = np.array([[1, 0, 0, 1]])


@pytest.mark.parametrize(
    ("k", "kernel", "bandwidth", "expected"),
    [
        (1, "laplacian", 1.0, [0.0, 1.0]),
        (2, "laplacian", 1.0, [0.5, 0.5]),
        (3, "gaussian", np.sqrt(2.0), [0.616348, 0.383652]),
        (3, "laplacian", 1.0, [0.606145, 0.393855]),
        (4, "gaussian", np.sqrt(2.0), [0.616342, 0.383658]),
        (4, "laplacian", 1.0, [0.602252, 0.397748]),
        (4, "uniform", 1.0, [0.5, 0.5]),
    ],
)
def test_knn_distribution_gives_the_reference_vectors(
    k: int, kernel: str, bandwidth: float, expected: list[float]
) -> None:
    found = knn_probabilities(LABELS[:, :k], DISTANCES[:, :k], 2, kernel=kernel, bandwidth=bandwidth)
    np.testing.assert_allclose(found, [expected], atol=1e-6)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3, 1e8])
@pytest.mark.parametrize("kernel", ["laplacian", "gaussian", "uniform"])
def test_rows_sum_to_one_at_every_distance_scale(scale: float, kernel: str) -> None:
    distances = np.sort(np.random.default_rng(0).random((20, 10)), axis=1) * scale
    found = knn_probabilities(np.arange(200).reshape(20, 10) % 7, distances, 7, kernel=kernel)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)
    assert np.isfinite(found).all()


def test_nearest_neighbour_has_weight_one_however_far_it_is() -> None:
    assert kernel_weights(np.array([[5000.0, 5001.0]]), kernel="laplacian", bandwidth=1.0)[0, 0] == 1.0


def test_blend_is_linear_in_the_interpolation_weight() -> None:
    global_probabilities, knn = np.array([[0.2, 0.8]], np.float32), np.array([[1.0, 0.0]])
    np.testing.assert_allclose(blend(global_probabilities, knn, interpolation_weight=0.25), [[0.4, 0.6]], atol=1e-7)


def test_equal_probabilities_go_to_the_class_that_the_global_model_prefers() -> None:
    blended = np.array([[0.4, 0.4, 0.2]])
    assert winners(blended, np.array([[0.1, 0.3, 0.6]]))[0] == 1
    assert winners(blended, np.array([[0.3, 0.3, 0.4]]))[0] == 0


def test_mixture_weight_by_em_is_no_worse_than_any_weight_of_a_fine_grid() -> None:
    random = np.random.default_rng(1)
    knn, model = random.random(300), random.random(300) * 0.7
    weight = mixture_weights(np.stack([knn, model]))[0]
    best = min(log_loss(value * knn + (1 - value) * model) for value in np.linspace(0, 1, 1001))
    assert log_loss(weight * knn + (1 - weight) * model) <= best + 1e-6


def test_one_em_step_gives_the_reference_responsibility() -> None:
    assert mixture_weights(np.array([[0.8], [0.3]]), iterations=1)[0] == pytest.approx(0.727273, abs=1e-6)


def test_few_entries_shrink_the_weight_towards_the_global_model() -> None:
    assert shrink(0.9, 0) == 0.0
    assert shrink(0.9, 10) == pytest.approx(0.45)
    assert Interpolation.untuned(10).interpolation_weight == pytest.approx(0.25)


def left_out(labels: np.ndarray, neighbor_labels: np.ndarray, global_probabilities: np.ndarray) -> LeftOut:
    distances = np.sort(np.random.default_rng(2).random(neighbor_labels.shape), axis=1)
    return LeftOut(labels, global_probabilities, neighbor_labels, distances)


@pytest.mark.parametrize("confidence", [0.1, 0.9, 0.999])
def test_random_labels_leave_the_weight_near_zero(confidence: float) -> None:
    random = np.random.default_rng(3)
    n, n_classes = 500, 10
    global_probabilities = np.full((n, n_classes), (1 - confidence) / (n_classes - 1), np.float32)
    global_probabilities[np.arange(n), random.integers(0, n_classes, n)] = confidence
    evidence = left_out(random.integers(0, n_classes, n), random.integers(0, n_classes, (n, 15)), global_probabilities)
    assert tune(evidence, n_entries=n).interpolation_weight < 0.02


def test_neighbours_that_are_always_right_get_nearly_all_the_weight() -> None:
    labels = np.arange(400) % 5
    chosen = tune(
        left_out(labels, np.repeat(labels[:, None], 15, axis=1), np.full((400, 5), 0.2, np.float32)), n_entries=400
    )
    assert 0.9 < chosen.interpolation_weight <= 0.99
    assert chosen.evidence["accuracy"] == 1.0
    assert chosen.chosen_by == "leave-one-out"


@pytest.mark.parametrize(
    "settings",
    [
        {"interpolation_weight": 1.5},
        {"interpolation_weight": 0.5, "kernel": "cosine"},
        {"interpolation_weight": 0.5, "bandwidth": 0.0},
        {"interpolation_weight": 0.5, "k": 0},
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Interpolation(**settings)


def test_settings_survive_the_manifest() -> None:
    settings = Interpolation(
        0.3, "gaussian", 2.5, 7, chosen_by="leave-one-out", n_entries=40, evidence={"accuracy": 0.8}
    )
    assert Interpolation.from_mapping({**settings.to_mapping(), "of_a_later_version": 1}) == settings


@pytest.fixture
def store(tmp_path: Path) -> Datastore:
    """120 entries whose labels have nothing to do with anything."""
    random = np.random.default_rng(5)
    model = ModelMetadata(tuple("abcde"), InputSpec("input", (6,)), 6, "f" * 64, graph_crc32=0)
    made = Datastore.create(tmp_path / "me.store", model=model, capacity=200)
    labels = [str(label) for label in random.choice(list("abcde"), 120)]
    made.add(random.standard_normal((120, 6)).astype(np.float32), labels, random.dirichlet(np.ones(5), 120))
    return made


def test_an_entry_that_finds_itself_would_drive_the_weight_to_one(store: Datastore) -> None:
    slots = store.table.order
    itself = ExactIndex(store).search(store.embeddings(slots), 15)
    cheating = LeftOut(store.table.labels[slots], store.probabilities(slots), itself.labels, itself.distances)
    assert tune(cheating, n_entries=120).interpolation_weight > 0.8
    assert tune_datastore(store, ExactIndex(store)).interpolation_weight < 0.05


@pytest.mark.parametrize("gap", [0, 1, 3, 500])
def test_left_out_neighbours_are_farther_in_time_than_the_gap(store: Datastore, gap: int) -> None:
    found = leave_one_out(store, ExactIndex(store), k=10, gap=gap)
    sequences = store.table.sequences[store.table.order].astype(int)
    embeddings = store.embeddings(store.table.order).astype(float)
    used = min(gap, 59)
    for row in (0, 60, 119):
        far = np.flatnonzero(np.abs(sequences - sequences[row]) > used)
        nearest = np.sort(np.sqrt(((embeddings[far] - embeddings[row]) ** 2).sum(axis=1)))[
            : found.neighbor_labels.shape[1]
        ]
        np.testing.assert_allclose(found.neighbor_distances[row], nearest, atol=1e-6)


def test_gap_below_zero_is_refused(store: Datastore) -> None:
    with pytest.raises(ConfigError):
        tune_datastore(store, ExactIndex(store), gap=-1)


def test_paper_grid_takes_one_of_seven_values_by_accuracy() -> None:
    labels = np.arange(400) % 5
    right = np.where(np.random.default_rng(0).random((400, 15)) < 0.9, labels[:, None], (labels[:, None] + 1) % 5)
    chosen = tune(left_out(labels, right, np.full((400, 5), 0.2, np.float32)), n_entries=400, criterion="grid")
    assert chosen.kernel == "laplacian"
    assert chosen.bandwidth == 1.0
    assert chosen.k == 10
    weight = chosen.interpolation_weight * 410 / 400  # before the shrinkage
    assert min(abs(weight - value) for value in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)) < 1e-9
