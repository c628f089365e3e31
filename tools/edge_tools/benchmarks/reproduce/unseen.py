"""Is "none of these" told? Novelty scores of the classes a user has, and of one class that he has not.

Each client loses one class from his entries in turn. Inputs of that class are then new, all others are known. What
must hold: of the known inputs no more are rejected than the threshold says.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edge_sdk.novelty import Novelty
from edge_tools.benchmarks.reproduce.clients import Client
from edge_tools.benchmarks.reproduce.search import left_out, nearest
from edge_tools.progress import progress

THRESHOLDS = (0.8, 0.9, 0.95, 0.99)
_FEWEST_ENTRIES = 50


@dataclass(frozen=True)
class Unseen:
    """Rejections on one set, over all clients and left-out classes."""

    name: str
    known: int
    new: int
    """Inputs of each kind."""

    known_rejected: dict[float, float]
    """Threshold -> share of known inputs above it; 1 - threshold is what it should be."""

    new_rejected: dict[float, float]
    area: float
    """Chance that a new input scores above a known one (area under the ROC curve)."""


def measure_unseen(name: str, clients: Sequence[Client], *, gap: int = 0) -> Unseen:
    """Score known and new inputs of all clients.

    Args:
        name: of the set.
        clients: its users.
        gap: entries nearer in time than this do not count when the yardstick is made.
    """
    known: list[np.ndarray] = []
    new: list[np.ndarray] = []
    for client in progress(clients, total=len(clients), label=f"{name}, unseen classes"):
        for label in np.unique(client.train.labels).tolist():
            train = client.train.take(client.train.labels != label)
            if len(train.labels) < _FEWEST_ENTRIES:
                continue
            novelty = Novelty.of(left_out(train, 1, gap=gap).neighbor_distances[:, 0])
            held = np.isin(client.test.labels, train.labels)
            scores = novelty.scores(nearest(client.test.embeddings, train.embeddings, 1)[1][:, 0])
            known.append(scores[held])
            new.append(scores[client.test.labels == label])
    of_known, of_new = np.concatenate(known), np.concatenate(new)
    return Unseen(
        name,
        len(of_known),
        len(of_new),
        {threshold: float((of_known > threshold).mean()) for threshold in THRESHOLDS},
        {threshold: float((of_new > threshold).mean()) for threshold in THRESHOLDS},
        _area(of_known, of_new),
    )


def _area(low: np.ndarray, high: np.ndarray) -> float:
    """P(high > low) + P(high = low)/2."""
    ordered = np.sort(low)
    below = np.searchsorted(ordered, high, "left")
    return float(((below + np.searchsorted(ordered, high, "right")) / 2).mean() / len(low))
