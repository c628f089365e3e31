"""Running one check in a child process, whose death is a finding."""

import json
import signal
import subprocess
import sys
from typing import NamedTuple

_SECONDS = 120  # importing onnxruntime under emulation or from a worn card takes many


class Outcome(NamedTuple):
    """What became of a child."""

    answer: dict[str, object] | None
    """What it reported; None when it died, failed or said nothing."""

    death: str
    """"" when it ended well; otherwise "killed by SIGILL", "no answer within 120 s" or the last line it wrote."""

    signal_number: int = 0


def run_child(*arguments: str) -> Outcome:
    """Start this interpreter with `arguments` and read the one JSON line it prints last."""
    try:
        finished = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome(None, f"no answer within {_SECONDS} s")
    if finished.returncode < 0:
        number = -finished.returncode
        return Outcome(None, f"killed by {signal.Signals(number).name}", number)
    lines = finished.stdout.strip().splitlines()
    if finished.returncode or not lines:
        said = finished.stderr.strip().splitlines() or [f"exit code {finished.returncode}"]
        return Outcome(None, said[-1])
    return Outcome(json.loads(lines[-1]), "")
