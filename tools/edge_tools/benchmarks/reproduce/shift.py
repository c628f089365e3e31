"""The shift experiment: a user whose labels change, on real datastores with every policy.

A user has three of the ten classes, each as often; at the shift he gets three others. Every step he learns a few
examples of the classes he has now and is tested on others of them. Examples to learn come from the training images,
tests from the test images. Drift is judged as `Predictor.learn` does it: each batch is predicted before it is stored.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_sdk import Datastore, InputSpec, Interpolation, ModelMetadata
from edge_sdk.experts import Experts
from edge_sdk.interpolation import blend, tune_datastore, winners
from edge_sdk.neighbors import ExactIndex
from edge_sdk.predictor import FEWEST_TO_TUNE
from edge_sdk.record import Record
from edge_tools.benchmarks.cifar import N_TRAIN, CifarEncoding
from edge_tools.benchmarks.reproduce.clients import Examples
from edge_tools.metrics import accuracy
from edge_tools.progress import progress

CAPACITY = 500
PER_STEP = 50
BATCH = 25
"""Entries learnt at once; a signal is timed to that."""

STEPS_BEFORE = 20
STEPS_AFTER = 30
TESTS = 150
CLASSES_AT_ONCE = 3
USERS = 8
QUIET_ENTRIES = 20_000
"""Entries of the stream without drift, over all users."""

POLICIES = ("fifo", "concatenate", "fixed", "balanced")
DRIFT_AWARE = "fifo, forgets at drift"


@dataclass(frozen=True)
class Shift:
    """What happened, averaged over the users."""

    accuracies: dict[str, list[float]]
    """Policy -> accuracy after each step."""

    global_accuracies: list[float]
    regained: dict[str, float]
    """Policy -> share of the drop that is regained one capacity after the shift."""

    delays: list[int]
    """Entries from the shift to the signal, by user; -1 where none came within a capacity."""

    false_signals: int
    """Signals in `QUIET_ENTRIES` entries without drift, and before the shift."""

    quiet_entries: int


class Life:
    """One datastore and how it is used, as the Predictor does it, without the model in front."""

    def __init__(self, store: Datastore, *, forgets: bool = False) -> None:
        self.store = store
        self.record = Record.start(Interpolation.untuned(0))
        self._index = ExactIndex(store)
        self._experts = Experts(store, self._index)
        self._forgets = forgets

    def learn(self, examples: Examples) -> bool:
        """Predict, then store, then tune when the store has doubled; whether a drift was signalled."""
        n = len(examples.labels)
        local = None
        if len(self.store):
            local = self._experts.answer(examples.embeddings, examples.probabilities, self.settings).probabilities
        if self.store.policy == "fixed":
            examples = examples.take(slice(self.store.capacity - len(self.store)))
        labels = [self.store.classes[label] for label in examples.labels]
        if labels:
            self.store.add(examples.embeddings, labels, examples.probabilities, sync=False)
        if len(labels) < n:
            return False
        first = self.store.table.newest - n + 1
        drifted = self.record.judge(local, examples.probabilities, examples.labels, range(first, first + n))
        if drifted and self._forgets:
            self.store.forget(before=self.record.drift.changed_at)
            self.tune()
        elif len(self.store) >= FEWEST_TO_TUNE and self.settings.is_outdated(len(self.store), self.store.table.newest):
            self.tune()
        return drifted

    @property
    def settings(self) -> Interpolation:
        """Of the blend."""
        stored = self.store.interpolation
        return Interpolation.untuned(len(self.store)) if stored is None else Interpolation.from_mapping(stored)

    def tune(self) -> None:
        """Choose λ_m anew."""
        tune_datastore(self.store, self._index)

    def accuracy(self, tests: Examples) -> float:
        """Of the blend."""
        settings = self.settings
        local = self._experts.answer(tests.embeddings, tests.probabilities, settings).probabilities
        blended = blend(tests.probabilities, local, interpolation_weight=settings.interpolation_weight)
        return accuracy(winners(blended, tests.probabilities), tests.labels)


class Stream:
    """Endless examples of a label mix."""

    def __init__(self, encoding: CifarEncoding, seed: int) -> None:
        self._everything = Examples(encoding.embeddings, encoding.probabilities, encoding.labels)
        self._random = np.random.default_rng(seed)
        labels = encoding.labels
        self._rows = [
            [
                np.flatnonzero((labels == label) & ((np.arange(len(labels)) >= N_TRAIN) == is_test))
                for label in range(10)
            ]
            for is_test in (False, True)
        ]

    def classes(self) -> tuple[np.ndarray, np.ndarray]:
        """Three classes and three others."""
        shuffled = self._random.permutation(10)
        return shuffled[:CLASSES_AT_ONCE], shuffled[CLASSES_AT_ONCE : 2 * CLASSES_AT_ONCE]

    def draw(self, classes: np.ndarray, n: int, *, test: bool = False) -> Examples:
        """Draw n examples."""
        labels = self._random.choice(classes, n)
        rows = [self._random.choice(self._rows[test][label]) for label in labels.tolist()]
        return self._everything.take(np.array(rows))


def run_shift(encoding: CifarEncoding, *, users: int = USERS) -> Shift:
    """Run all users through the shift, and some more entries without one."""
    curves: dict[str, list[list[float]]] = {policy: [] for policy in (*POLICIES, DRIFT_AWARE)}
    global_curves: list[list[float]] = []
    delays: list[int] = []
    false_signals = quiet = 0
    for user in progress(range(users), total=users, label="shift"):
        stream = Stream(encoding, user)
        with ExitStack() as stack:
            lives = {policy: stack.enter_context(_life(policy)) for policy in POLICIES}
            lives[DRIFT_AWARE] = stack.enter_context(_life("fifo", forgets=True))
            curve, global_curve, early, delay = _run_user(stream, lives)
        for policy, values in curve.items():
            curves[policy].append(values)
        global_curves.append(global_curve)
        delays.append(delay)
        false_signals += early
        quiet += STEPS_BEFORE * PER_STEP
        with _life("fifo") as life:
            classes, _ = stream.classes()
            for _ in range(QUIET_ENTRIES // users // BATCH):
                false_signals += life.learn(stream.draw(classes, BATCH))
            quiet += QUIET_ENTRIES // users
    accuracies = {policy: np.mean(rows, axis=0).tolist() for policy, rows in curves.items()}
    return Shift(
        accuracies,
        np.mean(global_curves, axis=0).tolist(),
        {policy: regained(values, accuracies["fixed"]) for policy, values in accuracies.items()},
        delays,
        false_signals,
        quiet,
    )


def regained(accuracies: list[float], fixed: list[float]) -> float:
    """Share of the drop regained one capacity of new entries after the shift.

    Before is the mean of the last 5 steps, the bottom what a store that never changes has after the shift, both over
    all steps that are alike, so that chance in one step's tests counts little; after is the mean of 5 steps from one
    capacity on.
    """
    before = float(np.mean(accuracies[STEPS_BEFORE - 5 : STEPS_BEFORE]))
    bottom = float(np.mean(fixed[STEPS_BEFORE:]))
    start = STEPS_BEFORE + CAPACITY // PER_STEP - 1
    return (float(np.mean(accuracies[start : start + 5])) - bottom) / (before - bottom)


def _run_user(stream: Stream, lives: dict[str, Life]) -> tuple[dict[str, list[float]], list[float], int, int]:
    """Accuracy by policy, the global model's, signals before the shift, entries from the shift to the first signal."""
    curve: dict[str, list[float]] = {policy: [] for policy in lives}
    global_curve: list[float] = []
    mixes = stream.classes()
    early, delay = 0, -1
    for step in range(STEPS_BEFORE + STEPS_AFTER):
        classes = mixes[step >= STEPS_BEFORE]
        learnt, tests = stream.draw(classes, PER_STEP), stream.draw(classes, TESTS, test=True)
        for policy, life in lives.items():
            for start in range(0, PER_STEP, BATCH):
                drifted = life.learn(learnt.take(slice(start, start + BATCH)))
                if policy == "fifo" and drifted:
                    entries = (step - STEPS_BEFORE) * PER_STEP + start + BATCH
                    early += entries <= 0
                    if delay < 0 and 0 < entries <= CAPACITY:
                        delay = entries
            curve[policy].append(life.accuracy(tests))
        global_curve.append(accuracy(tests.probabilities.argmax(axis=1), tests.labels))
    return curve, global_curve, early, delay


@contextmanager
def _life(policy: str, *, forgets: bool = False) -> Iterator[Life]:
    """A new datastore in a temporary folder."""
    model = ModelMetadata(tuple(str(label) for label in range(10)), InputSpec("input", (3, 32, 32)), 256, "0" * 64, 0)
    with (
        tempfile.TemporaryDirectory(prefix="edge-sdk-shift-") as folder,
        Datastore.create(Path(folder) / "me.store", model=model, capacity=CAPACITY, policy=policy) as store,
    ):
        yield Life(store, forgets=forgets)
