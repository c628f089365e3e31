"""View: what one process knows of a store on disk, and how it keeps up with the writers of other processes.

A reader never takes the lock in the common case. It acts on notices, which a writer appends before it changes a slot:
a slot that does not yet hold the entry its notice promised is set aside until it does, so half an entry is never
seen. If it never does (the writer was killed), the free lock proves that nobody is writing, and the slot counts as
what it is.
"""

import os
import time
from collections.abc import Iterator
from typing import NoReturn

import numpy as np

from edge_sdk.datastore.manifest import MAX_MANIFEST_BYTES, Manifest
from edge_sdk.datastore.notices import FOLDER_REPLACED, LOCK_BYTES, MAGIC, Notice, Notices
from edge_sdk.datastore.slots import DAMAGED, EMPTY, HEADER_BYTES, VALID
from edge_sdk.datastore.storage import ENTRIES, LOCK, MANIFEST, Storage
from edge_sdk.datastore.table import SlotTable
from edge_sdk.errors import DatastoreError

BLOCK_BYTES = 1 << 20
"""Most bytes of slots read or written at once."""

_LOOK_EVERY_S = 1.0
"""How often a process looks whether the folder's files are still the ones it has open (3 µs)."""


class View:
    """The manifest, the slot table and the mapped entries of one store, as of the last `refresh`.

    Raises:
        DatastoreError: no datastore there, damaged manifest, newer format, foreign or shortened entries file.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.manifest = self._read_manifest()
        self.layout = self.manifest.layout
        self.class_ids = {name: i for i, name in enumerate(self.manifest.classes)}
        self.table = SlotTable(self.manifest.capacity, len(self.manifest.classes))
        self.keys: np.ndarray
        """(capacity,) of `layout.record`: the mapped slots, read-only. Check with `overwritten` after reading."""
        self.notices: Notices | None = None
        self.stale = False
        """Set when a write failed half-way: the next `refresh` reads everything again."""
        self._lost = ""
        """Why this object can never be used again; the message of every later call."""
        self._is_replaced = False
        """Whether it was announced that the same store goes on in another folder at this path."""
        self._pending: dict[int, int] = {}
        self._file_state = (0, 0)
        self.next_look = time.monotonic() + _LOOK_EVERY_S
        self.process = 0
        self._open_files()
        self.read_all()
        if self._pending:
            self._settle(locked=False)
        self._check_header()

    # Opening

    def _read_manifest(self) -> Manifest:
        path = self.storage.folder / MANIFEST
        return Manifest.from_json(self.storage.read_whole(MANIFEST, MAX_MANIFEST_BYTES), source=str(path))

    def _open_files(self) -> None:
        """Map the entries and find the ring of notices, mending the lock file where this process may write."""
        self._map_entries()
        if self.storage.writable:
            self._mend_lock_file()
        has_ring = self.storage.exists(LOCK) and self.storage.size(LOCK) >= LOCK_BYTES
        self.notices = Notices(self.storage.map(LOCK, LOCK_BYTES)) if has_ring else None
        self.take_process()

    def _map_entries(self) -> None:
        """Map the slots that the manifest states, after a look at the file's size (a shorter map would be a SIGBUS)."""
        capacity = self.manifest.capacity
        expected = HEADER_BYTES + capacity * self.layout.n_bytes
        found = self.storage.size(ENTRIES)
        if found < expected:
            path = self.storage.folder / ENTRIES
            raise DatastoreError(
                f"{path}: {found} bytes, expected {expected} for {capacity} slots, so it was cut short; "
                "restore the datastore from its backup: edge-sdk restore BACKUP FOLDER "
                f"(without one, what is left opens after: truncate -s {expected} {path})"
            )
        mapped = self.storage.map(ENTRIES, expected)
        self.keys = np.frombuffer(mapped, self.layout.record, capacity, HEADER_BYTES)

    def _mend_lock_file(self) -> None:
        """Make the lock file whole; its content is never needed, only its length."""
        storage = self.storage
        if not storage.exists(LOCK):
            storage.create(LOCK)
        if storage.size(LOCK) < LOCK_BYTES:
            storage.allocate(LOCK, LOCK_BYTES)
        if storage.read(LOCK, len(MAGIC), 0) != MAGIC:
            storage.write(LOCK, MAGIC, 0)

    def _check_header(self) -> None:
        """Rebuild a damaged `.npy` header from the manifest; refuse a file in which nothing is ours."""
        header = self.layout.header(self.manifest.capacity)
        if self.storage.read(ENTRIES, HEADER_BYTES, 0) == header:
            return
        if not self.table.filled and self.table.damaged.any():
            raise DatastoreError(
                f"{self.storage.folder / ENTRIES}: neither its header nor any slot fits the manifest; "
                "restore the datastore from its backup: edge-sdk restore BACKUP FOLDER"
            )
        if self.storage.writable:
            self.storage.write(ENTRIES, header, 0)
            self.storage.sync(ENTRIES)

    def take_process(self) -> None:
        """Note which process this is; it changes with a fork."""
        self.process = os.getpid()
        if self.notices is not None:
            self.notices.process = self.process

    # Reading slots

    def read_all(self) -> None:
        """Read and check every slot."""
        last = self.notices.catch_up() if self.notices else None
        self.stale = False
        self._pending.clear()
        self._file_state = self.storage.state(ENTRIES)
        capacity = self.manifest.capacity
        sequences, sources = np.zeros(capacity, np.uint64), np.zeros(capacity, np.uint64)
        labels, damaged = np.zeros(capacity, np.int32), np.zeros(capacity, np.bool_)
        for start, block, states in self.checked_blocks(0, capacity):
            part = slice(start, start + len(block))
            valid = states == VALID
            sequences[part] = np.where(valid, block["sequence"], 0)
            sources[part] = np.where(valid, block["source"], 0)
            labels[part] = np.where(valid, block["label"], 0)
            damaged[part] = states == DAMAGED
        self._drop_repeated(sequences, labels, sources, damaged)
        self.table.load(sequences, labels, sources, damaged, len(self.manifest.classes))
        if last is not None:
            self._act_on(last)

    @staticmethod
    def _drop_repeated(sequences: np.ndarray, labels: np.ndarray, sources: np.ndarray, damaged: np.ndarray) -> None:
        """Count a slot whose sequence another slot holds too as damaged (a card that stored a block in two places)."""
        filled = np.flatnonzero(sequences)
        once = filled[np.unique(sequences[filled], return_index=True)[1]]
        if len(once) < len(filled):
            repeated = np.setdiff1d(filled, once)
            sequences[repeated], labels[repeated], sources[repeated], damaged[repeated] = 0, 0, 0, True

    def checked_blocks(self, start: int, count: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Slots `start` to `start + count` by `pread`, at most `BLOCK_BYTES` at once.

        Yields:
            (first slot, (m,) of `layout.record`, int8 (m,) states). What the medium cannot give is damaged.
        """
        rows = max(1, BLOCK_BYTES // self.layout.n_bytes)
        for first in range(start, start + count, rows):
            block, unreadable = self._read_rows(first, min(rows, start + count - first))
            states = self.layout.check(block)
            foreign = block["label"].astype(np.int64).view(np.uint64) >= len(self.manifest.classes)
            states[(states == VALID) & foreign] = DAMAGED
            states[unreadable] = DAMAGED
            yield first, block, states

    def _read_rows(self, first: int, count: int) -> tuple[np.ndarray, list[int]]:
        """Slots as they are, and which of them the medium refused."""
        size = self.layout.n_bytes
        try:
            data = self.storage.read(ENTRIES, count * size, HEADER_BYTES + first * size)
            if len(data) == count * size:
                return np.frombuffer(data, self.layout.record), []
        except OSError:
            pass  # a bad spot of the card: find out below which slots it costs
        block, unreadable = np.zeros(count, self.layout.record), []
        for i in range(count):
            try:
                data = self.storage.read(ENTRIES, size, HEADER_BYTES + (first + i) * size)
                block[i] = np.frombuffer(data, self.layout.record)[0]
            except (OSError, ValueError, IndexError):
                unreadable.append(i)
        return block, unreadable

    def release(self) -> None:
        """Let go of the maps (each holds a descriptor of its file); nothing can be read afterwards."""
        self.keys = np.zeros(0, self.layout.record)
        self.notices = None

    # Keeping up

    def refresh(self, *, locked: bool = False) -> bool:
        """Act on what other processes wrote.

        Args:
            locked: the caller holds the write lock, so that what is in a slot now is final.

        Returns:
            Whether anything changed.

        Raises:
            DatastoreError: the folder now holds another store, or its files are gone.
        """
        before = self.table.version
        manifest = self.manifest
        if not locked:
            self.look_at_files()
        if self.notices is None:
            if self.storage.state(ENTRIES) != self._file_state:
                self._reload_manifest()
                self.read_all()
        elif self.stale:
            self._reload_manifest()
            self.read_all()
        elif not self.notices.quiet():
            unseen = self.notices.unseen()
            if unseen is None:
                self._reload_manifest()
                self.read_all()
            else:
                for notice in unseen:
                    self.notices.advance(notice.number)
                    self._act_on(notice)
        if self._is_replaced:
            self._go_on_elsewhere(locked)
        if self._pending:
            self._settle(locked)
        return self.table.version != before or self.manifest is not manifest

    def is_quiet(self) -> bool:
        """Whether `refresh` has nothing to do (0.3 µs; may be wrong for a second when files were replaced)."""
        return not self.has_news() and time.monotonic() < self.next_look

    def has_news(self) -> bool:
        """Whether another process wrote, or something that was written must be looked at again."""
        notices = self.notices
        return notices is None or not notices.quiet() or self.stale or bool(self._pending)

    def _act_on(self, notice: Notice) -> None:
        """Read again what a notice names."""
        if notice.length == 0:
            if notice.start == FOLDER_REPLACED:
                self._is_replaced = True
            else:
                self._reload_manifest()
            return
        if notice.start + notice.length > self.manifest.capacity:
            self._reload_manifest()
        count = min(notice.length, self.manifest.capacity - notice.start)
        for first, block, states in self.checked_blocks(notice.start, max(0, count)):
            for i in range(len(block)):
                promised = notice.first_sequence and notice.first_sequence + first + i - notice.start
                self._take_slot(first + i, block[i], int(states[i]), promised)

    def _take_slot(self, slot: int, row: np.void, state: int, promised: int) -> None:
        """Take a slot into the table if it holds what was promised (or newer); set it aside if not."""
        sequence = int(row["sequence"])
        if promised and state == VALID and sequence >= promised:
            self._pending.pop(slot, None)
            if int(self.table.sequences[slot]) != sequence:
                self.table.put(slot, sequence, int(row["label"]), int(row["source"]))
        elif not promised and state == EMPTY:
            self._pending.pop(slot, None)
            self.table.clear(slot, damaged=False)
        else:
            self._pending[slot] = promised
            self.table.clear(slot, damaged=False)

    def _settle(self, locked: bool) -> None:
        """Look again at the slots that were set aside."""
        for slot, promised in list(self._pending.items()):
            for _, block, states in self.checked_blocks(slot, 1):
                self._take_slot(slot, block[0], int(states[0]), promised)
        if not self._pending or not (locked or self.storage.try_lock()):
            return
        try:
            for slot in self._pending:
                for _, block, states in self.checked_blocks(slot, 1):
                    if states[0] == VALID:
                        row = block[0]
                        self.table.put(slot, int(row["sequence"]), int(row["label"]), int(row["source"]))
                    else:
                        self.table.clear(slot, damaged=bool(states[0] == DAMAGED))
            self._pending.clear()
        finally:
            if not locked:
                self.storage.unlock()

    def _reload_manifest(self) -> None:
        """Take over a replaced manifest: new classes, a new interpolation, a larger capacity."""
        manifest = self._read_manifest()
        if manifest == self.manifest:
            return
        self._check_model(manifest)
        grown = manifest.capacity > self.manifest.capacity
        self.manifest = manifest
        self.class_ids = {name: i for i, name in enumerate(manifest.classes)}
        self.table.add_classes(len(manifest.classes))
        if grown:
            self._map_entries()
            self.table.grow(manifest.capacity)

    def _check_model(self, manifest: Manifest) -> None:
        """Raises DatastoreError, from now on always, when these are not the settings of entries like ours."""
        if manifest.fingerprint != self.manifest.fingerprint or manifest.layout != self.layout:
            self._lose("was rebuilt for another model meanwhile; open it again with that model file")

    def take_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest on the medium and here; the caller holds the lock.

        Raises:
            DatastoreError: the system refuses, or the folder holds another store by now, which is left alone.
        """
        if not self.storage.is_current(ENTRIES):
            self.check_announced()
            self._go_on_elsewhere(locked=True)
        self.storage.replace(MANIFEST, manifest.to_json().encode())
        self._reload_manifest()

    def look_at_files(self) -> None:
        """Once a second: look whether the folder's files are still those that are open.

        A writer does this before it takes the lock, because afterwards it would hold the lock of a file that is gone.

        Raises:
            DatastoreError: the store was deleted, moved or replaced. Another one at its path is left alone.
        """
        if self._lost:
            raise DatastoreError(self._lost)
        now = time.monotonic()
        if now < self.next_look:
            return
        self.next_look = now + _LOOK_EVERY_S
        if not self.storage.is_current(ENTRIES):
            self.check_announced()
        elif self.notices is None or self.storage.is_current(LOCK):
            return
        self._open_again()

    def check_announced(self) -> None:
        """For a caller that found the open entries to lie in this folder no more: has the store gone on in another?

        Only `rebuild` and the compression put the same store into another folder, and announce it in the old one's
        lock file. Whatever else lies at the path is another user's, and nothing may be learnt into it unasked. (A
        folder without a lock file is never written from here; what is put into it is what is to be read.)

        Raises:
            DatastoreError: the store was deleted, moved or replaced; from now on always.
        """
        newest = self.notices.newest() if self.notices else None
        announced = newest is not None and newest.length == 0 and newest.start == FOLDER_REPLACED
        if self.notices is not None and not announced:
            self._lose("the datastore was deleted, moved or replaced while it was open; open it again")

    def _go_on_elsewhere(self, locked: bool) -> None:
        """Take up the folder that was put in the place of this one; a writer comes again, for the new one's lock."""
        self.next_look = 0.0
        if locked:
            self._check_model(self._read_manifest())
            raise DatastoreError(f"{self.storage.folder}: was put into a new folder meanwhile; try again")
        self.look_at_files()

    def _open_again(self) -> None:
        """Open the files that lie at the path now."""
        self._is_replaced = False
        self.storage.reopen(ENTRIES)
        self.storage.reopen(LOCK)
        self._reload_manifest()
        self._open_files()
        self.read_all()

    @property
    def is_lost(self) -> bool:
        """Whether the store can never be used again through this object."""
        return bool(self._lost)

    def _lose(self, why: str) -> NoReturn:
        """Raise an error, and again at every later `refresh` and before every write."""
        self._lost = f"{self.storage.folder}: {why}"
        self.next_look = 0.0
        raise DatastoreError(self._lost)

    def overwritten(self, slots: np.ndarray) -> bool:
        """Whether another process may have changed one of `slots` since the last `refresh`.

        To be called after rows were read from `keys`: a notice is written before its slot, so False means that what was
        read is whole.
        """
        notices = self.notices
        if notices is None:
            return self.storage.state(ENTRIES) != self._file_state
        if notices.quiet():
            return False
        unseen = notices.unseen()
        if unseen is None:
            return True
        return any(bool(((slots >= notice.start) & (slots < notice.start + notice.length)).any()) for notice in unseen)
