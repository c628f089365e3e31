"""Fingerprint: SHA-256 over everything that gives a stored embedding its meaning.

That is the part of the graph that the two outputs depend on, with its weights, the input spec with its preprocessing,
and the ordered classes. Every value's digest is made from its producer's operator, attributes and input digests (a
Merkle tree), so names, node order, dead nodes, comments and file layout do not count, while one changed bit of one
weight does.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import onnx
from onnx import numpy_helper

from edge_sdk.model import EMBEDDING_OUTPUT, PROBABILITIES_OUTPUT, InputSpec


def fingerprint(graph: onnx.GraphProto, spec: InputSpec, classes: Sequence[str]) -> str:
    """The fingerprint, 64 hexadecimal digits."""
    digests = _value_digests(graph, {})
    contract = json.dumps({"input": asdict(spec), "classes": list(classes)}, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(digests[EMBEDDING_OUTPUT] + digests[PROBABILITIES_OUTPUT] + contract.encode()).hexdigest()


def _value_digests(graph: onnx.GraphProto, outer: dict[str, bytes]) -> dict[str, bytes]:
    """Digest of every value of a graph; `outer` holds those that a subgraph (If, Loop) may refer to."""
    digests = dict(outer)
    digests[""] = b"absent"  # an optional input that is not given
    for position, value in enumerate(graph.input):
        digests[value.name] = _digest(b"input", str(position).encode(), str(value.type.tensor_type.elem_type).encode())
    for tensor in graph.initializer:
        digests[tensor.name] = _tensor_digest(tensor)
    for node in graph.node:  # onnx demands topological order
        attributes = sorted((attribute.name, _attribute_digest(attribute, digests)) for attribute in node.attribute)
        whole = _digest(
            node.domain.replace("ai.onnx", "").encode(),
            node.op_type.encode(),
            *(digests[name] for name in node.input),
            *(part for name, digest in attributes for part in (name.encode(), digest)),
        )
        for position, name in enumerate(node.output):
            digests[name] = _digest(whole, str(position).encode())
    return digests


def _attribute_digest(attribute: onnx.AttributeProto, digests: dict[str, bytes]) -> bytes:
    if attribute.type == onnx.AttributeProto.GRAPH:
        inner = _value_digests(attribute.g, digests)
        return _digest(b"graph", *(inner[value.name] for value in attribute.g.output))
    if attribute.type == onnx.AttributeProto.TENSOR:
        return _tensor_digest(attribute.t)
    plain = onnx.AttributeProto()
    plain.CopyFrom(attribute)
    plain.doc_string = ""
    return _digest(plain.SerializeToString(deterministic=True))


def _tensor_digest(tensor: onnx.TensorProto) -> bytes:
    """From dtype, shape and little-endian values, however the file stores them."""
    array = np.ascontiguousarray(numpy_helper.to_array(tensor))
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    content = array.tobytes() if array.dtype != object else repr(array.tolist()).encode()
    return _digest(b"tensor", str(tensor.data_type).encode(), str(tuple(tensor.dims)).encode(), content)


def _digest(*parts: bytes) -> bytes:
    """SHA-256 over parts, each with its length before it, so that no two lists of parts look alike."""
    state = hashlib.sha256()
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()
