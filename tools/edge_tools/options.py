"""Options that several commands share, so that one word means one thing everywhere."""

import re
from pathlib import Path
from typing import Annotated

import typer

from edge_sdk import DatastoreError, ModelFile

ModelOption = Annotated[Path, typer.Option("--model", help="The exported model file (.onnx).")]
DatastoreOption = Annotated[Path, typer.Option("--datastore", help="The datastore's folder.")]
DatastoreArgument = Annotated[Path, typer.Argument(metavar="DATASTORE", help="The datastore's folder.")]
InputArgument = Annotated[
    Path, typer.Argument(metavar="INPUT", help="Labelled examples, such as an .npz with x and label.")
]
LambdaOption = Annotated[
    float | None,
    typer.Option("--lambda", min=0.0, max=1.0, help="Interpolation weight λ_m instead of the datastore's own."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]

_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ]*)\s*")
_BYTES = {"": 1.0, "b": 1.0} | {
    letter + ending: 1024.0**power for power, letter in enumerate("kmg", start=1) for ending in ("", "b", "ib")
}
_MILLISECONDS = {"": 1.0, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3}


def require_datastore(folder: Path, model: Path) -> None:
    """Say how a datastore comes about where a command needs one and there is none.

    Raises:
        ModelFileError: the model file is wrong too, which comes first.
        DatastoreError: no such folder.
    """
    if not folder.exists():
        ModelFile.open(model)
        raise DatastoreError(f"{folder}: no such datastore; learn something first: edge-sdk ingest")


def parse_bytes(text: str) -> int:
    """A number of bytes as people write it: 4096, 64KB, 1.5 MB, 2GiB (1 KB = 1 KiB = 1024 bytes).

    Raises:
        typer.BadParameter: anything else.
    """
    return int(_parse(text, _BYTES, "number of bytes; write 4096, 64KB, 16MB or 2GB"))


def parse_milliseconds(text: str) -> float:
    """Milliseconds of "30ms", "0.03 s" or "30".

    Raises:
        typer.BadParameter: anything else.
    """
    return _parse(text, _MILLISECONDS, "time; write 30ms, 0.03s or a number of milliseconds")


def _parse(text: str, units: dict[str, float], expected: str) -> float:
    match = _QUANTITY.fullmatch(text)
    unit = match[2].lower() if match else None
    if match is None or unit not in units:
        raise typer.BadParameter(f'"{text}" is no {expected}')
    return float(match[1]) * units[unit]
