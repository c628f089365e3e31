"""Kills: a process that learns is killed with signal 9 at a random moment, again and again, on the same store.

The learner is a fork of this process, so a kill costs milliseconds. It announces every operation on a pipe before it
starts and acknowledges it after it returned; what it acknowledged must be in the store that the next one opens.
"""

import os
import random
import select
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.datastore.rebuild import rebuild
from edge_sdk.errors import EdgeSDKError
from edge_sdk.model import ModelMetadata
from edge_tools.faults.oracle import (
    DTYPES,
    MODEL,
    POLICIES,
    Oracle,
    add_steps,
    embeddings_of,
    probabilities_of,
    wrong_entries,
)
from edge_tools.faults.workload import CAPACITY, Operation, operations

_LONGEST_LIFE_S = 0.03
_LONGEST_REBUILD_S = 0.4
_STEPS_A_LIFE = 10_000
_OPENING_KILLS = 8
"""Every so many kills come while the store is being opened, and as many again while a store is being made."""


@dataclass
class KillReport:
    """What the kills cost."""

    kills: int = 0
    acknowledged: int = 0
    """Operations that returned before a kill."""

    lost: int = 0
    """Acknowledged entries that were missing, wrong, or there although forgotten."""

    unopenable: int = 0
    damaged: int = 0
    """Slots found torn; each was being written when the kill came."""


def run_kills(folder: Path, n_kills: int, *, seed: int = 0) -> KillReport:
    """Kill learners on stores of every policy and dtype in turn.

    Args:
        folder: where the stores are made; must exist.
        n_kills: in all.
        seed: of the operations and moments (the moments also depend on the machine).
    """
    report = KillReport()
    variants = [(policy, dtype) for dtype in DTYPES for policy in POLICIES]
    for number, (policy, dtype) in enumerate(variants):
        share = n_kills * (number + 1) // len(variants) - n_kills * number // len(variants)
        if share:
            _kill_one_store(folder / f"{policy}.{dtype}", policy, dtype, share, seed + number, report)
    return report


def _kill_one_store(folder: Path, policy: str, dtype: str, n_kills: int, seed: int, report: KillReport) -> None:
    """Kill `n_kills` learners, one after the other, on one store."""
    shutil.rmtree(folder, ignore_errors=True)
    Datastore.create(folder, model=MODEL, capacity=CAPACITY, policy=policy, dtype=dtype, allow_new_classes=True).close()
    choose = random.Random(seed)
    oracle = Oracle(policy, CAPACITY)
    for _ in range(n_kills // _OPENING_KILLS):
        _kill_a_creation(folder.with_name("new"), policy, dtype, choose.random() * _LONGEST_LIFE_S, report)
    for life in range(n_kills - n_kills // _OPENING_KILLS):
        learn = partial(_learn_until_killed, folder, oracle, seed * 100_003 + life, 1 + life * _STEPS_A_LIFE)
        lines = _live_and_die(learn, choose.random() * _LONGEST_LIFE_S, is_awaited=life % _OPENING_KILLS != 0)
        report.kills += 1
        required, allowed = _replay(lines, oracle, report)
        try:
            store = Datastore.open(folder, model=MODEL)
        except EdgeSDKError:
            report.unopenable += 1
            return
        with store:
            found = store.table.sources[store.table.order].tolist()
            report.lost += len(required - set(found)) + len(set(found) - allowed) + len(wrong_entries(store))
            report.damaged += store.damaged
            oracle.steps = found


def _kill_a_creation(folder: Path, policy: str, dtype: str, seconds: float, report: KillReport) -> None:
    """Kill a process that makes a store: there is a whole one afterwards, or none."""

    def live(pipe: int) -> None:
        os.write(pipe, b"start\n")
        Datastore.create(folder, model=MODEL, capacity=CAPACITY, policy=policy, dtype=dtype)

    _live_and_die(live, seconds, is_awaited=True)
    report.kills += 1
    if folder.exists():
        try:
            Datastore.open(folder, model=MODEL).close()
        except EdgeSDKError:
            report.unopenable += 1
        shutil.rmtree(folder)


def run_rebuild_kills(folder: Path, n_kills: int, *, seed: int = 0) -> KillReport:
    """Kill a process that rebuilds a store for a new model: the old store is there afterwards, or the whole new one.

    Args:
        folder: where the store is made; must exist.
        n_kills: rebuilds to kill; each goes from one of two models to the other.
        seed: of the moments.
    """
    report = KillReport()
    choose = random.Random(seed)
    steps = list(range(1, CAPACITY + 1))
    store_folder = folder / "rebuilt.store"
    models = [replace(MODEL, fingerprint=letter * 64) for letter in "cd"]
    with Datastore.create(store_folder, model=models[0], capacity=CAPACITY, allow_new_classes=True) as store:
        store.keep_inputs(1 << 20, shape=MODEL.input.shape, dtype="float32")
        store.keep(np.array(steps, np.uint64), embeddings_of(steps))
        add_steps(store, steps, sync=True)
    for _ in range(n_kills):
        now = _read_fingerprint(store_folder)
        other = models[1] if now == models[0].fingerprint else models[0]
        _live_and_die(partial(_rebuild, store_folder, other), choose.random() * _LONGEST_REBUILD_S, is_awaited=True)
        report.kills += 1
        try:
            with Datastore.open(store_folder) as store:
                found = store.table.sources[store.table.order].tolist()
                report.lost += len(set(steps) - set(found)) + len(wrong_entries(store))
                report.acknowledged += store.manifest.fingerprint == other.fingerprint
                report.lost += store.manifest.fingerprint not in (now, other.fingerprint)
        except EdgeSDKError:
            report.unopenable += 1
    return report


def _read_fingerprint(folder: Path) -> str:
    """The fingerprint of the model that a store was made with."""
    with Datastore.open(folder, read_only=True) as store:
        return store.manifest.fingerprint


def _rebuild(folder: Path, model: ModelMetadata, pipe: int) -> None:
    """Rebuild a store whose kept inputs are its embeddings, a little slowly."""

    def encode(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        step_of = {embeddings_of([step]).tobytes(): step for step in range(1, CAPACITY + 1)}
        steps = [step_of[row.tobytes()] for row in samples]
        return samples, probabilities_of(steps)

    with Datastore.open(folder) as store:
        os.write(pipe, b"start\n")
        rebuild(store, model, encode)


def _live_and_die(live: Callable[[int], None], seconds: float, *, is_awaited: bool) -> list[str]:
    """Start a process, kill it some time later (after its first word, if that is awaited); return what it said."""
    read_end, write_end = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            live(write_end)
        finally:
            os._exit(1)
    os.close(write_end)
    if is_awaited:
        select.select([read_end], [], [])
    time.sleep(seconds)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    with os.fdopen(read_end) as pipe:
        return pipe.read().splitlines()


def _learn_until_killed(folder: Path, oracle: Oracle, seed: int, first_step: int, pipe: int) -> None:
    """The learner: announce, do, acknowledge, without end."""
    with Datastore.open(folder, model=MODEL) as store:
        for operation in operations(seed, first_step, lambda: oracle.steps, oracle.room):
            steps = ",".join(str(step) for step in operation.steps)
            os.write(pipe, f"start {operation.kind} {steps}\n".encode())
            operation.apply(store)
            operation.tell(oracle)
            os.write(pipe, b"done\n")


def _replay(lines: list[str], oracle: Oracle, report: KillReport) -> tuple[set[int], set[int]]:
    """Tell the oracle what was acknowledged.

    Returns:
        The steps that must be in the store, and those that may be: an interrupted operation may have been done or not.
    """
    pending: Operation | None = None
    for line in lines:
        if line == "done" and pending is not None:
            pending.tell(oracle)
            pending = None
            report.acknowledged += 1
        elif line.startswith("start "):
            _, kind, steps = line.split(" ")
            pending = Operation(kind, tuple(int(step) for step in steps.split(",") if step))
    before = set(oracle.steps)
    if pending is None:
        return before, before
    pending.tell(oracle)
    return before & set(oracle.steps), before | set(pending.steps)
