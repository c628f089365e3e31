"""The exporter: source file -> model file, step by step, nothing written before everything was checked."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from edge_export import head as heads
from edge_export.calibration import Calibration, read_calibration
from edge_export.classes import check_classes
from edge_export.input_kind import describe_input
from edge_export.macs import estimate_macs
from edge_export.metadata import describe, write_checked
from edge_export.parity import BatchParity, Reference, check_deterministic, check_parity, check_runs, open_session, run
from edge_export.preprocess import Preprocess
from edge_export.projection import Projection, ProjectionReport, fit_projection, insert_projection, report_projection
from edge_export.quantise import (
    MIN_AGREEMENT,
    QuantisationReport,
    compare,
    quantise,
    refuse_disagreement,
    temporary_folder,
    weight_bytes,
)
from edge_export.report import ExportReport
from edge_export.samples import DTYPES, Sampler, sampler_for
from edge_export.sources import trace
from edge_export.surgery import opset_of
from edge_export.target import fit_target, oldest_reader, parse_target
from edge_export.traced import SCORES, SourceOptions, Traced
from edge_sdk.errors import ConfigError, ExportError
from edge_sdk.model import InputSpec
from edge_sdk.selfcheck import REFERENCE_KEY, make_reference

FLOAT_TOLERANCE = 1e-3
"""Of the self-check on the device: other processors sum in another order."""

_FINAL_BATCHES = (1, 2, 5)
"""Of the file that is put in place; its float32 graph was proved at `BATCHES` before."""

INT8_TOLERANCE = 0.1
"""The same for int8, where a sum that rounds the other way moves an activation by one step of 256. Integer kernels and
the same graph in float arithmetic differ by 0.02 on MobileNetV2."""


def export_model(
    source: Path,
    output: Path,
    *,
    model: str | None = None,
    input_shape: tuple[int, ...] | None = None,
    input_dtype: str | None = None,
    input_kind: str | None = None,
    input_rules: Mapping[str, Any] | None = None,
    classes: tuple[str, ...] | None = None,
    embedding: str | None = None,
    scores: str | None = None,
    trust_pickle: bool = False,
    preprocess: Preprocess | None = None,
    target: str | None = None,
    calibration: Path | None = None,
    int8: bool = False,
    min_agreement: float = MIN_AGREEMENT,
    project: int | None = None,
    dry_run: bool = False,
) -> ExportReport:
    """Export a trained model to one verified ONNX file.

    Args:
        source: the trained model: state_dict, checkpoint, TorchScript, `.pt2`, safetensors or ONNX.
        output: where the model file goes; replaced only when everything was checked.
        model: `module:factory` that builds the network for a state_dict.
        input_shape: shape of one sample as the model takes it, without the batch.
        input_dtype: NumPy name of the dtype the model takes; default: what the source says, or float32.
        input_kind: what devices hand over: "array", "image" or "audio"; None to tell by shape and preprocessing.
        input_rules: what happens to a file before the graph: `resize`, `fit`, `rate`, ...
        classes: one label a score column; None for the source's own, or "0", "1", ...
        embedding: layer whose output it is, or a returned tensor; None for the input of the last linear layer.
        scores: which of the model's outputs are the class scores, if it returns several.
        trust_pickle: load a pickled object, which runs the code that the file names.
        preprocess: steps to put before the model.
        target: oldest onnxruntime of the devices, "1.16".
        calibration: real inputs (and labels), needed by `int8` and `project`.
        int8: quantise weights and activations.
        min_agreement: share of calibration inputs on which int8 must agree with float32.
        project: principal directions of the embedding to keep.
        dry_run: check everything and write nothing.

    Raises:
        ExportError: what stands in the way, and the option that helps. `output` is as it was.
    """
    started = time.perf_counter()
    _check_settings(input_dtype, calibration, int8=int8, project=project)
    version = None if target is None else parse_target(target)
    options = SourceOptions(model, input_shape, input_dtype, embedding, scores, trust_pickle)
    traced = trace(source, options)
    preprocess = preprocess or Preprocess()
    preprocess.check(traced.input_shape, traced.input_dtype)
    spec = describe_input(traced, preprocess, kind=input_kind, rules=input_rules or {})
    sampler = sampler_for(spec, high=traced.vocabulary)
    head, labels = _head_and_classes(traced, classes)

    graph = traced.model
    heads.add_head(graph, SCORES, head)
    if preprocess:
        preprocess.insert(graph)
    graph = fit_target(graph, version)
    reference = _reference(traced, preprocess, head)
    with temporary_folder() as name:
        folder = Path(name)
        data = None if calibration is None else read_calibration(calibration, spec, labels)
        parity = _proved(graph, spec, labels, folder / "float32.onnx", reference, sampler)
        quantisation = None
        if int8 and data is not None:
            graph, quantisation = _quantised(graph, spec, labels, data, folder, min_agreement)
        projection = None
        report = None
        if project is not None and data is not None:
            projection, report = _projected(graph, spec, labels, data, folder, project)
        graph = fit_target(graph, version)
        extensions = _extensions(graph, spec, labels, traced, head, preprocess, data, folder, quantisation, report)
        metadata = describe(graph, spec, labels, extensions=extensions)
        check = _final_check(reference, sampler, projection, exact=quantisation is None)
        target_path = folder / "dry_run.onnx" if dry_run else output
        write_checked(graph, target_path, check)
        size = target_path.stat().st_size
    return ExportReport(
        path=output,
        source=traced.kind,
        classes=labels,
        input_shape=spec.shape,
        input_dtype=spec.dtype,
        dim=metadata.dim,
        embedding=traced.embedding,
        head=head.value,
        parity=parity,
        size_bytes=size,
        opset=opset_of(graph),
        ir_version=graph.ir_version,
        onnxruntime=oldest_reader(graph),
        fingerprint=metadata.fingerprint,
        notes=(*traced.notes, *([f"in the graph: {preprocess.describe()}"] if preprocess else [])),
        quantisation=quantisation,
        projection=report,
        seconds=time.perf_counter() - started,
    )


def _check_settings(input_dtype: str | None, calibration: Path | None, *, int8: bool, project: int | None) -> None:
    if input_dtype is not None and input_dtype not in DTYPES:
        raise ConfigError(f"--input-dtype {input_dtype}: expected one of {', '.join(DTYPES)}")
    if calibration is None and (int8 or project is not None):
        option = "--quantize int8" if int8 else f"--project {project}"
        raise ConfigError(
            f"{option} needs real inputs: --calibration data.npz (array x, and label if there are labels)"
        )


def _head_and_classes(traced: Traced, classes: tuple[str, ...] | None) -> tuple[heads.Head, tuple[str, ...]]:
    """What the scores are, and one label for each column of probabilities.

    Raises:
        ExportError: scores that cannot become probabilities, answers that depend on chance or company, too many labels.
    """
    inner = Sampler(traced.input_shape, traced.input_dtype, traced.vocabulary)
    check_deterministic(traced.run, inner)
    values = _telling_scores(traced, inner)
    head = heads.recognise_head(traced.model.graph, SCORES, values)
    n_classes = head.n_classes(values.shape[1])
    if classes is None:
        classes = traced.labels or tuple(str(number) for number in range(n_classes))
    classes = check_classes(list(classes), source="classes", unit="name")
    if len(classes) != n_classes:
        raise ExportError(
            f"{len(classes)} labels, but the model has {n_classes} classes; give one label a class, in column order"
        )
    return head, classes


def _telling_scores(traced: Traced, sampler: Sampler) -> np.ndarray:
    """Scores of samples, for floats also of ten times larger ones: there a sigmoid stays in [0, 1]."""
    x = sampler.batch(16, seed=3)
    scores = traced.run(x)[1]
    if sampler.dtype != "float32":
        return scores
    larger = traced.run(x * np.float32(10))[1]
    return np.concatenate([scores, larger[np.isfinite(larger).all(axis=1)]])


def _reference(traced: Traced, preprocess: Preprocess, head: heads.Head) -> Reference:
    """The source with preprocessing and probabilities in NumPy."""

    def reference(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        embedding, scores = traced.run(preprocess.apply(x) if preprocess else x)
        return embedding, head.probabilities(scores)

    return reference


def _proved(
    graph: onnx.ModelProto, spec: InputSpec, labels: tuple[str, ...], path: Path, reference: Reference, sampler: Sampler
) -> tuple[BatchParity, ...]:
    """Write the float32 graph to an intermediate file and hold it against the source."""
    _write(graph, spec, labels, path)
    return check_parity(path, reference, sampler)


def _quantised(
    graph: onnx.ModelProto, spec: InputSpec, labels: tuple[str, ...], data: Calibration, folder: Path, minimum: float
) -> tuple[onnx.ModelProto, QuantisationReport]:
    result = quantise(graph, data, folder)
    _write(result, spec, labels, folder / "compared.onnx")
    report = compare(folder / "float32.onnx", folder / "compared.onnx", data)
    refuse_disagreement(report, minimum)
    return result, report


def _projected(
    graph: onnx.ModelProto, spec: InputSpec, labels: tuple[str, ...], data: Calibration, folder: Path, r: int
) -> tuple[Projection, ProjectionReport]:
    """Fit on the embeddings of the graph as it is now (int8, if it was quantised) and fold in."""
    path = folder / "unprojected.onnx"
    _write(graph, spec, labels, path)
    session = open_session(path)
    embeddings = np.concatenate([run(session, data.x[start : start + 64])[0] for start in range(0, len(data.x), 64)])
    projection = fit_projection(embeddings, r)
    insert_projection(graph, projection)
    return projection, report_projection(projection, embeddings, data.labels)


def _extensions(
    graph: onnx.ModelProto,
    spec: InputSpec,
    labels: tuple[str, ...],
    traced: Traced,
    head: heads.Head,
    preprocess: Preprocess,
    data: Calibration | None,
    folder: Path,
    quantisation: QuantisationReport | None,
    projection: ProjectionReport | None,
) -> dict[str, Any]:
    """What the metadata says beyond the contract."""
    path = folder / "described.onnx"
    _write(graph, spec, labels, path)
    session = open_session(path)
    low, high = _range(spec, traced, data)
    extensions: dict[str, Any] = {
        "embedding": traced.embedding,
        "onnxruntime": oldest_reader(graph),
        "opset": opset_of(graph),
        "macs": estimate_macs(graph),
        "weight_bytes": weight_bytes(graph.graph),
        "head": head.value,
        REFERENCE_KEY: make_reference(
            lambda x: run(session, x),
            spec,
            low=low,
            high=high,
            tolerance=FLOAT_TOLERANCE if quantisation is None else INT8_TOLERANCE,
        ),
    }
    if preprocess:
        extensions["in_graph"] = preprocess.describe()
    if quantisation is not None:
        extensions["quantisation"] = asdict(replace(quantisation, latency_ratio=0.0))  # a time says nothing elsewhere
        del extensions["quantisation"]["latency_ratio"]
    if projection is not None:
        extensions["projection"] = asdict(projection)
    return extensions


def _range(spec: InputSpec, traced: Traced, data: Calibration | None) -> tuple[float, float]:
    """Bounds for the reference inputs: the spread of real ones where there are any, else of the standard normal."""
    if spec.dtype != "float32":
        return 0.0, float(min(traced.vocabulary, 256) if spec.dtype == "uint8" else traced.vocabulary)
    if data is None:
        return -1.75, 1.75
    centre, spread = float(data.x.mean(dtype=np.float64)), float(data.x.std(dtype=np.float64))
    return centre - 1.75 * spread, centre + 1.75 * spread


def _final_check(
    reference: Reference, sampler: Sampler, projection: Projection | None, *, exact: bool
) -> Callable[[Path], object]:
    """What the finished file must pass before it is put in place."""
    if not exact:
        return lambda path: check_runs(path, sampler)
    if projection is None:
        return lambda path: check_parity(path, reference, sampler, batches=_FINAL_BATCHES)

    def projected(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        embedding, probabilities = reference(x)
        return projection.apply(embedding), probabilities

    return lambda path: check_parity(path, projected, sampler, batches=_FINAL_BATCHES)


def _write(graph: onnx.ModelProto, spec: InputSpec, labels: tuple[str, ...], path: Path) -> None:
    """An intermediate model file."""
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    describe(copy, spec, labels)
    write_checked(copy, path, lambda _: None)
