"""Memory of a fresh process that does what a device does, step by step."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from edge_sdk import EdgeSDKError


@dataclass(frozen=True)
class MemoryStep:
    """Memory after one step, in bytes."""

    name: str
    resident: int
    """Pages in RAM, shared libraries and mapped files included."""

    private: int
    """Pages in RAM that no other process shares."""

    peak: int
    """The most that was ever resident (VmHWM)."""


def measure_memory(model: Path, datastore: Path | None) -> list[MemoryStep]:
    """Go through the device's steps in a fresh interpreter.

    Args:
        model: the exported model file.
        datastore: the datastore's folder; without it the steps end with the first encoding.

    Raises:
        EdgeSDKError: the child could not do a step; the message is the last line it wrote.
    """
    command = [sys.executable, "-m", "edge_tools.memory_probe", str(model)]
    if datastore is not None:
        command.append(str(datastore))
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        last = (finished.stderr.strip().splitlines() or [f"exit code {finished.returncode}"])[-1]
        raise EdgeSDKError(f"measuring memory failed: {last}")
    return [MemoryStep(**json.loads(line)) for line in finished.stdout.splitlines()]
