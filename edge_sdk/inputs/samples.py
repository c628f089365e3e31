"""SampleReader: one file that is one sample, by the model file's kind of input.

Folders, manifests and single files all read through here, so a picture means the same in each of them. The decoder is
made on the first file: a source of plain numbers never loads Pillow.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edge_sdk.errors import InputError
from edge_sdk.inputs.npy import NpyReader
from edge_sdk.model import InputSpec

if TYPE_CHECKING:
    from edge_sdk.inputs.audio import AudioDecoder
    from edge_sdk.inputs.images import ImageDecoder


class SampleReader:
    """Reads files as samples of one spec. Not to be shared between threads."""

    def __init__(self, spec: InputSpec) -> None:
        """Remember the spec; nothing is loaded yet."""
        self.spec = spec
        self._images: ImageDecoder | None = None
        self._audio: AudioDecoder | None = None

    @property
    def images(self) -> "ImageDecoder":
        """The decoder of pictures.

        Raises:
            InputError: the model file does not take pictures.
            ModelFileError: its rules for pictures are not understood.
        """
        if self._images is None:
            if self.spec.kind != "image":
                raise InputError(
                    f"the model file takes {self.spec.kind}s of shape {self.spec.shape}, not pictures; "
                    "if it is one for pictures, export it with --preprocess uint8"
                )
            from edge_sdk.inputs.images import ImageDecoder

            self._images = ImageDecoder(self.spec)
        return self._images

    @property
    def audio(self) -> "AudioDecoder":
        """The decoder of sound.

        Raises:
            InputError: the model file does not take sound.
            ModelFileError: its rules for sound are not understood.
        """
        if self._audio is None:
            if self.spec.kind != "audio":
                raise InputError(f"the model file takes {self.spec.kind}s of shape {self.spec.shape}, not sound")
            from edge_sdk.inputs.audio import AudioDecoder

            self._audio = AudioDecoder(self.spec)
        return self._audio

    def read(self, path: Path) -> np.ndarray:
        """The sample in a file: `.npy` for every model file, pictures or `.wav` for those that take them.

        Raises:
            InputError: it cannot be read as a sample. The message does not repeat the path.
        """
        if path.suffix.lower() == ".npy":
            return self._read_npy(path)
        if self.spec.kind == "audio":
            return self.audio.decode(path)
        return self.images.decode(path)

    def notes(self) -> list[str]:
        """What a person should know about what was read, one sentence each."""
        if self._images is not None and self._images.first_frames:
            return [f"{self._images.first_frames} animated or many-page pictures: the first frame was taken"]
        return []

    def _read_npy(self, path: Path) -> np.ndarray:
        try:
            if not path.is_file():
                raise InputError("no such file, or not a regular one")
            with path.open("rb") as file:
                reader = NpyReader(file, path.stat().st_size, name="array", kinds="fiub")
                if reader.shape != self.spec.shape:
                    raise InputError(f"holds shape {reader.shape}, expected {self.spec.shape}")
                reader.as_one_row()
                sample: np.ndarray = next(reader.blocks(1))[0]
                return sample
        except OSError as error:
            raise InputError(f"cannot read it: {error.strerror}") from error


def decoded(x: object, spec: InputSpec) -> object:
    """Pictures or sounds in whatever form an application holds them, as arrays; anything else as it is.

    Args:
        x: a path, the bytes of a file, a Pillow image, an array of uint8 pixels of any size, or a list of these.
        spec: of a model file that takes pictures or sounds.

    Returns:
        A sample of the spec's shape, a batch of them (n, *spec.shape) for a list, or `x`.

    Raises:
        InputError: one of them cannot be decoded; names its path or position.
    """
    is_one = _is_encoded(x, spec)
    if not is_one and not (isinstance(x, (list, tuple)) and x and all(_is_encoded(each, spec) for each in x)):
        return x
    reader = SampleReader(spec)
    decoder = reader.images if spec.kind == "image" else reader.audio
    pictures = [x] if is_one else list(x)  # type: ignore[call-overload]
    samples = np.empty((len(pictures), *spec.shape), spec.dtype)
    for position, picture in enumerate(pictures):
        try:
            samples[position] = decoder.decode(picture)
        except InputError as error:
            name = shown(picture) if isinstance(picture, (str, os.PathLike)) else f"input {position}"
            raise InputError(f"{name}: {error}") from error
    return samples[0] if is_one else samples


def _is_encoded(x: object, spec: InputSpec) -> bool:
    """Whether `x` is one picture or sound that is no sample yet."""
    if isinstance(x, np.ndarray):
        is_batch = x.shape[1:] == spec.shape
        return (
            spec.kind == "image" and x.dtype == np.uint8 and x.shape != spec.shape and x.ndim in (2, 3) and not is_batch
        )
    return isinstance(x, (str, os.PathLike, bytes, bytearray, memoryview)) or _is_pillow(x)


def _is_pillow(x: object) -> bool:
    """Whether `x` is a Pillow image, without importing Pillow to find out."""
    return any(each.__module__ == "PIL.Image" and each.__name__ == "Image" for each in type(x).__mro__)


def shown(path: str | os.PathLike[str]) -> str:
    """A path as text that any stream can print: bytes that are no UTF-8 and control characters are replaced."""
    text = os.fsencode(path).decode("utf-8", "replace")
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
