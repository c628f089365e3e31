"""The table: every method on every client of a set."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edge_sdk.interpolation import log_loss, winners
from edge_tools.benchmarks.reproduce.clients import Client
from edge_tools.benchmarks.reproduce.methods import METHODS, PAPER, Bench
from edge_tools.metrics import accuracy, bottom_decile, calibration_error, weighted_average
from edge_tools.progress import progress

ORACLE_WEIGHTS = tuple(round(weight, 2) for weight in np.linspace(0.0, 1.0, 21).tolist())
"""Values of λ_m among which the best fixed one is found in hindsight."""


@dataclass(frozen=True)
class Score:
    """One method on one set."""

    average: float
    """Accuracy over all test examples."""

    decile: float
    """Accuracy of the (M/10)-th worst of M clients."""

    log_loss: float
    calibration_error: float


@dataclass(frozen=True)
class Table:
    """All methods on one set."""

    name: str
    clients: int
    entries: float
    """Mean n_m."""

    scores: dict[str, Score]
    oracle: tuple[float, float]
    """The best fixed λ_m in hindsight, the same for all clients, for the neighbours of "knn", and its average
    accuracy.
    """

    paper_oracle: tuple[float, float]
    """The same for the neighbours with the paper's settings."""


def make_table(name: str, clients: Sequence[Client]) -> Table:
    """Run every method on every client."""
    answers: dict[str, list[np.ndarray]] = {method: [] for method in METHODS}
    oracles: dict[str, list[list[float]]] = {"ours": [], "paper": []}
    for client in progress(clients, total=len(clients), label=name):
        bench = Bench(client)
        for method, run in METHODS.items():
            answers[method].append(run(bench))
        oracles["ours"].append(fixed_weights(bench, bench.knn(bench.tuned())))
        oracles["paper"].append(fixed_weights(bench, bench.knn(PAPER)))
    best = {}
    counts = [len(client.test.labels) for client in clients]
    for which, rows in oracles.items():
        averages = np.average(np.array(rows), axis=0, weights=counts)
        best[which] = ORACLE_WEIGHTS[int(averages.argmax())], float(averages.max())
    return Table(
        name,
        len(clients),
        float(np.mean([len(client.train.labels) for client in clients])),
        {method: score(found, clients) for method, found in answers.items()},
        best["ours"],
        best["paper"],
    )


def fixed_weights(bench: Bench, knn: np.ndarray) -> list[float]:
    """Test accuracy of one client at each of `ORACLE_WEIGHTS`."""
    test = bench.client.test
    blends = (weight * knn + (1.0 - weight) * test.probabilities for weight in ORACLE_WEIGHTS)
    return [accuracy(winners(blended, test.probabilities), test.labels) for blended in blends]


def score(answers: Sequence[np.ndarray], clients: Sequence[Client]) -> Score:
    """The scores of one method's distributions, one array a client."""
    accuracies, counts = [], []
    for answer, client in zip(answers, clients, strict=True):
        accuracies.append(accuracy(winners(answer, client.test.probabilities), client.test.labels))
        counts.append(len(client.test.labels))
    together, labels = np.concatenate(answers), np.concatenate([client.test.labels for client in clients])
    return Score(
        weighted_average(accuracies, counts),
        bottom_decile(accuracies, counts),
        log_loss(together[np.arange(len(labels)), labels]),
        calibration_error(together, labels),
    )
