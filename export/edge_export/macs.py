"""MACs: multiply-accumulates of one sample, the part of a model's cost that can be counted without running it."""

from math import prod

import onnx
from onnx import numpy_helper


def estimate_macs(model: onnx.ModelProto) -> int:
    """Multiply-accumulates of convolutions, products and recurrent layers for one sample.

    Elementwise operators are left out (a few percent), and so is what shape inference cannot see.
    """
    single = onnx.ModelProto()
    single.CopyFrom(model)
    for value in (*single.graph.input, *single.graph.output):
        if value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].dim_value = 1
    graph = onnx.shape_inference.infer_shapes(single, data_prop=True).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        shapes[value.name] = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            shapes[node.output[0]] = numpy_helper.to_array(node.attribute[0].t).shape
    return sum(_macs_of(node, shapes) for node in graph.node)


def _macs_of(node: onnx.NodeProto, shapes: dict[str, tuple[int, ...]]) -> int:
    """Of one node; 0 where a shape is unknown."""
    known = [shapes.get(name, ()) for name in node.input]
    result = shapes.get(node.output[0], ())
    if node.op_type == "Conv" and len(known) > 1:
        return prod(result) * prod(known[1][1:])  # weight (out, in / groups, *kernel)
    if node.op_type == "ConvTranspose" and len(known) > 1:
        return prod(known[0]) * prod(known[1][1:])
    if node.op_type in ("Gemm", "MatMul") and known and known[0]:
        transposed = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
        return prod(result) * known[0][0 if transposed else -1]
    if node.op_type in ("LSTM", "GRU", "RNN") and len(known) > 2 and len(known[0]) == 3:
        steps, batch, _ = known[0]
        return steps * batch * (prod(known[1]) + prod(known[2]))  # weights (directions, gates · hidden, width)
    return 0
