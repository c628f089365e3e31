"""Export: from a trained PyTorch model to one verified, self-describing model file.

The door of the workstation side. It is the only place that looks whether torch, onnx and onnxscript are there, so
that every other file of this package may import them at its top.
"""

from importlib.util import find_spec

from edge_sdk.errors import MissingExtraError

for _package in ("torch", "onnx", "onnxscript"):
    if find_spec(_package) is None:
        raise MissingExtraError(_package, "export")

from edge_export.exporter import export_model  # noqa: E402  (after the door)
from edge_export.preprocess import Preprocess, parse_preprocess  # noqa: E402
from edge_export.quantise import AgreementError  # noqa: E402
from edge_export.report import ExportReport  # noqa: E402

__all__ = ["AgreementError", "ExportReport", "Preprocess", "export_model", "parse_preprocess"]
