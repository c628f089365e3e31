"""DatastoreReader: the half of a datastore that only reads, beside writers in this and other processes.

Rows are read from a map that another process may be writing to. Nothing is locked for that: after reading,
`overwritten` tells whether a writer has announced a change of one of the rows, and the reader looks again.
"""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from edge_sdk.datastore.manifest import Manifest
from edge_sdk.datastore.slots import VALID
from edge_sdk.datastore.storage import EXCLUSIVE, LOCK
from edge_sdk.datastore.table import SlotTable
from edge_sdk.datastore.view import BLOCK_BYTES, View
from edge_sdk.errors import DatastoreError, DatastoreLockedError


class Block(NamedTuple):
    """Some entries of a store, read in bulk."""

    slots: np.ndarray
    """int64 (m,), ascending."""

    sequences: np.ndarray
    """uint64 (m,)."""

    labels: np.ndarray
    """int32 (m,): class ids."""

    embeddings: np.ndarray
    """float32 (m, dim), dequantised."""

    probabilities: np.ndarray
    """float32 (m, n_classes): what the global model said."""


class DatastoreReader:
    """What can be asked of an open datastore.

    Safe to share between threads: every method takes `lock`, a reentrant lock, which a caller holds around several
    reads that must agree with each other.
    """

    def __init__(self, view: View, *, lock_wait: float) -> None:
        self.lock = threading.RLock()
        """Held by every method; hold it around several reads that must belong together."""
        self.lock_wait = lock_wait
        """Seconds that a write waits for another process before `DatastoreLockedError`."""
        self.folder = view.storage.folder
        self._view = view
        self._storage = view.storage
        self._slot_bytes = view.layout.n_bytes
        self._depth = 0
        self._is_closed = False

    # What it is

    @property
    def manifest(self) -> Manifest:
        """The settings and durable facts, as of the last `refresh`."""
        return self._view.manifest

    @property
    def dim(self) -> int:
        """Width of an embedding."""
        return self._view.manifest.dim

    @property
    def capacity(self) -> int:
        """The most entries (`concatenate`: before it grows again)."""
        return self._view.manifest.capacity

    @property
    def policy(self) -> str:
        """What happens when it is full."""
        return self._view.manifest.policy

    @property
    def dtype(self) -> str:
        """Of the stored embeddings."""
        return self._view.manifest.dtype

    @property
    def classes(self) -> tuple[str, ...]:
        """The model's classes, then new ones."""
        return self._view.manifest.classes

    @property
    def n_model_classes(self) -> int:
        """How many of `classes` the model knows."""
        return self._view.manifest.n_model_classes

    @property
    def interpolation(self) -> dict[str, Any] | None:
        """λ_m, kernel, bandwidth and k with how they were chosen; None: never chosen."""
        chosen = self._view.manifest.interpolation
        return None if chosen is None else dict(chosen)

    @property
    def read_only(self) -> bool:
        """Whether this object refuses to write."""
        return not self._storage.writable

    @property
    def damaged(self) -> int:
        """Slots that are neither empty nor a whole entry; they are reused first."""
        return int(np.count_nonzero(self._view.table.damaged))

    @property
    def table(self) -> SlotTable:
        """Sequences, labels and sources by slot, as of the last `refresh`."""
        return self._view.table

    @property
    def version(self) -> int:
        """Grows with every slot change that this process has made or seen."""
        return self._view.table.version

    @property
    def keys(self) -> np.ndarray:
        """(capacity,) structured: the slots, mapped read-only. After reading rows, ask `overwritten`."""
        return self._view.keys

    def __len__(self) -> int:
        return self._view.table.filled

    # Reading

    def refresh(self) -> bool:
        """Notice what other processes wrote since the last call: entries, classes, interpolation, capacity.

        Returns:
            Whether anything changed. (What other threads did through this object is in `version` at once.)
        """
        if self._view.is_quiet():
            return False
        with self.lock:
            self._check_open()
            return self._view.refresh()

    def changed_slots(self, since_version: int) -> np.ndarray | None:
        """int32 (m,): slots that changed after that `version`; None: too many, look at all of them."""
        with self.lock:
            return self._view.table.changed_since(since_version)

    def overwritten(self, slots: np.ndarray) -> bool:
        """Whether another process may have changed one of `slots` since the last `refresh` (60 ns when nothing
        happened).

        For readers of `keys` and `embeddings`: read, then ask; on True, `refresh` and read again.
        """
        self._check_open()
        return self._view.overwritten(np.asarray(slots))

    @contextmanager
    def still(self) -> Iterator[None]:
        """Keep writers of all processes out, for a reader that was overtaken again and again; up to date inside.

        Raises:
            DatastoreLockedError: a writer held the lock for longer than `lock_wait`.
        """
        with self.lock:
            if self._view.notices is None:  # a read-only folder without a lock file: nobody can be kept out
                self._view.refresh()
                yield
                return
            self._lock_files()
            try:
                self._catch_up()
                yield
            finally:
                self._unlock_files()

    def embeddings(self, slots: np.ndarray) -> np.ndarray:
        """float32 (m, dim): a few entries' embeddings, from the map."""
        return self._view.layout.embeddings(self._view.keys[slots])

    def probabilities(self, slots: np.ndarray) -> np.ndarray:
        """float32 (m, n_classes): what the global model said about entries; 0 for classes it does not know."""
        return self._view.layout.probabilities(self._view.keys[slots], len(self.classes))

    def read_blocks(self, slots: np.ndarray | None = None, *, max_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
        """All entries, or those in `slots`, in bounded blocks that are read by `pread` and checked.

        An entry that changes while this runs is left out; `refresh` tells.

        Args:
            slots: int (m,), any order; None for all.
            max_bytes: most bytes of slots in memory at once (one slot at least).
        """
        rows = max(1, min(max_bytes, BLOCK_BYTES) // self._slot_bytes)
        wanted = np.flatnonzero(self.table.sequences) if slots is None else np.unique(slots)
        while len(wanted):
            first = int(wanted[0])
            part = wanted[: np.searchsorted(wanted, first + rows)]
            wanted = wanted[len(part) :]
            with self.lock:
                self._check_open()
                ((_, block, states),) = self._view.checked_blocks(first, int(part[-1]) - first + 1)
                at = part - first
                keep = (states[at] == VALID) & (block["sequence"][at] == self.table.sequences[part])
            part, block = part[keep], block[at[keep]]
            layout = self._view.layout
            yield Block(
                slots=part.astype(np.int64),
                sequences=block["sequence"],
                labels=block["label"],
                embeddings=layout.embeddings(block),
                probabilities=layout.probabilities(block, len(self.classes)),
            )

    def find_sources(self, sources: Sequence[int] | np.ndarray) -> np.ndarray:
        """int64 (m,): for each source the slot of an entry that came from it, -1 for none (and for source 0)."""
        with self.lock:
            return self._view.table.find_sources(sources)

    # The lock between processes

    def _catch_up(self) -> None:
        """`refresh` for a caller that holds the lock, so that what is in a slot now is final."""
        if self._view.has_news():
            self._view.refresh(locked=True)

    def _check_open(self) -> None:
        if self._is_closed:
            raise DatastoreError(f"{self.folder}: the datastore was closed")

    def _lock_files(self) -> None:
        """Take the lock between processes; the caller holds `lock`. May be nested."""
        self._check_open()
        if self._depth == 0:
            view, storage = self._view, self._storage
            if view.process != os.getpid():  # after a fork the lock would be shared with the parent
                storage.reopen(LOCK)
                view.take_process()
            if time.monotonic() >= view.next_look:
                view.look_at_files()
            if not (storage.try_lock(EXCLUSIVE) or storage.lock(self.lock_wait)):
                raise DatastoreLockedError(self._locked_message())
        self._depth += 1

    def _locked_message(self) -> str:
        notices = self._view.notices
        holder = self._storage.holder() or (notices.last_writer() if notices else None)
        who = f"process {holder}" if holder else "another process"
        return f"{self.folder}: {who} is writing, waited {self.lock_wait:g} s; try again, or allow a longer wait"

    def _unlock_files(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._storage.unlock()
