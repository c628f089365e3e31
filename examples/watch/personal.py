"""What personalisation would give a person, for choosing the global model's settings.

The device's method written out once more in a few lines of numpy (k = 10, kernel exp(-d), interpolation weight by
leave-one-out EM), so that training needs nothing but torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from examples.watch.net import ActivityNet
from examples.watch.split import Split

K = 10


@dataclass(frozen=True)
class Result:
    """One person's test."""

    n: int
    """Test windows."""
    model_right: int
    """How many of them the global model gets right."""
    personalised_right: int
    interpolation_weight: float
    neighbours_right: int
    """How many the neighbours alone get right."""
    log_loss: float
    """Mean negative log probability of the personalised answer, nats."""

    @staticmethod
    def table(results: Sequence["Result"]) -> str:
        """Averages weighted by windows, and the worst person, in percent."""
        n = sum(r.n for r in results)
        lines = [f"{len(results)} people, {n} windows"]
        for name in ("model_right", "neighbours_right", "personalised_right"):
            right = [getattr(r, name) for r in results]
            worst = min(count / r.n for count, r in zip(right, results, strict=True))
            lines.append(f"{name:20} {100 * sum(right) / n:6.2f}   worst person {100 * worst:6.2f}")
        lines.append(f"log loss {sum(r.n * r.log_loss for r in results) / n:.4f}")
        lines.append("weights " + " ".join(f"{r.interpolation_weight:.2f}" for r in results))
        return "\n".join(lines)


def personalise(net: ActivityNet, x: np.ndarray, label: np.ndarray, rows: Split) -> Result:
    """Learn `rows.learn`, test on `rows.test`.

    Args:
        net: in evaluation mode.
        x: raw steps, (n, 6, 100).
        label: classes, (n,).
        rows: one person's rows.
    """
    keys, known = _answers(net, x[rows.learn])
    queries, model = _answers(net, x[rows.test])
    truth = label[rows.test]
    among_themselves = _neighbours(keys, keys, label[rows.learn], known.shape[1], leave_one_out=True)
    weight = _interpolation_weight(among_themselves, known, label[rows.learn])
    neighbours = _neighbours(queries, keys, label[rows.learn], model.shape[1], leave_one_out=False)
    blend = weight * neighbours + (1.0 - weight) * model
    return Result(
        n=len(truth),
        model_right=int((model.argmax(1) == truth).sum()),
        personalised_right=int((blend.argmax(1) == truth).sum()),
        interpolation_weight=weight,
        neighbours_right=int((neighbours.argmax(1) == truth).sum()),
        log_loss=float(-np.log(np.maximum(blend[np.arange(len(truth)), truth], 1e-12)).mean()),
    )


def _answers(net: ActivityNet, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with torch.no_grad():
        embedding = net.embedding(torch.from_numpy(x.astype(np.float32)))
        probabilities = torch.softmax(net.head(embedding), dim=1)
    return embedding.double().numpy(), probabilities.double().numpy()


def _neighbours(
    queries: np.ndarray, keys: np.ndarray, label: np.ndarray, n_classes: int, *, leave_one_out: bool
) -> np.ndarray:
    """Class distribution of each query's K nearest keys, (n, n_classes)."""
    distances = np.sqrt(((queries[:, None, :] - keys[None, :, :]) ** 2).sum(axis=2))
    if leave_one_out:
        np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :K]
    near = np.take_along_axis(distances, nearest, axis=1)
    kernel = np.exp(near[:, :1] - near)
    votes = np.zeros((len(queries), n_classes))
    np.add.at(votes, (np.arange(len(queries))[:, None], label[nearest]), kernel)
    distribution: np.ndarray = votes / votes.sum(axis=1, keepdims=True)
    return distribution


def _interpolation_weight(neighbours: np.ndarray, model: np.ndarray, truth: np.ndarray) -> float:
    own = np.arange(len(truth)), truth
    near, known = neighbours[own], np.maximum(model[own], 1e-12)
    weight = 0.5
    for _ in range(200):
        weight = float((weight * near / (weight * near + (1.0 - weight) * known)).mean())
    return min(weight * len(truth) / (len(truth) + 10), 0.99)
