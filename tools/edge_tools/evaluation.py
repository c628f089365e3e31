"""Evaluation: what personalisation gains on labelled examples that the device has not learnt."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edge_sdk import InputError, Predictor
from edge_sdk.encoder import as_batch
from edge_sdk.inputs import open_source
from edge_sdk.interpolation import log_loss, winners
from edge_tools.metrics import accuracy, calibration_error
from edge_tools.progress import progress

if TYPE_CHECKING:
    from edge_tools.benchmarks.reproduce.clients import Client

_BATCH_SIZE = 32


@dataclass(frozen=True)
class Scores:
    """How good one set of distributions is on the test examples."""

    accuracy: float
    log_loss: float
    """Mean negative log-probability of the true label, natural logarithm."""

    calibration_error: float


@dataclass(frozen=True)
class Evaluation:
    """The global model and the personalised one on the same examples."""

    n: int
    """Test examples."""

    interpolation_weight: float
    """λ_m in force."""

    global_scores: Scores
    personalised_scores: Scores
    classes: tuple[str, ...]
    labels: np.ndarray
    """int (n,), true class ids."""

    global_predictions: np.ndarray
    """int (n,)."""

    personalised_predictions: np.ndarray
    """int (n,)."""

    @property
    def gain(self) -> float:
        """Personalised minus global accuracy, a fraction."""
        return self.personalised_scores.accuracy - self.global_scores.accuracy


def evaluate(predictor: Predictor, path: Path) -> Evaluation:
    """Score the global model and the personalised one on the labelled examples of a source.

    Args:
        predictor: opened with the user's datastore.
        path: labelled examples that were not learnt.

    Raises:
        InputError: an example without a label, with one that the predictor does not know, or one that is refused.
    """
    labels: list[int] = []
    blended, global_probabilities = [], []
    for x, class_ids in _labelled(predictor, path):
        labels.extend(class_ids)
        distributions = predictor.distributions(x)
        blended.append(distributions.blended)
        global_probabilities.append(distributions.global_probabilities)
    return score(
        np.concatenate(blended),
        np.concatenate(global_probabilities),
        np.array(labels),
        classes=predictor.classes,
        interpolation_weight=predictor.interpolation.interpolation_weight,
    )


def read_client(predictor: Predictor, path: Path) -> "Client":
    """The stored entries and the labelled examples of a source as encoded arrays, for curves over settings.

    Args:
        predictor: opened with the user's datastore, which must not be empty.
        path: labelled examples that were not learnt.

    Raises:
        InputError: as `evaluate`, or the datastore is empty.
    """
    from edge_tools.benchmarks.reproduce.clients import Client, Examples

    store = predictor.datastore
    slots = store.table.order
    if not len(slots):
        raise InputError(f"{store.folder}: no entries; curves need what the user has learnt")
    embeddings, probabilities, labels = [], [], []
    for x, class_ids in _labelled(predictor, path):
        encoded = predictor.encoder.encode(as_batch(x, predictor.metadata.input)[0])
        embeddings.append(encoded.embeddings)
        probabilities.append(predictor.with_new_classes(encoded.probabilities))
        labels.extend(class_ids)
    return Client(
        Examples(store.embeddings(slots), store.probabilities(slots), store.table.labels[slots].astype(np.int64)),
        Examples(np.concatenate(embeddings), np.concatenate(probabilities), np.array(labels)),
    )


def _labelled(predictor: Predictor, path: Path) -> Iterator[tuple[np.ndarray, list[int]]]:
    """Batches of a labelled source with their class ids; at least one.

    Raises:
        InputError: an example without a label, with one that the predictor does not know, or one that is refused.
    """
    source = open_source(path, predictor.metadata.input)
    column = {name: number for number, name in enumerate(predictor.classes)}
    n_batches = None if source.count is None else -(-source.count // _BATCH_SIZE)
    is_empty = True
    for batch in progress(source.batches(_BATCH_SIZE), total=n_batches, label="evaluating"):
        if batch.refused:
            raise InputError(f"{batch.refused[0].name}: {batch.refused[0].reason}; an evaluation leaves nothing out")
        if batch.labels is None:
            raise InputError(f"{path}: no labels; an evaluation needs them")
        if len(batch):
            is_empty = False
            yield (
                batch.x,
                [_column_of(name, label, column) for name, label in zip(batch.names, batch.labels, strict=True)],
            )
    if is_empty:
        raise InputError(f"{path}: no examples")


def score(
    blended: np.ndarray,
    global_probabilities: np.ndarray,
    labels: np.ndarray,
    *,
    classes: tuple[str, ...],
    interpolation_weight: float,
) -> Evaluation:
    """Score two sets of distributions, both (n, n_classes), against true class ids (n,)."""
    global_predictions = global_probabilities.argmax(axis=1)
    personalised_predictions = winners(blended, global_probabilities)
    return Evaluation(
        n=len(labels),
        interpolation_weight=interpolation_weight,
        global_scores=_scores(global_probabilities, global_predictions, labels),
        personalised_scores=_scores(blended, personalised_predictions, labels),
        classes=classes,
        labels=labels,
        global_predictions=global_predictions,
        personalised_predictions=personalised_predictions,
    )


def _scores(probabilities: np.ndarray, predictions: np.ndarray, labels: np.ndarray) -> Scores:
    return Scores(
        accuracy=accuracy(predictions, labels),
        log_loss=log_loss(probabilities[np.arange(len(labels)), labels]),
        calibration_error=calibration_error(probabilities, labels),
    )


def _column_of(name: str, label: str, column: dict[str, int]) -> int:
    if label not in column:
        raise InputError(
            f'{name}: label "{label}" is unknown to the model and the datastore; known are {", ".join(column)}'
        )
    return column[label]
