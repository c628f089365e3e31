"""Duplicates: the same input under the same label, stored already or read before.

Inputs are told apart by their digests. An input that is stored under another label is no duplicate: the user may have
changed their mind, and both entries stay.
"""

import numpy as np

from edge_sdk.datastore import Datastore


def new_rows(sources: np.ndarray, labels: list[str], datastore: Datastore) -> np.ndarray:
    """Rows whose (input, label) is neither stored nor earlier among the rows.

    Args:
        sources: uint64 (n,), digests of the inputs.
        labels: n labels.
        datastore: what is stored; the caller holds its lock where others write.

    Returns:
        int (m,), ascending.
    """
    slots = datastore.find_sources(sources)
    if (slots < 0).all() and len(np.unique(sources)) == len(sources):
        return np.arange(len(sources))  # the usual case in bulk, in a tenth of the time
    seen: set[tuple[int, str]] = set()
    rows = []
    for row, (source, label, slot) in enumerate(zip(sources.tolist(), labels, slots.tolist(), strict=True)):
        if (source, label) not in seen and not (slot >= 0 and _is_stored(source, label, slot, datastore)):
            rows.append(row)
        seen.add((source, label))
    return np.array(rows, np.intp)


def _is_stored(source: int, label: str, slot: int, datastore: Datastore) -> bool:
    """Whether an input that has an entry in `slot` has one with this label, there or in another slot."""
    classes, table = datastore.classes, datastore.table
    if classes[table.labels[slot]] == label:
        return True
    return any(classes[each] == label for each in table.labels[table.sources == np.uint64(source)].tolist())
