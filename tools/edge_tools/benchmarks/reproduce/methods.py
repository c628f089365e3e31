"""The methods that are compared, each from one client's training examples to distributions over its test examples."""

from collections.abc import Callable

import numpy as np

from edge_sdk.head import MOST_FITTED, HeadFit
from edge_sdk.interpolation import LEFT_OUT_K, Interpolation, LeftOut, blend, knn_probabilities, tune
from edge_tools.benchmarks.reproduce.clients import Client
from edge_tools.benchmarks.reproduce.linear_head import FineTuning, fine_tune
from edge_tools.benchmarks.reproduce.search import left_out, nearest

PAPER = Interpolation(0.0, kernel="laplacian", bandwidth=1.0, k=10)
"""The paper's kernel and k."""


class Bench:
    """One client with the searches that several methods share, each done once."""

    def __init__(self, client: Client, *, k: int = LEFT_OUT_K) -> None:
        """Search.

        Args:
            client: at least one training example.
            k: the most neighbours that a method will ask for.
        """
        self.client = client
        rows, self._distances = nearest(client.test.embeddings, client.train.embeddings, k)
        self._labels = client.train.labels[rows]
        self.left_out: LeftOut | None = left_out(client.train, LEFT_OUT_K) if len(client.train.labels) > 1 else None

    def knn(self, settings: Interpolation) -> np.ndarray:
        """p_knn of the test examples."""
        return knn_probabilities(
            self._labels[:, : settings.k],
            self._distances[:, : settings.k],
            self.client.n_classes,
            kernel=settings.kernel,
            bandwidth=settings.bandwidth,
        )

    def tuned(self, *, criterion: str = "log-loss", with_head: bool = False) -> Interpolation:
        """The settings that leave-one-out chooses."""
        train = self.client.train
        n = len(train.labels)
        if self.left_out is None:
            return Interpolation.untuned(n)
        fit = None
        if with_head and n >= 10:
            used = train.take(slice(n - len(self.left_out.labels), None))
            fit = HeadFit(used.embeddings, used.probabilities, used.labels)
        return tune(self.left_out, n_entries=n, head_fit=fit, criterion=criterion)

    def blended(self, settings: Interpolation) -> np.ndarray:
        """The mixture with some settings, the head fitted as a device does."""
        local = self.knn(settings)
        test = self.client.test
        if settings.head is not None:
            train = self.client.train.take(slice(-MOST_FITTED, None))
            head = HeadFit(train.embeddings, train.probabilities, train.labels).head(settings.head)
            answer = head.probabilities(test.embeddings, test.probabilities)
            local = (1.0 - settings.head_share) * local + settings.head_share * answer
        return blend(test.probabilities, local, interpolation_weight=settings.interpolation_weight)


def _global(bench: Bench) -> np.ndarray:
    return bench.client.test.probabilities


def _local_knn(bench: Bench) -> np.ndarray:
    return bench.knn(PAPER)


def _paper(bench: Bench) -> np.ndarray:
    return bench.blended(bench.tuned(criterion="grid"))


def _knn(bench: Bench) -> np.ndarray:
    return bench.blended(bench.tuned())


def _knn_head(bench: Bench) -> np.ndarray:
    return bench.blended(bench.tuned(with_head=True))


def _linear(bench: Bench) -> np.ndarray:
    return fine_tune(bench.client.train, bench.client.test, FineTuning())


METHODS: dict[str, Callable[[Bench], np.ndarray]] = {
    "global": _global,
    "local kNN": _local_knn,
    "kNN-Per": _paper,
    "knn": _knn,
    "knn+head": _knn_head,
    "fine-tuned head": _linear,
}
"""Name -> method. "kNN-Per" has the paper's settings (exp(-d), k = 10, λ_m from seven values), "knn" and "knn+head"
are ours.
"""
