"""JSON lines, from a file or standard input: one sample a line, for pipes and services.

    {"x": [[0.1, ...], ...], "label": "typing"}      numbers, nested as the model's input or flat
    {"image": "<base64>", "label": "cat"}            the bytes of a picture file ("sound": of a .wav)
    [[0.1, ...], ...]                                numbers alone

A line is bounded before it is read whole, and a bad line costs that line alone.
"""

import base64
import binascii
import json
import math
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from edge_sdk.errors import InputError
from edge_sdk.inputs.base import STREAM, Example, Refused, Request, Source
from edge_sdk.inputs.samples import SampleReader, shown

LARGEST_LINE = 32 << 20
"""Most bytes of a line: a picture of 24 MB in base64."""

_LARGEST_NAME = 200
_SPARE_COMMAS = 10_000
_X_KEYS, _IMAGE_KEYS, _SOUND_KEYS = ("x", "input"), ("image", "picture"), ("sound", "audio")
_LABEL_KEYS = ("label", "labels", "class", "target", "y")


class JsonLinesSource(Source):
    """A `.jsonl`, or standard input."""

    kind = "JSON lines (.jsonl, or - for standard input)"
    suffixes = (".jsonl", ".ndjson", ".jsonlines")

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._width = math.prod(request.spec.shape)
        self._reader = SampleReader(request.spec)
        self._is_stream = request.path == STREAM
        self._name = "stdin" if self._is_stream else request.path.name
        self._label_keys = _LABEL_KEYS if request.label_column is None else (request.label_column,)
        self._first: list[tuple[int, bytes | None]] = []
        if not self._is_stream and not request.path.is_file():
            raise InputError(f"{request.path}: no such file")
        self._lines = self._numbered_lines()
        first = next(self._lines, None)
        if first is None:
            raise InputError(f"{shown(request.path)}: holds no lines")
        if first[1] is not None and b"\0" in first[1]:
            raise InputError(f"{shown(request.path)}: not text (it holds zero bytes), expected JSON lines in UTF-8")
        if self._is_stream:
            self._first = [first]
        else:
            self._lines.close()
        value = _parsed(first[1])
        self._labelled = request.labels == "required" or (
            isinstance(value, dict) and self._label_key(value) is not None
        )

    @classmethod
    def recognises(cls, path: Path, head: bytes) -> bool:
        """Standard input, or text that starts as JSON does."""
        return path == STREAM or head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")

    @property
    def count(self) -> None:
        """Not known before the end."""
        return

    @property
    def has_labels(self) -> bool:
        """Whether the first line has a label, or the caller needs labels."""
        return self._labelled

    @property
    def notes(self) -> list[str]:
        """About pictures."""
        return self._reader.notes()

    def examples(self) -> Iterator[Example | Refused]:
        """The lines in order; standard input can be read once."""
        if self._is_stream:
            lines = self._lines
        else:
            lines = self._numbered_lines()
        yield from (self._example(number, line) for number, line in self._first)
        self._first = []
        yield from (self._example(number, line) for number, line in lines)

    def _example(self, number: int, line: bytes | None) -> Example | Refused:
        """One line; None is one that was too long."""
        name = f"{self._name} line {number}"
        if line is None:
            return Refused(name, f"longer than {LARGEST_LINE} bytes")
        # A list of a million numbers takes 40 MB once it is parsed; commas are counted before.
        if line.count(b",") > 2 * self._width + _SPARE_COMMAS:
            return Refused(name, f"holds far more values than the {self._width} of a sample")
        value = _parsed(line)
        if isinstance(value, InputError):
            return Refused(name, str(value))
        label: object = None
        if isinstance(value, dict):
            given = value.get("name", value.get("id"))
            if isinstance(given, (str, int)) and not isinstance(given, bool):
                name = f"{name} ({shown(str(given)[:_LARGEST_NAME])})"
            key = self._label_key(value)
            label = value[key] if key is not None else None
            if self._labelled and self.request.reads_labels and label is None:
                return Refused(name, f"has no label (a key {self._label_keys[0]})")
        try:
            return Example(name, self._sample(value), label)
        except InputError as error:
            return Refused(name, str(error))

    def _label_key(self, value: dict[str, Any]) -> str | None:
        return next((key for key in self._label_keys if key in value), None)

    def _sample(self, value: object) -> np.ndarray:
        """The sample of one line."""
        if isinstance(value, list):
            return self._numbers(value)
        if not isinstance(value, dict):
            raise InputError(
                f"holds a {type(value).__name__}, expected an object with x or image, or a list of numbers"
            )
        for key in _X_KEYS:
            if key in value:
                return self._numbers(value[key])
        for key in _IMAGE_KEYS:
            if key in value:
                return self._reader.images.decode(_bytes(value[key], key))
        for key in _SOUND_KEYS:
            if key in value:
                return self._reader.audio.decode(_bytes(value[key], key))
        raise InputError(
            f"has no x, image or sound, found {', '.join(shown(key[:40]) for key in list(value)[:8]) or 'nothing'}"
        )

    def _numbers(self, value: object) -> np.ndarray:
        """Numbers in the spec's shape, or flat."""
        try:
            array = np.asarray(value)
        except (ValueError, OverflowError) as error:
            raise InputError("x is ragged: its lists have different lengths") from error
        if array.dtype.kind not in "fiu":
            raise InputError("x holds something that is no number")
        if array.shape != self.request.spec.shape and array.shape != (self._width,):
            raise InputError(f"x has shape {array.shape}, expected {self.request.spec.shape}")
        return array.reshape(self.request.spec.shape)

    def _numbered_lines(self) -> Generator[tuple[int, bytes | None], None, None]:
        """(number, line) of each line that is not blank; None instead of one that is too long."""
        largest = max(LARGEST_LINE, 64 * self._width)
        with self._opened() as file:
            number = 0
            while line := file.readline(largest + 1):
                number += 1
                if len(line) > largest and not line.endswith(b"\n"):
                    while line and not line.endswith(b"\n"):
                        line = file.readline(largest)
                    yield number, None
                elif line.strip():
                    yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        if self._is_stream:
            yield sys.stdin.buffer
            return
        with self.request.path.open("rb") as file:
            yield file


def _parsed(line: bytes | None) -> Any:
    """The JSON value of a line, or an InputError that says why there is none."""
    try:
        return json.loads(line or b"")
    except UnicodeDecodeError:
        return InputError("is no UTF-8")
    except RecursionError:
        return InputError("is nested too deeply")
    except ValueError as error:
        reason = str(error).splitlines()[0]
        return InputError(f"is not JSON ({reason}); write one JSON value a line")


def _bytes(value: object, key: str) -> bytes:
    """What base64 text (with or without a data URI's head) stands for."""
    if not isinstance(value, str):
        raise InputError(f"{key} is a {type(value).__name__}, expected base64 text")
    text = value.partition(",")[2] if value.startswith("data:") else value
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"{key} is not base64 ({error})") from error


SOURCE = JsonLinesSource
