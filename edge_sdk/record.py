"""Record: how good the predictions were, each made just before its input was learnt.

Nothing is held out and nothing predicted twice: at every `learn` the input is predicted first, then stored (test,
then train). From this come the online λ_m, the drift signal and the curve that `info` draws. It is kept in the
manifest beside the blend's settings, saved every 32 inputs and at the end: a power cut costs at most the last 31
inputs of statistics, and no entry.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.drift import DriftDetector
from edge_sdk.interpolation import Interpolation, OnlineWeight, winners

KEY = "online"
"""Where the manifest's interpolation keeps it."""

_SAVE_EVERY = 32


class Record:
    """The online λ_m and the drift detector of one datastore."""

    def __init__(self, weight: OnlineWeight, drift: DriftDetector) -> None:
        self.weight = weight
        self.drift = drift
        self._unsaved = 0

    @classmethod
    def of(cls, datastore: Datastore) -> "Record | None":
        """The record that a datastore keeps, None where there is none."""
        stored = (datastore.interpolation or {}).get(KEY)
        if stored is None:
            return None
        return cls(OnlineWeight.from_mapping(stored["weight"]), DriftDetector.from_mapping(stored["drift"]))

    @classmethod
    def start(cls, settings: Interpolation) -> "Record":
        """A new record, λ_m starting at what is in force."""
        return cls(OnlineWeight(settings.interpolation_weight), DriftDetector())

    def judge(
        self,
        local: np.ndarray | None,
        global_probabilities: np.ndarray,
        class_ids: np.ndarray,
        sequences: Sequence[int],
    ) -> bool:
        """Take in predictions of inputs that are about to be learnt.

        Args:
            local: float64 (n, n_classes), p_local; None while the store is empty.
            global_probabilities: (n, n_classes).
            class_ids: int (n,), the true classes; -1 for a class that is new with this input.
            sequences: the inputs' sequences.

        Returns:
            Whether a drift was signalled.
        """
        drifted = False
        for row, (class_id, sequence) in enumerate(zip(class_ids.tolist(), sequences, strict=True)):
            drifted |= self._judge_one(
                None if local is None else local[row], global_probabilities[row], class_id, sequence
            )
        self._unsaved += len(class_ids)
        return drifted

    def _judge_one(self, local: np.ndarray | None, global_: np.ndarray, class_id: int, sequence: int) -> bool:
        global_right = int(global_.argmax()) == class_id
        if local is None:
            self.weight.count(personalised_right=global_right, global_right=global_right)
            return self.drift.update(float(not global_right), sequence)
        blended = self.weight.weight * local + (1.0 - self.weight.weight) * global_
        right = int(winners(blended[None], global_[None])[0]) == class_id
        likelihoods = (float(local[class_id]), float(global_[class_id])) if class_id >= 0 else (0.0, 0.0)
        self.weight.update(*likelihoods, personalised_right=right, global_right=global_right)
        return self.drift.update(float(not right), sequence)

    def in_force(self, settings: Interpolation) -> Interpolation:
        """The settings with the online λ_m in place of theirs."""
        return replace(settings, interpolation_weight=self.weight.weight, chosen_by="online")

    def save_when_due(self, datastore: Datastore, settings: Interpolation) -> None:
        """Save after every 32 inputs."""
        if self._unsaved >= _SAVE_EVERY:
            self.save(datastore, settings)

    def save(self, datastore: Datastore, settings: Interpolation) -> None:
        """Put the record and the λ_m in force into the datastore, if anything is new.

        Raises:
            DatastoreError: read-only, locked, or no room. The old record stays.
        """
        if self._unsaved:
            stored: dict[str, Any] = datastore.interpolation or {}
            record = {"weight": self.weight.to_mapping(), "drift": self.drift.to_mapping()}
            datastore.save_interpolation({**stored, **self.in_force(settings).to_mapping(), KEY: record})
            self._unsaved = 0
