"""Segment: a sealed run of entries with an Annoy file of their own, and the header that makes the file safe to open.

Annoy's files carry no header: one of another dimension, cut short or with flipped bits ends the process or loses
entries without a word. So beside each `.ann` lies a header of ours with everything that must fit (dimension, metric,
item count, the model's fingerprint) and the length and BLAKE2b digest of the Annoy file, and nothing is opened before
all of it has been checked. The header is written after the file it vouches for; what is left of a torn write is not a
segment.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.digests import blake2b

METRIC = "euclidean"
_MAGIC = b"edge-sdk segment 1\n"
_DIGEST_BYTES = 32
_MOST_HEADER_BYTES = 1 << 28
_READ_BYTES = 1 << 20


class DamagedSegmentError(Exception):
    """A header or its Annoy file is not what it must be; the message says why. Never leaves this folder of the SDK."""


@dataclass(frozen=True, eq=False)
class Segment:
    """What a header says."""

    name: str
    """File name without its ending."""

    dim: int
    fingerprint: str
    trees: int
    seed: int
    center: np.ndarray
    """float64 (dim,): subtracted from each key before Annoy saw it,"""

    spread: float
    """and what the difference was divided by."""

    sequences: np.ndarray
    """uint64 (n_items,): item number -> sequence."""

    slots: np.ndarray
    """int32 (n_items,): item number -> slot."""

    n_bytes: int
    """Length of the Annoy file."""

    digest: str
    """BLAKE2b digest of the Annoy file."""

    @cached_property
    def scaling(self) -> tuple[float, bytes]:
        """What two segments share whose `vectors` are the same."""
        return self.spread, self.center.tobytes()

    def vectors(self, keys: np.ndarray) -> np.ndarray:
        """float32 (m, dim): keys as Annoy sees them."""
        scaled: np.ndarray = ((keys - self.center) * (1.0 / self.spread)).astype(np.float32)
        return scaled

    def is_alive(self, sequences: np.ndarray) -> np.ndarray:
        """Bool (n_items,): which items are still entries, given the datastore's sequences by slot."""
        alive: np.ndarray = sequences[self.slots] == self.sequences
        return alive


def annoy_path(folder: Path, name: str) -> Path:
    """Where a segment's Annoy file lies."""
    return folder / f"{name}.ann"


def header_path(folder: Path, name: str) -> Path:
    """Where a segment's header lies."""
    return folder / f"{name}.segment"


def names(folder: Path) -> Iterator[str]:
    """The segments that have a header, oldest first."""
    yield from sorted(path.stem for path in folder.glob("*.segment"))


def digest_of(file: int) -> tuple[int, str]:
    """Bytes and BLAKE2b digest of an open file, from its start."""
    digest, size = blake2b(digest_size=_DIGEST_BYTES), 0
    while block := os.pread(file, _READ_BYTES, size):
        digest.update(block)
        size += len(block)
    return size, digest.hexdigest()


def encode_header(segment: Segment) -> bytes:
    """The header file's bytes."""
    facts = {
        "metric": METRIC,
        "dim": segment.dim,
        "fingerprint": segment.fingerprint,
        "trees": segment.trees,
        "seed": segment.seed,
        "spread": segment.spread,
        "n_items": len(segment.sequences),
        "n_bytes": segment.n_bytes,
        "digest": segment.digest,
    }
    text = json.dumps(facts).encode()
    data = _MAGIC + len(text).to_bytes(4, "little") + text
    data += segment.center.astype("<f8").tobytes()
    data += segment.sequences.astype("<u8").tobytes() + segment.slots.astype("<i4").tobytes()
    return data + blake2b(data, digest_size=_DIGEST_BYTES).digest()


def read_header(folder: Path, name: str, *, dim: int, fingerprint: str) -> Segment:
    """Read and check a header; its Annoy file is not looked at.

    Raises:
        DamagedSegmentError: not whole, or of another dimension, metric or model.
    """
    path = header_path(folder, name)
    try:
        if path.stat().st_size > _MOST_HEADER_BYTES:
            raise DamagedSegmentError(f"{path}: more than {_MOST_HEADER_BYTES} bytes")
        data = path.read_bytes()
    except OSError as error:
        raise DamagedSegmentError(f"{path}: {error.strerror}") from error
    body = data[:-_DIGEST_BYTES]
    if not data.startswith(_MAGIC) or blake2b(body, digest_size=_DIGEST_BYTES).digest() != data[-_DIGEST_BYTES:]:
        raise DamagedSegmentError(f"{path}: no whole header")
    start = len(_MAGIC) + 4
    end = start + int.from_bytes(body[len(_MAGIC) : start], "little")
    try:
        facts: dict[str, Any] = json.loads(body[start:end])
        for field, expected in (("metric", METRIC), ("dim", dim), ("fingerprint", fingerprint)):
            if facts[field] != expected:
                raise DamagedSegmentError(f"{path}: {field} {facts[field]}, expected {expected}")
        n = int(facts["n_items"])
        arrays = [np.frombuffer(body, "<f8", dim, end), np.frombuffer(body, "<u8", n, end + 8 * dim)]
        arrays.append(np.frombuffer(body, "<i4", n, end + 8 * dim + 8 * n))
        spread, n_bytes = float(facts["spread"]), int(facts["n_bytes"])
        trees, seed, digest = int(facts["trees"]), int(facts["seed"]), str(facts["digest"])
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedSegmentError(f"{path}: {error!r}") from error
    center, sequences, slots = arrays
    return Segment(name, dim, fingerprint, trees, seed, center, spread, sequences, slots, n_bytes, digest)
