"""LeftOut: entries predicted from all the others, which is what every choice is judged by.

Entries of a sensor come one after the other and resemble their neighbours in time, so leaving out one alone may
flatter the memory. `gap` leaves out the neighbours in time as well. On the watch data it changes λ_m by less than it
changes anything that counts (gap 0, 1, 2, 4: 90.8 % each, log-loss 0.329, 0.330, 0.332, 0.338), so 0 is the default;
for the yardstick of novelty it matters (docs/interpolation.md).
"""

from typing import NamedTuple

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.errors import ConfigError
from edge_sdk.neighbors import Index

MOST_LEFT_OUT = 1000
"""Entries predicted in one tuning; more changes λ_m by less than its own standard error of 0.015."""


class LeftOut(NamedTuple):
    """Entries predicted from the others: what tuning looks at."""

    labels: np.ndarray
    """int32 (n,), the true class ids."""

    global_probabilities: np.ndarray
    """float32 (n, n_classes), what the model said when each entry was learnt."""

    neighbor_labels: np.ndarray
    """int32 (n, k)."""

    neighbor_distances: np.ndarray
    """float64 (n, k), nearest first."""


def leave_one_out(datastore: Datastore, index: Index, *, k: int, gap: int = 0) -> LeftOut:
    """Predict each of the newest 1000 entries from all the others.

    Args:
        datastore: at least 2 entries.
        index: search over it.
        k: neighbours to ask for.
        gap: entries learnt less than so many places before or after are left out too, at least 0. Smaller where the
            store has too few entries for it.

    Raises:
        ConfigError: gap is below 0.
    """
    if gap < 0:
        raise ConfigError(f"gap must be at least 0, got {gap}")
    gap = min(gap, (len(datastore) - 2) // 2)
    slots = datastore.table.order[-MOST_LEFT_OUT:]
    sequences = datastore.table.sequences[slots]
    neighbors = index.search(datastore.embeddings(slots), k + 2 * gap, exclude=sequences)
    labels, distances = neighbors.labels, neighbors.distances
    if gap:
        far = np.abs(neighbors.sequences.astype(np.int64) - sequences.astype(np.int64)[:, None]) > gap
        n_kept = min(k, int(far.sum(axis=1).min()))
        kept = np.argsort(~far, axis=1, kind="stable")[:, :n_kept]  # the far ones first, nearest first among them
        labels, distances = np.take_along_axis(labels, kept, axis=1), np.take_along_axis(distances, kept, axis=1)
    return LeftOut(
        labels=datastore.table.labels[slots],
        global_probabilities=datastore.probabilities(slots),
        neighbor_labels=labels,
        neighbor_distances=distances,
    )
