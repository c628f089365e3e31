"""Makes tiny.onnx: a model file small enough to calculate by hand.

Input float32 (2,); the embedding is the input itself, so distances are those of the plane; the probabilities over
"left", "right" and "up" are softmax(-x, x, y).

    python tests/data/make_tiny_model.py
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edge_export.metadata import describe, write_checked
from edge_sdk import InputSpec

CLASSES = ("left", "right", "up")


def main() -> None:
    """Write tiny.onnx beside this script."""
    weights = np.array([[-1, 1, 0], [0, 0, 1]], np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Identity", ["input"], ["embedding"]),
            helper.make_node("MatMul", ["input", "weights"], ["logits"]),
            helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
        ],
        "tiny",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", 2])],
        [
            helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["n", 2]),
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", len(CLASSES)]),
        ],
        [numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    describe(model, InputSpec(name="input", shape=(2,)), CLASSES)
    write_checked(model, Path(__file__).with_name("tiny.onnx"), lambda path: path)


if __name__ == "__main__":
    main()
