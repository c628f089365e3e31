"""DatastoreWriter: what every change of a datastore rests on, and the changes that touch no entry.

The order of a change is the same everywhere: take the lock, announce to the readers which slots will change
(`notices`), write, give the lock back, sync. Settings and kept inputs are changed here; entries in `store`.
"""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from edge_sdk.background import BackgroundCall
from edge_sdk.datastore.emptied import EMPTIED, EVICTED, causes_of
from edge_sdk.datastore.kept_inputs import InputsSpec, KeptInputs
from edge_sdk.datastore.manifest import KEPT_INPUTS, Manifest
from edge_sdk.datastore.notices import FOLDER_REPLACED
from edge_sdk.datastore.reader import DatastoreReader
from edge_sdk.datastore.slots import HEADER_BYTES
from edge_sdk.datastore.storage import ENTRIES, LOCK
from edge_sdk.datastore.view import View
from edge_sdk.errors import ConfigError, DatastoreError

logger = logging.getLogger(__name__)


class DatastoreWriter(DatastoreReader):
    """A datastore whose settings and kept inputs can be changed, and whose slots can be written."""

    def __init__(self, view: View, *, lock_wait: float) -> None:
        super().__init__(view, lock_wait=lock_wait)
        self._is_writable = view.storage.writable
        self._is_synced = True
        self._begun_sync: BackgroundCall[None] | None = None
        self._kept_inputs: KeptInputs | None = None
        self._emptied: dict[str, str] = {}

    def sync(self) -> None:
        """Wait until every entry added so far (and every kept input) is on the medium.

        Raises:
            DatastoreError: read-only, the medium refuses, or the store was deleted while it was open.
        """
        self._check_writable()
        self._sync_files()

    def start_sync(self) -> None:
        """Begin a `sync` that goes on while the caller reads and encodes what comes next.

        The next change of this store waits for its end before it writes anything, so no more entries are at risk than
        with a `sync` in this place. `sync`, and every change, raises what it raised.

        Raises:
            DatastoreError: read-only, or the sync before has failed.
        """
        self._check_writable()
        self._begun_sync = BackgroundCall(self._sync_files, name="datastore-sync")

    def _end_sync(self) -> None:
        """Wait for what `start_sync` began; raises what it raised, once."""
        begun = self._begun_sync
        if begun is not None:
            try:
                begun.result()
            finally:
                self._begun_sync = None

    def _sync_files(self) -> None:
        self._is_synced = True
        try:
            if self._kept_inputs is not None:
                self._kept_inputs.sync()
            self._storage.sync(ENTRIES)
            if self._storage.is_unlinked(ENTRIES):
                self._view.check_announced()
        except DatastoreError:
            self._is_synced = False
            raise

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep the writers of other processes out for several changes; they wait, up to their `lock_wait`.

        Threads that share this object go on. Readers are never kept out.

        Raises:
            DatastoreLockedError: another process kept writing for `lock_wait` seconds.
        """
        self._check_writable()
        with self.lock:
            self._lock_files()
        try:
            yield
        finally:
            with self.lock:
                self._unlock_files()

    # The write path

    def _check_writable(self) -> None:
        """Whether a change may begin; the first step of each."""
        self._check_open()
        if self._begun_sync is not None:
            self._end_sync()
        if not self._is_writable:
            reason = "it was opened read-only" if os.access(self.folder, os.W_OK) else "its folder is not writable"
            raise DatastoreError(f"{self.folder}: nothing can be learnt or forgotten here, {reason}; predictions go on")

    def _put_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest on the medium and tell the readers; the caller holds the lock."""
        self._view.take_manifest(manifest)
        self._announce(0, 0, 0)

    def _announce(self, first_sequence: int, start: int, length: int) -> None:
        """Append the notice of a change that comes next."""
        notices = self._view.notices
        if notices is not None:
            self._storage.write(LOCK, notices.next_record(first_sequence, start, length), notices.next_at)
            notices.advance(notices.seen + 1)

    def _write_slots(self, start: int, data: memoryview) -> None:
        """Write neighbouring slots; after a failure nothing is believed until it was read again."""
        self._is_synced = False
        try:
            self._storage.write(ENTRIES, data, HEADER_BYTES + start * self._slot_bytes)
        except DatastoreError:
            self._view.stale = True
            raise

    # Settings

    def save_interpolation(self, interpolation: Mapping[str, Any] | None) -> None:
        """Store λ_m, kernel, bandwidth and k with how they were chosen; durable when this returns.

        Raises:
            ConfigError: not a JSON mapping of finite numbers, texts and lists. The old one stays.
            DatastoreError: read-only, locked, or no room.
        """
        self._check_writable()
        values = _as_json("interpolation", interpolation)
        with self._manifest_change() as manifest:
            self._view.take_manifest(replace(manifest, interpolation=values))

    def save_extension(self, name: str, values: Mapping[str, Any] | None) -> None:
        """Store settings that the datastore itself does not read, under a name in the manifest's extensions.

        Args:
            name: whose settings.
            values: None removes them.

        Raises:
            ConfigError: not a JSON mapping of finite numbers, texts and lists. The old ones stay.
            DatastoreError: read-only, locked, or no room.
        """
        self._check_writable()
        kept = _as_json(name, values)
        with self._manifest_change() as manifest:
            others = {key: value for key, value in manifest.extensions.items() if key != name}
            extensions = others if kept is None else {**others, name: kept}
            self._view.take_manifest(replace(manifest, extensions=extensions))

    @contextmanager
    def _manifest_change(self) -> Iterator[Manifest]:
        """The newest manifest, for a caller that replaces it inside; the readers are told."""
        with self.lock:
            self._lock_files()
            try:
                self._catch_up()
                yield self._view.manifest
                self._announce(0, 0, 0)
            finally:
                self._unlock_files()

    def tell_replaced(self) -> None:
        """Tell every process that has this folder open that the store goes on in the one now at its path.

        The caller is `exclusive`. This object goes on there too, with its next call.
        """
        self._announce(0, FOLDER_REPLACED, 0)
        self._view.next_look = 0.0

    # Emptied classes

    def _warn_emptied(self, labels: list[int]) -> None:
        """Say which classes have lost their last entry, and remember them for `emptied`."""
        for label in labels:
            logger.warning('%s: class "%s" has just lost its last entry', self.folder, self.classes[label])
            self._emptied[self.classes[label]] = EVICTED

    def _save_emptied(self) -> None:
        """Store which classes are emptied, in an extension of the manifest.

        Done when the store is closed, after a batch and after `forget`, and not for each single entry: in a small
        window a class may come and go with every one. Only `info` reads it, so a refusal is no error.
        """
        if not self._emptied:
            return
        try:
            with self.exclusive():
                self._catch_up()
                manifest = self._view.manifest
                left = self._why_emptied()
                self._emptied.clear()
                if left != manifest.extensions.get(EMPTIED, {}):
                    self._put_manifest(replace(manifest, extensions={**manifest.extensions, EMPTIED: left}))
        except DatastoreError as error:
            logger.info("%s: could not note the emptied classes: %s", self.folder, error)

    @property
    def emptied(self) -> tuple[str, ...]:
        """Classes that had entries and have none now (as far as it was noted, see `_save_emptied`)."""
        with self.lock:
            return tuple(self._why_emptied())

    @property
    def evicted_classes(self) -> tuple[str, ...]:
        """Those of `emptied` whose last entry gave way to a new one; that of the others was forgotten."""
        with self.lock:
            return tuple(name for name, cause in self._why_emptied().items() if cause == EVICTED)

    def _why_emptied(self) -> dict[str, str]:
        """What took the last entry of each class that has none now."""
        ids, counts = self._view.class_ids, self._view.table.counts
        noted = {**causes_of(self.manifest.extensions), **self._emptied}
        return {name: cause for name, cause in noted.items() if name in ids and not counts[ids[name]]}

    # Kept inputs

    @property
    def kept_inputs(self) -> KeptInputs | None:
        """The inputs behind the entries; None unless `keep_inputs` was called for this store."""
        stated = self._view.manifest.extensions.get(KEPT_INPUTS)
        if stated is None:
            return None
        if self._kept_inputs is None:
            self._kept_inputs = KeptInputs(self._storage, InputsSpec.from_mapping(stated))
        return self._kept_inputs

    def keep_inputs(self, max_bytes: int, *, shape: tuple[int, ...], dtype: str) -> KeptInputs:
        """From now on, keep the inputs of new entries that are handed to `keep`, in a file of at most `max_bytes`.

        Args:
            max_bytes: bound of the file, all of which is allocated now. Where it has less room than the store has
                entries, the newest inputs are kept.
            shape: of one input, as the model file takes it.
            dtype: of its values.

        Raises:
            ConfigError: not one input fits, or inputs are kept already in another size.
            DatastoreError: read-only, locked, or no room. Nothing has changed.
        """
        most = None if self.policy == "concatenate" else self.capacity
        spec = InputsSpec.within(max_bytes, shape=shape, dtype=dtype, most=most)
        with self.lock:
            self._view.next_look = 0.0  # a file is made by its path below, in this store's folder and no other
        with self.lock, self.exclusive():
            self._catch_up()
            kept = self.kept_inputs
            if kept is not None:
                if kept.spec != spec:
                    raise ConfigError(
                        f"{self.folder}: keeps {kept.spec.slots} inputs of shape {kept.spec.shape} already "
                        f"({kept.spec.n_bytes} bytes), asked for {spec.slots} of shape {spec.shape}"
                    )
                return kept
            KeptInputs.create(self._storage, spec)
            self._storage.sync_folder()
            manifest = self._view.manifest
            extensions = {**manifest.extensions, KEPT_INPUTS: spec.to_mapping()}
            self._put_manifest(replace(manifest, extensions=extensions))
            kept = self.kept_inputs
        if kept is None:
            raise DatastoreError(f"{self.folder}: the manifest was replaced meanwhile; try again")
        return kept

    def keep(self, sources: np.ndarray, samples: np.ndarray, *, sync: bool = True) -> None:
        """Keep inputs, if this store does (call it before `add`, so that no entry is without its input).

        Args:
            sources: uint64 (n,), as given to `add`.
            samples: (n, *shape).
            sync: on the medium when this returns.

        Raises:
            InputError: another shape than the store keeps. Nothing was kept.
        """
        kept = self.kept_inputs
        if kept is None:
            return
        with self.lock, self.exclusive():
            kept.put(sources, samples)
            self._is_synced = False
        if sync:
            kept.sync()


def _as_json(name: str, values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A copy that is nothing but JSON; raises ConfigError."""
    try:
        return None if values is None else json.loads(json.dumps(dict(values), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} cannot be stored as JSON: {error}") from error
