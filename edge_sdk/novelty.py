"""Novelty: "none of these", told from how far an input is from everything in the datastore.

The score is the share of stored entries that are nearer to their nearest other entry than the input is to its nearest
one (a conformal rank, Laxhammar and Falkman 2010). It needs no unit and no threshold in distances: if inputs come
from where the entries came from, a score above 0.99 is met by one input in a hundred, whatever the model.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

# Fine where people put thresholds. 44 numbers describe any store, so the manifest stays small.
_LEVELS = np.concatenate((np.linspace(0.0, 0.9, 19), np.linspace(0.91, 0.99, 9), np.linspace(0.991, 1.0, 10)))


@dataclass(frozen=True)
class Novelty:
    """The distribution of distances from an entry to its nearest other entry."""

    distances: tuple[float, ...]
    """Its quantiles at fixed levels, ascending."""

    n: int
    """Entries behind it."""

    @classmethod
    def of(cls, nearest: np.ndarray) -> "Novelty":
        """Describe leave-one-out nearest distances, (n,), n at least 1."""
        quantiles = np.quantile(nearest, _LEVELS)
        return cls(tuple(float(f"{value:.6g}") for value in quantiles), len(nearest))

    @classmethod
    def from_mapping(cls, mapping: dict[str, Any]) -> "Novelty":
        """Read back from the manifest's JSON."""
        return cls(tuple(float(value) for value in mapping["distances"]), int(mapping["n"]))

    def scores(self, nearest: np.ndarray) -> np.ndarray:
        """Novelty of inputs.

        Args:
            nearest: (n,), each input's distance to its nearest entry.

        Returns:
            float64 (n,) in [0, 1]: 1 is farther than any entry is from the others. With m entries no score lies between
            1 - 1/(m + 1) and 1, so a threshold of 0.99 means something from a hundred entries on.
        """
        scores = np.interp(nearest, self.distances, _LEVELS) * self.n / (self.n + 1)
        return np.where(nearest > self.distances[-1], 1.0, scores)
