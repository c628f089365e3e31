"""Kills and power cuts, a short run of what `make faults` does by the thousand."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edge_tools.faults.kills import KillReport
from edge_tools.faults.power_cuts import MUTATIONS, RecordingStorage, run_power_cuts
from edge_tools.faults.sweep import run_sweep


def kill_in_a_fresh_process(call: str, folder: Path) -> KillReport:
    """Run the kills where no other test has left threads: the learners are forks, and a fork with threads may hang."""
    script = (
        "import json, sys; from dataclasses import asdict; from pathlib import Path; "
        f"from edge_tools.faults import kills; print(json.dumps(asdict(kills.{call})))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return KillReport(**json.loads(done.stdout))


def test_nothing_acknowledged_is_lost_by_kills(tmp_path: Path) -> None:
    report = kill_in_a_fresh_process("run_kills(Path(sys.argv[1]), 36, seed=1)", tmp_path)
    assert (report.kills, report.lost, report.unopenable) == (36, 0, 0)
    assert report.acknowledged > 0


def test_a_killed_rebuild_leaves_the_old_store_or_the_whole_new_one(tmp_path: Path) -> None:
    report = kill_in_a_fresh_process("run_rebuild_kills(Path(sys.argv[1]), 24, seed=2)", tmp_path)
    assert (report.kills, report.lost, report.unopenable) == (24, 0, 0)
    left = [path.name for path in tmp_path.iterdir() if path.name != "rebuilt.store"]
    assert len(left) <= 2  # of the last kill; the next rebuild removes them


def test_nothing_acknowledged_is_lost_by_power_cuts(tmp_path: Path) -> None:
    report = run_power_cuts(tmp_path, 96, seed=1)
    assert (report.power_cuts, report.examples) == (96, [])


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_power_cuts_find_the_losses_of_a_build_without_a_sync(tmp_path: Path, mutation: type[RecordingStorage]) -> None:
    report = run_power_cuts(tmp_path, 96, seed=1, storage_class=mutation)
    assert report.lost + report.unopenable > 0


_RECORD = """
import sys
from pathlib import Path
from edge_tools.faults.power_cuts import RecordingStorage, record
_, events = record(Path(sys.argv[1]), "concatenate", "float16", 5, RecordingStorage)
print("\\n".join(f"{event.kind} {event.name}" for event in events if event.kind not in ("start", "done", "create")))
"""
_CALLS = {"pwrite64": "write", "fdatasync": "sync", "fallocate": "allocate", "ftruncate": "cut", "unlink": "remove"}


def test_the_recording_holds_every_call_that_the_kernel_saw(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    trace, folder = tmp_path / "trace", tmp_path / "me.store"
    calls = (
        "pwrite64,write,pwritev,writev,fdatasync,fsync,fallocate,ftruncate,rename,renameat,renameat2,unlink,unlinkat"
    )
    command = ["strace", "-f", "-y", "-s", "0", "-e", f"trace={calls}", "-o", str(trace)]
    done = subprocess.run(
        [*command, sys.executable, "-c", _RECORD, str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode and "ptrace" in done.stderr:
        pytest.skip("strace is not permitted here")
    recorded = done.stdout.splitlines()
    seen = []
    for line in trace.read_text().splitlines():
        call = re.match(r"\d+ +(\w+)\((.*)", line)
        if call is None or f"{folder}" not in call[2] or f"{folder}.start" in call[2]:
            continue
        name, arguments = call.groups()
        path = re.search(rf"[<\"]{re.escape(str(folder))}/?([\w.]*)", arguments)
        if name == "fsync":
            seen.append("sync folder ")
        elif name.startswith("rename"):
            seen.append(f"rename {path[1] if path else ''}")
        else:
            seen.append(f"{_CALLS.get(name, name)} {path[1] if path else ''}")
    assert len(recorded) > 100
    assert seen[-len(recorded) :] == recorded


def test_damaged_bytes_and_cut_files_cost_the_touched_slot_or_are_refused(tmp_path: Path) -> None:
    report = run_sweep(tmp_path / "me.store", stride=500)
    assert report.wrong == []
    assert report.missing > 100  # bits flipped in the five filled slots
    assert report.refused > 100
