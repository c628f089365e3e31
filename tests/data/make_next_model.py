"""Makes tiny_next.onnx: a later global model for the input of tiny.onnx, with another dim and one more class.

Input float32 (2,); the embedding is (2y, 2x, 1); the probabilities over "left", "right", "up" and "down" are
softmax(-x, x, y, -y).

    python tests/data/make_next_model.py
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edge_export.metadata import describe, write_checked
from edge_sdk import InputSpec

CLASSES = ("left", "right", "up", "down")


def main() -> None:
    """Write tiny_next.onnx beside this script."""
    projection = np.array([[0, 2, 0], [2, 0, 0]], np.float32)
    weights = np.array([[-1, 1, 0, 0], [0, 0, 1, -1]], np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["input", "projection"], ["turned"]),
            helper.make_node("Add", ["turned", "one"], ["embedding"]),
            helper.make_node("MatMul", ["input", "weights"], ["logits"]),
            helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
        ],
        "tiny_next",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", 2])],
        [
            helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["n", 3]),
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", len(CLASSES)]),
        ],
        [
            numpy_helper.from_array(projection, "projection"),
            numpy_helper.from_array(np.array([0, 0, 1], np.float32), "one"),
            numpy_helper.from_array(weights, "weights"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    describe(model, InputSpec(name="input", shape=(2,)), CLASSES)
    write_checked(model, Path(__file__).with_name("tiny_next.onnx"), lambda path: path)


if __name__ == "__main__":
    main()
