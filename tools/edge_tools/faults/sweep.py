"""Sweep: every byte of every file of a small store flipped, and every file cut at every length.

Each such store either opens with at most the touched slot missing or is refused by a `DatastoreError`; nothing else
happens.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edge_sdk.datastore import HEADER_BYTES, Datastore
from edge_sdk.datastore.storage import Storage
from edge_sdk.errors import DatastoreError
from edge_sdk.model import InputSpec, ModelMetadata
from edge_tools.faults.oracle import CLASSES, probabilities_of

_DIM = 6
_MODEL = ModelMetadata(CLASSES, InputSpec("input", (_DIM,)), _DIM, fingerprint="b" * 64, graph_crc32=0)
_LABELS = ["run", "sit", "walk", "run", "sit"]


class _QuickStorage(Storage):
    """Never waits for the medium: the damage is the question here, not the power."""

    def sync(self, name: str) -> None:
        """Nothing."""

    def sync_folder(self) -> None:
        """Nothing."""


class _QuickDatastore(Datastore):
    _storage_class = _QuickStorage


@dataclass
class SweepReport:
    """What the damage cost."""

    damages: int = 0
    refused: int = 0
    """Stores that a `DatastoreError` refused."""

    missing: int = 0
    """Stores that opened without the touched entry."""

    wrong: list[str] = field(default_factory=list)
    """Stores in which anything else happened."""


def run_sweep(folder: Path, *, stride: int = 1) -> SweepReport:
    """Damage a store of five entries in six slots.

    Args:
        folder: where it is made; must not exist.
        stride: damage every so-manieth byte only (the slots and the manifest are always swept in full).
    """
    report = SweepReport()
    with _QuickDatastore.create(folder, model=_MODEL, capacity=6) as store:
        values = np.arange(len(_LABELS) * _DIM, dtype=np.float32).reshape(-1, _DIM)
        store.add(values, _LABELS, probabilities_of(list(range(len(_LABELS)))))
        expected = _content(store)
    right = {path: path.read_bytes() for path in sorted(folder.iterdir())}
    for path, data in right.items():
        for number, (what, damaged) in enumerate(_damages(data)):
            at = number if number < len(data) else number - len(data)
            in_full = path.name == "manifest.json" or (path.name == "entries.npy" and at >= HEADER_BYTES)
            if not in_full and number % stride:
                continue
            _put(path, damaged)
            report.damages += 1
            problem = _problem(folder, expected, report)
            if problem:
                report.wrong.append(f"{path.name}, {what}: {problem}")
            for each, content in right.items():
                _put(each, content)
    return report


def _damages(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Every byte flipped (one bit or all of them, in turn), then every length."""
    for at in range(len(data)):
        pattern = 0xFF if at % 2 else 1 << at // 2 % 8
        yield f"byte {at} flipped", data[:at] + bytes([data[at] ^ pattern]) + data[at + 1 :]
    for length in range(len(data)):
        yield f"cut to {length} bytes", data[:length]


def _put(path: Path, data: bytes) -> None:
    """Write a file in place (a file that is truncated to be rewritten is flushed by ext4: 2 ms)."""
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.write(data)
        file.truncate()


def _content(store: Datastore) -> dict[int, tuple[str, bytes, bytes]]:
    """Everything that is known of each entry, by sequence."""
    slots = store.table.order
    labels = [store.classes[label] for label in store.table.labels[slots]]
    parts = zip(labels, store.embeddings(slots), store.probabilities(slots), strict=True)
    entries = [(label, embedding.tobytes(), probability.tobytes()) for label, embedding, probability in parts]
    return dict(zip(store.table.sequences[slots].tolist(), entries, strict=True))


def _problem(folder: Path, expected: dict[int, tuple[str, bytes, bytes]], report: SweepReport) -> str:
    """What went wrong when the damaged store was opened to be read and to be written; empty for nothing."""
    for read_only in (True, False):
        try:
            with _QuickDatastore.open(folder, model=_MODEL, read_only=read_only) as store:
                found = _content(store)
                if not read_only:
                    (sequence,) = store.add(np.ones((1, _DIM), np.float32), ["walk"], probabilities_of([1])).tolist()
                    if sequence <= max(found, default=0):
                        return f"sequence {sequence} given again"
        except DatastoreError:
            report.refused += read_only
            continue
        changed = [sequence for sequence, entry in found.items() if expected.get(sequence) != entry]
        if changed or len(found) < len(expected) - 1:
            return f"entries {sorted(found)}, of which changed {changed}"
        report.missing += read_only and len(found) < len(expected)
    return ""
