"""One sound that is one sample: `predict clip.wav`."""

from collections.abc import Iterator
from pathlib import Path

from edge_sdk.errors import InputError
from edge_sdk.inputs.base import Example, Refused, Request, Source
from edge_sdk.inputs.samples import SampleReader, shown


class SoundSource(Source):
    """One `.wav`."""

    kind = "sound (.wav)"
    suffixes = (".wav", ".wave")

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        try:
            self._sample = SampleReader(request.spec).audio.decode(request.path)
        except InputError as error:
            raise InputError(f"{shown(request.path)}: {error}") from error

    @classmethod
    def recognises(cls, path: Path, head: bytes) -> bool:
        """RIFF with WAVE in it."""
        return head[:4] == b"RIFF" and head[8:12] == b"WAVE"

    @property
    def count(self) -> int:
        """One."""
        return 1

    @property
    def has_labels(self) -> bool:
        """A sound has none."""
        return False

    def examples(self) -> Iterator[Example | Refused]:
        """The one sample."""
        yield Example(shown(self.request.path.name), self._sample)


SOURCE = SoundSource
