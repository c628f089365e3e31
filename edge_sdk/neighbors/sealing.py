"""Sealing: a run of entries becomes an Annoy file beside the searches, and is opened after it has been checked.

The thread that builds holds Python's interpreter lock for a millisecond at a time while it hands the vectors over,
and not at all while the trees grow. `Datastore.forget` removes every file of the index folder; a marker among them
tells the builder that an entry it has seen may have been forgotten, and then nothing is kept.
"""

import logging
import os
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.neighbors.segment import (
    METRIC,
    DamagedSegmentError,
    Segment,
    annoy_path,
    digest_of,
    encode_header,
    header_path,
    names,
    read_header,
)

logger = logging.getLogger(__name__)

_SEED = 1
_BLOCK_BYTES = 1 << 16
_ADDED_AT_ONCE = 32  # add_item takes 30 µs for 256 values
_PAUSE_S = 0.0005
_COPY_BYTES = 1 << 20


class Forest(Protocol):
    """What we use of annoy.AnnoyIndex."""

    def add_item(self, number: int, vector: Any, /) -> None: ...  # noqa: D102
    def build(self, n_trees: int, n_jobs: int = ...) -> Any: ...  # noqa: D102
    def get_n_items(self) -> int: ...  # noqa: D102
    def get_nns_by_vector(self, vector: Any, n: int, search_k: int = ...) -> list[int]: ...  # noqa: D102
    def load(self, fn: str) -> Any: ...  # noqa: D102
    def save(self, fn: str) -> Any: ...  # noqa: D102
    def set_seed(self, seed: int, /) -> None: ...  # noqa: D102
    def unload(self) -> Any: ...  # noqa: D102


class ForestClass(Protocol):
    """annoy.AnnoyIndex itself."""

    def __call__(self, dim: int, metric: str, /) -> Forest: ...  # noqa: D102


class Sealed:
    """An open segment."""

    _last_number = 0

    def __init__(self, folder: Path, segment: Segment, forest: Forest, file: int) -> None:
        Sealed._last_number += 1
        self.number = Sealed._last_number
        """Tells this segment from all others of the process."""
        self.segment = segment
        self.n_alive = len(segment.sequences)
        """Items that are still entries."""
        self.is_saved = True
        """Whether its files lie in the folder."""
        self._folder = folder
        self._forest = forest
        self._file = file

    def find(self, vector: list[float], k: int, search_k: int, owner: np.ndarray, hidden: int) -> np.ndarray:
        """Slots of the nearest entries that Annoy finds here: at least k, or all.

        Args:
            vector: the query as `Segment.vectors` gives it.
            k: at least 1.
            search_k: nodes to look at.
            owner: int64 (capacity,), by slot, the `number` of the segment that answers for its entry.
            hidden: slot of an entry that is no answer, -1 for none.
        """
        segment = self.segment
        n_items = len(segment.sequences)
        n_wanted = min(k, self.n_alive - int(hidden >= 0 and owner[hidden] == self.number))
        if n_wanted <= 0:
            return np.zeros(0, np.intp)
        n_asked = min(n_items, max(int((k + 4) * n_items / self.n_alive) + 1, search_k // segment.trees))
        while True:
            items = np.array(self._forest.get_nns_by_vector(vector, n_asked, search_k), np.intp)
            slots = segment.slots[items]
            slots = slots[(owner[slots] == self.number) & (slots != hidden)]
            if len(slots) >= n_wanted:
                return np.asarray(slots, np.intp)
            if n_asked == n_items:  # Annoy does not find its own items: take them all
                everything = np.flatnonzero(owner == self.number)
                return np.asarray(everything[everything != hidden], np.intp)
            n_asked, search_k = min(n_items, 4 * n_asked), 4 * search_k

    def save_again(self) -> None:
        """Write the files again, whose names somebody has removed, from the Annoy file that is still open.

        Raises:
            OSError: no room, or the folder cannot be written.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = annoy_path(self._folder, self.segment.name)
        beside = _beside(path)
        with beside.open("wb") as file:
            position = 0
            while block := os.pread(self._file, _COPY_BYTES, position):
                file.write(block)
                position += len(block)
        os.replace(beside, path)
        _write_header(self._folder, self.segment)
        self.is_saved = True

    def close(self) -> None:
        """Unmap the Annoy file."""
        self._forest.unload()
        os.close(self._file)

    def remove_files(self) -> None:
        """Remove the header and the Annoy file from the folder."""
        self.remove_named(self._folder, self.segment.name)

    @staticmethod
    def remove_named(folder: Path, name: str) -> None:
        """Remove a segment's files, the header first."""
        for path in (header_path(folder, name), annoy_path(folder, name)):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                logger.info("%s stays: %s", path, error)


def open_sealed(folder: Path, name: str, forest_class: ForestClass, *, dim: int, fingerprint: str) -> Sealed:
    """Check a segment and map its Annoy file.

    Raises:
        DamagedSegmentError: header or file are not what they must be; nothing was mapped.
    """
    segment = read_header(folder, name, dim=dim, fingerprint=fingerprint)
    path = annoy_path(folder, name)
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise DamagedSegmentError(f"{path}: {error.strerror}") from error
    try:
        is_whole = os.fstat(file).st_size == segment.n_bytes and digest_of(file) == (segment.n_bytes, segment.digest)
        if not is_whole:
            raise DamagedSegmentError(f"{path}: not the {segment.n_bytes} bytes that the header vouches for")
        forest = forest_class(dim, METRIC)
        forest.load(str(path))
        if forest.get_n_items() != len(segment.sequences):
            forest.unload()
            raise DamagedSegmentError(f"{path}: annoy sees {forest.get_n_items()} items of {len(segment.sequences)}")
    except OSError as error:
        os.close(file)
        raise DamagedSegmentError(f"{path}: {error}") from error
    except DamagedSegmentError:
        os.close(file)
        raise
    return Sealed(folder, segment, forest, file)


def clean(datastore: Datastore, folder: Path) -> None:
    """Remove what a builder that died left behind: files beside, markers, Annoy files without a header."""
    if datastore.read_only or not folder.is_dir():
        return
    whole = set(names(folder))
    with datastore.still():  # a header follows its Annoy file while this is held
        for path in folder.iterdir():
            _, _, process = path.name.rpartition(".by-")
            is_left = process.isdigit() and not _is_running(int(process))
            if is_left or (path.suffix == ".ann" and path.stem not in whole):
                path.unlink(missing_ok=True)


@dataclass(frozen=True, eq=False)
class Order:
    """What to build."""

    datastore: Datastore
    folder: Path
    slots: np.ndarray
    """intp (n,), oldest entry first."""

    sequences: np.ndarray
    """uint64 (n,)."""

    trees: int
    center: np.ndarray
    spread: float
    forest_class: ForestClass


class Sealer(threading.Thread):
    """Builds one segment and writes those again that lost their files."""

    def __init__(self, order: Order | None, unsaved: list[Sealed]) -> None:
        super().__init__(name="edge-sdk sealer", daemon=True)
        self._order = order
        self.had_order = order is not None
        """Whether there was a segment to build, and not only files to write again."""
        self._unsaved = unsaved
        self.sealed: Sealed | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        """Leaves `sealed` or `error`, or neither when entries were forgotten meanwhile."""
        try:
            for sealed in self._unsaved:
                sealed.save_again()
            if self._order is not None:
                self.sealed = seal(self._order)
        except Exception as error:  # noqa: BLE001  annoy raises bare Exceptions; the thread's owner reports it
            self.error = error


def seal(order: Order) -> Sealed | None:
    """Build a segment, write it and open it.

    Returns:
        None when the folder's files were removed meanwhile: an entry may have been forgotten.

    Raises:
        OSError: no room, or the folder cannot be written.
        DatastoreLockedError: a writer held the lock for too long.
    """
    order.folder.mkdir(mode=0o700, exist_ok=True)
    marker = order.folder / f"building-{threading.get_native_id()}.by-{os.getpid()}"
    marker.touch()
    try:
        forest = order.forest_class(order.datastore.dim, METRIC)
        forest.set_seed(_SEED)
        name = f"segment-{order.sequences.min():020d}-{order.sequences.max():020d}"
        segment = Segment(
            name,
            order.datastore.dim,
            order.datastore.manifest.fingerprint,
            order.trees,
            _SEED,
            order.center,
            order.spread,
            np.zeros(0, np.uint64),
            np.zeros(0, np.int32),
            0,
            "",
        )
        sequences, slots = _hand_over(order, segment, forest)
        if not len(slots):
            return None
        forest.build(order.trees, 1)  # one thread: the same entries give the same file
        beside = _beside(annoy_path(order.folder, name))
        forest.save(str(beside))
        forest.unload()
        with beside.open("rb") as file:
            n_bytes, digest = digest_of(file.fileno())
        name = f"{name}-{digest[:8]}"
        segment = replace(segment, name=name, sequences=sequences, slots=slots, n_bytes=n_bytes, digest=digest)
        with order.datastore.still():  # no other process forgets between the look at the marker and the last rename
            if not marker.exists() or not beside.exists():
                beside.unlink(missing_ok=True)
                return None
            os.replace(beside, annoy_path(order.folder, name))
            _write_header(order.folder, segment)
        return open_sealed(order.folder, name, order.forest_class, dim=segment.dim, fingerprint=segment.fingerprint)
    finally:
        marker.unlink(missing_ok=True)


def _hand_over(order: Order, segment: Segment, forest: Forest) -> tuple[np.ndarray, np.ndarray]:
    """Give the entries to Annoy that are still there; their sequences and slots in item order."""
    expected = dict(zip(order.slots.tolist(), order.sequences.tolist(), strict=True))
    sequences: list[int] = []
    slots: list[int] = []
    for block in order.datastore.read_blocks(order.slots, max_bytes=_BLOCK_BYTES):
        vectors = segment.vectors(block.embeddings)
        inside = np.abs(vectors).max(axis=1) < 1e15  # Annoy's float32 squares must not overflow
        for row, (slot, sequence) in enumerate(zip(block.slots.tolist(), block.sequences.tolist(), strict=True)):
            if inside[row] and expected[slot] == sequence:
                forest.add_item(len(slots), vectors[row])
                slots.append(slot)
                sequences.append(sequence)
            if row % _ADDED_AT_ONCE == 0:
                time.sleep(_PAUSE_S)  # give the interpreter lock to whoever searches
    return np.array(sequences, np.uint64), np.array(slots, np.int32)


def _write_header(folder: Path, segment: Segment) -> None:
    path = header_path(folder, segment.name)
    beside = _beside(path)
    beside.write_bytes(encode_header(segment))
    os.replace(beside, path)


def _beside(path: Path) -> Path:
    """Where a file is written before it takes its name; tells which process writes it."""
    return path.with_name(f"{path.name}.by-{os.getpid()}")


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
