"""The head: what a model's class scores are, and the nodes that make them probabilities.

Softmax is added once and never twice. What the scores are is read off the graph's last operator, and where that is no
softmax, log-softmax or sigmoid, off the numbers: rows that sum to one are probabilities, however they were made.
"""

from enum import Enum

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_sdk.errors import ExportError
from edge_sdk.model import PROBABILITIES_OUTPUT

_TRANSPARENT = ("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Cast", "Dropout")
_LINEAR = ("Gemm", "MatMul", "Conv", "Add")
"""Operators that give logits, whatever range these happen to lie in (an untrained model's are small)."""

_SUM_TOLERANCE = 1e-3


class Head(Enum):
    """What the class scores are."""

    LOGITS = "logits: softmax added"
    SOFTMAX = "probabilities already: nothing added"
    LOG_SOFTMAX = "log-probabilities: exp added"
    SIGMOID = "one sigmoid score: two columns made of it"
    LOGIT = "one logit: sigmoid added, two columns made of it"

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """The reference in float64: scores (n, classes) -> probabilities (n, n_classes)."""
        scores = scores.astype(np.float64)
        if self is Head.SOFTMAX:
            return scores
        if self is Head.LOG_SOFTMAX:
            return np.asarray(np.exp(scores))
        if self is Head.LOGITS:
            shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
            return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))
        yes = 1.0 / (1.0 + np.exp(-scores)) if self is Head.LOGIT else scores
        return np.concatenate([1.0 - yes, yes], axis=1)

    def n_classes(self, columns: int) -> int:
        """Columns of `probabilities` for that many columns of scores."""
        return 2 if self in (Head.SIGMOID, Head.LOGIT) else columns


def recognise_head(graph: onnx.GraphProto, output: str, scores: np.ndarray) -> Head:
    """What the scores of a graph are.

    Args:
        graph: whose `output` are the scores.
        output: name of that value.
        scores: float (n, classes), its values on samples, all finite.

    Raises:
        ExportError: sigmoid scores of several classes, or a softmax over the wrong axis.
    """
    operator = _last_operator(graph, output)
    columns = scores.shape[1]
    within_one = operator not in _LINEAR and bool(((scores >= 0) & (scores <= 1)).all())
    if columns == 1:
        return Head.SIGMOID if operator == "Sigmoid" or within_one else Head.LOGIT
    rows_sum_to_one = bool(((scores >= -1e-6).all(axis=1) & (np.abs(scores.sum(axis=1) - 1) < _SUM_TOLERANCE)).all())
    if rows_sum_to_one:
        return Head.SOFTMAX
    if operator == "Softmax":
        raise ExportError(
            f"the model's softmax does not sum to one over the {columns} classes (rows sum to {scores[0].sum():.3g}); "
            "use softmax(dim=1), or return the logits"
        )
    if operator == "Sigmoid" or within_one:
        raise ExportError(
            f"the model's {columns} scores lie in [0, 1] and do not sum to one (sigmoid, several labels at once); "
            "edge-sdk wants one label a sample: return the logits before the sigmoid"
        )
    if operator == "LogSoftmax" or bool(
        (scores <= 1e-6).all() and (np.abs(np.exp(scores.astype(np.float64)).sum(axis=1) - 1) < _SUM_TOLERANCE).all()
    ):
        return Head.LOG_SOFTMAX
    return Head.LOGITS


def add_head(model: onnx.ModelProto, output: str, head: Head) -> None:
    """Replace the graph's output `output` by `probabilities`, with the nodes that make them."""
    graph = model.graph
    nodes = {
        Head.LOGITS: [helper.make_node("Softmax", [output], [PROBABILITIES_OUTPUT], axis=1)],
        Head.SOFTMAX: [helper.make_node("Identity", [output], [PROBABILITIES_OUTPUT])],
        Head.LOG_SOFTMAX: [helper.make_node("Exp", [output], [PROBABILITIES_OUTPUT])],
        Head.SIGMOID: _two_columns(output),
        Head.LOGIT: [helper.make_node("Sigmoid", [output], ["edge_sdk/sigmoid"]), *_two_columns("edge_sdk/sigmoid")],
    }[head]
    if head in (Head.SIGMOID, Head.LOGIT):
        graph.initializer.append(numpy_helper.from_array(np.ones((), np.float32), "edge_sdk/one"))
    for number, node in enumerate(nodes):
        node.name = f"edge_sdk/head_{number}"
    graph.node.extend(nodes)
    kept = [value for value in graph.output if value.name != output]
    scores = next(value for value in graph.output if value.name == output)
    columns = head.n_classes(scores.type.tensor_type.shape.dim[1].dim_value)
    del graph.output[:]
    graph.output.extend(kept)
    graph.output.append(helper.make_tensor_value_info(PROBABILITIES_OUTPUT, onnx.TensorProto.FLOAT, ["batch", columns]))


def _two_columns(score: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Sub", ["edge_sdk/one", score], ["edge_sdk/complement"]),
        helper.make_node("Concat", ["edge_sdk/complement", score], [PROBABILITIES_OUTPUT], axis=1),
    ]


def _last_operator(graph: onnx.GraphProto, output: str) -> str:
    """The operator that made a value, looking through those that only change its shape."""
    makers = {name: node for node in graph.node for name in node.output}
    while output in makers:
        node = makers[output]
        if node.op_type not in _TRANSPARENT:
            return str(node.op_type)
        output = node.input[0]
    return ""
