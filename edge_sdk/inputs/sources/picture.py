"""One picture (or one sound, or one stored array) that is one sample: `predict photo.jpg`."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from edge_sdk.errors import InputError
from edge_sdk.inputs.base import Example, Refused, Request, Source
from edge_sdk.inputs.samples import SampleReader, shown

SUFFIXES = (
    ".jpg",
    ".jpeg",
    ".png",
    ".webp",
    ".gif",
    ".bmp",
    ".tif",
    ".tiff",
    ".ppm",
    ".pgm",
    ".avif",
    ".heic",
    ".heif",
)
"""What people call pictures; HEIC is here to be named, not read."""

_HEADS = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"P5", b"P6")


class PictureSource(Source):
    """One file that is one picture."""

    kind = "picture (JPEG, PNG, WebP, GIF, BMP, TIFF, PPM, AVIF)"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._reader = SampleReader(request.spec)
        if not request.path.exists():
            raise InputError(f"{request.path}: no such file")
        try:
            self._sample = self._reader.read(request.path)
        except InputError as error:
            raise InputError(f"{shown(request.path)}: {error}") from error

    @classmethod
    def recognises(cls, path: Path, head: bytes) -> bool:
        """A picture by its first bytes."""
        return head.startswith(_HEADS) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP") or head[4:8] == b"ftyp"

    @property
    def count(self) -> int:
        """One."""
        return 1

    @property
    def has_labels(self) -> bool:
        """A picture has none."""
        return False

    @property
    def notes(self) -> list[str]:
        """That it is animated, if it is."""
        return self._reader.notes()

    def examples(self) -> Iterator[Example | Refused]:
        """The one sample."""
        yield Example(shown(self.request.path.name), self._sample)


SOURCE = PictureSource
