"""Policies: which slots new entries go into.

Free slots are always taken first, damaged ones before empty ones. What happens when none is left is the policy:
`fifo` gives up the oldest entry, `balanced` the oldest of the largest class, `fixed` refuses, `concatenate` has grown
the file before.
"""

import numpy as np

from edge_sdk.datastore.table import SlotTable
from edge_sdk.errors import DatastoreError


def check_room(table: SlotTable, n: int, *, policy: str, where: object) -> None:
    """Refuse entries that a `fixed` store has no slots for.

    Raises:
        DatastoreError: fewer than `n` slots are free. Nothing has changed.
    """
    free = table.capacity - table.filled
    if policy == "fixed" and n > free:
        raise DatastoreError(
            f"{where}: full: policy fixed, capacity {table.capacity}, {free} free, {n} to add; "
            "forget some entries, or use a datastore with policy fifo"
        )


def slot_for_one(table: SlotTable, label: int, *, policy: str) -> int:
    """The slot of one new entry."""
    if table.filled < table.capacity:
        return int(table.free(1)[0])
    if policy == "balanced":
        return oldest_of_largest_class(table, label)
    return table.oldest()


def slots_for_many(table: SlotTable, n: int) -> np.ndarray:
    """Int (n,): distinct slots for `n <= capacity` new entries: free ones, then those of the oldest entries."""
    free = table.free(n)
    return np.concatenate((free, table.order[: n - len(free)]))


def oldest_of_largest_class(table: SlotTable, label: int) -> int:
    """The oldest entry of the class that would have most entries with the newcomer counted.

    Several such classes: the one that holds the oldest entry. The table is full.
    """
    counts = np.array(table.counts)
    counts[label] += 1
    order = table.order
    in_largest = counts[table.labels[order]] == counts.max()
    return int(order[np.argmax(in_largest)])
