"""The chosen projection on disk, so that a process that lives for one prediction need not choose again.

One file in the datastore's `index/` folder: magic, length and text of a JSON header, the centre and the directions as
float64, and a BLAKE2b of all that. It is derived, so it is written without waiting for the medium: a torn one fails
the digest and is made again.
"""

import json
import logging
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.digests import blake2b
from edge_sdk.neighbors.choice import Choice
from edge_sdk.neighbors.projection import Projection

logger = logging.getLogger(__name__)

FILE_NAME = "projection.bin"
_MAGIC = b"edge-sdk projection 1\n"
_DIGEST_BYTES = 32
_MOST_BYTES = 1 << 28


class Kept(NamedTuple):
    """A choice and the circumstances it was made in."""

    choice: Choice
    n_entries: int
    """Entries in the store then."""

    ram_budget: int
    """Bytes granted then."""


def save_choice(datastore: Datastore, kept: Kept) -> None:
    """Keep a choice; where the folder cannot be written it is made again by the next process."""
    if datastore.read_only:
        return
    folder = Path(datastore.folder) / "index"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        beside = folder / f"{FILE_NAME}.{os.getpid()}"
        beside.write_bytes(_encode(kept, datastore.manifest.fingerprint))
        os.replace(beside, folder / FILE_NAME)
    except OSError as error:
        logger.info("%s: the projection is not kept: %s", folder, error)


def load_choice(datastore: Datastore) -> Kept | None:
    """The kept choice, None when there is none for this store. A damaged one is said in the log."""
    path = Path(datastore.folder) / "index" / FILE_NAME
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES} bytes")
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        logger.warning("%s cannot be read and is made again: %s", path, error)
        return None
    try:
        return _decode(data, datastore.manifest.fingerprint, datastore.dim)
    except (ValueError, KeyError, TypeError) as error:
        logger.warning("%s is damaged or of another store and is made again: %s", path, error)
        return None


def _encode(kept: Kept, fingerprint: str) -> bytes:
    projection = kept.choice.projection
    header = {
        "fingerprint": fingerprint,
        "n_entries": kept.n_entries,
        "ram_budget": kept.ram_budget,
        "rows": kept.choice.rows,
        "dim": 0 if projection is None else len(projection.center),
        "spread": 1.0 if projection is None else projection.spread,
        "directions": -1 if projection is None or projection.directions is None else len(projection.directions),
    }
    text = json.dumps(header).encode()
    data = _MAGIC + len(text).to_bytes(4, "little") + text
    if projection is not None:
        data += projection.center.tobytes()
        data += b"" if projection.directions is None else projection.directions.tobytes()
    return data + blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _decode(data: bytes, fingerprint: str, dim: int) -> Kept:
    """Raises ValueError, KeyError or TypeError for anything that `_encode` did not write for this store."""
    body = memoryview(data)[:-_DIGEST_BYTES]
    digest = blake2b(body, digest_size=_DIGEST_BYTES).digest()
    if len(data) < len(_MAGIC) + 4 + _DIGEST_BYTES or digest != data[-_DIGEST_BYTES:]:
        raise ValueError("wrong digest")
    if data[: len(_MAGIC)] != _MAGIC:
        raise ValueError("another format")
    start = len(_MAGIC) + 4
    end = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    header = json.loads(bytes(body[start:end]))
    if header["fingerprint"] != fingerprint:
        raise ValueError(f"made for the model {header['fingerprint']}, this store's is {fingerprint}")
    if header["dim"] not in (0, dim):
        raise ValueError(f"made for dim {header['dim']}, this store has {dim}")
    projection = None
    if header["dim"]:
        numbers = np.frombuffer(body[end:], np.float64).astype(np.float64)
        directions = numbers[dim:].reshape(-1, dim) if header["directions"] >= 0 else None
        projection = Projection(numbers[:dim], float(header["spread"]), directions)
    return Kept(Choice(projection, float(header["rows"])), int(header["n_entries"]), int(header["ram_budget"]))
