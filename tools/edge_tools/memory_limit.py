"""Running a program inside a memory limit: a memory cgroup where this user may make one, of version 2 or 1.

A cgroup counts what a small board's RAM holds, page cache included, and kills what does not fit. Where none can be made
the program runs without a limit, and the result says so: its own peak (VmHWM) is measured in every case.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_V2, _V1 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")


@dataclass(frozen=True)
class Limited:
    """What became of the program."""

    returncode: int
    stdout: str
    stderr: str
    limit: str
    """"memory cgroup v2", "memory cgroup v1" or "none: ..."."""

    most_charged: int | None
    """The most bytes that the cgroup held, page cache included; None without one."""


def run_limited(command: Sequence[str], limit: int) -> Limited:
    """Run `command` with at most `limit` bytes of memory, swap included.

    A program that the kernel killed for want of memory has the return code -9.
    """
    with _cgroup(limit) as (group, kind):
        finished = subprocess.run([*_entering(group), *command], capture_output=True, text=True, check=False)
        return Limited(finished.returncode, finished.stdout, finished.stderr, kind, _most_charged(group))


def _entering(group: Path | None) -> list[str]:
    """A shell that moves into the cgroup and then becomes the program: nothing of it is counted elsewhere."""
    if group is None:
        return []
    return ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")]


@contextmanager
def _cgroup(limit: int) -> Iterator[tuple[Path | None, str]]:
    """A new cgroup with this limit, removed at the end; or None and why."""
    for parent, kind, files in (
        (_own_v2(), "memory cgroup v2", {"memory.max": limit, "memory.swap.max": 0}),
        (_V1, "memory cgroup v1", {"memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes": limit}),
    ):
        group = parent / f"edge-sdk-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            for name, value in files.items():
                if (group / name).exists():
                    (group / name).write_text(str(value))
                elif name in ("memory.max", "memory.limit_in_bytes"):
                    raise FileNotFoundError(name)
        except OSError:
            group.rmdir()
            continue
        try:
            yield group, kind
        finally:
            group.rmdir()
        return
    yield None, "none: this user may make no memory cgroup here"


def _own_v2() -> Path:
    """The version 2 cgroup of this process, whose children it may make where it has been given that right."""
    for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        number, _, path = line.split(":", 2)
        if number == "0":
            return _V2 / path.lstrip("/")
    return _V2


def _most_charged(group: Path | None) -> int | None:
    if group is None:
        return None
    for name in ("memory.peak", "memory.max_usage_in_bytes"):
        if (group / name).exists():
            return int((group / name).read_text())
    return None
