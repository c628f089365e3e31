"""What learning one ready embedding costs: against a plain NumPy ring, and against SQLite doing the same.

    python -m edge_tools.benchmarks.learn        the last line is one JSON object

Times are compared in one run, in turns, and the median of the turns' ratios counts, so that a busy machine slows both
sides. Bytes are the kernel's own count for this process (`write_bytes` in /proc/self/io: pages made dirty); a folder
in memory has none.
"""

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_sdk.datastore import Datastore, slot_bytes
from edge_sdk.model import InputSpec, ModelMetadata
from edge_tools.output import print_table

BATCH = 1000
_TURN = 25  # learns in a turn: short enough that a busy machine does not interrupt most of them
_WARM_UP = 25  # turns, which fill the windows


@dataclass(frozen=True)
class Case:
    """What is learnt."""

    dim: int = 1280
    n_classes: int = 18
    capacity: int = 500

    @property
    def model(self) -> ModelMetadata:
        """Metadata of a model that would give such embeddings."""
        names = tuple(f"class {i}" for i in range(self.n_classes))
        return ModelMetadata(names, InputSpec("input", (self.dim,)), self.dim, "0" * 64, graph_crc32=0)


class Entries:
    """Ready embeddings, probabilities and labels."""

    def __init__(self, case: Case, n: int = BATCH) -> None:
        random = np.random.default_rng(0)
        self.embeddings = random.normal(size=(n, case.dim)).astype(np.float32)
        self.probabilities = random.dirichlet(np.ones(case.n_classes), n).astype(np.float32)
        self.class_ids: list[int] = random.integers(0, case.n_classes, n).tolist()
        self.labels = [case.model.classes[class_id] for class_id in self.class_ids]


class BareRing:
    """A ring of embeddings in memory with a label and a checksum each; nothing else of what a slot holds."""

    def __init__(self, case: Case) -> None:
        self.embeddings = np.zeros((case.capacity, case.dim), np.float16)
        self.labels = np.zeros(case.capacity, np.int32)
        self.checksums = np.zeros(case.capacity, np.uint32)
        self.n_added = 0

    def add(self, embedding: np.ndarray, label: int) -> None:
        """Over the oldest."""
        slot = self.n_added % len(self.labels)
        self.embeddings[slot] = embedding
        self.labels[slot] = label
        self.checksums[slot] = zlib.crc32(self.embeddings[slot].data)
        self.n_added += 1


class Ring(BareRing):
    """A ring in memory of all that a slot holds: sequence, source, label, embedding, probabilities, checksum."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.probabilities = np.zeros((case.capacity, case.n_classes), np.float16)
        self.sequences = np.zeros(case.capacity, np.uint64)
        self.sources = np.zeros(case.capacity, np.uint64)

    def add_all(self, embedding: np.ndarray, probabilities: np.ndarray, label: int, source: int) -> None:
        """Over the oldest."""
        slot = self.n_added % len(self.labels)
        self.embeddings[slot] = embedding
        self.probabilities[slot] = probabilities
        self.labels[slot] = label
        self.sources[slot] = source
        self.n_added += 1
        self.sequences[slot] = self.n_added
        checksum = zlib.crc32(self.embeddings[slot].data)
        self.checksums[slot] = zlib.crc32(self.probabilities[slot].data, checksum)


class SqliteWindow:
    """The same window in a table: insert the new row, delete the oldest, one transaction."""

    def __init__(self, path: Path, case: Case, *, synchronous: str) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute(f"PRAGMA synchronous={synchronous}")
        self.connection.execute(
            "CREATE TABLE entry "
            "(sequence INTEGER PRIMARY KEY, source INTEGER, label INTEGER, embedding BLOB, probabilities BLOB)"
        )
        self.capacity = case.capacity
        self.n_added = 0

    def add(self, embeddings: np.ndarray, probabilities: np.ndarray, labels: list[int]) -> None:
        """A batch in one transaction."""
        execute = self.connection.execute
        execute("BEGIN")
        for embedding, row, label in zip(embeddings, probabilities, labels, strict=True):
            self.n_added += 1
            blobs = embedding.astype(np.float16).tobytes(), row.astype(np.float16).tobytes()
            execute("INSERT INTO entry VALUES (?, 0, ?, ?, ?)", (self.n_added, label, *blobs))
            execute("DELETE FROM entry WHERE sequence <= ?", (self.n_added - self.capacity,))
        execute("COMMIT")

    def close(self) -> None:
        """Write the log back into the table."""
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.connection.close()


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m edge_tools.benchmarks.learn", description=__doc__)
    parser.add_argument("--rounds", type=int, default=400, help="turns of each side")
    parser.add_argument("--folder", type=Path, help="on the disk to measure (default: the system's folder for such)")
    options = parser.parse_args()
    case = Case()
    entries = Entries(case)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="edge-sdk-learn-") as name:
        folder = Path(name)
        result: dict[str, float | None] = {
            "dim": case.dim,
            "slot_bytes": slot_bytes(case.dim, case.n_classes),
            "capacity": case.capacity,
        }
        result |= single_unsynced(folder, case, entries, options.rounds)
        result |= written(folder, case, entries)
    print_table("", ("figure", "value"), [(key, value) for key, value in result.items()])
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


def single_unsynced(folder: Path, case: Case, entries: Entries, rounds: int) -> dict[str, float]:
    """Microseconds of one unsynced learn, and its ratio to the others in the same run."""
    bare, ring = BareRing(case), Ring(case)
    with Datastore.create(folder / "single.store", model=case.model, capacity=case.capacity) as store:
        sqlite = SqliteWindow(folder / "single.sqlite", case, synchronous="NORMAL")
        rows = [slice(i, i + 1) for i in range(_TURN)]
        ones = [(entries.embeddings[row], entries.labels[row], entries.probabilities[row]) for row in rows]
        ids = entries.class_ids[:_TURN]

        def ours() -> None:
            for embedding, label, probabilities in ones:
                store.add(embedding, label, probabilities, sync=False)

        def in_bare_ring() -> None:
            for (embedding, _, _), class_id in zip(ones, ids, strict=True):
                bare.add(embedding[0], class_id)

        def in_ring() -> None:
            for (embedding, _, probabilities), class_id in zip(ones, ids, strict=True):
                ring.add_all(embedding[0], probabilities[0], class_id, 0)

        def in_sqlite() -> None:
            for (embedding, _, probabilities), class_id in zip(ones, ids, strict=True):
                sqlite.add(embedding, probabilities, [class_id])

        turns = _take_turns({"ours": ours, "bare": in_bare_ring, "ring": in_ring}, rounds)
        turns |= _take_turns({"sqlite": in_sqlite}, max(1, rounds // 10))
        sqlite.close()

    def ratio(side: str, to: str) -> float:
        return round(statistics.median(a / b for a, b in zip(turns[side], turns[to], strict=False)), 2)

    return {
        "learn_us": round(statistics.median(turns["ours"]), 2),
        "ring_us": round(statistics.median(turns["ring"]), 2),
        "bare_ring_us": round(statistics.median(turns["bare"]), 2),
        "sqlite_normal_us": round(statistics.median(turns["sqlite"]), 2),
        "learn_to_ring": ratio("ours", "ring"),
        "learn_to_bare_ring": ratio("ours", "bare"),
        "sqlite_to_learn": ratio("sqlite", "ours"),
    }


def _take_turns(sides: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Microseconds a learn of each side, in each of so many turns."""
    turns: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(rounds + _WARM_UP):
        for side, learn_all in sides.items():
            microseconds = _seconds(learn_all) / _TURN * 1e6
            if turn >= _WARM_UP:
                turns[side].append(microseconds)
    return turns


def written(folder: Path, case: Case, entries: Entries) -> dict[str, float | None]:
    """Entries a second and bytes written an entry: batches with one sync each, and single entries with a sync each."""
    result: dict[str, float | None] = {}
    slot = slot_bytes(case.dim, case.n_classes)
    with Datastore.create(folder / "batch.store", model=case.model, capacity=10 * BATCH) as store:

        def ours(start: int, stop: int) -> None:
            store.add(entries.embeddings[start:stop], entries.labels[start:stop], entries.probabilities[start:stop])

        _measure("batch", ours, BATCH, 20, slot, result)
        _measure("single_synced", ours, 1, 200, slot, result)
    for name, synchronous, batch, times in (
        ("sqlite_batch", "NORMAL", BATCH, 20),
        ("sqlite_single_full", "FULL", 1, 200),
        ("sqlite_single_normal", "NORMAL", 1, 4000),
    ):
        window = SqliteWindow(
            folder / f"{name}.sqlite", Case(case.dim, case.n_classes, 10 * BATCH), synchronous=synchronous
        )

        def theirs(start: int, stop: int, window: SqliteWindow = window) -> None:
            window.add(entries.embeddings[start:stop], entries.probabilities[start:stop], entries.class_ids[start:stop])

        _measure(name, theirs, batch, times, slot, result)
        window.close()
    return result


def _measure(
    name: str, add: Callable[[int, int], None], batch: int, times: int, slot: int, result: dict[str, float | None]
) -> None:
    """Add `times` batches and note the rate and the bytes written, in slots."""
    before = _write_bytes()
    starts = [number * batch % BATCH for number in range(times)]

    def add_all() -> None:
        for start in starts:
            add(start, start + batch)

    seconds = _seconds(add_all)
    bytes_an_entry = (_write_bytes() - before) / (times * batch)
    result[f"{name}_entries_a_second"] = round(times * batch / seconds)
    result[f"{name}_bytes_to_slot"] = round(bytes_an_entry / slot, 3) if bytes_an_entry else None


def _seconds(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _write_bytes() -> int:
    """Bytes that this process has caused to be written to a medium, by the kernel's count."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("write_bytes:")))


if __name__ == "__main__":
    sys.exit(main())
