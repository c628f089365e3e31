"""Soak: a million unsynced learns through a small window, past sequence 2^32, beside a reader.

    python -m edge_tools.benchmarks.soak        the last line is one JSON object

The file must not grow by a byte and private memory by no more than 2 MB; exit code 3 when they do.
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.datastore.manifest import Manifest
from edge_sdk.model import InputSpec, ModelMetadata
from edge_tools.output import say

CAPACITY = 500
CLASSES = ("run", "sit", "walk")
PLANTED = 2**32 - 6
"""Highest sequence of the new store: the sixth entry crosses 32 bits."""

MOST_PRIVATE_GROWTH = 2 << 20
BUDGET_EXIT = 3
_WARM_UP = 5000
_READ_EVERY = 1000


@dataclass(frozen=True)
class SoakReport:
    """What the learns did to file and memory."""

    learns: int
    learns_a_second: int
    newest: int
    wrong: int
    """Entries at the end, or seen by the reader, that are not what was learnt."""

    file_growth_bytes: int
    disk_growth_bytes: int
    """Of the whole folder, by allocated blocks."""

    private_growth_bytes: int
    """Of anonymous memory, after the first 5 000 learns."""


def run_soak(folder: Path, n_learns: int, *, dim: int = 128) -> SoakReport:
    """Learn `n_learns` entries one by one into a new store at `folder`."""
    model = ModelMetadata(CLASSES, InputSpec("input", (dim,)), dim, fingerprint="5" * 64, graph_crc32=0)
    Datastore.create(folder, model=model, capacity=CAPACITY).close()
    manifest = folder / "manifest.json"
    planted = replace(Manifest.from_json(manifest.read_bytes(), source=str(manifest)), highest_sequence=PLANTED)
    manifest.write_text(planted.to_json(), encoding="utf-8")
    file_size, disk = (folder / "entries.npy").stat().st_size, _allocated(folder)
    private = wrong = 0
    even = np.full((1, 3), 1 / 3, np.float32)
    embedding = np.zeros((1, dim), np.float32)
    started = time.perf_counter()
    with Datastore.open(folder) as store, Datastore.open(folder, read_only=True) as reader:
        for number in range(n_learns):
            embedding[0, :2] = number % 2048, number // 2048 % 2048  # whole numbers that float16 holds exactly
            store.add(embedding, [CLASSES[number % 3]], even, sync=False)
            if number == _WARM_UP:
                private = private_bytes()
            if number % _READ_EVERY == 0:
                reader.refresh()
                wrong += _wrong_entries(reader)
        seconds = time.perf_counter() - started
        grown = private_bytes() - private if n_learns > _WARM_UP else 0
        wrong += _wrong_entries(store) + abs(len(store) - min(CAPACITY, n_learns))
        newest = store.table.newest
    return SoakReport(
        learns=n_learns,
        learns_a_second=round(n_learns / seconds),
        newest=newest,
        wrong=wrong + int(newest != PLANTED + n_learns),
        file_growth_bytes=(folder / "entries.npy").stat().st_size - file_size,
        disk_growth_bytes=_allocated(folder) - disk,
        private_growth_bytes=grown,
    )


def _wrong_entries(store: Datastore) -> int:
    """Entries whose content or label is not that of their sequence, or that are out of order."""
    order = store.table.order
    numbers = store.table.sequences[order].astype(np.int64) - PLANTED - 1
    keys = store.embeddings(order)
    expected = np.stack((numbers % 2048, numbers // 2048 % 2048), axis=1)
    right = (keys[:, :2] == expected).all(axis=1) & (store.table.labels[order] == numbers % 3)
    return int((~right).sum() + (np.diff(numbers) != 1).sum())


def private_bytes() -> int:
    """Anonymous memory of this process: what no file and no other process stands for."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) * 1024


def _allocated(folder: Path) -> int:
    """Bytes that the folder's files take on disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir())


def main() -> int:
    """Soak and report."""
    parser = argparse.ArgumentParser(prog="python -m edge_tools.benchmarks.soak", description=__doc__)
    parser.add_argument("--learns", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="on the disk to use (default: the system's folder for such)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="edge-sdk-soak-") as name:
        report = run_soak(Path(name) / "soak.store", options.learns)
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    grows = report.file_growth_bytes or report.private_growth_bytes > MOST_PRIVATE_GROWTH
    if grows or report.wrong:
        say("the budget was not met")
        return BUDGET_EXIT
    return 0


if __name__ == "__main__":
    sys.exit(main())
