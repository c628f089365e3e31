"""Measurement: what a model file and a datastore cost, found out in a fresh process that does what a device does.

The process is `edge_tools.probe`. `learn` is timed on a copy of the datastore beside the original, on the same medium,
because what it costs is what the medium needs to sync.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from edge_sdk import EdgeSDKError
from edge_tools.latency import Percentiles

SKIPPED = "not measured"

_ERROR_CLASS = re.compile(r"^[A-Za-z_][\w.]*Error: ")
"""How a traceback's last line begins; what follows is the message."""


@dataclass(frozen=True)
class Order:
    """What the probe is to do."""

    model: str
    datastore: str | None
    scratch: str | None
    """A copy of the datastore that may be learnt into, or None."""
    repeats: int
    started: float
    """`time.perf_counter()` when the process was asked for."""


@dataclass(frozen=True)
class Step:
    """What the process uses after one step, in bytes."""

    name: str
    resident: int
    """Pages in RAM, shared libraries and mapped files included."""

    private: int
    """Pages in RAM that no other process shares."""

    anonymous: int
    """Pages in RAM that no file backs: what the process allocated."""

    peak: int
    """The most that was ever resident (VmHWM)."""

    milliseconds: float
    """Since the process was asked for."""


@dataclass(frozen=True)
class Measurement:
    """All of it."""

    steps: tuple[Step, ...]
    latency_ms: dict[str, Percentiles]
    """By part: "encode"; with a datastore also "search", "blend", "predict" and, where it could be copied, "learn"."""

    threads: dict[str, int]
    """"inference": of one run of the model; "process": all there are."""

    index: dict[str, Any] | None
    """`Index.describe()`."""

    recall: dict[str, Any] | None
    """On the store's own entries: "recall", "k", "n_queries"."""

    @property
    def peak(self) -> int:
        """The most that was ever resident, bytes."""
        return max(step.peak for step in self.steps)

    @property
    def start_up_ms(self) -> float:
        """From asking for the process to the first answer, milliseconds."""
        first = "first prediction" if self.index is not None else "first encoding"
        return next(step.milliseconds for step in self.steps if step.name == first)


def measure(model: Path, datastore: Path | None, *, repeats: int = 200) -> Measurement:
    """Go through the device's steps in a fresh interpreter.

    Args:
        model: the exported model file.
        datastore: the datastore's folder; without it the steps end with the first encoding.
        repeats: how often each part is timed.

    Raises:
        EdgeSDKError: the child could not do a step; the message is the last line it wrote.
    """
    with ExitStack() as stack:
        scratch = None if datastore is None else scratch_copy(datastore, stack)
        order = Order(
            str(model),
            None if datastore is None else str(datastore),
            None if scratch is None else str(scratch),
            repeats,
            time.perf_counter(),
        )
        finished = subprocess.run(
            [sys.executable, "-m", "edge_tools.probe", json.dumps(asdict(order))],
            capture_output=True,
            text=True,
            check=False,
        )
    if finished.returncode:
        last = (finished.stderr.strip().splitlines() or [f"exit code {finished.returncode}"])[-1]
        if scratch is not None:
            last = last.replace(str(scratch), str(datastore))
        raise EdgeSDKError(f"measuring failed: {_ERROR_CLASS.sub('', last)}")
    *steps, result = [json.loads(line) for line in finished.stdout.splitlines()]
    return Measurement(steps=tuple(Step(**step) for step in steps), **result)


def scratch_copy(datastore: Path, stack: ExitStack) -> Path | None:
    """A copy that lives as long as `stack`, None where there is no room or no right to make one."""
    if not datastore.is_dir() or not os.access(datastore.parent, os.W_OK):
        return None
    needed = sum(entry.stat().st_size for entry in datastore.rglob("*") if entry.is_file())
    if shutil.disk_usage(datastore.parent).free < 2 * needed:
        return None
    folder = stack.enter_context(TemporaryDirectory(prefix=f".{datastore.name}.profile-", dir=datastore.parent))
    copied = Path(shutil.copytree(datastore, Path(folder) / "copy.store", copy_function=shutil.copyfile))
    for path in (copied, *copied.rglob("*")):
        if path.is_dir():  # copytree hands on the mode of folders: nothing could be written to a read-only one's copy
            path.chmod(0o700)
    return copied
