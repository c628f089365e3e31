"""Bytes of a datastore: on disk by part, as the file system counts them, and of its slot table in RAM."""

from pathlib import Path

import numpy as np

from edge_sdk import Datastore


def disk_by_part(store: Datastore) -> dict[str, int]:
    """Bytes that each part of the folder takes on disk (allocated blocks: a sparse file cannot hide), and the total."""
    parts = {entry.name: allocated_bytes(entry) for entry in sorted(store.folder.iterdir())}
    return {**parts, "total": sum(parts.values())}


def allocated_bytes(path: Path) -> int:
    """Allocated bytes of a file, or of all files below a folder."""
    if path.is_dir():
        return sum(allocated_bytes(entry) for entry in path.iterdir())
    return path.stat().st_blocks * 512  # st_blocks counts units of 512 bytes on every Linux file system


def table_bytes(store: Datastore) -> int:
    """Bytes of every array of the slot table, the age order included."""
    table = store.table
    _ = table.order  # made when first asked for
    return sum(value.nbytes for value in vars(table).values() if isinstance(value, np.ndarray))
