"""Workload: a seeded stream of operations on one store, announced before and acknowledged after each."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from edge_sdk.datastore import Datastore
from edge_tools.faults.oracle import Oracle, add_steps

CAPACITY = 12


@dataclass(frozen=True)
class Operation:
    """One change to a store."""

    kind: str
    """"add" (synced when it returns), "unsynced", "sync", "forget" or "interpolation"."""

    steps: tuple[int, ...] = ()
    """Of the entries to add or to forget."""

    def apply(self, store: Datastore) -> None:
        """Do it to the store."""
        if self.kind in ("add", "unsynced"):
            add_steps(store, list(self.steps), sync=self.kind == "add")
        elif self.kind == "sync":
            store.sync()
        elif self.kind == "forget":
            slots = store.find_sources(list(self.steps))
            store.forget(sequences=store.table.sequences[slots[slots >= 0]])
        else:
            store.save_interpolation({"interpolation_weight": self.steps[0] % 100 / 100})

    def tell(self, oracle: Oracle) -> None:
        """Do it to the oracle."""
        if self.kind in ("add", "unsynced"):
            oracle.add(list(self.steps))
        elif self.kind == "forget":
            oracle.forget(list(self.steps))


def operations(
    seed: int, first_step: int, live: Callable[[], list[int]], room: Callable[[], int]
) -> Iterator[Operation]:
    """An endless stream of operations.

    Args:
        seed: of the choice.
        first_step: number of the first entry; the following ones count up.
        live: the steps that are in the store now.
        room: how many entries it still takes.
    """
    choose = random.Random(seed)
    step = first_step
    while True:
        kind = choose.choices(["add", "batch", "unsynced", "sync", "forget", "interpolation"], [8, 2, 5, 2, 2, 0.5])[0]
        steps = live()
        if room() == 0 or (kind == "forget" and steps):
            newest = steps[-1:] if choose.random() < 0.5 else []
            gone = {*choose.sample(steps, min(len(steps), choose.randint(1, 4))), *newest}
            yield Operation("forget", tuple(sorted(gone)))
        elif kind in ("sync", "interpolation"):
            yield Operation(kind, (step,))
        else:
            n = min(room(), choose.randint(2, 2 * CAPACITY) if kind == "batch" else 1)
            yield Operation("unsynced" if kind == "unsynced" else "add", tuple(range(step, step + n)))
            step += n
