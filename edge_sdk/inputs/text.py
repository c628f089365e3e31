"""TextLines: lines of a text file of unknown encoding and any length, in bounded memory.

UTF-8 with or without a byte-order mark, and UTF-16 with one. A byte that is no UTF-8 does not end the reading: it comes
out as a lone surrogate, so that its row alone can be refused (a table saved as Latin-1 has such a byte in each accented
label).
"""

import codecs
import io
from collections.abc import Iterator
from typing import BinaryIO

from edge_sdk.errors import InputError

LARGEST_LINE = 1 << 20
"""Most characters of a line, unless a caller needs more."""

_HEAD_BYTES = 4096


def text_of(file: BinaryIO, *, name: str) -> io.TextIOWrapper:
    """The file as text, newlines kept.

    Args:
        file: seekable, at its start.
        name: for messages.

    Raises:
        InputError: binary, or UTF-16 without a byte-order mark.
    """
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return io.TextIOWrapper(file, "utf-16", "replace", newline="")
    if b"\0" in head:
        raise InputError(f"{name}: not text (it holds zero bytes); save it as UTF-8")
    return io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")


def bounded_lines(text: io.TextIOBase, *, name: str, largest: int = LARGEST_LINE) -> Iterator[str]:
    """The lines, each with its newline.

    Raises:
        InputError: a line is longer than `largest` characters.
    """
    number = 0
    while line := text.readline(largest + 1):
        number += 1
        if len(line) > largest:
            raise InputError(f"{name} line {number}: longer than {largest} characters; this is no table of samples")
        yield line


def is_clean(text: str) -> bool:
    """Whether every character was decoded."""
    return text.isascii() or not any("\udc80" <= character <= "\udcff" or character == "\ufffd" for character in text)
