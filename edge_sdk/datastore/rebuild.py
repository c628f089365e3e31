"""Rebuild: a store's entries, embedded again by a new global model, in the place of the old store.

The new store is built beside the old one, whose lock is held meanwhile, and the two folders change places in one
step: until then the old one is untouched. Processes that have the old one open are told, and refuse to go on with the
wrong model.
"""

import ctypes
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edge_sdk.datastore.folder import build_folder, remove_left_over
from edge_sdk.datastore.kept_inputs import INPUTS, KeptInputs
from edge_sdk.datastore.manifest import Manifest
from edge_sdk.datastore.storage import sync_folder
from edge_sdk.datastore.store import Datastore
from edge_sdk.errors import DatastoreError, InputError
from edge_sdk.labels import unknown_label_message
from edge_sdk.model import ModelMetadata
from edge_sdk.owner_only import owner_only

_AT_ONCE = 64
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2

Encode = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Samples (n, *shape) -> embeddings (n, dim) and probabilities (n, n_model_classes)."""


class Rebuilt(NamedTuple):
    """What a rebuild did."""

    entries: int
    """In the new store."""

    dropped: int
    """Entries whose input was not kept."""


def rebuild(store: Datastore, model: ModelMetadata, encode: Encode, *, drop_missing: bool = False) -> Rebuilt:
    """Put a store for `model` in the place of `store`, which is closed.

    Sequences stay as they are. λ_m and the kernel must be chosen anew.

    Args:
        store: opened for writing, with kept inputs.
        model: the new model's metadata; its input must be of the shape and dtype of the kept inputs.
        encode: the new model.
        drop_missing: leave out entries whose input was not kept.

    Raises:
        DatastoreError: no inputs are kept, some are missing, or the system refuses. The old store is as it was.
        InputError: the new model does not know a label (and the store takes no new classes), or takes other inputs.
    """
    kept = store.kept_inputs
    if kept is None:
        raise DatastoreError(
            f"{store.folder}: keeps no inputs, so its entries cannot be embedded anew; "
            "learn the examples again with edge-sdk ingest into a new folder"
        )
    if (kept.spec.shape, np.dtype(kept.spec.dtype)) != (model.input.shape, np.dtype(model.input.dtype)):
        raise InputError(
            f"the kept inputs are {kept.spec.dtype} of shape {kept.spec.shape}, the model file takes "
            f"{model.input.dtype} of shape {model.input.shape}"
        )
    with store.lock, store.exclusive():
        store.refresh()
        slots = _with_inputs(store, kept, drop_missing=drop_missing)
        manifest = _new_manifest(store, model, slots)
        beside = store.folder.with_name(f".{store.folder.name}.{os.getpid()}.reembed")
        remove_left_over(store.folder)
        try:
            build_folder(beside, manifest)
            with Datastore.open(beside) as new:
                for part in _parts(slots):
                    _embed_part(store, kept, part, new, encode)
                new.sync()
            _link(store.folder / INPUTS, beside / INPUTS)
            sync_folder(beside)
            exchange_folders(beside, store.folder)
            store.tell_replaced()
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        dropped = len(store) - len(slots)
    store.close()
    return Rebuilt(len(slots), dropped)


def _with_inputs(store: Datastore, kept: KeptInputs, *, drop_missing: bool) -> np.ndarray:
    """Slots whose input is kept, oldest entry first."""
    order = store.table.order
    found = np.array([kept.find(source) is not None for source in store.table.sources[order].tolist()], np.bool_)
    if not found.all() and not drop_missing:
        raise DatastoreError(
            f"{store.folder}: {int((~found).sum())} of {len(order)} entries have no kept input; "
            "leave them out with --drop-missing"
        )
    return order[found]


def _new_manifest(store: Datastore, model: ModelMetadata, slots: np.ndarray) -> Manifest:
    """The new store's manifest: the same settings, the new model's numbers."""
    manifest = store.manifest
    names = [store.classes[label] for label in store.table.labels[slots].tolist()]
    new = [name for name in dict.fromkeys(names) if name not in model.classes]
    if new and not manifest.allow_new_classes:
        raise InputError(
            f"the new model does not know a label of the store: {unknown_label_message(new[0], model.classes)}"
        )
    return replace(
        manifest,
        fingerprint=model.fingerprint,
        dim=model.dim,
        classes=(*model.classes, *new),
        n_model_classes=len(model.classes),
        interpolation=None,
        highest_sequence=store.highest_sequence,
    )


def _parts(slots: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(slots), _AT_ONCE):
        yield slots[start : start + _AT_ONCE]


def _embed_part(store: Datastore, kept: KeptInputs, slots: np.ndarray, new: Datastore, encode: Encode) -> None:
    """Encode the inputs of some entries and put them into the new store under their sequences."""
    table = store.table
    sources = table.sources[slots]
    samples = [sample for sample in map(kept.find, sources.tolist()) if sample is not None]
    if len(samples) < len(slots):
        raise DatastoreError(f"{store.folder / INPUTS}: changed while it was read; try again")
    embeddings, probabilities = encode(np.stack(samples))
    labels = [store.classes[label] for label in table.labels[slots].tolist()]
    new.add_again(embeddings, labels, probabilities, sources=sources, sequences=table.sequences[slots])


def _link(path: Path, other: Path) -> None:
    """A second name for a file, or a copy where the file system knows no second names."""
    try:
        os.link(path, other)
    except OSError:
        with path.open("rb") as source, open(other, "xb", opener=owner_only) as copy:
            shutil.copyfileobj(source, copy)
            copy.flush()
            os.fsync(copy.fileno())


def exchange_folders(one: Path, other: Path) -> None:
    """Let two folders of one file system change places, durable when this returns.

    In one step where the system can (Linux 3.15 and later, every common file system); elsewhere in two renames,
    between which a power cut leaves the store under the name `.NAME.old`.

    Raises:
        DatastoreError: the system refuses.
    """
    library = ctypes.CDLL(None, use_errno=True)
    code = -1
    if hasattr(library, "renameat2"):
        code = library.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if code != 0:
        number = ctypes.get_errno()
        if hasattr(library, "renameat2") and number not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise DatastoreError(f"cannot put {one} in the place of {other}: {os.strerror(number)}")
        away = other.with_name(f".{other.name}.old")
        os.replace(other, away)
        os.replace(one, other)
        os.replace(away, one)
    sync_folder(other.parent)
