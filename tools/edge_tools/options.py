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


def require_datastore(folder: Path, model: Path) -> None:
    """Say how a datastore comes about where a command needs one and there is none.

    Raises:
        ModelFileError: the model file is wrong too, which comes first.
        DatastoreError: no such folder.
    """
    if not folder.exists():
        ModelFile.open(model)
        raise DatastoreError(f"{folder}: no such datastore; learn something first: edge-sdk ingest")


_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def parse_bytes(text: str) -> int:
    """A number of bytes as people write it: 4096, 64KB, 1.5 MB, 2GB (1 KB = 1024 bytes).

    Raises:
        typer.BadParameter: anything else.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?B?)\s*", text, re.IGNORECASE)
    unit = match[2].upper() if match else "?"
    unit = f"{unit}B" if unit in ("K", "M", "G") else unit
    if match is None or unit not in _UNITS:
        raise typer.BadParameter(f'"{text}" is no number of bytes; write 4096, 64KB, 16MB or 2GB')
    return int(float(match[1]) * _UNITS[unit])
