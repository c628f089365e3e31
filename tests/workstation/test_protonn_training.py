"""ProtoNN's training: gradients against finite differences and torch, the start, the settings."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from edge_protonn import ProtoNN, ProtoNNSettings
from edge_protonn.heads import Batch, Parameters, hard_threshold, probability_loss, squared_loss
from edge_protonn.start import median_gamma, principal_directions, shares_of_classes
from edge_sdk import ConfigError, InputError

Loss = Callable[[Parameters, Batch], tuple[float, Parameters]]
LOSSES = pytest.mark.parametrize("loss_of", [probability_loss, squared_loss], ids=["probability", "squared"])


def small_problem(seed: int = 0) -> tuple[Parameters, Batch]:
    """Seven samples of five numbers, four prototypes of three, three classes; soft targets."""
    random = np.random.default_rng(seed)
    parameters = Parameters(
        projection=random.standard_normal((3, 5)),
        prototypes=random.standard_normal((4, 3)),
        labels=random.standard_normal((4, 3)),
        log_masses=random.standard_normal(4),
        log_gamma=np.asarray(-0.7),
    )
    return parameters, Batch(random.standard_normal((7, 5)), random.dirichlet(np.ones(3), 7))


def groups(n: int = 120, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three overlapping groups in six dimensions."""
    random = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return random.standard_normal((n, 6)) + 2.0 * np.eye(3, 6)[y], y


@LOSSES
def test_gradients_agree_with_finite_differences(loss_of: Loss) -> None:
    parameters, batch = small_problem()
    _, gradients = loss_of(parameters, batch)
    step = 1e-6
    for name in Parameters._fields:
        value = getattr(parameters, name)
        measured = np.zeros_like(value)
        for cell in np.ndindex(value.shape):
            ends = []
            for sign in (1.0, -1.0):
                moved = np.array(value)
                moved[cell] += sign * step
                ends.append(loss_of(parameters._replace(**{name: moved}), batch)[0])
            measured[cell] = (ends[0] - ends[1]) / (2.0 * step)
        np.testing.assert_allclose(getattr(gradients, name), measured, rtol=1e-6, atol=1e-8, err_msg=name)


@LOSSES
def test_loss_and_gradients_agree_with_torch(loss_of: Loss) -> None:
    parameters, batch = small_problem(seed=1)
    leaves = [torch.tensor(np.asarray(value), requires_grad=True) for value in parameters]
    projection, prototypes, labels, log_masses, log_gamma = leaves
    x, targets = torch.from_numpy(batch.x), torch.from_numpy(batch.targets)
    squared = ((x @ projection.T)[:, None, :] - prototypes).pow(2).sum(dim=2)
    exponents = -torch.exp(2.0 * log_gamma) * squared
    if loss_of is probability_loss:
        answers = torch.softmax(log_masses + exponents, dim=1) @ torch.softmax(labels, dim=1)
        expected = -(targets * answers.log()).sum() / len(x)
    else:
        expected = (torch.exp(exponents) @ labels - targets).pow(2).sum() / len(x)
    expected.backward()  # type: ignore[no-untyped-call]
    loss, gradients = loss_of(parameters, batch)
    assert loss == pytest.approx(expected.item(), rel=1e-12)
    for leaf, gradient, name in zip(leaves, gradients, Parameters._fields, strict=True):
        torch_gradient = np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy()
        np.testing.assert_allclose(gradient, torch_gradient, rtol=1e-9, atol=1e-12, err_msg=name)


def test_training_lowers_the_loss_and_learns_the_groups() -> None:
    x, y = groups()
    model = ProtoNN(ProtoNNSettings(n_prototypes=6, dim=3, epochs=40)).fit(x, y, n_classes=3)
    assert model.losses_[-1] < model.losses_[0]
    other_x, other_y = groups(seed=1)
    assert (model.predict(other_x) == other_y).mean() > 0.75


def test_fit_returns_itself_and_the_same_seed_gives_the_same_prototypes() -> None:
    x, y = groups()
    first = ProtoNN(ProtoNNSettings(n_prototypes=6, dim=3, epochs=5, jitter=1.0, seed=3))
    assert first.fit(x, y, n_classes=3) is first
    second = ProtoNN(ProtoNNSettings(n_prototypes=6, dim=3, epochs=5, jitter=1.0, seed=3)).fit(x, y, n_classes=3)
    np.testing.assert_array_equal(first.prototypes_, second.prototypes_)


def test_probabilities_sum_to_one_with_both_heads() -> None:
    x, y = groups()
    for head in ("probability", "squared"):
        model = ProtoNN(ProtoNNSettings(n_prototypes=6, dim=3, epochs=5, head=head)).fit(x, y, n_classes=4)
        answers = model.predict_proba(np.concatenate((x, 1e4 + x)))  # far away too
        np.testing.assert_allclose(answers.sum(axis=1), 1.0)
        assert (answers >= 0.0).all()


def test_a_fixed_projection_stays_and_a_learnt_one_moves() -> None:
    x, y = groups()
    given = principal_directions(x, 3)
    for learn in (False, True):
        settings = ProtoNNSettings(n_prototypes=6, projection="given", learn_projection=learn, epochs=3)
        model = ProtoNN(settings).fit(x, y, n_classes=3, projection=given)
        assert np.array_equal(model.projection_, given) is not learn


def test_zero_epochs_leave_the_centres_of_k_means() -> None:
    x, y = groups()
    model = ProtoNN(ProtoNNSettings(n_prototypes=3, projection="none", epochs=0)).fit(x, y, n_classes=3)
    np.testing.assert_allclose(model.prototypes_, [x[y == label].mean(axis=0) for label in range(3)])
    np.testing.assert_allclose(model.masses_, 40.0)


def test_hard_thresholding_keeps_the_stated_share_after_training() -> None:
    x, y = groups()
    settings = ProtoNNSettings(
        n_prototypes=10, dim=4, head="squared", sparsity=0.5, learn_projection=True, epochs=3, learning_rate=0.01
    )
    model = ProtoNN(settings).fit(x, y, n_classes=3)
    for values in (model.projection_, model.prototypes_, model.labels_):
        assert np.count_nonzero(values) <= round(0.5 * values.size)


def test_hard_threshold_keeps_the_largest_entries() -> None:
    np.testing.assert_array_equal(hard_threshold(np.array([[3.0, -1.0], [0.5, -4.0]]), 0.5), [[3.0, 0.0], [0.0, -4.0]])
    np.testing.assert_array_equal(hard_threshold(np.array([[3.0, -4.0]]), 0.01), [[0.0, -4.0]])


def test_gamma_is_the_median_rule_with_the_distance_not_squared() -> None:
    assert median_gamma(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]])) == pytest.approx(2.5 / 5.0)
    assert median_gamma(np.zeros((1, 2)), np.zeros((1, 2))) == 1.0


def test_every_class_gets_a_prototype_and_none_more_than_its_entries() -> None:
    np.testing.assert_array_equal(shares_of_classes(np.array([1, 2, 100]), 2), [1, 1, 1])
    shares = shares_of_classes(np.array([1, 2, 100]), 50)
    assert shares.sum() == 50
    assert (shares <= [1, 2, 100]).all()


def test_principal_directions_agree_with_few_and_with_many_samples() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((30, 4)) @ random.standard_normal((4, 60))
    few = principal_directions(x, 3)  # by the 30 x 30 matrix
    many = principal_directions(np.concatenate((x, x, x)), 3)  # by the 60 x 60 one
    np.testing.assert_allclose(few, many, atol=1e-8)
    np.testing.assert_allclose(few @ few.T, np.eye(3), atol=1e-10)


def test_duplicate_entries_and_one_entry_are_learnt() -> None:
    x, y = np.zeros((20, 4)), np.zeros(20, int)
    assert len(ProtoNN(ProtoNNSettings(n_prototypes=5, dim=2, epochs=2)).fit(x, y, n_classes=2).prototypes_) == 1
    assert ProtoNN(ProtoNNSettings(n_prototypes=5, dim=2, epochs=2)).fit(x[:1], y[:1], n_classes=2).predict(x)[0] == 0


def test_progress_is_told_after_every_epoch() -> None:
    told: list[tuple[int, int]] = []
    x, y = groups(30)
    ProtoNN(ProtoNNSettings(n_prototypes=3, dim=2, epochs=3)).fit(
        x, y, n_classes=3, progress=lambda done, total: told.append((done, total))
    )
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"head": "cosine"}, "head"),
        ({"n_prototypes": 0}, "n_prototypes"),
        ({"sparsity": 0.5}, "sparsity"),
        ({"sparsity": 0.0, "head": "squared"}, "sparsity"),
        ({"jitter": -1.0}, "jitter"),
        ({"gamma": 0.0}, "gamma"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        ProtoNNSettings(**settings)  # type: ignore[arg-type]


def test_wrong_data_is_refused_and_what_was_learnt_stays() -> None:
    x, y = groups(30)
    model = ProtoNN(ProtoNNSettings(n_prototypes=3, dim=2, epochs=1)).fit(x, y, n_classes=3)
    kept = model.prototypes_
    bad = x.copy()
    bad[4, 0] = np.nan
    for wrong_x, wrong_y in ((bad, y), (x, y[:-1]), (x, y + 1), (x[:0], y[:0]), (x, y.astype(float))):
        with pytest.raises(InputError):
            model.fit(wrong_x, wrong_y, n_classes=3)
    with pytest.raises(InputError, match="targets"):
        model.fit(x, y, n_classes=3, targets=np.zeros((2, 3)))
    assert model.prototypes_ is kept
