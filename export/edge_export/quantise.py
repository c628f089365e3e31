"""Quantisation: int8 weights and activations by onnxruntime's static quantiser, judged before anything is written.

Static QDQ only. Dynamic quantisation of convolutions is 3 to 10 times slower than float32 on a CPU, so it is not
offered.
"""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static

from edge_export.accuracy import score_accuracy
from edge_export.calibration import Calibration
from edge_export.graph import reason, tidy
from edge_export.parity import open_session, run
from edge_export.quiet import quiet
from edge_export.traced import INPUT
from edge_sdk.errors import ExportError

MIN_AGREEMENT = 0.95
"""Share of calibration inputs whose most probable class must stay the same."""

_OPERATORS = ["Conv", "Gemm", "MatMul", "Add", "Relu", "Clip", "MaxPool", "GlobalAveragePool", "Concat"]
"""Where int8 pays. Elementwise arithmetic of a preprocessing on raw sensor steps stays in float: it spans decades."""

_BATCH = 32
_MOST_ROWS = 512
"""Calibration rows whose ranges are measured; all rows count in the report."""

_LATENCY_RUNS = 60


class AgreementError(ExportError):
    """The int8 model answers too many calibration inputs differently; nothing was written."""


@dataclass(frozen=True)
class QuantisationReport:
    """An int8 graph against its float32 one, on the calibration data."""

    weight_bytes_before: int
    weight_bytes_after: int
    agreement: float
    """Share of inputs with the same most probable class."""

    cosine_mean: float
    cosine_min: float
    """Between the float32 and the int8 embedding of the same input."""

    accuracy_before: float | None
    """Of the scores; None without labels."""

    accuracy_after: float | None
    latency_ratio: float
    """Median time of a batch of one, int8 over float32, on this machine with one thread."""


def quantise(model: onnx.ModelProto, calibration: Calibration, folder: Path) -> onnx.ModelProto:
    """The int8 version of a graph.

    Args:
        model: float32, outputs `embedding` and `probabilities`.
        calibration: inputs whose activations give the ranges.
        folder: for intermediate files.

    Raises:
        ExportError: onnxruntime's quantiser fails, or finds nothing to quantise.
    """
    before, after = folder / "float32.onnx", folder / "int8.onnx"
    onnx.save(model, before)
    try:
        with quiet():
            quantize_static(
                str(before),
                str(after),
                _Reader(calibration.x[:: max(1, len(calibration.x) // _MOST_ROWS)]),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=_OPERATORS,
                per_channel=True,
                activation_type=QuantType.QUInt8,  # 0.77 x float32 on MobileNetV2 (x86 with VNNI); signed: 1.3 x
                weight_type=QuantType.QInt8,
                calibrate_method=CalibrationMethod.MinMax,
            )
    except Exception as error:  # the quantiser raises whatever its parts raise
        raise ExportError(
            f"onnxruntime's quantiser fails on this graph: {reason(error)}; export it as float32"
        ) from error
    result = tidy(onnx.load(after))
    if not any(node.op_type == "DequantizeLinear" for node in result.graph.node):
        raise ExportError("--quantize int8: the graph holds no convolution or linear layer that can be quantised")
    return result


def compare(before: Path, after: Path, calibration: Calibration) -> QuantisationReport:
    """Judge an int8 model file against the float32 one it was made from."""
    first, second = open_session(before), open_session(after)
    old_embedding, old = _run_all(first, calibration.x)
    new_embedding, new = _run_all(second, calibration.x)
    products = (old_embedding.astype(np.float64) * new_embedding).sum(axis=1)
    norms = np.linalg.norm(old_embedding.astype(np.float64), axis=1) * np.linalg.norm(
        new_embedding.astype(np.float64), axis=1
    )
    cosines = np.where(norms > 0, products / np.maximum(norms, 1e-30), 1.0)
    labels = calibration.labels
    return QuantisationReport(
        weight_bytes_before=weight_bytes(onnx.load(before).graph),
        weight_bytes_after=weight_bytes(onnx.load(after).graph),
        agreement=float((old.argmax(axis=1) == new.argmax(axis=1)).mean()),
        cosine_mean=float(cosines.mean()),
        cosine_min=float(cosines.min()),
        accuracy_before=None if labels is None else score_accuracy(old, labels),
        accuracy_after=None if labels is None else score_accuracy(new, labels),
        latency_ratio=_latency_ratio(first, second, calibration.x[:1]),
    )


def refuse_disagreement(report: QuantisationReport, minimum: float) -> None:
    """Hold a report against the threshold.

    Raises:
        AgreementError: below it.
    """
    if not report.agreement >= minimum:
        raise AgreementError(
            f"int8 agrees with float32 on {100 * report.agreement:.1f} % of the calibration inputs, at least "
            f"{100 * minimum:.1f} % wanted; nothing was written: give more calibration data, or --min-agreement"
        )


def weight_bytes(graph: onnx.GraphProto) -> int:
    """Bytes of all constants."""
    return sum(len(tensor.raw_data) or onnx.numpy_helper.to_array(tensor).nbytes for tensor in graph.initializer)


class _Reader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime ships no types
    """Feeds the quantiser in batches."""

    def __init__(self, x: np.ndarray) -> None:
        self._blocks: Iterator[np.ndarray] = iter([x[start : start + _BATCH] for start in range(0, len(x), _BATCH)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next batch, None at the end."""
        block = next(self._blocks, None)
        return None if block is None else {INPUT: block}


def _run_all(session: ort.InferenceSession, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    parts = [run(session, x[start : start + _BATCH]) for start in range(0, len(x), _BATCH)]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _latency_ratio(first: ort.InferenceSession, second: ort.InferenceSession, x: np.ndarray) -> float:
    """Turn about, so that both meet the same moments of a busy machine."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(_LATENCY_RUNS):
        for session, kept in zip((first, second), times, strict=True):
            started = time.perf_counter()
            run(session, x)
            kept.append(time.perf_counter() - started)
    return float(np.median(times[1][5:]) / np.median(times[0][5:]))


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for intermediate files that goes when its context ends."""
    return tempfile.TemporaryDirectory(prefix="edge-sdk-export-")
