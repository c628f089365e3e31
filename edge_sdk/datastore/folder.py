"""The folder of a datastore: made whole or not at all, and what killed processes leave beside it."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from edge_sdk.datastore.manifest import KEPT_INPUTS, Manifest
from edge_sdk.datastore.notices import LOCK_BYTES, MAGIC
from edge_sdk.datastore.slots import entries_bytes
from edge_sdk.datastore.storage import ENTRIES, LOCK, MANIFEST, Storage, sync_folder
from edge_sdk.errors import DatastoreError
from edge_sdk.model import ModelMetadata


def build_folder(folder: Path, manifest: Manifest, *, storage_class: type[Storage] = Storage) -> None:
    """Make the folder of an empty datastore, whole or not at all.

    Raises:
        DatastoreError: the folder exists, or the system refuses. Nothing is left behind.
    """
    layout = manifest.layout
    size = entries_bytes(layout.dim, layout.n_model_classes, layout.dtype, capacity=manifest.capacity)

    def write_entries(storage: Storage) -> None:
        storage.create(ENTRIES)
        storage.allocate(ENTRIES, size)
        storage.write(ENTRIES, layout.header(manifest.capacity), 0)
        storage.sync(ENTRIES)

    fill_folder(folder, manifest, write_entries, storage_class=storage_class)


def fill_folder(
    folder: Path,
    manifest: Manifest,
    write_data: Callable[[Storage], None],
    *,
    storage_class: type[Storage] = Storage,
) -> None:
    """Make a datastore's folder, whole or not at all: filled beside, synced, then renamed.

    Args:
        folder: must not exist, its parent must.
        manifest: of the new store.
        write_data: makes and syncs the data files.
        storage_class: of the system calls.

    Raises:
        DatastoreError: the folder exists, or the system refuses. Nothing is left behind, whatever is raised.
    """
    if folder.exists() or folder.is_symlink():
        raise DatastoreError(f"{folder}: exists already; open it, or choose another folder")
    remove_left_over(folder)
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.{os.urandom(4).hex()}.new")
    try:
        beside.mkdir(mode=0o700)
    except OSError as error:
        raise DatastoreError(f"cannot create {folder}: {error.strerror}") from error
    import shutil  # here, as below, with the compressors that it loads: only a new folder needs it

    storage = storage_class(beside, writable=True)
    try:
        write_data(storage)
        storage.create(LOCK)
        storage.write(LOCK, MAGIC.ljust(LOCK_BYTES, b"\0"), 0)
        storage.sync(LOCK)
        storage.replace(MANIFEST, manifest.to_json().encode())
        try:
            os.replace(beside, folder)
        except OSError as error:
            raise DatastoreError(f"cannot create {folder}: {error.strerror}") from error
        sync_folder(folder.parent)
    finally:
        storage.close()
        shutil.rmtree(beside, ignore_errors=True)


def remove_left_over(folder: Path) -> None:
    """Remove what killed processes left beside a datastore's folder while they were making it."""
    pattern = re.compile(rf"\.+{re.escape(folder.name)}\.(\d+)(\.|$)")
    for path in folder.parent.iterdir() if folder.parent.is_dir() else ():
        match = pattern.match(path.name)
        if match and not Path("/proc", match[1]).exists():
            import shutil

            shutil.rmtree(path, ignore_errors=True)


def no_datastore_message(folder: Path) -> str:
    """One line on a path that was to be a datastore and is none."""
    if folder.is_dir():
        return f"{folder}: exists and is no datastore (no {MANIFEST}); to make one, name a folder that does not exist"
    if folder.is_file():
        cure = f"a model file; try edge-sdk inspect {folder}" if folder.suffix == ".onnx" else "a file, not a datastore"
        return f"{folder}: no datastore there, it is {cure}"
    return f"{folder}: no datastore there; make one with edge-sdk ingest or Predictor.open"


def check_model(folder: Path, manifest: Manifest, model: ModelMetadata) -> None:
    """Raises DatastoreError when the store's numbers mean nothing to this model."""
    if manifest.fingerprint != model.fingerprint:
        is_rebuildable = KEPT_INPUTS in manifest.extensions
        cure = "rebuild it with edge-sdk reembed" if is_rebuildable else "it kept no inputs: open it with its own model"
        raise DatastoreError(
            f"{folder}: made with another model (fingerprint {manifest.fingerprint[:12]}, "
            f"this model file has {model.fingerprint[:12]}); "
            f"{cure}, or use a new folder"
        )
    if manifest.dim != model.dim or manifest.classes[: manifest.n_model_classes] != tuple(model.classes):
        raise DatastoreError(
            f"{folder}: same fingerprint, but another dim or other classes than the model file; use a new folder"
        )
