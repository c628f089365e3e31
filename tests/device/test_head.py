"""The closed-form head: its leave-one-out against fitting anew, its label bias against counting, and its life in a
store.
"""

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.datastore import Datastore
from edge_sdk.errors import ConfigError
from edge_sdk.experts import Experts
from edge_sdk.head import HeadFit, HeadSettings, choose_head, label_bias
from edge_sdk.interpolation import Interpolation, tune_datastore
from edge_sdk.model import InputSpec, ModelMetadata
from edge_sdk.neighbors import ExactIndex

CLASSES = ("run", "sit", "walk")


def samples(n: int, dim: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Embeddings whose first three values tell the label, what a poor global model says, and the labels."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, n)
    embeddings = random.standard_normal((n, dim)).astype(np.float32)
    embeddings[np.arange(n), labels] += 4.0
    return embeddings, random.dirichlet(np.ones(3), n).astype(np.float32), labels


@pytest.mark.parametrize(("n", "dim"), [(12, 30), (60, 5)])
def test_closed_form_leave_one_out_is_what_fitting_without_the_entry_gives(n: int, dim: int) -> None:
    embeddings, probabilities, labels = samples(n, dim)
    fit = HeadFit(embeddings, probabilities, labels)
    found = fit.left_out_scores(0.1)
    centred = embeddings.astype(float) - embeddings.mean(axis=0, dtype=float)
    features = np.column_stack((centred / np.sqrt(np.mean(centred**2)), np.ones(n)))
    for row in (0, n // 2, n - 1):
        others = np.arange(n) != row
        gram = features[others].T @ features[others] + 0.1 * n * np.eye(dim + 1)
        weights = np.linalg.solve(gram, features[others].T @ fit._residuals[others])
        np.testing.assert_allclose(found[row], features[row] @ weights, atol=1e-8)


@pytest.mark.parametrize(("n", "dim"), [(12, 30), (60, 5)])
def test_fitted_head_solves_the_ridge_equations(n: int, dim: int) -> None:
    embeddings, probabilities, labels = samples(n, dim)
    fit = HeadFit(embeddings, probabilities, labels)
    head = fit.head(HeadSettings(0.1, 1.0))
    gram = fit._features.T @ fit._features + 0.1 * n * np.eye(dim + 1)
    weights = np.linalg.solve(gram, fit._features.T @ fit._residuals)
    logs = np.log(np.maximum(probabilities, 1e-4)) + fit.bias + fit._features @ weights
    expected = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(head.probabilities(embeddings, probabilities), expected, atol=1e-5)


def test_label_bias_makes_the_average_answer_equal_the_label_frequencies() -> None:
    random = np.random.default_rng(1)
    probabilities, labels = random.dirichlet(np.ones(4), 400), random.choice(4, 400, p=[0.6, 0.2, 0.15, 0.05])
    shifted = np.log(np.maximum(probabilities, 1e-4)) + label_bias(probabilities, labels)
    average = (np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(average, np.bincount(labels) / 400, atol=0.003)


def test_label_bias_keeps_an_absent_class_possible() -> None:
    bias = label_bias(np.full((20, 3), 1 / 3), np.zeros(20, int))
    assert np.isfinite(bias).all()
    assert bias[0] > bias[1] == pytest.approx(bias[2])


def test_head_learns_what_the_global_model_does_not_know() -> None:
    embeddings, probabilities, labels = samples(150, 20)
    settings, left_out = choose_head(HeadFit(embeddings, probabilities, labels), labels)
    assert (left_out.argmax(axis=1) == labels).mean() > 0.9
    new, new_probabilities, new_labels = samples(200, 20, seed=9)
    head = HeadFit(embeddings, probabilities, labels).head(settings)
    answers = head.probabilities(new, new_probabilities)
    np.testing.assert_allclose(answers.sum(axis=1), 1.0)
    assert (answers.argmax(axis=1) == new_labels).mean() > 0.9


@pytest.mark.parametrize("embeddings", [np.zeros((6, 4), np.float32), np.ones((1, 4), np.float32)])
def test_head_of_equal_or_single_entries_is_finite(embeddings: np.ndarray) -> None:
    labels = np.arange(len(embeddings)) % 2
    fit = HeadFit(embeddings, np.full((len(embeddings), 2), 0.5), labels)
    settings, left_out = choose_head(fit, labels)
    assert np.isfinite(left_out).all()
    assert np.isfinite(fit.head(settings).probabilities(embeddings, np.full((len(embeddings), 2), 0.5))).all()


@pytest.mark.parametrize("settings", [(0.0, 1.0), (float("nan"), 1.0), (1.0, -1.0)])
def test_head_settings_out_of_range_are_refused(settings: tuple[float, float]) -> None:
    with pytest.raises(ConfigError):
        HeadSettings(*settings)


@pytest.fixture
def store(tmp_path: Path) -> Datastore:
    model = ModelMetadata(CLASSES, InputSpec("input", (8,)), 8, "f" * 64, graph_crc32=0)
    return Datastore.create(tmp_path / "me.store", model=model, capacity=200, dtype="float32")


def learn(store: Datastore, n: int, *, seed: int = 0) -> None:
    embeddings, probabilities, labels = samples(n, 8, seed=seed)
    store.add(embeddings, [CLASSES[label] for label in labels], probabilities)


def test_tuning_with_the_head_is_saved_and_used(store: Datastore) -> None:
    learn(store, 120)
    chosen = tune_datastore(store, ExactIndex(store), experts="knn+head")
    assert chosen.head is not None
    assert chosen.interpolation_weight > 0.5
    assert Interpolation.from_mapping(store.interpolation or {}) == chosen
    assert (
        tune_datastore(store, ExactIndex(store)).experts == "knn+head"
    )  # a later tuning keeps what was asked for once
    assert tune_datastore(store, ExactIndex(store), experts="knn").head is None


def test_head_follows_the_entries_and_never_outlives_a_forgotten_one(store: Datastore) -> None:
    learn(store, 120)
    experts = Experts(store, ExactIndex(store))
    settings = Interpolation(0.5, head=HeadSettings(0.1, 4.0), head_share=1.0, experts="knn+head")
    query, probabilities, _ = samples(5, 8, seed=3)

    def answers() -> np.ndarray:
        return experts.answer(query, probabilities, settings).probabilities

    before = answers()
    learn(store, 2, seed=4)
    np.testing.assert_array_equal(answers(), before)  # 2 of 122 are less than 5 %
    store.forget(sequences=[60])
    after = answers()
    assert not np.array_equal(after, before)
    fresh = Experts(store, ExactIndex(store)).answer(query, probabilities, settings).probabilities
    np.testing.assert_array_equal(after, fresh)


def test_share_zero_is_the_neighbours_alone(store: Datastore) -> None:
    learn(store, 30)
    query, probabilities, _ = samples(5, 8, seed=3)
    settings = Interpolation(0.5, head=HeadSettings(0.1, 4.0), head_share=0.0, experts="knn+head")
    found = Experts(store, ExactIndex(store)).answer(query, probabilities, settings)
    assert found.probabilities is found.knn
