"""Oracle: what must be in a store, said by twenty lines that share no code with it.

The entries of the harness are functions of a step number, which is stored as the entry's source: whoever opens the
store can say of every entry what its bytes must be, whatever process wrote it.
"""

from dataclasses import dataclass, field

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.model import InputSpec, ModelMetadata

DIM = 500
"""Slots of 1 to 2 KB, so that each spans several sectors."""

CLASSES = ("run", "sit", "walk")
NEW_CLASS = "zebra"
POLICIES = ("fifo", "concatenate", "fixed", "balanced")
DTYPES = ("float16", "float32", "int8")

MODEL = ModelMetadata(CLASSES, InputSpec("input", (DIM,)), DIM, fingerprint="a" * 64, graph_crc32=0)


def label_of(step: int) -> str:
    """The label of the entry of this step; two thirds are of one class, one in fifty of a class of its own."""
    if step % 50 == 49:
        return NEW_CLASS
    return ("run", "run", "run", "run", "sit", "walk")[step * 7 % 6]


def embeddings_of(steps: list[int]) -> np.ndarray:
    """float32 (n, DIM), of whole numbers up to 127 with a 127 in each row, so that every dtype stores them exactly."""
    rows = np.zeros((len(steps), DIM), np.float32)
    for row, step in zip(rows, steps, strict=True):
        row[:] = np.random.default_rng(step).integers(-127, 128, DIM)
    rows[:, 0] = 127.0
    return rows


def probabilities_of(steps: list[int]) -> np.ndarray:
    """float32 (n, 3), multiples of 1/4."""
    return np.array([np.roll([0.5, 0.25, 0.25], step) for step in steps], np.float32).reshape(len(steps), 3)


def add_steps(store: Datastore, steps: list[int], *, sync: bool) -> list[int]:
    """Add the entries of these steps, and their inputs where the store keeps them; returns their sequences."""
    labels = [label_of(step) for step in steps]
    if store.kept_inputs is not None:
        store.keep(np.array(steps, np.uint64), embeddings_of(steps), sync=sync)
    added = store.add(embeddings_of(steps), labels, probabilities_of(steps), sources=steps, sync=sync)
    return [int(sequence) for sequence in added]


@dataclass
class Oracle:
    """The entries of a store after every operation, by plain lists."""

    policy: str
    capacity: int
    steps: list[int] = field(default_factory=list)
    """Of the live entries, oldest first."""

    def room(self) -> int:
        """How many entries a `fixed` store still takes."""
        return self.capacity - len(self.steps) if self.policy == "fixed" else 10**9

    def add(self, new: list[int]) -> None:
        """Entries came in, one after the other."""
        for step in new:
            if self.policy in ("fifo", "balanced") and len(self.steps) == self.capacity:
                self.steps.remove(self._evicted(step))
            self.steps.append(step)

    def _evicted(self, newcomer: int) -> int:
        if self.policy == "fifo":
            return self.steps[0]
        labels = [label_of(step) for step in [*self.steps, newcomer]]
        most = max(labels.count(label) for label in labels)
        return next(step for step in self.steps if labels.count(label_of(step)) == most)

    def forget(self, gone: list[int]) -> None:
        """Entries were forgotten."""
        self.steps = [step for step in self.steps if step not in set(gone)]


def wrong_entries(store: Datastore) -> list[str]:
    """Every entry of the store whose content is not that of its step."""
    slots = store.table.order
    steps = store.table.sources[slots].tolist()
    embeddings, probabilities = store.embeddings(slots), store.probabilities(slots)[:, : len(CLASSES)]
    labels = [store.classes[label] for label in store.table.labels[slots]]
    wrong = []
    for i, step in enumerate(steps):
        same = np.allclose(embeddings[i], embeddings_of([step])[0], atol=1e-4) and labels[i] == label_of(step)
        if not (same and np.array_equal(probabilities[i], probabilities_of([step])[0])):
            wrong.append(f"step {step}: another content")
    if len(set(steps)) < len(steps):
        wrong.append("an entry is there twice")
    return wrong
