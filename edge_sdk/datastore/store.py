"""Datastore: the device's labelled memory, a folder that survives kill -9, power cuts and full disks.

Every change follows one order: check everything, take the lock, tell the readers which slots will change (`notices`),
write the slots, give the lock back, sync. The sync comes last and outside of the lock: another process may see an
entry some milliseconds before it is durable, but `add` returns only when it is.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from edge_sdk.datastore.emptied import FORGOTTEN
from edge_sdk.datastore.folder import build_folder, check_model, no_datastore_message
from edge_sdk.datastore.forgetting import Condition, remove_index
from edge_sdk.datastore.manifest import MAX_CAPACITY, Manifest
from edge_sdk.datastore.policies import check_room, slot_for_one, slots_for_many
from edge_sdk.datastore.slots import (
    HEADER_BYTES,
    LEAST_SQUARE,
    MAX_SEQUENCE,
    MOST_SQUARE,
    ScratchSlot,
    SlotLayout,
    as_bytes,
    check_embeddings,
    check_probabilities,
)
from edge_sdk.datastore.storage import ENTRIES, LOCK, MANIFEST, Storage
from edge_sdk.datastore.view import BLOCK_BYTES, View
from edge_sdk.datastore.writer import DatastoreWriter
from edge_sdk.errors import DatastoreError, InputError
from edge_sdk.labels import normalise_label, unknown_label_message
from edge_sdk.model import ModelMetadata

logger = logging.getLogger(__name__)

DEFAULT_LOCK_WAIT = 10.0
"""Seconds that a writer waits for another one."""


class Datastore(DatastoreWriter):
    """A bounded set of entries on disk; open it with `create` or `open`.

    Safe to share between threads: every method takes `lock`, a reentrant lock, which a caller holds around several
    reads that must agree with each other. Any number of processes may have the same store open.
    """

    _storage_class: type[Storage] = Storage

    def __init__(self, view: View, *, lock_wait: float) -> None:
        super().__init__(view, lock_wait=lock_wait)
        self._scratch = ScratchSlot(view.layout)
        self._least_square = view.layout.dim * LEAST_SQUARE
        self._has_warned_small = False

    # Opening

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        *,
        model: ModelMetadata,
        capacity: int = 1000,
        policy: str = "fifo",
        dtype: str = "float16",
        allow_new_classes: bool = False,
        lock_wait: float = DEFAULT_LOCK_WAIT,
    ) -> Self:
        """Make an empty datastore for one model, with every byte it will ever need already allocated.

        Args:
            folder: where; must not exist, its parent must.
            model: metadata of the model file whose embeddings will be stored.
            capacity: the most entries, >= 1 (`concatenate`: to begin with).
            policy: "fifo", "concatenate", "fixed" or "balanced".
            dtype: of the stored embedding: "float32", "float16" or "int8" (with a scale for each entry).
            allow_new_classes: whether a label that the model does not know gets a class of its own.
            lock_wait: seconds that a write waits for another process.

        Raises:
            ConfigError: a setting is out of range.
            DatastoreError: the folder exists, or there is no room. Nothing is left behind.
        """
        folder = Path(folder)
        manifest = Manifest(
            fingerprint=model.fingerprint,
            dim=model.dim,
            dtype=dtype,
            capacity=capacity,
            policy=policy,
            classes=tuple(model.classes),
            n_model_classes=len(model.classes),
            allow_new_classes=bool(allow_new_classes),
        )
        build_folder(folder, manifest, storage_class=cls._storage_class)
        return cls.open(folder, model=model, lock_wait=lock_wait)

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        *,
        model: ModelMetadata | None = None,
        read_only: bool = False,
        lock_wait: float = DEFAULT_LOCK_WAIT,
    ) -> Self:
        """Open a datastore after whatever happened to it.

        Every slot is read and checked; a damaged slot costs its own entry and is counted in `damaged`.

        Args:
            folder: a datastore.
            model: when given, the store must have been made with it.
            read_only: never write. A folder that is not writable is opened so by itself.
            lock_wait: seconds that a write waits for another process.

        Raises:
            DatastoreError: no datastore there, damaged beyond its slots, of a newer format, or made with another model.
        """
        folder = Path(folder)
        if not (folder / MANIFEST).is_file():
            raise DatastoreError(no_datastore_message(folder))
        writable = not read_only and os.access(folder, os.W_OK) and os.access(folder / ENTRIES, os.W_OK)
        storage = cls._storage_class(folder, writable=writable)
        try:
            view = View(storage)
            if model is not None:
                check_model(folder, view.manifest, model)
        except BaseException:
            storage.close()
            raise
        return cls(view, lock_wait=lock_wait)

    def close(self) -> None:
        """Sync what was added without a sync, and give the files back. The second time does nothing."""
        with self.lock:
            if self._is_closed:
                return
            try:
                self._end_sync()
                if not self._is_synced and not self._view.is_lost:
                    self.sync()
                self._save_emptied()
            finally:
                self._is_closed = True
                self._kept_inputs = None
                self._view.release()
                self._storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Adding

    def add(
        self,
        embeddings: np.ndarray,
        labels: Sequence[str],
        probabilities: np.ndarray,
        *,
        sources: Sequence[int] | np.ndarray | None = None,
        sync: bool = True,
    ) -> np.ndarray:
        """Store entries; the policy decides what gives way.

        Args:
            embeddings: float32 (n, dim).
            labels: n labels. One that is not in `classes` is refused unless the store allows new classes.
            probabilities: (n, n_model_classes), what the global model said.
            sources: uint64 (n,), digests of the inputs; None or 0: unknown.
            sync: on the medium when this returns. Otherwise after `sync`, or when the system gets to it (about 30 s):
                a power cut until then may cost any of the entries, never others.

        Returns:
            uint64 (n,): their sequences. (In a batch larger than the capacity the first ones are gone again.)

        Raises:
            InputError: wrong shape, not finite, too large for the dtype, unknown label. The store is unchanged.
            DatastoreLockedError: another process kept writing for `lock_wait` seconds. The store is unchanged.
            DatastoreError: read-only, full (`fixed`), no room to grow (the store is unchanged); or the medium failed
                while writing (what was not yet written is lost, `refresh` tells).
        """
        self._check_writable()
        embeddings, probabilities, digests = self._check_entries(embeddings, labels, probabilities, sources)
        n = len(labels)
        if n == 1:
            first = self._add_one(embeddings, labels[0], probabilities, 0 if digests is None else int(digests[0]))
        else:
            first = self._add_many(embeddings, labels, probabilities, digests) if n else 1
        if sync:
            self.sync()
        return np.arange(first, first + n, dtype=np.uint64)

    def _check_entries(
        self,
        embeddings: np.ndarray,
        labels: Sequence[str],
        probabilities: np.ndarray,
        sources: Sequence[int] | np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """The arguments of `add` as arrays of the right shape; raises InputError."""
        layout = self._view.layout
        n = len(labels)
        embeddings, probabilities = np.asarray(embeddings, np.float32), np.asarray(probabilities, np.float32)
        if (
            embeddings.shape != (n, layout.dim)
            or probabilities.shape != (n, layout.n_model_classes)
            or type(labels) is str
        ):
            raise InputError(_shape_message(embeddings, labels, probabilities, layout))
        if n == 1 and self._least_square <= np.vdot(embeddings, embeddings) <= MOST_SQUARE:
            pass  # of that length, no value is too large or too small
        elif not check_embeddings(embeddings, layout) and not self._has_warned_small:
            self._has_warned_small = True
            logger.warning(
                "%s: embeddings below 6e-5 lose bits in float16; a datastore with dtype float32 keeps them", self.folder
            )
        if sources is None:
            return embeddings, probabilities, None
        digests = np.asarray(sources, np.uint64)
        if digests.shape != (n,):
            raise InputError(f"got {digests.size} sources for {n} embeddings")
        return embeddings, probabilities, digests

    def _next_sequence(self, n: int) -> int:
        """The first of `n` sequences that were never given.

        Each damaged slot may have held a newer entry than any that is left, so it counts as one.
        """
        table = self._view.table
        unseen = 0 if table.filled == len(table.sequences) else self.damaged
        first = max(self._view.manifest.highest_sequence, table.newest) + unseen + 1
        if first + n > MAX_SEQUENCE:
            raise DatastoreError(f"{self.folder}: sequences are used up ({first}); start a new datastore")
        return first

    def _class_ids(self, labels: Sequence[str]) -> list[int]:
        """Class ids; new classes are made durable in the manifest first. The caller holds the lock.

        Raises:
            InputError: an unknown label that is not allowed.
        """
        known = self._view.class_ids
        try:
            return [known[label] for label in labels]
        except (KeyError, TypeError):
            names = [normalise_label(label) for label in labels]
        new = list(dict.fromkeys(name for name in names if name not in known))
        manifest = self._view.manifest
        if new and not manifest.allow_new_classes:
            raise InputError(unknown_label_message(new[0], self.classes))
        if new:
            self._put_manifest(replace(manifest, classes=manifest.classes + tuple(new)))
        return [self._view.class_ids[name] for name in names]

    def _add_one(self, embeddings: np.ndarray, label: str, probabilities: np.ndarray, source: int) -> int:
        """Write one entry, whose arrays have one row; returns its sequence.

        The path that an application takes for every example, so it is flat: a call costs 0.1 µs of its 11.
        """
        view, storage, scratch = self._view, self._storage, self._scratch
        with self.lock:
            scratch.fill(embeddings, probabilities)
            self._lock_files()
            try:
                if view.has_news():
                    view.refresh(locked=True)
                table, notices, class_id = view.table, view.notices, view.class_ids.get(label, -1)
                is_full = table.filled == len(table.sequences)
                if is_full and class_id >= 0 and notices is not None and view.manifest.policy == "fifo":
                    newest, highest = table.newest, view.manifest.highest_sequence
                    sequence, slot = (newest if newest > highest else highest) + 1, table.oldest()
                    scratch.stamp(sequence, source, class_id)
                    storage.write(LOCK, notices.next_record(sequence, slot, 1), notices.next_at)
                    notices.advance(notices.seen + 1)
                else:
                    sequence = self._next_sequence(1)
                    slot, class_id = self._place_one(label)
                    scratch.stamp(sequence, source, class_id)
                    self._announce(sequence, slot, 1)
                self._is_synced = False
                try:
                    storage.write(ENTRIES, scratch.buffer, HEADER_BYTES + slot * self._slot_bytes)
                except DatastoreError:
                    view.stale = True
                    raise
                evicted = table.put(slot, sequence, class_id, source)
                if evicted >= 0 and not table.counts[evicted]:
                    self._warn_emptied([evicted])
            finally:
                self._unlock_files()
        return sequence

    def _place_one(self, label: str) -> tuple[int, int]:
        """The slot and the class id of one new entry, after what they need was made durable."""
        table = self._view.table
        check_room(table, 1, policy=self.policy, where=self.folder)
        (class_id,) = self._class_ids([label])
        if self.policy == "concatenate" and table.filled == table.capacity:
            self._grow(table.filled + 1)
        return slot_for_one(table, class_id, policy=self.policy), class_id

    def _put_scratch(self, slot: int, class_id: int, source: int, sequence: int) -> None:
        """Write the scratch slot, after its notice; the caller holds the lock."""
        table = self._view.table
        self._announce(sequence, slot, 1)
        self._write_slots(slot, self._scratch.buffer)
        evicted = table.put(slot, sequence, class_id, source)
        if evicted >= 0 and not table.counts[evicted]:
            self._warn_emptied([evicted])

    def _add_many(
        self, embeddings: np.ndarray, labels: Sequence[str], probabilities: np.ndarray, digests: np.ndarray | None
    ) -> int:
        """Write a batch in runs of neighbouring slots; returns the first sequence."""
        check_probabilities(probabilities)
        n = len(labels)
        sources = np.zeros(n, np.uint64) if digests is None else digests
        with self.lock:
            self._lock_files()
            try:
                self._catch_up()
                first = self._next_sequence(n)
                table = self._view.table
                check_room(table, n, policy=self.policy, where=self.folder)
                class_ids = np.array(self._class_ids(labels), np.int32)
                if self.policy == "concatenate" and n > table.capacity - table.filled:
                    self._grow(table.filled + n)
                if self.policy == "balanced" and n > table.capacity - table.filled:
                    # One by one, because every eviction depends on the ones before.
                    for i, class_id in enumerate(class_ids.tolist()):
                        self._scratch.fill(embeddings[i : i + 1], probabilities[i : i + 1])
                        slot = slot_for_one(table, class_id, policy="balanced")
                        self._scratch.stamp(first + i, int(sources[i]), class_id)
                        self._put_scratch(slot, class_id, int(sources[i]), first + i)
                else:
                    sequences = np.arange(first, first + n, dtype=np.uint64)
                    self._put_many(embeddings, class_ids, probabilities, sources, sequences)
            finally:
                self._unlock_files()
        return first

    def _put_many(
        self,
        embeddings: np.ndarray,
        class_ids: np.ndarray,
        probabilities: np.ndarray,
        sources: np.ndarray,
        sequences: np.ndarray,
    ) -> None:
        """Write a batch into free slots, then over the oldest entries; the caller holds the lock."""
        table = self._view.table
        held = [label for label, count in enumerate(table.counts) if count]
        skip = max(0, len(class_ids) - table.capacity)  # they would be evicted by this very batch
        slots = slots_for_many(table, len(class_ids) - skip)
        for run in _runs(slots, max(1, BLOCK_BYTES // self._slot_bytes)):
            part, start = slice(skip + run.start, skip + run.stop), int(slots[run.start])
            block = self._view.layout.encode(
                embeddings[part], probabilities[part], class_ids[part], sources[part], sequences[part]
            )
            self._announce(int(sequences[part.start]), start, len(block))
            self._write_slots(start, as_bytes(block))
            table.put_many(slots[run], sequences[part], class_ids[part], sources[part])
        self._warn_emptied([label for label in held if table.counts[label] == 0])
        self._save_emptied()

    def _grow(self, needed: int) -> None:
        """Double the file until it holds `needed` entries: allocated and synced before the manifest says so."""
        manifest = self._view.manifest
        capacity = manifest.capacity
        while capacity < needed:
            capacity *= 2
        if capacity > MAX_CAPACITY:
            raise DatastoreError(f"{self.folder}: cannot grow beyond {MAX_CAPACITY} entries")
        self._storage.allocate(ENTRIES, HEADER_BYTES + capacity * self._slot_bytes)
        self._storage.sync(ENTRIES)
        self._view.take_manifest(replace(manifest, capacity=capacity))
        self._storage.write(ENTRIES, self._view.layout.header(capacity), 0)
        self._announce(0, 0, 0)

    # Forgetting

    def forget(
        self,
        *,
        sequences: Sequence[int] | np.ndarray | None = None,
        label: str | None = None,
        before: int | None = None,
    ) -> int:
        """Overwrite entries with zeros on the medium, and drop everything that was derived from them.

        The stored interpolation goes too (it holds distances between entries): predictions use the untuned settings
        until the next `tune`. Damaged slots are overwritten: they may hold what is left of an entry. Conditions are
        combined with "and". Where nothing meets them, the interpolation stays.

        Args:
            sequences: of the entries.
            label: of the entries.
            before: entries with a smaller sequence.

        Returns:
            How many entries were forgotten (prototypes of a compressed memory are not counted). All of it is durable.

        Raises:
            ConfigError: no condition, or one on the ages of entries that lie in a compressed memory. Nothing was
                forgotten.
            InputError: a label that is not among the classes. Nothing was forgotten.
            DatastoreError: read-only, locked, or the medium refuses.
        """
        self._check_writable()
        with self.lock:
            self._view.next_look = 0.0  # files are removed by their path below, which must be this store's
            self._lock_files()
            try:
                self._catch_up()
                condition = Condition.of(self._view.class_ids, sequences=sequences, label=label, before=before)
                doomed = condition.slots(self._view.table)
                wiped = np.union1d(doomed, np.flatnonzero(self._view.table.damaged))
                has_fewer_prototypes = condition.forget_prototypes(self._storage)
                self._change_manifest_first(doomed, drop_interpolation=len(wiped) > 0 or has_fewer_prototypes)
                remove_index(self._storage)
                had = [label for label, count in enumerate(self._view.table.counts) if count]
                self._zero(wiped)
                kept = self.kept_inputs
                if kept is not None:
                    kept.keep_only(self._view.table.sources)
            finally:
                self._unlock_files()
            if len(wiped):
                self.sync()
            gone = [self.classes[label] for label in had if not self._view.table.counts[label]]
            self._emptied.update(dict.fromkeys(gone, FORGOTTEN))
            self._save_emptied()
        return len(doomed)

    def _change_manifest_first(self, doomed: np.ndarray, *, drop_interpolation: bool) -> None:
        """Before slots are zeroed, store the highest sequence ever given, which they may show, and drop the
        interpolation: a power cut between the two leaves a store that is only not tuned.
        """
        table, manifest = self._view.table, self._view.manifest
        changed = replace(manifest, interpolation=None) if drop_interpolation else manifest
        is_shown = not table.damaged.any() and not (table.sequences[doomed] == table.newest).any()
        if not is_shown:
            highest = max(self._next_sequence(1) - 1, manifest.highest_sequence)
            changed = replace(changed, highest_sequence=highest)
        if changed != manifest:
            self._put_manifest(changed)

    def _zero(self, slots: np.ndarray) -> None:
        """Overwrite slots with zeros; the caller holds the lock and syncs."""
        rows = max(1, BLOCK_BYTES // self._slot_bytes)
        for run in _runs(slots, rows):
            start, count = int(slots[run.start]), run.stop - run.start
            self._announce(0, start, count)
            self._write_slots(start, memoryview(bytes(count * self._slot_bytes)))
            for slot in range(start, start + count):
                self._view.table.clear(slot, damaged=False)

    # For backups and rebuilds

    @property
    def highest_sequence(self) -> int:
        """At least as high as every sequence ever given; the next one is higher."""
        with self.lock:
            return self._next_sequence(1) - 1

    def add_again(
        self,
        embeddings: np.ndarray,
        labels: Sequence[str],
        probabilities: np.ndarray,
        *,
        sources: np.ndarray,
        sequences: np.ndarray,
    ) -> None:
        """Store entries under sequences that they had before, in a store that holds none of these; not synced.

        Args:
            embeddings: float32 (n, dim).
            labels: n labels, all in `classes`.
            probabilities: (n, n_model_classes).
            sources: uint64 (n,).
            sequences: uint64 (n,), ascending, higher than all that are there.

        Raises:
            InputError: as in `add`.
            DatastoreError: the sequences do not ascend, or there is no room.
        """
        self._check_writable()
        embeddings, probabilities, _ = self._check_entries(embeddings, labels, probabilities, sources)
        check_probabilities(probabilities)
        with self.lock, self.exclusive():
            self._catch_up()
            table = self._view.table
            rising = np.concatenate(([np.uint64(table.newest)], sequences))
            if not (rising[1:] > rising[:-1]).all() or len(labels) > table.capacity - table.filled:
                raise DatastoreError(f"{self.folder}: {len(labels)} entries do not follow those that are there")
            class_ids = np.array(self._class_ids(labels), np.int32)
            self._put_many(embeddings, class_ids, probabilities, sources, sequences)


def _shape_message(embeddings: np.ndarray, labels: Sequence[str], probabilities: np.ndarray, layout: SlotLayout) -> str:
    """What is wrong with the arguments of `add`."""
    if embeddings.ndim != 2 or embeddings.shape[1] != layout.dim:
        return f"embeddings are of shape {embeddings.shape}, expected (n, {layout.dim})"
    if isinstance(labels, str) or len(labels) != len(embeddings):
        return (
            f"got {1 if isinstance(labels, str) else len(labels)} labels for {len(embeddings)} embeddings; give a list"
        )
    expected = (len(embeddings), layout.n_model_classes)
    return f"probabilities are of shape {probabilities.shape}, expected {expected}"


def _runs(slots: np.ndarray, longest: int) -> Iterator[slice]:
    """Positions of stretches in which each slot follows the one before, at most `longest` long."""
    ends = np.append(np.flatnonzero(np.diff(slots) != 1) + 1, len(slots)).tolist() if len(slots) else []
    start = 0
    for end in ends:
        for begin in range(start, end, longest):
            yield slice(begin, min(begin + longest, end))
        start = end
