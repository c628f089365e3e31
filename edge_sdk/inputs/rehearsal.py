"""rehearse: what an ingest would add and leave out, with nothing written."""

from collections.abc import Callable, Iterable

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.digests import source_digests
from edge_sdk.duplicates import new_rows
from edge_sdk.inputs.base import Batch, Refused
from edge_sdk.inputs.ingest import Ingested


def rehearse(
    batches: Iterable[Batch],
    datastore: Datastore | None,
    *,
    capacity: int,
    allow_duplicates: bool = False,
    on_refused: Callable[[Refused], None] = lambda refused: None,
) -> Ingested:
    """Count what `ingest` would do. The network is not run, so near copies and what the model refuses are not found.

    Args:
        batches: labelled and vetted.
        datastore: where the examples would go, None where it would be made.
        capacity: its most entries. An example that was read so many new ones ago is taken for evicted again.
        allow_duplicates: count what is stored already as added.
        on_refused: told of each refused input as it comes.
    """
    done = Ingested()
    read: dict[tuple[int, str], None] = {}
    for batch in batches:
        labels = batch.labels or []
        sources = source_digests(batch.x)
        rows = list(range(len(batch)))
        if not allow_duplicates:
            new = np.arange(len(batch)) if datastore is None else new_rows(sources, labels, datastore)
            rows = [row for row in new.tolist() if _is_first((int(sources[row]), labels[row]), read, capacity)]
        done.added += len(rows)
        done.duplicates += len(batch) - len(rows)
        done.per_class.update(labels[row] for row in rows)
        done.refused += len(batch.refused)
        for each in batch.refused:
            on_refused(each)
    return done


def _is_first(example: tuple[int, str], read: dict[tuple[int, str], None], capacity: int) -> bool:
    """Whether an example is not among the last `capacity` in `read`, oldest first, where it then is."""
    if example in read:
        return False
    read[example] = None
    if len(read) > capacity:
        del read[next(iter(read))]
    return True
