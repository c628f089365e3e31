"""prototypes.npz: the compressed memory on disk, an ordinary `.npz` of two or three plain arrays, and its size as a
formula.

    settings     uint8 (384,): JSON text padded with spaces, see `PrototypesFile.settings`
    prototypes   structured (m,): `mass` f2 · `label` u2, or `labels` f2 (n_classes,) · `key` (d̂,) in f4, f2 or i1
    projection   structured (d̂,), where the memory brings its own: `scale` f4 · `offset` f4 · `row` i1 (dim,)

The members are stored uncompressed with fixed dates, so that equal memories are equal files and the size follows from
m, d̂ and dim
alone: a budget can be kept before anything is written. Every member's CRC-32 is the archive's own.
"""

import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_sdk.errors import ConfigError, DatastoreError

if TYPE_CHECKING:
    import zipfile  # loaded where it is used, with the compressors it brings: few datastores are compressed

FORMAT_VERSION = 1
KEY_DTYPES = {"float32": "<f4", "float16": "<f2", "int8": "|i1"}
"""Name of a key dtype -> NumPy code of one value."""

SETTINGS_BYTES = 384
LARGEST_FILE = 1 << 28
"""A compressed memory beyond 256 MB is none."""

_ARCHIVE_END = 22
_MEMBER = 76  # local header 30 and central entry 46, without the name that stands in both
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class PrototypesFile:
    """What lies in one prototypes.npz."""

    settings: dict[str, Any]
    """`format_version`, `fingerprint`, `key_dtype`, `key_scale` (int8: value = scale · stored), `kernel`, `sharpness`
    (γ or 1/σ), `k`, `interpolation_weight`, `n_entries` and `newest_sequence` (what it stands for), `method`."""

    prototypes: np.ndarray
    projection: np.ndarray | None


def prototype_dtype(dim: int, *, key_dtype: str, n_soft_labels: int = 0) -> np.dtype[Any]:
    """The record of one prototype; `n_soft_labels` above 0 stores a number for every class instead of one class.

    Raises:
        ConfigError: `key_dtype` is not one of `KEY_DTYPES`.
    """
    if key_dtype not in KEY_DTYPES:
        raise ConfigError(f"key_dtype is one of {', '.join(KEY_DTYPES)}, got {key_dtype!r}")
    label: tuple[Any, ...] = ("labels", "<f2", (n_soft_labels,)) if n_soft_labels else ("label", "<u2")
    return np.dtype([("mass", "<f2"), label, ("key", KEY_DTYPES[key_dtype], (dim,))])


def projection_dtype(dim: int) -> np.dtype[Any]:
    """The record of one row of the projection: u = scale · (row · x) + offset."""
    return np.dtype([("scale", "<f4"), ("offset", "<f4"), ("row", "|i1", (dim,))])


def prototypes_bytes(
    n_prototypes: int, dim: int, *, key_dtype: str = "int8", n_soft_labels: int = 0, projected_from: int | None = None
) -> int:
    """Exact size of the file.

    22 + for each member (76 + 2 · its name's length + its NumPy header, 128 almost always + its data); data: 384 for
    the settings, m · (4 + d̂ · value size) for the prototypes (2 · n_classes + 2 instead of 4 with soft labels), d̂ ·
    (8 + dim) for the projection.

    Args:
        n_prototypes: m.
        dim: d̂, width of a prototype.
        key_dtype: one of `KEY_DTYPES`.
        n_soft_labels: 0, or the number of classes where each prototype stores a number for every one.
        projected_from: the embedding's width where the file carries a projection.
    """
    record = prototype_dtype(dim, key_dtype=key_dtype, n_soft_labels=n_soft_labels)
    total = _ARCHIVE_END + _member_bytes("settings", np.dtype("u1"), SETTINGS_BYTES)
    total += _member_bytes("prototypes", record, n_prototypes)
    return total + (projection_bytes(dim, projected_from) if projected_from else 0)


def projection_bytes(dim: int, projected_from: int) -> int:
    """What of the file's size is its projection."""
    return _member_bytes("projection", projection_dtype(projected_from), dim)


def write_prototypes(path: Path, content: PrototypesFile) -> int:
    """Write beside, sync, then put in place.

    Returns:
        Bytes of the file.

    Raises:
        ConfigError: the settings do not fit their 384 bytes.
        DatastoreError: the medium refuses. An old file is still there.
    """
    import zipfile

    text = json.dumps(content.settings, sort_keys=True, separators=(",", ":")).encode()
    if len(text) > SETTINGS_BYTES:
        raise ConfigError(f"the settings of {path.name} take {len(text)} bytes, there is room for {SETTINGS_BYTES}")
    members = {"settings": np.frombuffer(text.ljust(SETTINGS_BYTES), np.uint8), "prototypes": content.prototypes}
    if content.projection is not None:
        members["projection"] = content.projection
    beside = path.with_name(path.name + ".new")
    try:
        with beside.open("wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                for name, array in members.items():
                    archive.writestr(zipfile.ZipInfo(name + ".npy", _DATE), _as_npy(array))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        return path.stat().st_size
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise DatastoreError(f"cannot write {path}: {error.strerror}; the old file is as it was") from error


def read_prototypes(path: Path) -> PrototypesFile:
    """Read and check a file.

    Raises:
        DatastoreError: missing, damaged, hostile, of a newer format, or not such a file.
    """
    import zipfile

    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ValueError(f"{path.stat().st_size} bytes, more than any compressed memory")
        with zipfile.ZipFile(path) as archive:
            members = {info.filename: info for info in archive.infolist()}
            settings = _read_settings(archive, members, path)
            prototypes = _read_member(archive, members, "prototypes")
            projection = _read_member(archive, members, "projection") if "projection.npy" in members else None
        _check(settings, prototypes, projection)
    except (
        OSError,
        zipfile.BadZipFile,
        ValueError,
        KeyError,
        TypeError,
        EOFError,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise DatastoreError(
            f"{path}: damaged or foreign compressed memory ({error}); restore the datastore from its backup"
        ) from error
    return PrototypesFile(settings, prototypes, projection)


def _read_settings(archive: "zipfile.ZipFile", members: "dict[str, zipfile.ZipInfo]", path: Path) -> dict[str, Any]:
    settings = json.loads(_read_member(archive, members, "settings").tobytes())
    if not isinstance(settings, dict):
        raise ValueError("settings are no mapping")
    if int(settings["format_version"]) > FORMAT_VERSION:
        raise DatastoreError(
            f"{path}: format {settings['format_version']}, this edge-sdk reads up to {FORMAT_VERSION}; upgrade edge-sdk"
        )
    return settings


def _read_member(archive: "zipfile.ZipFile", members: "dict[str, zipfile.ZipInfo]", name: str) -> np.ndarray:
    info = members[name + ".npy"]
    if info.compress_type != 0 or info.file_size > LARGEST_FILE:
        raise ValueError(f"member {name} is compressed or too large")  # 0: stored as it is
    array: np.ndarray = np.lib.format.read_array(io.BytesIO(archive.read(info)), allow_pickle=False)
    return array


def _check(settings: dict[str, Any], prototypes: np.ndarray, projection: np.ndarray | None) -> None:
    """Raises ValueError where a part does not fit the others."""
    fields = prototypes.dtype.fields
    if prototypes.ndim != 1 or fields is None or not {"mass", "key"} <= set(fields):
        raise ValueError("prototypes are no records of mass, label and key")
    key_dtype, dim = str(settings["key_dtype"]), prototypes["key"].shape[1]
    n_soft_labels = prototypes["labels"].shape[1] if "labels" in fields else 0
    if prototypes.dtype != prototype_dtype(dim, key_dtype=key_dtype, n_soft_labels=n_soft_labels):
        raise ValueError(f"prototypes are {prototypes.dtype}")
    if projection is not None and (
        projection.ndim != 1
        or projection.dtype.fields is None
        or projection.dtype != projection_dtype(projection["row"].shape[1])
        or len(projection) != dim
    ):
        raise ValueError(f"projection {projection.dtype} does not give {dim} numbers")
    numbers = [float(settings[name]) for name in ("key_scale", "interpolation_weight", "sharpness")]
    if not np.isfinite(numbers).all() or not 0.0 <= numbers[1] <= 1.0 or numbers[0] <= 0.0 or numbers[2] <= 0.0:
        raise ValueError("a setting is out of range")
    if settings["kernel"] not in ("gaussian", "laplacian") or int(settings["k"]) < 0:
        raise ValueError(f"unknown kernel {settings['kernel']!r} or k")


def _member_bytes(name: str, dtype: np.dtype[Any], rows: int) -> int:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows,)}
    )
    return _MEMBER + 2 * len(name + ".npy") + len(header.getvalue()) + rows * dtype.itemsize


def _as_npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
    return file.getvalue()
