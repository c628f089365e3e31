"""The examination: machine, libraries, then the model file and the datastore if they are named."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from edge_tools.doctor.child import run_child
from edge_tools.doctor.finding import Finding, Verdict
from edge_tools.doctor.libraries import examine_libraries
from edge_tools.doctor.machine import Machine, examine_machine

_LEAST_FREE = 16 << 20
_WEAK_FILE_SYSTEMS = {"vfat", "exfat", "msdos", "ntfs", "ntfs3", "fuseblk"}


def examine(model: Path | None = None, datastore: Path | None = None) -> Iterator[Finding]:
    """Everything that can be told, one finding after the other.

    Args:
        model: an exported model file, or None.
        datastore: a datastore's folder, which need not exist yet, or None.
    """
    yield from examine_machine(Machine.here())
    yield from examine_libraries()
    if model is not None:
        yield examine_model(model)
    if datastore is not None:
        yield from examine_datastore(datastore, model)


def examine_model(model: Path) -> Finding:
    """Does this machine compute what the exporting machine computed?"""
    outcome = run_child("-m", "edge_tools.doctor.patients", "model", str(model))
    if outcome.answer is None:
        advice = "try another onnxruntime version, or a float32 model file"
        return Finding("model file", Verdict.PROBLEM, f"running it: {outcome.death}", advice)
    if "error" in outcome.answer:
        return _from_error("model file", str(outcome.answer["error"]))
    if not outcome.answer["checked"]:
        return Finding(
            "model file",
            Verdict.WARNING,
            "runs, but carries no reference answers to compare with",
            "export it again with this version of edge-sdk",
        )
    message, _, advice = str(outcome.answer["message"]).removeprefix("self-check: ").partition("; ")
    return Finding("model file", Verdict.OK if outcome.answer["passed"] else Verdict.PROBLEM, message, advice)


def examine_datastore(datastore: Path, model: Path | None) -> Iterator[Finding]:
    """Is it whole, private, writable, on a file system that keeps promises, with room?"""
    folder = datastore if datastore.is_dir() else datastore.absolute().parent
    if datastore.is_dir():
        yield _contents(datastore, model)
        yield _privacy(datastore)
    else:
        yield Finding("datastore", Verdict.SKIPPED, f"{datastore} does not exist yet", "edge-sdk ingest makes it")
    yield _writability(folder)
    yield _room(folder)
    kind = _file_system(folder)
    if kind in _WEAK_FILE_SYSTEMS:
        yield Finding(
            "file system",
            Verdict.WARNING,
            f"{kind} has neither access rights nor safe replacement of files",
            "keep the datastore on ext4 or f2fs",
        )
    else:
        yield Finding("file system", Verdict.OK, kind or "not known")


def _contents(datastore: Path, model: Path | None) -> Finding:
    names = [str(path) for path in (datastore, model) if path is not None]
    outcome = run_child("-m", "edge_tools.doctor.patients", "datastore", *names)
    if outcome.answer is None:
        advice = "edge-sdk restore the latest backup"
        return Finding("datastore", Verdict.PROBLEM, f"opening it: {outcome.death}", advice)
    answer = outcome.answer
    if "error" in answer:
        return _from_error("datastore", str(answer["error"]))
    filled = f"{answer['entries']} of {answer['capacity']} entries"
    if answer["damaged"]:
        return Finding(
            "datastore",
            Verdict.WARNING,
            f"{filled}, {answer['damaged']} damaged slots (their entries are lost, new ones will take their place)",
            "if the number grows, replace the card",
        )
    return Finding("datastore", Verdict.OK, filled)


def _privacy(datastore: Path) -> Finding:
    mode = stat.S_IMODE(datastore.stat().st_mode)
    if mode & 0o077:
        return Finding(
            "privacy",
            Verdict.WARNING,
            f"others may look into the folder (mode {mode:04o})",
            f"chmod 700 {datastore}",
        )
    return Finding("privacy", Verdict.OK, "the folder is its owner's alone")


def _writability(folder: Path) -> Finding:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0" * 4096)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return Finding(
            "writing",
            Verdict.WARNING,
            f"{folder}: {error.strerror}; the device predicts but does not learn",
            "give the application's user the folder, and mount its file system read-write",
        )
    return Finding("writing", Verdict.OK, f"{folder} can be written and synced")


def _room(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    detail = f"{free / (1 << 20):.0f} MB free"
    if free < _LEAST_FREE:
        return Finding(
            "room", Verdict.WARNING, detail, "make room: learning goes on in a full store, but settings cannot be saved"
        )
    return Finding("room", Verdict.OK, detail)


def _file_system(folder: Path) -> str:
    """The kind of the file system that holds a folder, "" where that cannot be told."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return ""
    inside = [
        (len(where), kind)
        for _, where, kind, *_ in mounts
        if folder.resolve().is_relative_to(where.replace("\\040", " "))
    ]
    return max(inside)[1] if inside else ""


def _from_error(subject: str, message: str) -> Finding:
    """An `EdgeSDKError`'s message is what, then the cure after a semicolon."""
    detail, _, advice = message.rpartition("; ")
    return Finding(subject, Verdict.PROBLEM, detail or message, advice if detail else "")
