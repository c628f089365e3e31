"""Surgery on a graph that already is ONNX: finding the class scores and the embedding among its tensors.

Walking back from the scores, the first product with a constant matrix is the last linear layer, and its other input
is the embedding. What the walk passes (bias, softmax, scaling) only concerns the scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_export.traced import INPUT, SCORES
from edge_sdk.errors import ExportError
from edge_sdk.model import EMBEDDING_OUTPUT, PROBABILITIES_OUTPUT

SCORE_NAMES = ("logits", "probabilities", "probs", "prob", "scores", "score", "output_probability", "log_probs")
OWN_PREFIX = "edge_sdk/"
"""What the exporter adds inside a graph is named so, and can never meet a name of the source."""

_OWN_NAMES = (INPUT, EMBEDDING_OUTPUT, SCORES, PROBABILITIES_OUTPUT)
_LISTED = 8
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE, onnx.TensorProto.BFLOAT16)


@dataclass(frozen=True)
class FoundEmbedding:
    """The tensor that is the embedding."""

    tensor: str
    description: str
    channels_last: bool


def find_scores(graph: onnx.GraphProto, chosen: str | None) -> str:
    """Name of the tensor of class scores.

    Args:
        graph: with at least one output.
        chosen: an output's (or any tensor's) name typed by the user, or None: the only output, the one called logits,
            probabilities or the like, or the only one of floats in two axes.

    Raises:
        ExportError: none or several fit; all are listed.
    """
    tensors = {name for node in graph.node for name in node.output}
    if chosen is not None:
        if chosen not in tensors:
            raise ExportError(f"--scores {chosen}: no such tensor; the outputs are {_described(graph)}")
        return _through_zipmap(graph, chosen)
    outputs = [value.name for value in graph.output if value.name != EMBEDDING_OUTPUT]
    floats = [value.name for value in graph.output if value.name in outputs and _may_be_scores(value)]
    for names in (
        outputs if len(outputs) == 1 else [],
        [name for name in outputs if name.lower() in SCORE_NAMES],
        floats,
    ):
        if len(names) == 1:
            return _through_zipmap(graph, names[0])
    raise ExportError(f"the graph's outputs are {_described(graph)}; say which are the class scores: --scores OUTPUT")


def find_embedding(graph: onnx.GraphProto, scores: str, chosen: str | None) -> FoundEmbedding:
    """The tensor that is the embedding.

    Args:
        graph: in topological order.
        scores: name of the class scores.
        chosen: name of a tensor, or of a node whose output is meant; None to find it.

    Raises:
        ExportError: no such tensor, or no linear layer before the scores; the tensors nearest to the scores are listed.
    """
    makers = {name: node for node in graph.node for name in node.output}
    inputs = {value.name for value in graph.input}
    if chosen is not None:
        if chosen in makers or chosen in inputs:
            return FoundEmbedding(chosen, f"tensor {chosen}", not _made_by_convolution(makers, chosen))
        named = [node for node in graph.node if node.name and node.name in (chosen, f"/{chosen.replace('.', '/')}")]
        under = [node for node in graph.node if node.name.startswith(f"/{chosen.replace('.', '/')}/")]
        if named or under:
            tensor = (named or under)[-1].output[0]
            return FoundEmbedding(tensor, f"output of {chosen}", not _made_by_convolution(makers, tensor))
        listed = ", ".join([name for node in graph.node for name in node.output][-_LISTED:])
        raise ExportError(f"--embedding {chosen}: no such tensor or node; the last tensors are {listed}")
    if EMBEDDING_OUTPUT in {value.name for value in graph.output} and scores != EMBEDDING_OUTPUT:
        return FoundEmbedding(EMBEDDING_OUTPUT, "the graph's own output embedding", True)
    constants = _constants(graph)
    waiting, seen = [scores], set()
    while waiting:
        name = waiting.pop(0)
        if name in seen or name not in makers or name in constants:
            continue
        seen.add(name)
        node = makers[name]
        activation = _linear_input(node, constants)
        if activation is not None:
            return FoundEmbedding(
                activation, f"input of {node.name or name} ({node.op_type})", node.op_type in ("Gemm", "MatMul")
            )
        waiting.extend(node.input)
    listed = ", ".join(name for node in graph.node[-_LISTED:] for name in node.output)
    raise ExportError(
        "no linear layer before the class scores; name the tensor that is the embedding: --embedding TENSOR "
        f"(the last: {listed})"
    )


def cut(model: onnx.ModelProto, *, scores: str, embedding: str) -> None:
    """Make (embedding, scores) the only outputs, name the input `INPUT`, and drop what neither depends on."""
    graph = model.graph
    source = graph.input[0].name
    free_names(graph)
    scores, embedding, source = (_freed(name) for name in (scores, embedding, source))
    rename_everywhere(graph, {source: INPUT})
    scores, embedding = (INPUT if name == source else name for name in (scores, embedding))
    # Own names by Identity, which onnxruntime removes: the tensors may be used elsewhere, or be the input itself.
    graph.node.append(helper.make_node("Identity", [embedding], [EMBEDDING_OUTPUT], name="edge_sdk/embedding"))
    graph.node.append(helper.make_node("Identity", [scores], [SCORES], name="edge_sdk/scores"))
    del graph.output[:]
    for name in (EMBEDDING_OUTPUT, SCORES):
        graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    drop_dead(graph)


def free_names(graph: onnx.GraphProto) -> None:
    """Rename what bears a name that the exporter gives to values of its own."""
    names = {name for node in graph.node for name in node.output}
    names |= {value.name for value in (*graph.input, *graph.initializer)}
    rename_everywhere(graph, {name: _freed(name) for name in names})
    for value in graph.output:
        value.name = _freed(value.name)
    for node in graph.node:
        node.name = _freed(node.name)


def _freed(name: str) -> str:
    return f"source/{name}" if name in _OWN_NAMES or name.startswith(OWN_PREFIX) else name


def pool(model: onnx.ModelProto, axes: Sequence[int]) -> None:
    """Put a mean over `axes` before the output `embedding`."""
    graph = model.graph
    rename_everywhere(graph, {EMBEDDING_OUTPUT: "edge_sdk/features"})
    if opset_of(model) >= 18:  # since then the axes are an input
        graph.initializer.append(numpy_helper.from_array(np.array(axes, np.int64), "edge_sdk/pooled_axes"))
        node = helper.make_node(
            "ReduceMean", ["edge_sdk/features", "edge_sdk/pooled_axes"], [EMBEDDING_OUTPUT], keepdims=0
        )
    else:
        node = helper.make_node("ReduceMean", ["edge_sdk/features"], [EMBEDDING_OUTPUT], keepdims=0, axes=list(axes))
    node.name = "edge_sdk/pool"
    graph.node.append(node)
    for value in graph.output:
        if value.name == "edge_sdk/features":
            value.name = EMBEDDING_OUTPUT


def columns(model: onnx.ModelProto) -> None:
    """Flatten scores of shape (batch,) or (batch, classes, 1, 1) to (batch, classes)."""
    graph = model.graph
    rename_everywhere(graph, {SCORES: "edge_sdk/scores_shaped"})
    graph.initializer.append(numpy_helper.from_array(np.array([0, -1], np.int64), "edge_sdk/columns"))
    graph.node.append(
        helper.make_node(
            "Reshape", ["edge_sdk/scores_shaped", "edge_sdk/columns"], [SCORES], name="edge_sdk/scores_columns"
        )
    )
    for value in graph.output:
        if value.name == "edge_sdk/scores_shaped":
            value.name = SCORES


def declare_outputs(graph: onnx.GraphProto, widths: dict[str, int]) -> None:
    """Write the outputs' shapes, (batch, width), into the graph."""
    del graph.output[:]
    for name, width in widths.items():
        graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", width]))


def free_batch(graph: onnx.GraphProto) -> int:
    """Make the first axis of the input symbolic; what it was fixed at, 0 if it was not."""
    shape = graph.input[0].type.tensor_type.shape
    frozen = 0
    if shape.dim:
        frozen = int(shape.dim[0].dim_value)
        shape.dim[0].ClearField("dim_value")
        shape.dim[0].dim_param = "batch"
    del graph.value_info[:]
    return frozen


def free_reshapes(graph: onnx.GraphProto, batch: int) -> int:
    """Let reshapes to a fixed batch keep their input's first axis instead; the number of those changed."""
    changed = 0
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    constants = {node.output[0]: node for node in graph.node if node.op_type == "Constant"}
    for number, node in enumerate(graph.node):
        if node.op_type != "Reshape":
            continue
        name = node.input[1]
        if name in tensors:
            sizes = numpy_helper.to_array(tensors[name])
        elif name in constants and constants[name].attribute[0].HasField("t"):
            sizes = numpy_helper.to_array(constants[name].attribute[0].t)
        else:
            continue
        if sizes.ndim == 1 and len(sizes) > 1 and sizes[0] == batch and 0 not in sizes:
            del node.attribute[:]  # its only one, allowzero, would read the new 0 as a size
            freed = f"{OWN_PREFIX}sizes_{number}"  # 0 means: as the input has it
            graph.initializer.append(numpy_helper.from_array(np.array([0, *sizes[1:]], np.int64), freed))
            node.input[1] = freed
            changed += 1
    return changed


def drop_dead(graph: onnx.GraphProto) -> None:
    """Remove nodes and initialisers that no output depends on."""
    needed = {value.name for value in graph.output}
    kept: list[onnx.NodeProto] = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(node.input)
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    needed.update(name for inner in attribute.g.node for name in inner.input)
                    needed.update(value.name for value in attribute.g.output)
    initialisers = [tensor for tensor in graph.initializer if tensor.name in needed]
    del graph.node[:]
    graph.node.extend(reversed(kept))
    del graph.initializer[:]
    graph.initializer.extend(initialisers)
    del graph.value_info[:]


def as_float32(model: onnx.ModelProto) -> list[str]:
    """Turn half-precision and double constants, casts and values into float32; says what it changed."""
    found: set[str] = set()
    _graph_as_float32(model.graph, found)
    return [f"{' and '.join(sorted(found))} weights converted to float32"] if found else []


def opset_of(model: onnx.ModelProto) -> int:
    """Version of the standard operators that the model is written for."""
    return max((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1)


def _graph_as_float32(graph: onnx.GraphProto, found: set[str]) -> None:
    other = {code for code in _FLOATS if code != onnx.TensorProto.FLOAT}
    for tensor in graph.initializer:
        if tensor.data_type in other:
            found.add(helper.tensor_dtype_to_np_dtype(tensor.data_type).name)
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in other:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type in other:
                array = numpy_helper.to_array(attribute.t).astype(np.float32)
                attribute.t.CopyFrom(numpy_helper.from_array(array, attribute.t.name))
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i in other:
                attribute.i = onnx.TensorProto.FLOAT
            if attribute.type == onnx.AttributeProto.GRAPH:
                _graph_as_float32(attribute.g, found)
    del graph.value_info[:]


def _constants(graph: onnx.GraphProto) -> set[str]:
    """Names of values that depend on no input."""
    names = {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" or (node.input and all(name in names or not name for name in node.input)):
            names.update(node.output)
    return names


def _linear_input(node: onnx.NodeProto, constants: set[str]) -> str | None:
    """The activation that a node multiplies with a constant matrix, or None."""
    if node.op_type in ("Gemm", "MatMul", "Conv") and node.input[1] in constants and node.input[0] not in constants:
        return str(node.input[0])
    if node.op_type == "MatMul" and node.input[0] in constants and node.input[1] not in constants:
        return None  # W·x with the batch last: not rows of embeddings
    return None


def _made_by_convolution(makers: dict[str, onnx.NodeProto], tensor: str) -> bool:
    """Whether a tensor comes out of a convolution, through operators that keep its layout."""
    keeping = (
        "Relu",
        "Clip",
        "BatchNormalization",
        "Add",
        "Mul",
        "HardSwish",
        "HardSigmoid",
        "Sigmoid",
        "LeakyRelu",
        "Concat",
    )
    while tensor in makers:
        node = makers[tensor]
        if "Conv" in node.op_type or "Pool" in node.op_type:
            return True
        if node.op_type not in keeping or not node.input:
            return False
        tensor = node.input[0]
    return False


def _through_zipmap(graph: onnx.GraphProto, name: str) -> str:
    """The tensor behind scikit-learn's ZipMap, which makes dictionaries of it."""
    for node in graph.node:
        if name in node.output and node.op_type == "ZipMap":
            return str(node.input[0])
    return name


def _may_be_scores(value: onnx.ValueInfoProto) -> bool:
    if value.type.HasField("sequence_type"):
        return True
    tensor = value.type.tensor_type
    return tensor.elem_type in _FLOATS and (not tensor.HasField("shape") or len(tensor.shape.dim) == 2)


def rename_everywhere(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Give values other names, in subgraphs too."""
    for value in (*graph.input, *graph.initializer):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                rename_everywhere(attribute.g, names)
                for value in attribute.g.output:
                    value.name = names.get(value.name, value.name)


def _described(graph: onnx.GraphProto) -> str:
    parts = []
    for value in graph.output:
        tensor = value.type.tensor_type
        shape = ", ".join(str(dim.dim_param or dim.dim_value) for dim in tensor.shape.dim)
        parts.append(f"{value.name} ({shape})")
    return ", ".join(parts)
