"""Experts: what the datastore answers, as neighbours alone or mixed with the closed-form head.

The head is derived, never stored: it is fitted to the newest entries when first needed, and again when 5 % of the
entries it was fitted to have changed. An entry that was forgotten, rather than evicted as the oldest, makes it fit
anew at once.
"""

from typing import NamedTuple

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.head import MOST_FITTED, Head, HeadFit, HeadSettings
from edge_sdk.interpolation import Interpolation, knn_probabilities
from edge_sdk.interpolation.coverage import deferring, unseen_probability
from edge_sdk.neighbors import Index, Neighbors

_STALE = 0.05  # of the entries; refitting after every one costs more than a prediction and moves λ_m's third decimal


class LocalAnswer(NamedTuple):
    """What the memory says about a batch."""

    probabilities: np.ndarray
    """float64 (n, n_classes), p_local: p_knn, or its mixture with p_head; while classes are unmet it defers to
    the global model (`interpolation.coverage`), unless a user fixed λ_m.
    """

    knn: np.ndarray
    """float64 (n, n_classes)."""

    neighbors: Neighbors | None
    """Who voted; None where prototypes did."""


class Experts:
    """The memory's voice. Not safe to share between threads; the Predictor's lock guards it."""

    def __init__(self, datastore: Datastore, index: Index) -> None:
        self._datastore = datastore
        self._index = index
        self._head: Head | None = None
        self._head_settings: HeadSettings | None = None
        self._fitted = np.zeros(0, np.uint64)  # sequences the head rests on, ascending
        self._n_classes = 0
        self._version = -1
        self._is_met = np.zeros(0, np.bool_)  # (n_classes,), of the entries at `_met_version`
        self._unseen = 0.0
        self._met_version = -1

    @property
    def ram_bytes(self) -> int:
        """Bytes of the fitted head."""
        return self._head.ram_bytes if self._head is not None else 0

    def answer(self, embeddings: np.ndarray, global_probabilities: np.ndarray, settings: Interpolation) -> LocalAnswer:
        """p_local of a batch; the datastore must not be empty.

        Args:
            embeddings: float32 (n, dim), finite.
            global_probabilities: (n, n_classes), 0 for classes that the model does not know.
            settings: of the blend.
        """
        neighbors = self._index.search(embeddings, settings.k)
        knn = knn_probabilities(
            neighbors.labels,
            neighbors.distances,
            global_probabilities.shape[1],
            kernel=settings.kernel,
            bandwidth=settings.bandwidth,
        )
        local, share = knn, settings.head_share
        if settings.head is not None and share > 0.0:
            head = self._fitted_head(settings.head, global_probabilities.shape[1])
            local = (1.0 - share) * knn + share * head.probabilities(embeddings, global_probabilities)
        if settings.chosen_by != "user":
            nearest = neighbors.distances[:, 0]
            novelty = np.ones(len(nearest)) if settings.novelty is None else settings.novelty.scores(nearest)
            local = self._deferring(local, global_probabilities, novelty)
        return LocalAnswer(local, knn, neighbors)

    def drop_head(self) -> None:
        """Fit the head anew before it answers again (after `forget`)."""
        self._head = None

    def _deferring(self, local: np.ndarray, global_probabilities: np.ndarray, novelty: np.ndarray) -> np.ndarray:
        """`local`, deferring to the global model while classes are unmet."""
        if self._met_version != self._datastore.version or len(self._is_met) != local.shape[1]:
            table = self._datastore.table
            labels = table.labels[table.order]
            self._is_met = np.bincount(labels, minlength=local.shape[1]) > 0
            self._unseen = unseen_probability(labels)
            self._met_version = self._datastore.version
        return deferring(
            local,
            global_probabilities,
            is_met=self._is_met,
            n_model_classes=self._datastore.n_model_classes,
            unseen=self._unseen,
            novelty=novelty,
        )

    def _fitted_head(self, settings: HeadSettings, n_classes: int) -> Head:
        slots = self._datastore.table.order[-MOST_FITTED:]
        if (
            self._head is None
            or settings != self._head_settings
            or n_classes != self._n_classes
            or self._is_stale(slots)
        ):
            fit = HeadFit(
                self._datastore.embeddings(slots),
                self._datastore.probabilities(slots),
                self._datastore.table.labels[slots],
            )
            self._head, self._head_settings, self._n_classes = fit.head(settings), settings, n_classes
            self._fitted = self._datastore.table.sequences[slots]
            self._version = self._datastore.version
        return self._head

    def _is_stale(self, slots: np.ndarray) -> bool:
        """Whether the head rests on too few of the entries there are now, or on one that was forgotten."""
        if self._version == self._datastore.version:
            return False
        now = self._datastore.table.sequences[slots]
        gone = np.setdiff1d(self._fitted, now, assume_unique=True)
        n_new = len(now) - (len(self._fitted) - len(gone))
        was_forgotten = len(gone) > 0 and bool(gone[-1] > now[0])
        return was_forgotten or n_new + len(gone) > _STALE * len(now)
