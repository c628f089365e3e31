"""safetensors: eight bytes of header length, a JSON header, raw little-endian tensors.

Read here in forty lines and not by the `safetensors` package: every number in the header is checked against the
file's size before it is used, and it is one dependency less for a format whose whole specification is the sentence
above.
"""

import json
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from edge_sdk.errors import ExportError

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def load_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name.

    Raises:
        ExportError: cut short, or a header that does not fit the file.
    """
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + size])
        data = content[8 + size :]
        return {name: _tensor(entry, data) for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ExportError(f"{path}: damaged safetensors file ({error}); copy or save it again") from error


def _tensor(entry: dict[str, object], data: bytes) -> Tensor:
    dtype = _DTYPES.get(str(entry["dtype"]))
    if dtype is None:
        raise ValueError(f"dtype {entry['dtype']} is not supported")
    shape = [int(length) for length in entry["shape"]]  # type: ignore[attr-defined]
    start, end = (int(offset) for offset in entry["data_offsets"])  # type: ignore[attr-defined]
    if not 0 <= start <= end <= len(data) or end - start != prod(shape) * dtype.itemsize:
        raise ValueError(f"a tensor of shape {shape} at bytes {start} to {end} of {len(data)}")
    if start == end:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data[start:end]), dtype=dtype).reshape(shape)
