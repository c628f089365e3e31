"""ONNX sources: an existing `.onnx` file -> a traced graph, held against the file itself."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from edge_export import surgery
from edge_export.graph import reason, tidy
from edge_export.quiet import quiet
from edge_export.samples import Sampler
from edge_export.traced import SCORES, Run, SourceOptions, Traced
from edge_sdk.errors import ExportError, ModelFileError
from edge_sdk.model import EMBEDDING_OUTPUT, METADATA_KEY, ModelMetadata

_DTYPES: dict[int, str] = {
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.FLOAT16: "float32",
    onnx.TensorProto.DOUBLE: "float32",
    onnx.TensorProto.UINT8: "uint8",
    onnx.TensorProto.INT32: "int32",
    onnx.TensorProto.INT64: "int64",
}
OLDEST_OPSET = 13
"""Softmax and the quantised operators work per axis from here on; older graphs are converted up."""


def trace_onnx(path: Path, options: SourceOptions, *, kind: str) -> Traced:
    """Load a `.onnx` file and cut it to (embedding, scores).

    Raises:
        ExportError: cannot be parsed, weights missing beside it, several inputs, a frozen batch, or nothing to cut at.
    """
    model = _load(path)
    labels = _own_labels(model, path)
    notes = surgery.as_float32(model)
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    return trace_graph(model, options, kind=kind, notes=notes, labels=labels, name=str(path))


def trace_graph(
    model: onnx.ModelProto,
    options: SourceOptions,
    *,
    kind: str,
    notes: list[str],
    name: str,
    labels: tuple[str, ...] | None = None,
    run: Run | None = None,
) -> Traced:
    """Cut a graph to (embedding, scores).

    Args:
        model: changed.
        options: what the user said.
        kind: what the source is, for people.
        notes: what was adapted so far.
        name: the source's name, for messages.
        labels: class names that the source carries.
        run: the source itself; None where the graph is the source, which then runs unoptimised.

    Raises:
        ExportError: several inputs, a frozen batch, or nothing to cut at.
    """
    graph = model.graph
    initialisers = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in initialisers]
    if len(inputs) != 1:
        listed = ", ".join(value.name for value in inputs)
        raise ExportError(
            f"{name}: the graph takes {len(inputs)} inputs ({listed}), expected one; make the others constants"
        )
    del graph.input[:]
    graph.input.extend(inputs)
    shape, dtype = _input(inputs[0], options, name)
    model = _modern(model, name)
    graph = model.graph
    scores = surgery.find_scores(graph, options.scores)
    found = surgery.find_embedding(graph, scores, options.embedding)
    surgery.cut(model, scores=scores, embedding=found.tensor)
    frozen = surgery.free_batch(graph)
    vocabulary = _vocabulary(graph)
    sampler = Sampler(shape, dtype, vocabulary)
    reshapes = surgery.free_reshapes(graph, frozen) if frozen else 0
    if reshapes:
        notes = [*notes, f"batch of {frozen} in {reshapes} reshapes made symbolic"]
    embedding_shape, scores_shape = _shapes(model, sampler, name)
    if len(scores_shape) == 1 or (len(scores_shape) > 2 and set(scores_shape[2:]) == {1}):
        surgery.columns(model)
        scores_shape = (scores_shape[0], int(np.prod(scores_shape[1:])))
    if len(scores_shape) != 2 or scores_shape[0] != 2:
        raise ExportError(f"{name}: {scores} has shape {scores_shape} for a batch of 2, expected (2, classes)")
    if len(embedding_shape) < 2 or embedding_shape[0] != 2:
        raise ExportError(
            f"{name}: embedding ({found.description}) has shape {embedding_shape} for a batch of 2; choose another: "
            "--embedding TENSOR"
        )
    if len(embedding_shape) > 2:
        last = len(embedding_shape) - 1
        axes = range(1, last) if found.channels_last else range(2, last + 1)
        surgery.pool(model, list(axes))
        if {embedding_shape[axis] for axis in axes} != {1}:
            where = "all but the last axis" if found.channels_last else "all axes after the second"
            notes = [*notes, f"features of shape {embedding_shape[1:]} pooled: mean over {where}"]
    dim = embedding_shape[1 if len(embedding_shape) == 2 or not found.channels_last else -1]
    surgery.declare_outputs(graph, {EMBEDDING_OUTPUT: dim, SCORES: scores_shape[1]})
    reference = _session(model, name)
    return Traced(
        model=tidy(model),
        kind=kind,
        input_shape=shape,
        input_dtype=dtype,
        vocabulary=vocabulary,
        embedding=found.description,
        run=_beside(run, reference) if run is not None else _runner(reference),
        notes=tuple(notes),
        labels=labels,
    )


def _load(path: Path) -> onnx.ModelProto:
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's errors share no public base
        raise ExportError(
            f"{path}: not an ONNX file, or cut short ({reason(error)}); copy or export it again"
        ) from error
    if not model.graph.node:
        raise ExportError(f"{path}: an ONNX file without a graph, or cut short; copy or export it again")
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location" and not (path.parent / entry.value).is_file():
                raise ExportError(
                    f"{path}: its weights are in {entry.value}, which is not beside it; copy that file too"
                )
    try:
        return onnx.load(path)
    except Exception as error:  # as above, and onnx's own ValidationError for locations outside the folder
        raise ExportError(f"{path}: cannot read its weights: {reason(error)}; copy or export it again") from error


def _own_labels(model: onnx.ModelProto, path: Path) -> tuple[str, ...] | None:
    """Class names of a file that edge-sdk exported."""
    for entry in model.metadata_props:
        if entry.key == METADATA_KEY:
            try:
                return ModelMetadata.from_json(entry.value, source=str(path)).classes
            except ModelFileError as error:
                raise ExportError(str(error)) from error
    return None


def _input(value: onnx.ValueInfoProto, options: SourceOptions, name: str) -> tuple[tuple[int, ...], str]:
    tensor = value.type.tensor_type
    if tensor.elem_type not in _DTYPES:
        raise ExportError(
            f"{name}: input {value.name} holds {onnx.TensorProto.DataType.Name(tensor.elem_type)}, expected numbers"
        )
    dtype = _DTYPES[tensor.elem_type]
    sizes = [dim.dim_value for dim in tensor.shape.dim][1:]
    if options.input_shape is not None:
        if len(sizes) != len(options.input_shape) or any(
            size not in (0, given) for size, given in zip(sizes, options.input_shape, strict=True)
        ):
            raise ExportError(
                f"{name}: input {value.name} has shape {tuple(sizes)}, --input-shape says {options.input_shape}"
            )
        sizes = list(options.input_shape)
        for dim, size in zip(list(tensor.shape.dim)[1:], sizes, strict=True):
            dim.dim_value = size
    if not sizes or min(sizes) < 1:
        raise ExportError(f"{name}: input {value.name} does not say its sizes beyond the batch; give --input-shape")
    return tuple(sizes), dtype


def _modern(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """The model at `OLDEST_OPSET` or later."""
    if surgery.opset_of(model) >= OLDEST_OPSET:
        return model
    try:
        return onnx.version_converter.convert_version(model, OLDEST_OPSET)
    except Exception as error:  # the converter raises RuntimeError and its own kinds
        raise ExportError(
            f"{name}: opset {surgery.opset_of(model)} cannot be converted to {OLDEST_OPSET}: {reason(error)}; "
            "export it again from its training framework"
        ) from error


def _shapes(model: onnx.ModelProto, sampler: Sampler, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of (embedding, scores) for a batch of 2.

    Raises:
        ExportError: the batch is frozen in the graph.
    """
    session = _session(model, name)
    try:
        embedding, scores = session.run([EMBEDDING_OUTPUT, SCORES], {session.get_inputs()[0].name: sampler.batch(2)})
    except Exception as error:  # onnxruntime's exceptions share no public base
        raise ExportError(
            f"{name}: the graph fails on a batch of 2, its batch is frozen inside: {reason(error)}; export it with "
            "a dynamic batch axis"
        ) from error
    return np.shape(embedding), np.shape(scores)


def _session(model: onnx.ModelProto, name: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # the graph as it is written
    try:
        with quiet():
            return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions share no public base
        raise ExportError(f"{name}: onnxruntime {ort.__version__} refuses the graph: {reason(error)}") from error


def _runner(session: ort.InferenceSession) -> Run:
    def run(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        embedding, scores = session.run([EMBEDDING_OUTPUT, SCORES], {session.get_inputs()[0].name: x})
        return embedding, scores

    return run


def _beside(source: Run, session: ort.InferenceSession) -> Run:
    """The scores of the source, with the embedding of the graph as it was written, before anything optimised it."""
    inner = _runner(session)

    def run(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return inner(x)[0], source(x)[1]

    return run


def _vocabulary(graph: onnx.GraphProto) -> int:
    """Rows of the smallest table that the graph looks integers up in."""
    tables = {tensor.name: tensor.dims[0] for tensor in graph.initializer if len(tensor.dims) == 2}
    rows = [tables[node.input[0]] for node in graph.node if node.op_type == "Gather" and node.input[0] in tables]
    return int(min(rows, default=256))
