"""AudioDecoder: a `.wav` file -> the samples that the model file wants, at its rate and with its channels.

A clip recorded at another rate is resampled or refused, never passed on as it is: 48 kHz read as 16 kHz gives
embeddings that match nothing and no error. The RIFF chunks are read here, because the standard library's `wave` knows
neither floating point nor (before Python 3.12) the extensible header that most 24-bit recorders write.
"""

import importlib
import io
import math
import os
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from edge_sdk.errors import InputError, MissingExtraError, ModelFileError
from edge_sdk.model import InputSpec

LARGEST_FRAMES = 8_000_000
"""Most frames that are read: 3 minutes at 44.1 kHz."""

_KEYS = {"rate", "fit", "layout"}
_FITS = ("refuse", "pad", "crop", "pad-or-crop")
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_LARGEST_CHANNELS = 16
_RATES = range(1000, 768_001)


class Recording(NamedTuple):
    """What a `.wav` holds."""

    samples: np.ndarray
    """float32 (frames, channels) in [-1, 1]."""

    rate: int
    """Frames a second."""


class AudioDecoder:
    """Sound by one model file's rules.

    `spec.preprocessing` holds `rate` (frames a second) and may hold `fit`: what happens to a clip of another length
    than the spec's: "refuse" (default), "pad" (shorter ones get silence at their end), "crop" (longer ones lose their
    end) or "pad-or-crop". The spec's shape is (frames,) for mono, (channels, frames) or, with `layout` "last", (frames,
    channels).
    """

    def __init__(self, spec: InputSpec) -> None:
        """Read the rules.

        Raises:
            ModelFileError: no rate, or a rule that this edge-sdk does not know.
        """
        rules = spec.preprocessing
        unknown = sorted(set(rules) - _KEYS)
        if unknown:
            raise ModelFileError(
                f"the model file asks for audio preprocessing {unknown[0]!r}, unknown here; upgrade edge-sdk"
            )
        rate = rules.get("rate")
        if not isinstance(rate, int) or rate not in _RATES or np.dtype(spec.dtype).kind != "f":
            raise ModelFileError(
                f"the model file takes sound as {spec.dtype} at rate {rate!r}, expected floats at a rate in Hz"
            )
        self.fit = rules.get("fit", "refuse")
        self._last = rules.get("layout", "first") == "last"
        if self.fit not in _FITS or len(spec.shape) not in (1, 2):
            raise ModelFileError(
                f"the model file takes sound of shape {spec.shape} with fit {self.fit!r}, unknown here"
            )
        self.rate = rate
        self.channels = 1 if len(spec.shape) == 1 else spec.shape[1 if self._last else 0]
        self.frames = spec.shape[0 if self._last else -1]
        self._spec = spec

    def decode(self, sound: object) -> np.ndarray:
        """One clip as a sample.

        Args:
            sound: the path of a `.wav`, or its bytes.

        Returns:
            An array of the spec's shape and dtype, values in about [-1, 1].

        Raises:
            InputError: not a `.wav`, cut short, or of channels or a length that do not fit.
            MissingExtraError: another rate, and no resampler is installed.
        """
        if isinstance(sound, (bytes, bytearray, memoryview)):
            recording = read_wav(io.BytesIO(sound), len(sound))
        elif isinstance(sound, (str, os.PathLike)):
            recording = _read_file(Path(sound))
        else:
            raise InputError(f"sound is a path or the bytes of a .wav, got {type(sound).__name__}")
        samples = self._fit_length(resampled(self._fit_channels(recording.samples), recording.rate, self.rate))
        laid_out = samples if self._last else samples.T
        return np.ascontiguousarray(laid_out, self._spec.dtype).reshape(self._spec.shape)

    def _fit_channels(self, samples: np.ndarray) -> np.ndarray:
        """(frames, channels): several mixed to one, or refused."""
        found = samples.shape[1]
        if found == self.channels:
            return samples
        if self.channels == 1:
            mixed: np.ndarray = samples.mean(axis=1, keepdims=True, dtype=np.float32)
            return mixed
        raise InputError(
            f"has {found} channel{'s' * (found > 1)}, the model file takes {self.channels}; record with {self.channels}"
        )

    def _fit_length(self, samples: np.ndarray) -> np.ndarray:
        """(frames, channels) of the spec's length, or refused."""
        found = len(samples)
        if found == self.frames:
            return samples
        if found > self.frames and self.fit in ("crop", "pad-or-crop"):
            return samples[: self.frames]
        if found < self.frames and self.fit in ("pad", "pad-or-crop"):
            return np.pad(samples, ((0, self.frames - found), (0, 0)))
        raise InputError(
            f"lasts {found / self.rate:.3f} s ({found} frames at {self.rate} Hz), "
            f"the model file takes {self.frames} frames; cut it to that length"
        )


def read_wav(file: BinaryIO, size: int) -> Recording:
    """Read a `.wav`: PCM of 8, 16, 24 or 32 bits, or floats of 32 or 64.

    Args:
        file: at its start.
        size: bytes of the file.

    Raises:
        InputError: not a `.wav`, compressed, empty, cut short, or too long.
    """
    if size == 0:
        raise InputError("empty file")
    head = file.read(12)
    if head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        raise InputError("not a .wav file; convert it to .wav")
    form: bytes | None = None
    while True:
        chunk = file.read(8)
        if len(chunk) < 8:
            raise InputError("holds no sound (no data chunk); copy or record it again")
        name, length = chunk[:4], int.from_bytes(chunk[4:], "little")
        if name == b"data":
            break
        if length > size - file.tell():
            raise InputError("damaged or cut short; copy it again")
        if name == b"fmt ":
            form = file.read(length)
            file.seek(length % 2, io.SEEK_CUR)
        else:
            file.seek(length + length % 2, io.SEEK_CUR)
    if form is None or len(form) < 16:
        raise InputError("damaged .wav header; copy it again")
    return _read_data(file, form, length, size - file.tell())


def _read_data(file: BinaryIO, form: bytes, length: int, left: int) -> Recording:
    """The samples that follow a data chunk's header."""
    tag, channels = int.from_bytes(form[:2], "little"), int.from_bytes(form[2:4], "little")
    rate, bits = int.from_bytes(form[4:8], "little"), int.from_bytes(form[14:16], "little")
    if tag == _EXTENSIBLE and len(form) >= 26:
        tag = int.from_bytes(form[24:26], "little")
    if not 1 <= channels <= _LARGEST_CHANNELS or rate not in _RATES:
        raise InputError(f"damaged .wav header ({channels} channels at {rate} Hz); copy it again")
    if (tag, bits) not in ((_PCM, 8), (_PCM, 16), (_PCM, 24), (_PCM, 32), (_FLOAT, 32), (_FLOAT, 64)):
        raise InputError(f"is compressed or of an unusual kind (tag {tag}, {bits} bits); save it as 16-bit PCM")
    if length > left:
        raise InputError(f"cut short ({left} of {length} bytes of sound); copy it again")
    frame = channels * bits // 8
    frames = length // frame
    if frames == 0:
        raise InputError("holds no sound (0 frames)")
    if frames > LARGEST_FRAMES:
        raise InputError(f"has {frames} frames, at most {LARGEST_FRAMES} are read; cut it into clips")
    samples = _as_floats(file.read(frames * frame), tag, bits)
    if not np.isfinite(samples).all():
        raise InputError("holds NaN or infinity; record it again")
    return Recording(samples.reshape(frames, channels), rate)


def _as_floats(data: bytes, tag: int, bits: int) -> np.ndarray:
    """float32 in [-1, 1] from interleaved samples; 8-bit sound is unsigned."""
    if tag == _FLOAT:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.frombuffer(data, f"<f{bits // 8}").astype(np.float32)
    if bits == 8:
        return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128
    if bits == 24:
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(
            -1, 3
        )  # as the upper three bytes of 32, so that the sign is right
        return wide.view("<i4")[:, 0].astype(np.float32) / np.float32(2**31)
    return np.frombuffer(data, f"<i{bits // 8}").astype(np.float32) / np.float32(2 ** (bits - 1))


def resampled(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """(frames, channels) at another rate, by soxr or else scipy.

    Raises:
        InputError: too long.
        MissingExtraError: the rates differ and neither is installed.
    """
    if rate == wanted:
        return samples
    if len(samples) * wanted // rate > LARGEST_FRAMES:
        raise InputError(f"lasts {len(samples) / rate:.0f} s, too long to be resampled; cut it into clips")
    try:
        soxr: Any = importlib.import_module("soxr")
    except ImportError:
        return _resampled_by_scipy(samples, rate, wanted)
    return np.asarray(soxr.resample(samples, rate, wanted), np.float32)


def _resampled_by_scipy(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    try:
        signal: Any = importlib.import_module("scipy.signal")
    except ImportError as error:
        raise MissingExtraError("soxr", "audio") from error
    common = math.gcd(rate, wanted)
    return np.asarray(signal.resample_poly(samples, wanted // common, rate // common, axis=0), np.float32)


def _read_file(path: Path) -> Recording:
    try:
        if not path.is_file():
            raise InputError("no such file, or not a regular one")
        with path.open("rb") as file:
            return read_wav(file, os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise InputError(f"cannot read it: {error.strerror}") from error
