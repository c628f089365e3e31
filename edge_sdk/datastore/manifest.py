"""Manifest: what a datastore is, apart from its entries, as one small JSON file.

The file carries a CRC-32 over its own canonical text (keys sorted), so a flipped byte is refused instead of becoming
another capacity or another class. It is always replaced as a whole, never edited in place.
"""

import json
import zlib
from dataclasses import asdict, dataclass, field
from typing import Any

from edge_sdk.datastore.slots import DTYPES, SlotLayout
from edge_sdk.errors import ConfigError, DatastoreError

FORMAT = "edge-sdk datastore"
FORMAT_VERSION = 1
"""Version of the folder's format; a reader refuses a newer one."""

POLICIES = ("fifo", "concatenate", "fixed", "balanced")

KEPT_INPUTS = "kept_inputs"
"""Name of the extension that describes `inputs.npy`."""

MAX_CAPACITY = 2**31 - 1
MAX_MANIFEST_BYTES = 64 << 20
"""A longer manifest is not ours (20 000 classes take 1 MB); checked before anything is read."""


@dataclass(frozen=True)
class Manifest:
    """The settings and the durable facts of one datastore."""

    fingerprint: str
    """Of the model whose embeddings are stored."""

    dim: int
    dtype: str
    """One of `DTYPES`."""

    capacity: int
    policy: str
    """One of `POLICIES`."""

    classes: tuple[str, ...]
    """The model's classes first, then new ones in the order of their first entry."""

    n_model_classes: int
    allow_new_classes: bool = False

    interpolation: dict[str, Any] | None = None
    """λ_m, kernel, bandwidth and k with how they were chosen; None: never chosen."""

    highest_sequence: int = 0
    """At least as high as every sequence that no entry shows any more; raised before the newest entry is forgotten."""

    extensions: dict[str, Any] = field(default_factory=dict)
    """Room for what later versions add; kept when this version rewrites the file."""

    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        capacity: object = self.capacity
        if not (_is_whole(capacity) and 1 <= self.capacity <= MAX_CAPACITY):
            raise ConfigError(f"capacity is a whole number from 1 to {MAX_CAPACITY}, got {self.capacity!r}")
        if self.policy not in POLICIES:
            raise ConfigError(f'policy is one of {", ".join(POLICIES)}, got "{self.policy}"')
        if self.dtype not in DTYPES:
            raise ConfigError(f'dtype is one of {", ".join(DTYPES)}, got "{self.dtype}"')

    @property
    def layout(self) -> SlotLayout:
        """The shape of this store's slots."""
        return SlotLayout(self.dim, self.n_model_classes, self.dtype)

    def to_json(self) -> str:
        """The manifest as the text of its file, checksum included."""
        values = {"format": FORMAT, **asdict(self)}
        return (
            json.dumps({**values, "checksum": _checksum(values)}, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        )

    @classmethod
    def from_json(cls, text: bytes, *, source: str) -> "Manifest":
        """Read back what `to_json` wrote.

        Args:
            text: bytes of the file.
            source: its path, for messages.

        Raises:
            DatastoreError: not a manifest, damaged, or of a newer format.
        """
        try:
            values = json.loads(text.decode())
            if not isinstance(values, dict) or values.pop("format") != FORMAT:
                raise ValueError("not a datastore's manifest")
            version = values["format_version"]
            if isinstance(version, int) and version > FORMAT_VERSION:
                raise DatastoreError(
                    f"{source}: datastore format {version}, this edge-sdk reads up to {FORMAT_VERSION}; "
                    "upgrade edge-sdk"
                )
            stated = values.pop("checksum")
            found = _checksum({"format": FORMAT, **values})
            if stated != found:
                raise ValueError(f"checksum {stated}, expected {found}")
            known = {name: values[name] for name in cls.__dataclass_fields__}
            manifest = cls(**{**known, "classes": tuple(known["classes"])})
            manifest._check_types()
            return manifest
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DatastoreError(
                f"{source}: damaged manifest ({error}); "
                "restore the datastore from its backup: edge-sdk restore BACKUP FOLDER"
            ) from error

    def _check_types(self) -> None:
        """Raises ValueError where a value read from a file cannot be right."""
        numbers = (self.dim, self.n_model_classes, self.highest_sequence, self.format_version)
        if not all(_is_whole(number) for number in numbers):
            raise ValueError("a number is not a whole number")
        if not (
            1 <= self.dim <= 1 << 24 and 1 <= self.n_model_classes <= len(self.classes) and self.highest_sequence >= 0
        ):
            raise ValueError("a number is out of range")
        texts: tuple[object, ...] = (self.fingerprint, *self.classes)
        if not all(isinstance(text, str) for text in texts) or len(set(self.classes)) != len(self.classes):
            raise ValueError("the fingerprint and the distinct classes are texts")
        mappings: tuple[object, ...] = (self.extensions, self.interpolation or {})
        if not all(isinstance(mapping, dict) for mapping in mappings):
            raise ValueError("interpolation and extensions are mappings")


def _is_whole(value: object) -> bool:
    """Whether a value is an int and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def _checksum(values: dict[str, Any]) -> str:
    """CRC-32 of the canonical JSON text of everything but the checksum itself."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"
