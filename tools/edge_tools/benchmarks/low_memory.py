"""The applications of a small board inside real memory limits.

Each runs in a memory cgroup whose limit counts the page cache too; its own peak (VmHWM) must stay below a budget. Exit
code 3 when one does not, or was killed.

    python -m edge_tools.benchmarks.low_memory FOLDER     # a folder with mobilenetv2.onnx, see benchmarks.mobilenet
"""

import argparse
import importlib.util
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from edge_tools.benchmarks.full_store import fill_store
from edge_tools.memory_limit import run_limited
from edge_tools.output import print_json, print_table, say, size

_MB = 1 << 20
_BUDGET_EXIT = 3
N_ENTRIES = 10_000


class Case(NamedTuple):
    """One program and what it may use."""

    name: str
    command: Sequence[str]
    budget: int
    """Most bytes at its peak."""

    limit: int
    """Of the cgroup, page cache included."""


class Outcome(NamedTuple):
    """What it used."""

    case: Case
    peak: int | None
    """VmHWM, None when it was killed or failed."""

    charged: int | None
    limit: str
    failure: str

    @property
    def is_met(self) -> bool:
        """Whether it ended well below its budget."""
        return self.peak is not None and self.peak <= self.case.budget


def main() -> None:
    """Run every case, print the table and at the end one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where mobilenetv2.onnx lies, and its datastore is kept")
    parser.add_argument("--watch", type=Path, default=Path("examples/watch"), help="the watch example")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="edge-sdk-lowmem-", dir=options.folder) as temporary:
        outcomes = [_run(case) for case in _cases(options.folder, options.watch, Path(temporary))]
    print_table(
        f"In a limit ({outcomes[0].limit})",
        ("application", "peak (VmHWM)", "budget", "cgroup's peak", "its limit", ""),
        [
            (
                outcome.case.name,
                "-" if outcome.peak is None else size(outcome.peak),
                size(outcome.case.budget),
                "-" if outcome.charged is None else size(outcome.charged),
                size(outcome.case.limit),
                outcome.failure or ("met" if outcome.is_met else "NOT met"),
            )
            for outcome in outcomes
        ],
    )
    peaks = {f"{outcome.case.name}_peak_mb": _megabytes(outcome.peak) for outcome in outcomes}
    print_json({**peaks, "limit": outcomes[0].limit, "met": all(outcome.is_met for outcome in outcomes)})
    if not all(outcome.is_met for outcome in outcomes):
        sys.exit(_BUDGET_EXIT)


def _cases(folder: Path, watch: Path, temporary: Path) -> list[Case]:
    learn, model = watch / "users" / "1603" / "learn.npz", watch / "watch.onnx"
    program = [sys.executable, "-m", "edge_tools.benchmarks.applications"]
    cases = [
        Case("watch", [*program, "watch", str(model), str(temporary / "watch.store"), str(learn)], 80 * _MB, 96 * _MB)
    ]
    for name, budget in (("mobilenetv2", 128), ("mobilenetv2-int8", 128)):
        file, kept = folder / f"{name}.onnx", folder / f"{name}.store"
        if file.exists():
            say(f"filling {kept.name}: {N_ENTRIES} entries, once")
            fill_store(file, kept, N_ENTRIES)
            store = temporary / kept.name
            shutil.copytree(kept, store)
            command = [*program, "pictures", str(file), str(store)]
            short = name.replace("mobilenetv2", "mobilenet").replace("-int8", "_int8")
            cases.append(Case(short, command, budget * _MB, (budget + 16) * _MB))
    store = temporary / "command.store"
    at = ("--model", str(model), "--datastore", str(store))
    command = [sys.executable, "-m", "edge_tools.benchmarks.command_peak"]
    cases.append(Case("ingest_command", [*command, "ingest", str(learn), *at], 100 * _MB, 116 * _MB))
    if importlib.util.find_spec("sklearn"):
        words = ["compress", str(store), "--model", str(model), "--budget", "64KB", "--yes"]
        cases.append(Case("compress", [*command, *words], 220 * _MB, 240 * _MB))
    else:
        say("compress is left out: scikit-learn is not installed")
    return cases


def _run(case: Case) -> Outcome:
    say(f"{case.name}: limit {size(case.limit)}")
    finished = run_limited(case.command, case.limit)
    if finished.returncode:
        last = (finished.stderr.strip().splitlines() or ["no words"])[-1]
        failure = "killed for want of memory" if finished.returncode in (-9, 137) else f"failed: {last}"
        return Outcome(case, None, finished.most_charged, finished.limit, failure)
    step = json.loads(finished.stdout.splitlines()[-1])
    return Outcome(case, step["peak"], finished.most_charged, finished.limit, "")


def _megabytes(peak: int | None) -> float | None:
    return None if peak is None else round(peak / _MB, 1)


if __name__ == "__main__":
    main()
