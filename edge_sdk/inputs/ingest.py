"""Ingest: everything a source holds -> a datastore, once.

The store is opened (and made, if missing) only when the first acceptable example has been read, so a source that is
wrong as a whole leaves nothing behind. An example that is stored already is not stored again, so an interrupted ingest
continues by running it again.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from edge_sdk.errors import InputError
from edge_sdk.inputs.base import Batch, Refused
from edge_sdk.labels import unknown_label_message
from edge_sdk.predictor import Predictor


@dataclass
class Ingested:
    """What an ingest did so far."""

    added: int = 0
    duplicates: int = 0
    """Examples left out because the same input with the same label is stored already."""

    near: int = 0
    """Examples left out as near copies."""

    refused: int = 0
    per_class: Counter[str] = field(default_factory=Counter)
    """Examples added, by label."""


def vetted(batches: Iterable[Batch], known: Collection[str] | None, *, cure: str = "") -> Iterator[Batch]:
    """The same batches, with examples of unknown labels moved to `refused`.

    Args:
        batches: labelled batches.
        known: labels that may be learnt, or None when every label may.
        cure: what the first refusal says besides the known labels; the later ones say neither again.
    """
    is_first = True
    for batch in batches:
        labels = batch.labels or []
        if known is None or all(label in known for label in labels):
            yield batch
            continue
        kept = [row for row, label in enumerate(labels) if label in known]
        unknown = []
        for row, label in enumerate(labels):
            if label not in known:
                message = unknown_label_message(label, list(known), cure=cure, brief=not is_first)
                unknown.append(Refused(batch.names[row], message))
                is_first = False
        yield rows_of(batch, kept, refused=[*batch.refused, *unknown])


def rows_of(batch: Batch, rows: list[int], *, refused: list[Refused]) -> Batch:
    """Some rows of a batch."""
    return Batch(
        x=batch.x[rows],
        labels=[batch.labels[row] for row in rows] if batch.labels is not None else None,
        names=[batch.names[row] for row in rows],
        refused=refused,
    )


def check_strictly(batches: Iterable[Batch], check: Callable[[np.ndarray], object]) -> None:
    """Read everything and stop at the first refused input, before anything is learnt.

    Args:
        batches: labelled and vetted.
        check: raises an InputError for samples that the model cannot take, such as `Encoder.encode`.

    Raises:
        InputError: an input was refused; nothing has been learnt.
    """
    for batch in batches:
        for name, reason in batch.refused:
            raise InputError(f"{name}: {reason}; nothing was added (--strict)")
        try:
            check(batch.x)
        except InputError as error:
            raise InputError(f"{_first_bad(batch, check)}: {error}; nothing was added (--strict)") from error


def _first_bad(batch: Batch, check: Callable[[np.ndarray], object]) -> str:
    """Name of the first input of a batch that `check` refuses."""
    for row, name in enumerate(batch.names):
        try:
            check(batch.x[row : row + 1])
        except InputError:
            return name
    return batch.names[0]


def ingest(
    batches: Iterable[Batch],
    open_predictor: Callable[[], Predictor],
    *,
    allow_duplicates: bool = False,
    min_distance: float = 0.0,
    sync_every: int = 1000,
    on_refused: Callable[[Refused], None] = lambda refused: None,
) -> Ingested:
    """Learn every example of the batches.

    Args:
        batches: labelled and vetted.
        open_predictor: called before the first example is learnt.
        allow_duplicates: store what is stored already once more.
        min_distance: leave out what lies nearer than this to an entry of the same label; see `Predictor.learn`.
        sync_every: entries between two syncs; what was added since the last one may be lost with the power, and is
            added again by the next ingest.
        on_refused: told of each refused input as it comes.

    Raises:
        DatastoreError: no room, read-only or locked; what was added before stays.
    """
    done = Ingested()
    predictor: Predictor | None = None
    synced = 0
    try:
        for batch in batches:
            refused = batch.refused
            if predictor is not None and synced < done.added and done.added + len(batch) - synced > sync_every:
                predictor.datastore.start_sync()
                synced = done.added
            if len(batch):
                predictor = predictor or open_predictor()
                refused = refused + _learn(predictor, batch, done, allow_duplicates, min_distance)
            if predictor is not None and done.added - synced >= sync_every:
                predictor.datastore.start_sync()
                synced = done.added
            done.refused += len(refused)
            for each in refused:
                on_refused(each)
    finally:
        if predictor is not None and done.added:
            predictor.datastore.sync()
    return done


def _learn(
    predictor: Predictor, batch: Batch, done: Ingested, allow_duplicates: bool, min_distance: float
) -> list[Refused]:
    """Learn one batch; a row that the model or the datastore refuses costs that row alone, and is returned."""
    try:
        learnt = predictor.learn(
            batch.x,
            batch.labels,
            sync=False,
            allow_duplicates=allow_duplicates,
            min_distance=min_distance,
            tune=False,
        )
    except InputError as error:
        if len(batch) == 1:
            return [Refused(batch.names[0], str(error))]
        singles = (rows_of(batch, [row], refused=[]) for row in range(len(batch)))
        return [
            refused for single in singles for refused in _learn(predictor, single, done, allow_duplicates, min_distance)
        ]
    done.added += len(learnt.sequences)
    done.duplicates += learnt.duplicates
    done.near += learnt.near
    labels = batch.labels or []
    done.per_class.update(labels if len(learnt.rows) == len(labels) else [labels[row] for row in learnt.rows.tolist()])
    return []
