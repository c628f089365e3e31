"""Backup: a whole store as one verified, versioned file.

A zip file with `manifest.json`, `entries.npy`, (if inputs are kept) `inputs.npy` and (if the store is compressed)
`prototypes.npz` as they lie in the folder, and `backup.json` with their lengths and SHA-256. Nothing in it is unpacked
by name: the restorer reads these five members into files that it names itself, after their sizes were found to be those
that the manifest (of the prototypes: the list of contents) states.
"""

import errno
import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from edge_sdk.datastore.folder import check_model, fill_folder
from edge_sdk.datastore.kept_inputs import INPUTS, InputsSpec
from edge_sdk.datastore.manifest import KEPT_INPUTS, MAX_MANIFEST_BYTES, Manifest
from edge_sdk.datastore.slots import entries_bytes
from edge_sdk.datastore.storage import ENTRIES, MANIFEST, PROTOTYPES, Storage, sync_folder
from edge_sdk.datastore.store import Datastore
from edge_sdk.errors import DatastoreError
from edge_sdk.model import ModelMetadata
from edge_sdk.owner_only import owner_only
from edge_sdk.prototypes_file import LARGEST_FILE

BACKUP_FORMAT = "edge-sdk backup"
BACKUP_VERSION = 1

_CONTENTS = "backup.json"
_BLOCK = 1 << 20
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, TypeError, RuntimeError, NotImplementedError)


def write_backup(store: Datastore, path: str | os.PathLike[str]) -> int:
    """Write a store, as it is now, to one file; writers of all processes wait meanwhile.

    Args:
        store: may be read-only.
        path: an existing file is replaced when the new one is complete. Its owner alone may read it.

    Returns:
        Bytes of the file.

    Raises:
        DatastoreError: the store cannot be read or the file not be written. An existing file is as it was.
    """
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with store.still():
            # With the highest sequence in the manifest, a restored store goes on counting whatever its slots show.
            manifest = replace(store.manifest, highest_sequence=store.highest_sequence)
            with open(beside, "xb", opener=owner_only) as file:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                    _write_members(archive, store, manifest)
                file.flush()
                os.fsync(file.fileno())
        os.replace(beside, path)
        sync_folder(path.parent)
        return path.stat().st_size
    except OSError as error:
        cure = "; make room for it" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise DatastoreError(f"cannot write the backup {path}: {error.strerror}{cure}") from error
    finally:
        beside.unlink(missing_ok=True)


def _write_members(archive: zipfile.ZipFile, store: Datastore, manifest: Manifest) -> None:
    """Write all members, the list of contents last."""
    contents: dict[str, dict[str, Any]] = {}
    archive.writestr(MANIFEST, manifest.to_json())
    contents[MANIFEST] = {"sha256": hashlib.sha256(manifest.to_json().encode()).hexdigest()}
    sizes = _sizes(manifest)
    if (store.folder / PROTOTYPES).exists():  # what a compressed store remembers lies nowhere else
        sizes[PROTOTYPES] = (store.folder / PROTOTYPES).stat().st_size
    for name, size in sizes.items():
        digest = hashlib.sha256()
        with archive.open(name, "w", force_zip64=True) as member, (store.folder / name).open("rb") as file:
            for block in _blocks(file, size):
                digest.update(block)
                member.write(block)
        contents[name] = {"bytes": size, "sha256": digest.hexdigest()}
    values = {"format": BACKUP_FORMAT, "format_version": BACKUP_VERSION, "files": contents}
    archive.writestr(_CONTENTS, json.dumps(values, indent=1))


def _sizes(manifest: Manifest) -> dict[str, int]:
    """Bytes of each data file that the manifest speaks of."""
    size = entries_bytes(manifest.dim, manifest.n_model_classes, manifest.dtype, capacity=manifest.capacity)
    kept = manifest.extensions.get(KEPT_INPUTS)
    return {ENTRIES: size} if kept is None else {ENTRIES: size, INPUTS: InputsSpec.from_mapping(kept).n_bytes}


def _sizes_in_backup(manifest: Manifest, contents: dict[str, Any]) -> dict[str, int]:
    """Bytes of each data file that a backup must hold."""
    sizes = _sizes(manifest)
    if PROTOTYPES in contents:
        sizes[PROTOTYPES] = int(contents[PROTOTYPES]["bytes"])
        if not 0 < sizes[PROTOTYPES] <= LARGEST_FILE:
            raise ValueError(f"{PROTOTYPES} has {sizes[PROTOTYPES]} bytes")
    return sizes


def _blocks(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Exactly `size` bytes of a file, in bounded pieces."""
    while size > 0:
        block = file.read(min(size, _BLOCK))
        if not block:
            raise EOFError("it ends too early")
        yield block
        size -= len(block)


def restore_backup(
    path: str | os.PathLike[str], folder: str | os.PathLike[str], *, model: ModelMetadata | None = None
) -> Manifest:
    """Make a datastore from a backup.

    Args:
        path: what `write_backup` wrote.
        folder: must not exist.
        model: when given, the backup must be of a store made with it.

    Returns:
        The restored store's manifest.

    Raises:
        DatastoreError: no such file, not a backup, damaged, of a newer format or another model, the folder exists, or
            no room. Nothing is left behind.
    """
    path, folder = Path(path), Path(folder)
    try:
        with zipfile.ZipFile(path) as archive:
            contents, manifest = _read_contents(archive, path)
            if model is not None:
                check_model(path, manifest, model)
            fill_folder(folder, manifest, lambda storage: _unpack(archive, contents, manifest, storage))
    except _DAMAGE as error:
        raise DatastoreError(f"{path}: not a backup, or damaged ({error}); take another backup") from error
    except OSError as error:
        raise DatastoreError(f"cannot read the backup {path}: {error.strerror}") from error
    return manifest


def _read_contents(archive: zipfile.ZipFile, path: Path) -> tuple[dict[str, Any], Manifest]:
    """The list of contents and the manifest, after every size was found right."""
    values = json.loads(_read_small(archive, _CONTENTS))
    if values["format"] != BACKUP_FORMAT:
        raise ValueError("its list of contents is another program's")
    if values["format_version"] > BACKUP_VERSION:
        raise DatastoreError(
            f"{path}: backup format {values['format_version']}, this edge-sdk reads up to {BACKUP_VERSION}; "
            "upgrade edge-sdk"
        )
    contents: dict[str, Any] = values["files"]
    text = _read_small(archive, MANIFEST)
    if hashlib.sha256(text).hexdigest() != contents[MANIFEST]["sha256"]:
        raise ValueError("its manifest does not have the stated SHA-256")
    manifest = Manifest.from_json(text, source=f"{path}/{MANIFEST}")
    for name, size in _sizes_in_backup(manifest, contents).items():
        if archive.getinfo(name).file_size != size:
            raise ValueError(f"{name} has {archive.getinfo(name).file_size} bytes, its manifest states {size}")
    return contents, manifest


def _read_small(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > MAX_MANIFEST_BYTES:
        raise ValueError(f"{name} is too long")
    return archive.read(name)


def _unpack(archive: zipfile.ZipFile, contents: dict[str, Any], manifest: Manifest, storage: Storage) -> None:
    """Write the data files into a new folder, comparing their digests."""
    for name, size in _sizes_in_backup(manifest, contents).items():
        storage.create(name)
        storage.allocate(name, size)
        digest = hashlib.sha256()
        at = 0
        with archive.open(name) as member:
            for block in _blocks(member, size):
                digest.update(block)
                storage.write(name, block, at)
                at += len(block)
        if digest.hexdigest() != contents[name]["sha256"]:
            raise ValueError(f"{name} does not have the stated SHA-256")
        storage.sync(name)
