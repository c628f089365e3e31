"""Memory: what a datastore remembers, whatever form it has.

Entries answer through an index (`Experts`), a compressed datastore through its prototypes and the entries learnt since
(`CompressedMemory`). Which of the two it is may change while an application runs, so every `refresh` looks again; above
this file nobody asks.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edge_sdk.compressed import CompressedMemory, tune_memory
from edge_sdk.datastore import Datastore
from edge_sdk.errors import DatastoreError
from edge_sdk.experts import Experts, LocalAnswer
from edge_sdk.interpolation import Interpolation, kernel_weights
from edge_sdk.neighbors import Index, Neighbors
from edge_sdk.prediction import Voter
from edge_sdk.record import KEY as RECORD

logger = logging.getLogger(__name__)

_MOST_VOTERS = 10  # named of a compressed datastore, where all vote


class Memory:
    """Entries or prototypes of one datastore. Not thread-safe by itself: hold `datastore.lock`."""

    def __init__(self, datastore: Datastore, index: Index) -> None:
        self._datastore = datastore
        self._index = index
        self._experts = Experts(datastore, index)
        self._compressed = CompressedMemory(datastore)
        self._parsed: tuple[object, Interpolation] | None = None

    def refresh(self) -> None:
        """Take up what other processes have learnt, forgotten or compressed."""
        self._datastore.refresh()
        self._compressed.refresh()

    def __len__(self) -> int:
        """How many can vote, as of the last `refresh`."""
        return len(self._compressed) or len(self._datastore)

    @property
    def is_compressed(self) -> bool:
        """Whether prototypes answer, as of the last `refresh`."""
        return len(self._compressed) > 0

    @property
    def interpolation(self) -> Interpolation:
        """The blend's settings as they were chosen for this memory."""
        if self._compressed.refresh():
            return self._compressed.interpolation
        stored = self._datastore.manifest.interpolation
        if stored is None:
            return Interpolation.untuned(len(self._datastore))
        if self._parsed is None or self._parsed[0] is not stored:  # parsed once, because every prediction asks
            self._parsed = stored, Interpolation.from_mapping(stored)
        return self._parsed[1]

    def answer(self, embeddings: np.ndarray, global_probabilities: np.ndarray, settings: Interpolation) -> LocalAnswer:
        """What is remembered about a batch; the memory must not be empty.

        Args:
            embeddings: float32 (n, dim), finite.
            global_probabilities: (n, n_classes), 0 for classes that the model does not know.
            settings: of the blend.
        """
        if not self.is_compressed:
            return self._experts.answer(embeddings, global_probabilities, settings)
        answered = self._compressed.probabilities(embeddings, global_probabilities.shape[1])
        return LocalAnswer(answered, answered, None)

    def voters(self, embedding: np.ndarray, answer: LocalAnswer, settings: Interpolation) -> tuple[Voter, ...]:
        """Who stands behind the answer to one query (1, dim), nearest first; of prototypes the ten heaviest."""
        if answer.neighbors is None:
            return self._heaviest(embedding)
        return self._nearest(answer.neighbors, settings)

    def tune(self, *, experts: str | None) -> Interpolation:
        """Choose the settings anew and save them, see `tune_memory`."""
        return tune_memory(self._datastore, self._index, experts=experts)

    def forget(self, *, sequences: Sequence[int] | None, label: str | None, before: int | None, tune: bool) -> int:
        """Remove entries and all that was derived from them, see `Datastore.forget`; returns how many.

        The saved settings go with the entries that they were chosen on. Where there were any they are chosen again on
        what is left (`tune_again`), so that an answer after it is that of a store which never held what is gone.
        """
        self._experts.drop_head()
        self._datastore.refresh()
        saved = self._datastore.interpolation
        n_forgotten = self._datastore.forget(sequences=sequences, label=label, before=before)
        if tune and saved is not None and self._datastore.interpolation is None:
            try:
                tune_again(self._datastore, self._index, saved=saved)
            except DatastoreError as error:  # what was asked for is done and cannot be undone
                logger.warning("forgotten, but λ_m could not be chosen again: %s", error)
        return n_forgotten

    def _nearest(self, neighbors: Neighbors, settings: Interpolation) -> tuple[Voter, ...]:
        weights = kernel_weights(neighbors.distances, kernel=settings.kernel, bandwidth=settings.bandwidth)[0]
        newest, classes = self._datastore.table.newest, self._datastore.classes
        return tuple(
            Voter(int(sequence), classes[label], float(distance), newest - int(sequence), float(share))
            for sequence, label, distance, share in zip(
                neighbors.sequences[0],
                neighbors.labels[0],
                neighbors.distances[0],
                weights / weights.sum(),
                strict=True,
            )
        )

    def _heaviest(self, embedding: np.ndarray) -> tuple[Voter, ...]:
        memory, classes = self._compressed, self._datastore.classes
        votes = memory.votes(embedding, most=_MOST_VOTERS)
        newest = max(memory.prototypes.newest_sequence, self._datastore.table.newest)
        voters = []
        for number, distance, share in zip(votes.numbers.tolist(), votes.distances, votes.shares, strict=True):
            sequence = memory.sequence_of(number)
            age = newest - sequence if sequence else -1
            voters.append(Voter(sequence, classes[memory.label_of(number)], float(distance), age, float(share)))
        return tuple(voters)


def tune_again(datastore: Datastore, index: Index, *, saved: Mapping[str, Any]) -> Interpolation:
    """Choose the settings anew after `Datastore.forget` has dropped them, see `tune_memory`.

    The choice of experts is the user's and stays; so does the record of `online=True`, which holds counts of right
    answers and no trace of an entry.

    Args:
        datastore: entries were forgotten.
        index: search over it.
        saved: `Datastore.interpolation` before.

    Raises:
        DatastoreError: read-only, or locked by another process. There are no saved settings then.
    """
    chosen = tune_memory(datastore, index, experts=saved.get("experts"))
    now = datastore.interpolation
    if RECORD in saved and now is not None:
        datastore.save_interpolation({**now, RECORD: saved[RECORD]})
    return chosen
