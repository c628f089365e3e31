"""ModelFile: an exported `.onnx` file and what it says about itself.

The metadata is read by walking the top level of the file's protobuf (a few dozen bytes besides the graph), not by
opening an onnxruntime session: a PNG, half a file or a model for a newer runtime is then named in a plain sentence
before native code sees it, and `edge-sdk info` needs no session. The graph's bytes carry a CRC-32 in the metadata, so
that a weight damaged on the card is found when the file is opened (1 GB/s or more, so 10 ms for a 10 MB model).
"""

import io
import json
import os
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from edge_sdk.errors import ModelFileError

FORMAT_VERSION = 1
"""Version of the metadata below; a reader refuses a newer one."""

METADATA_KEY = "edge_sdk"
"""Key of the one metadata property, whose value is the JSON text of a `ModelMetadata`."""

EMBEDDING_OUTPUT = "embedding"
PROBABILITIES_OUTPUT = "probabilities"

# Field numbers of onnx.ModelProto and onnx.StringStringEntryProto (onnx/onnx.proto).
_IR_VERSION, _GRAPH, _METADATA_PROPS = 1, 7, 14
_ENTRY_KEY, _ENTRY_VALUE = 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_CHUNK = 1 << 20


@dataclass(frozen=True)
class InputSpec:
    """What one sample is, at the door of the model file."""

    name: str
    """Name of the graph's one input."""

    shape: tuple[int, ...]
    """Shape of one sample, without the batch axis."""

    dtype: str = "float32"
    """NumPy name of the dtype that the graph takes."""

    kind: str = "array"
    """What the numbers are: "array" (anything), "image", "audio"."""

    preprocessing: dict[str, Any] = field(default_factory=dict)
    """What happens to a file before the graph (size, colour, rate); what happens inside the graph is not repeated
    here."""


@dataclass(frozen=True)
class ModelMetadata:
    """What a model file says about itself."""

    classes: tuple[str, ...]
    """Labels in the order of the columns of `probabilities`."""

    input: InputSpec
    """The one input."""

    dim: int
    """Width of `embedding`."""

    fingerprint: str
    """SHA-256 over everything that gives an embedding its meaning: the graph with its weights, the input spec, the
    classes."""

    graph_crc32: int
    """CRC-32 of the serialised graph, as it lies in the file."""

    format_version: int = FORMAT_VERSION

    extensions: dict[str, Any] = field(default_factory=dict)
    """Room for what later versions add (reference embeddings, quantisation report); readers ignore what they do not
    know."""

    def to_json(self) -> str:
        """The metadata as JSON text, keys sorted."""
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str, *, source: str) -> "ModelMetadata":
        """Read back what `to_json` wrote.

        Args:
            text: JSON text.
            source: name of the file, for messages.

        Raises:
            ModelFileError: the text is not such metadata, or of a newer format.
        """
        try:
            values = json.loads(text)
            version = int(values["format_version"])
            if version > FORMAT_VERSION:
                raise ModelFileError(
                    f"{source}: model file format {version}, this edge-sdk reads up to {FORMAT_VERSION}; "
                    "upgrade edge-sdk or export again with this version"
                )
            spec = values["input"]
            return cls(
                classes=tuple(str(name) for name in values["classes"]),
                input=InputSpec(
                    name=str(spec["name"]),
                    shape=tuple(int(size) for size in spec["shape"]),
                    dtype=str(spec["dtype"]),
                    kind=str(spec["kind"]),
                    preprocessing=dict(spec["preprocessing"]),
                ),
                dim=int(values["dim"]),
                fingerprint=str(values["fingerprint"]),
                graph_crc32=int(values["graph_crc32"]),
                format_version=version,
                extensions=dict(values.get("extensions", {})),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"{source}: damaged edge-sdk metadata ({error!r}); export the model again") from error


@dataclass(frozen=True)
class ModelFile:
    """A model file on disk whose structure and checksum were found right."""

    path: Path
    metadata: ModelMetadata
    ir_version: int
    """Version of the ONNX representation, which decides which onnxruntime can read the file."""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "ModelFile":
        """Check a model file and read its metadata.

        Raises:
            ModelFileError: no such file, not an ONNX file, cut short, damaged, not exported by edge-sdk, or of a newer
                format.
        """
        path = Path(path)
        try:
            with path.open("rb") as file:
                layout = _read_layout(file, path)
                if METADATA_KEY not in layout.properties:
                    raise ModelFileError(
                        f"{path}: an ONNX file without edge-sdk metadata; "
                        f"make one with: edge-sdk export {path.name} -o NEW.onnx"
                    )
                metadata = ModelMetadata.from_json(layout.properties[METADATA_KEY], source=str(path))
                found = crc32_of_span(file, layout.graph_start, layout.graph_size)
        except OSError as error:
            raise ModelFileError(f"{path}: cannot read the model file: {error.strerror}") from error
        if found != metadata.graph_crc32:
            raise ModelFileError(
                f"{path}: damaged model file (graph checksum {found:08x}, expected {metadata.graph_crc32:08x}); "
                "copy it to the device again"
            )
        return cls(path=path, metadata=metadata, ir_version=layout.ir_version)


class _Layout(NamedTuple):
    """Where the parts of an ONNX file lie."""

    ir_version: int
    graph_start: int
    graph_size: int
    properties: dict[str, str]


def graph_crc32(path: str | os.PathLike[str]) -> int:
    """CRC-32 of the serialised graph of any ONNX file, as `ModelMetadata.graph_crc32` stores it.

    Raises:
        ModelFileError: not an ONNX file, or cut short.
    """
    path = Path(path)
    with path.open("rb") as file:
        layout = _read_layout(file, path)
        return crc32_of_span(file, layout.graph_start, layout.graph_size)


def crc32_of_span(file: BinaryIO, start: int, size: int) -> int:
    """CRC-32 of `size` bytes from offset `start`, read in blocks of 1 MB."""
    file.seek(start)
    checksum = 0
    while size > 0:
        block = file.read(min(size, _CHUNK))
        if not block:
            break
        checksum = zlib.crc32(block, checksum)
        size -= len(block)
    return checksum


def _read_layout(file: BinaryIO, path: Path) -> _Layout:
    """Walk the top-level fields of an onnx.ModelProto without reading the graph."""
    end = os.fstat(file.fileno()).st_size
    ir_version, graph_start, graph_size = 0, -1, 0
    properties: dict[str, str] = {}
    try:
        while file.tell() < end:
            number, wire_type = _read_tag(file)
            if wire_type == _VARINT:
                value = _read_varint(file)
                if number == _IR_VERSION:
                    ir_version = value
                continue
            size = {_BYTES: None, _FIXED64: 8, _FIXED32: 4}[wire_type]
            if size is None:
                size = _read_varint(file)
            start = file.tell()
            if start + size > end:
                raise EOFError
            if number == _GRAPH:
                graph_start, graph_size = start, size
            elif number == _METADATA_PROPS:
                key, text = _read_entry(file.read(size))
                properties[key] = text
            file.seek(start + size)
    except (EOFError, KeyError, UnicodeDecodeError) as error:
        raise ModelFileError(
            f"{path}: not an ONNX file, or cut short ({end} bytes); copy or export it again"
        ) from error
    if ir_version == 0 or graph_start < 0:
        raise ModelFileError(f"{path}: not an ONNX file, or cut short ({end} bytes); copy or export it again")
    return _Layout(ir_version, graph_start, graph_size, properties)


def _read_tag(file: BinaryIO) -> tuple[int, int]:
    """One field's (number, wire type)."""
    tag = _read_varint(file)
    return tag >> 3, tag & 7


def _read_varint(file: BinaryIO) -> int:
    """One base-128 integer (at most 10 bytes)."""
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            raise EOFError
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise EOFError


def _read_entry(payload: bytes) -> tuple[str, str]:
    """The (key, value) of one onnx.StringStringEntryProto."""
    texts: dict[int, str] = {}
    file = io.BytesIO(payload)
    while file.tell() < len(payload):
        number, wire_type = _read_tag(file)
        if wire_type != _BYTES:
            raise EOFError
        texts[number] = file.read(_read_varint(file)).decode()
    return texts.get(_ENTRY_KEY, ""), texts.get(_ENTRY_VALUE, "")
