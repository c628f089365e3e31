"""Metadata: writing into an ONNX file what `edge_sdk.model` reads out of it, and the file itself."""

import os
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import onnx

from edge_export.fingerprint import fingerprint
from edge_sdk.errors import ExportError
from edge_sdk.model import EMBEDDING_OUTPUT, METADATA_KEY, InputSpec, ModelFile, ModelMetadata

LARGEST_FILE = 2_000_000_000
"""A protobuf ends at 2 GiB; a board ends long before."""

Result = TypeVar("Result")


def describe(
    model: onnx.ModelProto, spec: InputSpec, classes: Sequence[str], *, extensions: dict[str, Any] | None = None
) -> ModelMetadata:
    """The metadata of a finished graph, put into it.

    Args:
        model: changed: its only metadata property becomes the text.
        spec: the input.
        classes: labels in the order of the columns.
        extensions: reports that readers may ignore.
    """
    dim = next(v for v in model.graph.output if v.name == EMBEDDING_OUTPUT).type.tensor_type.shape.dim[1].dim_value
    metadata = ModelMetadata(
        classes=tuple(classes),
        input=spec,
        dim=dim,
        fingerprint=fingerprint(model.graph, spec, classes),
        graph_crc32=zlib.crc32(model.graph.SerializeToString()),
        extensions=extensions or {},
    )
    del model.metadata_props[:]
    model.metadata_props.add(key=METADATA_KEY, value=metadata.to_json())
    return metadata


def write_checked(model: onnx.ModelProto, path: Path, check: Callable[[Path], Result]) -> Result:
    """Write a model beside `path`, open it as a device would, run `check` on it, and only then put it in place.

    Raises:
        ExportError: the folder is missing or not writable, or whatever `check` raises. `path` is as it was.
    """
    content = model.SerializeToString()
    if not path.parent.is_dir():
        raise ExportError(f"{path}: no such folder {path.parent}; make it first")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise ExportError(f"{path}: cannot write: {error.strerror}") from error
    beside = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        ModelFile.open(beside)
        result = check(beside)
        beside.chmod(0o644)
        os.replace(beside, path)
    except OSError as error:
        raise ExportError(f"{path}: cannot write: {error.strerror}") from error
    finally:
        beside.unlink(missing_ok=True)
    return result
