"""The door: a path as the user typed it -> the source that reads it.

Kinds are told apart by what the path is and by its suffix, and by the first bytes where the suffix says nothing. Every
module of `sources/` that defines `SOURCE` is asked, so a new kind needs no line here.
"""

import importlib
import os
import pkgutil
from functools import cache
from pathlib import Path

from edge_sdk.errors import InputError
from edge_sdk.inputs import sources
from edge_sdk.inputs.base import STREAM, Labels, Request, Source
from edge_sdk.labels import normalise_label
from edge_sdk.model import InputSpec

_HEAD_BYTES = 512


def open_source(
    path: str | os.PathLike[str],
    spec: InputSpec,
    *,
    label: str | None = None,
    labels: Labels = "optional",
    label_column: str | None = None,
) -> Source:
    """Open whatever `path` is.

    Args:
        path: file, folder, or "-" for standard input.
        spec: the model file's input.
        label: one label for every sample; labels in the source are then not read.
        labels: "required" refuses a source without labels, "ignored" does not look for them.
        label_column: name of the column, array or key with the labels, where the usual names do not fit.

    Raises:
        InputError: no such path, a kind that nobody reads, or wrong as a whole.
    """
    if label is not None:
        label = normalise_label(label)
    request = Request(Path(path), spec, label, labels, label_column)
    try:
        source = _kind_of(request.path)(request)
    except OSError as error:
        raise InputError(f"{path}: cannot read it: {error.strerror or error}") from error
    if source.count == 0:
        raise InputError(f"{path}: holds no inputs; expected at least one")
    if label is None and labels == "required" and not source.has_labels:
        raise InputError(f"{path}: holds no labels; give one for all with --label L")
    return source


@cache
def kinds() -> tuple[type[Source], ...]:
    """Every kind of source, by module name."""
    found: list[type[Source]] = []
    for module in sorted(pkgutil.iter_modules(sources.__path__), key=lambda module: module.name):
        kind = getattr(importlib.import_module(f"{sources.__name__}.{module.name}"), "SOURCE", None)
        if kind is not None:
            found.append(kind)
    return tuple(found)


def _kind_of(path: Path) -> type[Source]:
    """The kind that reads `path`."""
    head = b""
    if path != STREAM and not path.is_dir():
        for kind in kinds():
            if path.suffix.lower() in kind.suffixes:
                return kind
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        if not path.is_file():
            raise InputError(f"{path}: not a regular file; give a file, a folder, or - for standard input")
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    for kind in kinds():
        if kind.recognises(path, head):
            return kind
    raise InputError(
        f"{path}: not a kind of input that edge-sdk reads; expected {'; '.join(kind.kind for kind in kinds())}"
    )
