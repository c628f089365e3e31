"""Programs: what `torch.export` captured (a `.pt2` file, or a module whose head is no layer) -> a traced graph.

A program has no layers any more, only aten operators, so the embedding is looked for among its nodes: the input of
the last linear operator whose output has one number a class and changes the scores.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from edge_export.graph import SAMPLE_BATCH, export_graph, module_run, reason
from edge_export.outputs import scores_path, tensors_by_path
from edge_export.program_safety import refuse_code
from edge_export.quiet import quiet
from edge_export.samples import Sampler
from edge_export.traced import SourceOptions, Traced
from edge_sdk.errors import ExportError

_ACTIVATION = {  # which argument of the operator is the activation
    torch.ops.aten.linear.default: 0,
    torch.ops.aten.addmm.default: 1,
    torch.ops.aten.mm.default: 0,
    torch.ops.aten.matmul.default: 0,
}
_LISTED = 8
_DTYPES = {torch.float32: "float32", torch.uint8: "uint8", torch.int32: "int32", torch.int64: "int64"}


def trace_program(path: Path, options: SourceOptions, *, kind: str) -> Traced:
    """Load and trace a `.pt2` file.

    Raises:
        ExportError: damaged, holds pickled objects or code, several inputs, or a frozen batch.
    """
    refuse_code(path)
    try:
        with quiet():
            program = torch.export.load(path)
    except Exception as error:  # the loader raises whatever its parts raise
        raise ExportError(
            f"{path}: cannot load this torch.export archive with torch {torch.__version__}: {reason(error)}; "
            "save it again with this version, or export the state_dict with --model"
        ) from error
    names = program.graph_signature.user_inputs
    if len(names) != 1:
        raise ExportError(
            f"{path}: the program takes {len(names)} inputs, expected one; wrap it in a module with one input"
        )
    value = next(node for node in program.graph.nodes if node.name == names[0]).meta["val"]
    shape, dtype = tuple(value.shape[1:]), _DTYPES.get(value.dtype, "float32")
    if not all(isinstance(length, int) for length in shape):
        if options.input_shape is None:
            raise ExportError(f"{path}: the input's shape is not fixed beyond the batch; give --input-shape")
        shape = options.input_shape
    module = program.module(check_guards=False).float()
    vocabulary = _vocabulary(module)
    x = torch.from_numpy(Sampler(shape, dtype, vocabulary).batch(SAMPLE_BATCH))
    notes = ["half-precision program converted to float32"] if value.dtype in (torch.float16, torch.bfloat16) else []
    return trace_graph_module(module, options, x, kind=kind, vocabulary=vocabulary, notes=notes)


def trace_graph_module(
    module: nn.Module, options: SourceOptions, x: Tensor, *, kind: str, vocabulary: int, notes: list[str]
) -> Traced:
    """Trace an unlifted program, an `fx.GraphModule` of aten operators.

    Raises:
        ExportError: it does not run this batch, or no linear operator makes the scores.
    """
    if not isinstance(module, fx.GraphModule):
        raise ExportError(f"a {type(module).__name__} instead of a captured graph; export the state_dict with --model")
    try:
        with torch.no_grad():
            value = module(x)
    except Exception as error:  # whatever an operator raises
        raise ExportError(
            f"the program cannot run a batch of {len(x)}: {reason(error)}; capture it with a symbolic batch: "
            'torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))'
        ) from error
    scores = scores_path(value, batch=len(x), chosen=options.scores)
    caught = _choose(module, x, scores, options.embedding)
    wrapper = ProgramScoresAndEmbedding(module, scores, caught)
    with torch.no_grad():
        features = wrapper.features(x)[0]
    if features.ndim < 2 or features.shape[0] != x.shape[0]:
        raise ExportError(
            f"embedding ({caught.description}) has shape {tuple(features.shape)} for a batch of {len(x)}; "
            "choose another: --embedding LAYER"
        )
    if features.ndim > 2:
        axes = "all but the last axis" if caught.channels_last else "all axes after the second"
        notes = [*notes, f"features of shape {tuple(features.shape[1:])} pooled: mean over {axes}"]
    return Traced(
        model=export_graph(wrapper, x),
        kind=kind,
        input_shape=tuple(x.shape[1:]),
        input_dtype=_DTYPES[x.dtype],
        vocabulary=vocabulary,
        embedding=caught.description,
        run=module_run(wrapper),
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class _Caught:
    """The value of a program that is the embedding."""

    node: str
    argument: int | None
    """Which argument of that node it is; None for its result."""

    description: str
    channels_last: bool


class ProgramScoresAndEmbedding(nn.Module):
    """A program that returns (embedding, scores), run node by node so that one value can be caught on the way."""

    def __init__(self, program: fx.GraphModule, scores: str, caught: _Caught) -> None:
        super().__init__()
        self.source = program
        self.scores = scores
        self.caught = caught
        self.training = False  # eval() would be passed on to the program, which refuses it

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Float32 (batch, dim) and (batch, columns)."""
        features, scores = self.features(x)
        if features.ndim > 2:
            axes = range(1, features.ndim - 1) if self.caught.channels_last else range(2, features.ndim)
            features = features.mean(dim=list(axes))
        return features, scores

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The embedding before pooling, and the scores."""
        interpreter = _Interpreter(self.source, self.caught.node, self.caught.argument)
        value = interpreter.run(x)
        return interpreter.features[-1], tensors_by_path(value)[self.scores]


class _Interpreter(fx.Interpreter):
    """Runs a program and keeps one value of it; with `noise`, adds noise to what that node gives."""

    def __init__(self, program: fx.GraphModule, node: str, argument: int | None, *, noise: bool = False) -> None:
        super().__init__(program, garbage_collect_values=False)
        self._node, self._argument, self._noise = node, argument, noise
        self.features: list[Tensor] = []

    def run_node(self, n: fx.Node) -> Any:
        """One step of the program."""
        result = super().run_node(n)
        if n.name == self._node:
            if self._noise:
                generator = torch.Generator().manual_seed(0)
                return result + torch.randn(result.shape, generator=generator)
            self.features.append(result if self._argument is None else self.env[n.args[self._argument]])  # type: ignore[index]
        return result


def _choose(program: fx.GraphModule, x: Tensor, scores: str, layer: str | None) -> _Caught:
    """The node that gives the embedding.

    Raises:
        ExportError: no such layer, or no linear operator makes the scores.
    """
    if layer is not None:
        return _named(program, layer)
    with torch.no_grad():
        reference = tensors_by_path(program(x))[scores]
        columns = reference.shape[-1]
        for node in reversed(list(program.graph.nodes)):
            argument = _ACTIVATION.get(node.target)
            if argument is None:
                continue
            result = _Interpreter(program, node.name, None)
            result.run(x)
            if result.features[-1].shape[-1] != columns:
                continue
            noisy = _Interpreter(program, node.name, None, noise=True).run(x)
            if not torch.equal(tensors_by_path(noisy)[scores], reference):
                where = _layer(node) or node.name
                return _Caught(node.name, argument, f"input of {where} ({_operator(node)} -> {columns})", True)
    raise ExportError(
        f"no linear operator makes the {columns} class scores; name the layer whose output is the embedding: "
        f"--embedding LAYER (layers: {', '.join(_layers(program)[-_LISTED:]) or 'none named'})"
    )


def _named(program: fx.GraphModule, layer: str) -> _Caught:
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    inside = [node for node in nodes if _layer(node) == layer or _layer(node).startswith(layer + ".")]
    found = inside or [node for node in nodes if node.name == layer]
    if not found:
        raise ExportError(
            f"--embedding {layer}: no such layer; the last ones are {', '.join(_layers(program)[-_LISTED:])}"
        )
    channels_last = not any("conv" in _operator(node) or "batch_norm" in _operator(node) for node in found)
    return _Caught(found[-1].name, None, f"output of {layer} ({_operator(found[-1])})", channels_last)


def _layers(program: fx.GraphModule) -> list[str]:
    return list(dict.fromkeys(name for node in program.graph.nodes if (name := _layer(node))))


def _layer(node: fx.Node) -> str:
    """Name of the innermost layer of the captured module that a node came from."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack else ""


def _operator(node: fx.Node) -> str:
    return str(node.target).removeprefix("aten.").removesuffix(".default")


def _vocabulary(program: nn.Module) -> int:
    """Rows of the smallest table that an embedding operator looks up."""
    rows = []
    for node in program.graph.nodes if isinstance(program, fx.GraphModule) else ():
        if node.target is torch.ops.aten.embedding.default and node.args[0].op == "get_attr":
            rows.append(len(program.get_parameter(node.args[0].target)))
    return min(rows, default=256)
