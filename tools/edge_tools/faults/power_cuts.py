"""Power cuts: what a store did to its files is recorded, and replayed up to a random moment without what was not
synced.

What the replay assumes of a disk, which is less than any of them gives:
- a sector of 512 bytes is written whole or not at all;
- after a write and before the next sync of its file, each sector holds the old bytes or any of the versions written
since, every
  sector on its own, so that writes are dropped, torn and reordered;
- files become longer or shorter, and names change, in the order in which that was asked for, but any number of the
latest such
  changes may be missing until a sync of the file (its length) or of the folder (its names).
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from edge_sdk.datastore import DTYPES as DTYPE_CODES
from edge_sdk.datastore import Datastore
from edge_sdk.datastore.kept_inputs import INPUTS
from edge_sdk.datastore.storage import ENTRIES, SPARE, Storage
from edge_sdk.errors import EdgeSDKError
from edge_tools.faults.oracle import DTYPES, MODEL, POLICIES, Oracle, add_steps, embeddings_of, wrong_entries
from edge_tools.faults.workload import CAPACITY, Operation, operations

SECTOR = 512
OPERATIONS_A_STORE = 40


@dataclass(frozen=True)
class Event:
    """One thing that a store asked of the system, or (kind "start" and "done") an operation that began or returned."""

    kind: str
    name: str = ""
    offset: int = 0
    """Where a write goes; the size that `allocate` and `cut` ask for."""

    data: bytes = b""
    other: str = ""
    """The new name of a rename."""

    operation: Operation | None = None


class RecordingStorage(Storage):
    """A storage that notes down what it does."""

    def __init__(self, folder: Path, *, writable: bool) -> None:
        super().__init__(folder, writable=writable)
        self.events: list[Event] = []

    def write(self, name: str, data: bytes | bytearray | memoryview, offset: int) -> None:
        """As the real one."""
        self.events.append(Event("write", name, offset, bytes(data)))
        super().write(name, data, offset)

    def sync(self, name: str) -> None:
        """As the real one."""
        super().sync(name)
        self.events.append(Event("sync", name))

    def allocate(self, name: str, size: int) -> None:
        """As the real one."""
        self.events.append(Event("allocate", name, size))
        super().allocate(name, size)

    def create(self, name: str) -> None:
        """As the real one."""
        self.events.append(Event("create", name))
        super().create(name)

    def cut(self, name: str, size: int) -> None:
        """As the real one."""
        self.events.append(Event("cut", name, size))
        super().cut(name, size)

    def rename(self, old: str, new: str) -> None:
        """As the real one."""
        self.events.append(Event("rename", old, other=new))
        super().rename(old, new)

    def remove(self, name: str) -> None:
        """As the real one."""
        self.events.append(Event("remove", name))
        super().remove(name)

    def sync_folder(self) -> None:
        """As the real one."""
        super().sync_folder()
        self.events.append(Event("sync folder"))


class WithoutSync(RecordingStorage):
    """A storage whose files are never synced: the harness must find the losses."""

    def sync(self, name: str) -> None:
        """Nothing."""


class WithoutEntriesSync(RecordingStorage):
    """A storage whose entries are never synced."""

    def sync(self, name: str) -> None:
        """As the real one, but for the entries."""
        if name != ENTRIES:
            super().sync(name)


class WithoutInputsSync(RecordingStorage):
    """A storage whose kept inputs are never synced."""

    def sync(self, name: str) -> None:
        """As the real one, but for the kept inputs."""
        if name != INPUTS:
            super().sync(name)


class WithoutManifestSync(RecordingStorage):
    """A storage that renames the next manifest before it is on the medium."""

    def sync(self, name: str) -> None:
        """As the real one, but for the next manifest."""
        if name != SPARE:
            super().sync(name)


class WithoutFolderSync(RecordingStorage):
    """A storage whose renames are never synced."""

    def sync_folder(self) -> None:
        """Nothing."""


MUTATIONS: tuple[type[RecordingStorage], ...] = (
    WithoutSync,
    WithoutEntriesSync,
    WithoutInputsSync,
    WithoutManifestSync,
    WithoutFolderSync,
)
"""Builds with a sync left out; the power cuts must find what each of them loses."""


@dataclass
class _File:
    """One file of the replayed disk."""

    durable: bytearray = field(default_factory=bytearray)
    writes: list[tuple[int, bytes]] = field(default_factory=list)
    """Since the last sync."""

    sizes: list[int] = field(default_factory=list)
    """Asked for since the last sync, in order."""

    size: int = 0
    """As the running system sees it."""

    def settle(self) -> None:
        """Everything is on the medium now."""
        self.durable = self.survivor(None)
        self.writes.clear()
        self.sizes.clear()

    def survivor(self, choose: random.Random | None) -> bytearray:
        """The bytes after a cut; without `choose`, all of them."""
        sizes = [len(self.durable), *self.sizes]
        size = sizes[-1] if choose is None else choose.choice(sizes)
        content = bytearray(self.durable[:size].ljust(size, b"\0"))
        mood = choose.random() if choose else 0.0  # some cuts keep nearly everything, some nearly nothing
        for offset, data in self.writes:
            for start in range(offset // SECTOR * SECTOR, offset + len(data), SECTOR):
                if choose is None or choose.random() >= mood:
                    first, last = max(start, offset), min(start + SECTOR, offset + len(data), size)
                    if first < last:
                        content[first:last] = data[first - offset : last - offset]
        return content


class Disk:
    """A folder as the medium has it, fed with events."""

    def __init__(self, folder: Path) -> None:
        self.names = {
            path.name: _File(bytearray(path.read_bytes()), size=path.stat().st_size) for path in folder.iterdir()
        }
        self._durable_names = dict(self.names)
        self._renames: list[dict[str, _File]] = []

    def feed(self, event: Event) -> None:
        """The system did this."""
        file = self.names.get(event.name)
        if event.kind == "create" and file is None:
            self.names[event.name] = _File()
            self._note_names()
        elif event.kind == "rename" and file is not None:
            self.names[event.other] = self.names.pop(event.name)
            self._note_names()
        elif event.kind == "remove" and file is not None:
            del self.names[event.name]
            self._note_names()
        elif event.kind == "sync folder":
            self._durable_names = dict(self.names)
            self._renames.clear()
        elif file is not None:
            self._feed_file(file, event)

    @staticmethod
    def _feed_file(file: _File, event: Event) -> None:
        if event.kind == "sync":
            file.settle()
        elif event.kind == "write":
            file.writes.append((event.offset, event.data))
            if event.offset + len(event.data) > file.size:
                file.size = event.offset + len(event.data)
                file.sizes.append(file.size)
        elif event.kind == "cut" or (event.kind == "allocate" and event.offset > file.size):
            file.size = event.offset
            file.sizes.append(file.size)

    def _note_names(self) -> None:
        self._renames.append(dict(self.names))

    def cut(self, folder: Path, choose: random.Random) -> None:
        """Write what survives a power cut now into an empty folder."""
        folder.mkdir()
        names = choose.choice([self._durable_names, *self._renames])
        survivors: dict[int, bytearray] = {}
        for name, file in names.items():
            (folder / name).write_bytes(survivors.setdefault(id(file), file.survivor(choose)))


@dataclass
class PowerCutReport:
    """What the power cuts cost."""

    power_cuts: int = 0
    lost: int = 0
    """Acknowledged entries missing or wrong, and forgotten ones still there."""

    unopenable: int = 0
    damaged: int = 0
    """Slots found torn; each was being written or not yet synced."""

    examples: list[str] = field(default_factory=list)
    """The first losses in words."""


def run_power_cuts(
    folder: Path, n_cuts: int, *, seed: int = 0, storage_class: type[RecordingStorage] = RecordingStorage
) -> PowerCutReport:
    """Record stores of every policy and dtype, and cut the power at random moments of their lives.

    Args:
        folder: where the stores are made; must exist.
        n_cuts: in all.
        seed: of everything.
        storage_class: a mutation of the storage, to see that its losses are found.
    """
    report = PowerCutReport()
    variants = [(policy, dtype) for dtype in DTYPES for policy in POLICIES]
    for number, (policy, dtype) in enumerate(variants):
        share = n_cuts * (number + 1) // len(variants) - n_cuts * number // len(variants)
        if share:
            start, events = record(folder / f"{policy}.{dtype}", policy, dtype, seed + number, storage_class)
            choose = random.Random(seed * 7919 + number)
            for cut in range(share):
                _cut_once(start, events, folder / f"cut.{number}.{cut}", policy, choose, report)
    return report


def record(
    folder: Path, policy: str, dtype: str, seed: int, storage_class: type[RecordingStorage]
) -> tuple[Path, list[Event]]:
    """Run a workload on a new store.

    Returns:
        A copy of the store as it was before, and everything that happened to it.
    """

    class Recorded(Datastore):
        _storage_class = storage_class

    with Datastore.create(
        folder, model=MODEL, capacity=CAPACITY, policy=policy, dtype=dtype, allow_new_classes=True
    ) as new:
        if policy == "fifo":
            new.keep_inputs(1 << 20, shape=MODEL.input.shape, dtype=MODEL.input.dtype)
    start = folder.with_suffix(f"{folder.suffix}.start")
    start.mkdir()
    for path in folder.iterdir():
        (start / path.name).write_bytes(path.read_bytes())
    oracle = Oracle(policy, CAPACITY)
    with Recorded.open(folder) as store:
        events = store._storage.events  # type: ignore[attr-defined]
        for number, operation in enumerate(operations(seed, 1, lambda: oracle.steps, oracle.room)):
            if number == OPERATIONS_A_STORE:
                break
            events.append(Event("start", operation=operation))
            operation.apply(store)
            operation.tell(oracle)
            events.append(Event("done", operation=operation))
    return start, events


def _cut_once(
    start: Path, events: list[Event], folder: Path, policy: str, choose: random.Random, report: PowerCutReport
) -> None:
    """Replay up to a random moment, cut, open, compare."""
    disk = Disk(start)
    oracle = Oracle(policy, CAPACITY)
    promised = _Promise()
    for event in events[: choose.randrange(len(events) + 1)]:
        if event.operation is None:
            disk.feed(event)
        else:
            promised.note(event, oracle)
    disk.cut(folder, choose)
    report.power_cuts += 1
    losses = list(promised.losses(folder))
    report.damaged += promised.damaged
    for loss in losses:
        report.unopenable += loss.startswith("does not open")
        report.lost += not loss.startswith("does not open")
        report.examples = [*report.examples, f"{folder.name}: {loss}"][:10]


class _Promise:
    """What a store has acknowledged, and what it may hold besides."""

    def __init__(self) -> None:
        self.required: set[int] = set()
        self.allowed: set[int] = set()
        self.interpolations: list[dict[str, float] | None] = [None]
        self.forgotten: set[int] = set()
        self.damaged = 0
        self.added = [0]
        self.highest = 0
        """Sequence of the newest durable entry; in these stores an entry's sequence is its step."""

    def note(self, event: Event, oracle: Oracle) -> None:
        """An operation begins or has returned."""
        operation = event.operation
        if operation is None:
            return
        if event.kind == "start":
            future = Oracle(oracle.policy, oracle.capacity, list(oracle.steps))
            operation.tell(future)
            self.required &= set(future.steps)
            if operation.kind in ("add", "unsynced"):
                self.allowed |= set(operation.steps)
                self.added.append(operation.steps[-1])
            if operation.kind == "interpolation":
                self.interpolations.append({"interpolation_weight": operation.steps[0] % 100 / 100})
            if operation.kind == "forget":
                self.interpolations.append(None)
            return
        operation.tell(oracle)
        if operation.kind == "interpolation":
            del self.interpolations[:-1]
        elif operation.kind != "unsynced":
            # A sync is of the file: whatever was written before it is on the medium now.
            self.required = set(oracle.steps)
            self.allowed = set(oracle.steps)
            self.highest = max(self.highest, *self.added)
            if operation.kind == "forget":
                del self.interpolations[:-1]
                self.forgotten |= set(operation.steps)

    def losses(self, folder: Path) -> Iterator[str]:
        """What is wrong with the store that the cut left behind."""
        try:
            store = Datastore.open(folder, model=MODEL)
        except EdgeSDKError as error:
            yield f"does not open: {error}"
            return
        with store:
            self.damaged = store.damaged
            found = set(store.table.sources[store.table.order].tolist())
            yield from wrong_entries(store)
            yield from (f"step {step} is missing" for step in sorted(self.required - found))
            yield from (f"step {step} is there and must not be" for step in sorted(found - self.allowed))
            kept = store.kept_inputs
            if kept is not None:
                yield from (f"the input of step {step} is missing" for step in self.required if kept.find(step) is None)
            if store.interpolation not in self.interpolations:
                yield f"interpolation {store.interpolation}, expected one of {self.interpolations}"
            raw = (folder / ENTRIES).read_bytes()
            stored = embeddings_of(sorted(self.forgotten)).astype(DTYPE_CODES[store.dtype])
            yield from (
                "forgotten bytes are still there" for row in stored if row[1 : 1 + SECTOR // 8].tobytes() in raw
            )
            if store.policy != "fixed" or len(store) < store.capacity:
                (sequence,) = add_steps(store, [self.highest + 10**6], sync=True)
                if sequence <= self.highest:
                    yield f"sequence {sequence} given again, {self.highest} was durable"
