"""The machine: processor, word size, C library, memory, power; and whether the installed wheels were made for it."""

import os
import platform
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from edge_tools.doctor.finding import Finding, Verdict
from edge_tools.doctor.libraries import version, wheel_tags

_ALIASES = {"arm64": "aarch64", "amd64": "x86_64"}
_THROTTLED = Path("/sys/devices/platform/soc/soc:firmware/get_throttled")  # Raspberry Pi
_LEAST_MEMORY = 96 << 20
_OLDEST_PYTHON = (3, 11)
_OLDEST_GLIBC = (2, 28)  # of onnxruntime's aarch64 wheels, and of its newest x86-64 ones
_X86_FEATURES = ("sse4_2", "avx")
_ARM_FEATURES = ("asimd",)


@dataclass(frozen=True)
class Machine:
    """What a check needs to know; `here` asks the system, tests say it."""

    architecture: str
    """As uname says it: "aarch64", "armv7l", "x86_64"."""

    pointer_bits: int
    """Of this Python: 32 on a 64-bit kernel with a 32-bit system."""

    python: tuple[int, int]
    libc: str
    """"glibc 2.36", or "" where it is another."""

    features: frozenset[str]
    """Of the processor, from /proc/cpuinfo; empty where that does not tell."""

    available: int
    """Bytes that can still be had, the cgroup's limit included."""

    throttled: int | None = None
    """The Raspberry Pi firmware's flags; None elsewhere."""

    wheels: dict[str, list[str]] = field(default_factory=dict)
    """Platforms that the installed numpy and onnxruntime were built for."""

    onnxruntime: str | None = None
    """Its installed version."""

    @classmethod
    def here(cls) -> "Machine":
        """This machine."""
        name, number = platform.libc_ver()
        return cls(
            architecture=platform.machine(),
            pointer_bits=8 * struct.calcsize("P"),
            python=sys.version_info[:2],
            libc=f"{name} {number}".strip(),
            features=_features(),
            available=_available_memory(),
            throttled=int(_THROTTLED.read_text(), 16) if _THROTTLED.exists() else None,
            wheels={name: wheel_tags(name) for name in ("numpy", "onnxruntime")},
            onnxruntime=version("onnxruntime"),
        )


def examine_machine(machine: Machine) -> Iterator[Finding]:
    """One finding a property."""
    yield _word_size(machine)
    yield from _interpreter(machine)
    yield from _wheels(machine)
    yield _processor(machine)
    yield _memory(machine)
    if machine.throttled is not None:
        yield _power(machine.throttled)


def _word_size(machine: Machine) -> Finding:
    where = f"{machine.architecture}, {machine.pointer_bits}-bit Python"
    if machine.pointer_bits == 64 and machine.architecture.startswith("armv"):
        machine_word = 32
    else:
        machine_word = machine.pointer_bits
    if machine_word == 64:
        return Finding("word size", Verdict.OK, where)
    return Finding(
        "word size",
        Verdict.PROBLEM,
        f"{where}: there is no onnxruntime for 32-bit systems",
        "install Raspberry Pi OS 64-bit (Raspberry Pi 3, 4, 5 and Zero 2 W run it)",
    )


def _interpreter(machine: Machine) -> Iterator[Finding]:
    python = ".".join(str(number) for number in machine.python)
    if machine.python < _OLDEST_PYTHON:
        advice = "use Raspberry Pi OS of 2023 or newer"
        yield Finding("Python", Verdict.PROBLEM, f"{python}, needs 3.11 or newer", advice)
    else:
        yield Finding("Python", Verdict.OK, python)
    name, _, number = machine.libc.partition(" ")
    if name != "glibc":
        yield Finding(
            "C library",
            Verdict.WARNING,
            f"{machine.libc or 'not glibc'}: onnxruntime has no wheels for it",
            "use a system with glibc (Debian, Raspberry Pi OS), not Alpine",
        )
    elif tuple(int(part) for part in number.split(".")[:2]) < _OLDEST_GLIBC:
        yield Finding("C library", Verdict.PROBLEM, f"{machine.libc}, needs 2.28 or newer", "upgrade the system")
    else:
        yield Finding("C library", Verdict.OK, machine.libc)


def _wheels(machine: Machine) -> Iterator[Finding]:
    architecture = _ALIASES.get(machine.architecture.lower(), machine.architecture)
    for name, tags in machine.wheels.items():
        wrong = [tag for tag in tags if tag != "any" and not tag.endswith(architecture)]
        if tags and len(wrong) == len(tags):
            yield Finding(
                f"wheel of {name}",
                Verdict.PROBLEM,
                f"built for {', '.join(tags)}, this machine is {architecture}",
                f"pip install --force-reinstall {name}",
            )
        elif tags:
            yield Finding(f"wheel of {name}", Verdict.OK, tags[0])
    if machine.onnxruntime is not None and machine.onnxruntime.startswith("1.21."):
        yield Finding(
            "onnxruntime's version",
            Verdict.PROBLEM if architecture == "aarch64" else Verdict.WARNING,
            f"{machine.onnxruntime} dies with an illegal instruction on a Raspberry Pi 4",
            "pip install 'onnxruntime!=1.21.*'",
        )


def _processor(machine: Machine) -> Finding:
    wanted = _X86_FEATURES if machine.architecture == "x86_64" else _ARM_FEATURES
    if not machine.features:
        return Finding("processor", Verdict.SKIPPED, "/proc/cpuinfo does not say what it can do")
    missing = [name for name in wanted if name not in machine.features]
    if missing:
        return Finding(
            "processor",
            Verdict.WARNING,
            f"has no {', '.join(missing)}: wheels may be built with it",
            "look at the libraries below; older versions of them may run",
        )
    return Finding("processor", Verdict.OK, f"has {', '.join(wanted)}")


def _memory(machine: Machine) -> Finding:
    megabytes = f"{machine.available / (1 << 20):.0f} MB available"
    if machine.available < _LEAST_MEMORY:
        return Finding(
            "memory",
            Verdict.WARNING,
            f"{megabytes}; the watch example needs 80, MobileNetV2 at 224 needs 128",
            "stop other programs, or measure with edge-sdk profile --budget-ram",
        )
    return Finding("memory", Verdict.OK, megabytes)


def _power(flags: int) -> Finding:
    """Bits 0-3: now; bits 16-19: since the start (under-voltage, frequency cap, throttling, soft temperature limit)."""
    if flags & 0x1 or flags & 0x10000:
        return Finding(
            "power",
            Verdict.WARNING,
            "under-voltage " + ("now" if flags & 0x1 else "since the start"),
            "use the official power supply: power cuts cost entries, brown-outs cost cards",
        )
    if flags & 0xE:
        return Finding("power", Verdict.WARNING, "slowed down by heat or power", "cool the board; measure again")
    return Finding("power", Verdict.OK, "never throttled" if not flags else "throttled earlier")


def _features() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    words: set[str] = set()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in ("flags", "features"):
            words.update(value.split())
    return frozenset(words)


def _available_memory() -> int:
    """The least of what the system and the cgroup leave."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    except OSError:
        pass  # no /proc: the free pages are all we know
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            available = min(available, int(Path(limit).read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue  # not there, or "max"
    return available
