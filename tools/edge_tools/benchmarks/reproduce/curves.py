"""Curves over n_m, k, bandwidth, capacity and λ: what the paper's figures show, on CIFAR-10 Dirichlet clients."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from edge_sdk.interpolation import blend, winners
from edge_tools.benchmarks.reproduce.clients import Client
from edge_tools.benchmarks.reproduce.methods import PAPER, Bench
from edge_tools.benchmarks.reproduce.table import ORACLE_WEIGHTS, fixed_weights
from edge_tools.metrics import accuracy
from edge_tools.progress import progress

ENTRIES = (5, 25, 100, 250)
"""n_m of the λ curves."""

KS = (1, 2, 3, 5, 7, 8, 10, 12, 14, 20, 30)
BANDWIDTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1000.0)
CAPACITIES = (0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
"""Shares of n_m; the newest entries stay."""

SEED = 0


@dataclass(frozen=True)
class Curves:
    """Average accuracies, and what they are drawn over."""

    weights: tuple[float, ...]
    """λ."""

    by_entries: dict[int, list[float]]
    """n_m -> accuracy at each λ."""

    chosen: dict[int, float]
    """n_m -> mean λ_m that leave-one-out chooses."""

    by_k: list[tuple[int, float]]
    """k and accuracy with the bandwidth of the paper, λ_m by leave-one-out."""

    by_bandwidth: list[tuple[float, float]]
    """σ and accuracy, k = 10."""

    by_capacity: list[tuple[float, float, float]]
    """Share of n_m kept, accuracy of "knn" and of "knn+head"."""


def make_curves(clients: Sequence[Client]) -> Curves:
    """All curves over the same clients."""
    counts = [len(client.test.labels) for client in clients]
    by_entries: dict[int, list[list[float]]] = {n: [] for n in ENTRIES}
    chosen: dict[int, list[float]] = {n: [] for n in ENTRIES}
    by_k: dict[int, list[float]] = {k: [] for k in KS}
    by_bandwidth: dict[float, list[float]] = {bandwidth: [] for bandwidth in BANDWIDTHS}
    by_capacity: dict[float, list[tuple[float, float]]] = {share: [] for share in CAPACITIES}
    for number, client in enumerate(progress(clients, total=len(clients), label="curves")):
        random = np.random.default_rng((SEED, number))
        for n in ENTRIES:
            bench = Bench(sampled(client, n, random))
            by_entries[n].append(fixed_weights(bench, bench.knn(PAPER)))
            chosen[n].append(bench.tuned().interpolation_weight)
        bench = Bench(client, k=max(KS))
        weight = bench.tuned(criterion="grid").interpolation_weight
        for k in KS:
            by_k[k].append(_accuracy(bench, replace(PAPER, k=k).k, 1.0, weight))
        for bandwidth in BANDWIDTHS:
            by_bandwidth[bandwidth].append(_accuracy(bench, PAPER.k, bandwidth, weight))
        for share in CAPACITIES:
            by_capacity[share].append(_both(newest(client, share)))
    return Curves(
        ORACLE_WEIGHTS,
        {n: np.average(np.array(rows), axis=0, weights=counts).tolist() for n, rows in by_entries.items()},
        {n: float(np.mean(values)) for n, values in chosen.items()},
        [(k, float(np.average(values, weights=counts))) for k, values in by_k.items()],
        [(bandwidth, float(np.average(values, weights=counts))) for bandwidth, values in by_bandwidth.items()],
        [
            (share, *np.average(np.array(values), axis=0, weights=counts).tolist())
            for share, values in by_capacity.items()
        ],
    )


def sampled(client: Client, n: int, random: np.random.Generator) -> Client:
    """The client with n of its training examples (all, if it has fewer)."""
    rows = np.sort(random.permutation(len(client.train.labels))[:n])
    return Client(client.train.take(rows), client.test)


def newest(client: Client, share: float) -> Client:
    """The client with the newest share of its training examples, at least one."""
    n = max(1, round(share * len(client.train.labels)))
    return Client(client.train.take(slice(-n, None)), client.test)


def _both(client: Client) -> tuple[float, float]:
    bench = Bench(client)
    test = client.test
    answers = (bench.blended(bench.tuned(with_head=with_head)) for with_head in (False, True))
    first, second = (accuracy(winners(answer, test.probabilities), test.labels) for answer in answers)
    return first, second


def _accuracy(bench: Bench, k: int, bandwidth: float, weight: float) -> float:
    test = bench.client.test
    knn = bench.knn(replace(PAPER, k=k, bandwidth=bandwidth))
    return accuracy(
        winners(blend(test.probabilities, knn, interpolation_weight=weight), test.probabilities), test.labels
    )
