"""The graph: a torch module -> one clean `onnx.ModelProto` with a symbolic batch.

The program is captured by `torch.export` with a sample of three rows and a symbolic first axis, then translated.
Capturing and translating are two steps here so that a model with a frozen batch is told apart from an operator that
ONNX lacks.
"""

import numpy as np
import onnx
import torch
from onnx import inliner
from torch import Tensor, nn

from edge_export.quiet import quiet
from edge_export.surgery import OWN_PREFIX, rename_everywhere
from edge_export.traced import INPUT, SCORES, Run
from edge_sdk.errors import ExportError
from edge_sdk.model import EMBEDDING_OUTPUT

OPSET = 18
"""The lowest opset torch's exporter writes by itself; onnxruntime reads it from 1.14 on."""

IR_VERSION = 8
"""Enough for opset 18. Torch would stamp 10, which onnxruntime before 1.18 refuses; nothing in the file needs it."""

SAMPLE_BATCH = 3
"""Rows of the capturing sample: not 1, which torch would take for a constant."""


_WRAPPER = "source."  # the attribute of ScoresAndEmbedding that holds the user's module


def export_graph(module: nn.Module, x: Tensor) -> onnx.ModelProto:
    """Translate a module that returns (embedding, scores).

    Args:
        module: in eval mode, on the CPU.
        x: `SAMPLE_BATCH` samples.

    Raises:
        ExportError: the batch is frozen inside the model, its code cannot be captured, or ONNX has no such operator.
    """
    with quiet():
        program = capture(module, x)
        try:
            exported = torch.onnx.export(
                program,
                (),
                input_names=[OWN_PREFIX + INPUT],
                output_names=[OWN_PREFIX + EMBEDDING_OUTPUT, OWN_PREFIX + SCORES],
                opset_version=OPSET,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        except Exception as error:  # the exporter wraps whatever a translation raises
            raise ExportError(f"torch.onnx cannot translate the model: {reason(error)}") from error
    if exported is None:
        raise ExportError(
            "torch.onnx gave no model; install the tested torch: pip install '.[export]' in the checkout of edge-sdk"
        )
    # torch names inner values after its operators ("embedding", "input") without a look at the names asked for: own
    # names come second, when the inner ones are out of the way.
    model = exported.model_proto
    own = {OWN_PREFIX + name: name for name in (INPUT, EMBEDDING_OUTPUT, SCORES)}
    rename_everywhere(model.graph, {name: f"source/{name}" for name in own.values()})
    rename_everywhere(model.graph, own)
    for value in model.graph.output:
        value.name = own[value.name]
    return tidy(model)


def capture(module: nn.Module, x: Tensor) -> torch.export.ExportedProgram:
    """Capture a module with a symbolic batch.

    Raises:
        ExportError: it is frozen inside the model, or its code cannot be captured.
    """
    batch = torch.export.Dim("batch", min=1)
    try:
        return torch.export.export(module, (x,), dynamic_shapes=({0: batch},), strict=False)
    except Exception as error:  # a model's own code may raise anything while it is traced
        text = str(error)
        if "batch" in text and ("specialized" in text or "Constraints violated" in text or "constant" in text):
            raise ExportError(
                "the batch size is frozen inside the model (a Python int from x.shape[0], or a view of fixed size); "
                f"write x.flatten(1) or x.view(x.size(0), -1): {reason(error)}"
            ) from error
        raise ExportError(
            f"torch.export cannot capture the model: {reason(error)}; rewrite that, or save it by torch.jit.trace "
            "and export the TorchScript file"
        ) from error


def module_run(wrapper: nn.Module) -> Run:
    """A module that returns (embedding, scores), as a function of arrays."""

    def run(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            embedding, scores = wrapper(torch.from_numpy(x))
        return embedding.numpy(), scores.numpy()

    return run


def tidy(model: onnx.ModelProto) -> onnx.ModelProto:
    """Remove what only concerns the machine that made the graph: stack traces, file paths, comments, inferred shapes.

    The batch axis is called "batch" everywhere, local functions are inlined, and weights lose the wrapper's prefix.
    """
    if model.functions:
        model = inliner.inline_local_functions(model)
    model.ir_version = IR_VERSION
    model.producer_name, model.producer_version, model.doc_string, model.domain = "edge-sdk", "", "", ""
    del model.metadata_props[:]
    _strip(model.graph)
    model.graph.name = "encoder"
    for value in (*model.graph.input, *model.graph.output):
        first = value.type.tensor_type.shape.dim[0] if value.type.tensor_type.shape.dim else None
        if first is not None and first.dim_param:
            first.dim_param = "batch"
    rename_everywhere(model.graph, {t.name: t.name.removeprefix(_WRAPPER) for t in model.graph.initializer})
    return model


def _strip(graph: onnx.GraphProto) -> None:
    graph.doc_string = ""
    del graph.value_info[:]
    del graph.metadata_props[:]
    for item in (*graph.node, *graph.initializer, *graph.input, *graph.output):
        item.doc_string = ""
        del item.metadata_props[:]
    for node in graph.node:
        for attribute in node.attribute:
            attribute.doc_string = ""
            if attribute.type == onnx.AttributeProto.GRAPH:
                _strip(attribute.g)


def reason(error: BaseException) -> str:
    """The innermost cause of an error, in one line of at most 300 characters."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    return f"{type(error).__name__}: {text}"[:300]
