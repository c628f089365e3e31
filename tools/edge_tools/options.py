"""Options that several commands share, so that one word means one thing everywhere."""

from pathlib import Path
from typing import Annotated

import typer

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
