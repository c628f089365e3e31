"""Near copies: examples that a burst repeats, such as ten photos of one second.

They fill a bounded memory with one moment. An example is left out when an entry of the same label lies nearer than a
stated distance, among the `LOOKED_AT` nearest entries or the examples kept before it in the same batch. Entries of
another label do not count: two classes that touch are what the memory is for.
"""

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.errors import ConfigError
from edge_sdk.neighbors import Index

LOOKED_AT = 16
"""Nearest entries that are looked at; with more than these of other labels in between, a near copy is kept."""


def far_enough(
    embeddings: np.ndarray, labels: list[str], datastore: Datastore, index: Index, *, min_distance: float
) -> np.ndarray:
    """Which examples are no near copies.

    Args:
        embeddings: float32 (n, dim).
        labels: n labels.
        datastore: what is remembered.
        index: search over it.
        min_distance: Euclidean, between embeddings; at least 0.

    Returns:
        bool (n,).

    Raises:
        ConfigError: `min_distance` is negative or not finite.
    """
    if not (np.isfinite(min_distance) and min_distance >= 0):
        raise ConfigError(f"min_distance is a distance of at least 0, got {min_distance}")
    kept = np.ones(len(embeddings), np.bool_)
    if min_distance == 0 or not len(embeddings):
        return kept
    names = np.array(labels)
    if len(datastore):
        neighbors = index.search(embeddings, LOOKED_AT)
        same = np.array(datastore.classes)[neighbors.labels] == names[:, None]  # (n, k)
        kept &= ~((neighbors.distances < min_distance) & same).any(axis=1)
    wide = embeddings.astype(np.float64)
    for row in np.flatnonzero(kept).tolist():
        if kept[row]:
            later = row + 1 + np.flatnonzero(kept[row + 1 :] & (names[row + 1 :] == names[row]))
            distances = np.sqrt(((wide[later] - wide[row]) ** 2).sum(axis=1))
            kept[later[distances < min_distance]] = False
    return kept
