"""Kinds of file that people call `model.pt`, told apart by their bytes and never by their name.

`.pt` is not one format: `torch.save` writes a zip around a pickle (before torch 1.6: a bare pickle), TorchScript and
`torch.export` write zips of their own. Nothing is unpickled here.
"""

import zipfile
from enum import Enum
from pathlib import Path

from edge_sdk.errors import ExportError


class Kind(Enum):
    """What a source file is."""

    CHECKPOINT = "torch.save file"
    TORCHSCRIPT = "TorchScript archive"
    PROGRAM = "torch.export archive"
    SAFETENSORS = "safetensors file"
    ONNX = "ONNX file"


_MAGIC = {
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"\x89HDF": "an HDF5 (Keras) file",
    b"GGUF": "a GGUF file",
    b"\x1f\x8b": "a gzip file",
    b"%PDF": "a PDF document",
    b"<htm": "a web page",
    b"<!DO": "a web page",
    b"vers": "a Git LFS pointer (run: git lfs pull)",
    b"\x93NUM": "a NumPy array",
}


def recognise(path: Path) -> Kind:
    """Which kind of file `path` is.

    Raises:
        ExportError: no such file, empty, cut short, or nothing that holds a model; the message says what it looks like.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise ExportError(f"{path}: cannot read the source model: {error.strerror}") from error
    if size == 0:
        raise ExportError(f"{path}: empty file (0 bytes); save or copy the model again")
    if head[:4] == b"PK\x03\x04":
        return _recognise_zip(path)
    if head[:1] == b"\x80" and 2 <= head[1] <= 5:
        return Kind.CHECKPOINT
    if len(head) > 8 and head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") < size:
        return Kind.SAFETENSORS
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            raise ExportError(f"{path}: this is {name}, not a model; {_WANTED}")
    if head[4:8] == b"TFL3":
        raise ExportError(f"{path}: this is a TensorFlow Lite file, not a model that can be exported; {_WANTED}")
    if head[:1] == b"\x08":  # onnx.ModelProto starts with its field 1, ir_version, a varint
        return Kind.ONNX
    raise ExportError(f"{path}: not a model ({size} bytes starting with {head[:4].hex(' ')}); {_WANTED}")


_WANTED = "expected a file written by torch.save, torch.jit.save, torch.export.save, safetensors or an .onnx file"


def _recognise_zip(path: Path) -> Kind:
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.partition("/")[2] for name in archive.namelist()} | set(archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        size = path.stat().st_size
        raise ExportError(
            f"{path}: damaged or cut short ({size} bytes, {error}); copy or save the model again"
        ) from error
    if "constants.pkl" in names and any(name.startswith("code/") for name in names):
        return Kind.TORCHSCRIPT
    if "archive_format" in names or "serialized_exported_program.json" in names:
        return Kind.PROGRAM
    if "data.pkl" in names:
        return Kind.CHECKPOINT
    if any(name.endswith(".npy") for name in names):
        raise ExportError(f"{path}: this is a NumPy .npz file, not a model; {_WANTED}")
    raise ExportError(f"{path}: a zip archive without a torch model inside; {_WANTED}")
