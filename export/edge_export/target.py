"""Targets: which onnxruntime reads which graph.

From onnxruntime's compatibility table; where a release and its documentation disagree, the smaller number stands
here, so a file is never promised to a runtime that refuses it.
"""

import onnx

from edge_export.graph import IR_VERSION, reason
from edge_export.surgery import opset_of
from edge_sdk.errors import ConfigError, ExportError

_READS = {  # onnxruntime: (highest opset, highest IR version)
    (1, 10): (15, 8),
    (1, 11): (16, 8),
    (1, 12): (17, 8),
    (1, 13): (17, 8),
    (1, 14): (18, 8),
    (1, 15): (19, 8),
    (1, 16): (19, 9),
    (1, 17): (20, 9),
    (1, 18): (21, 10),
    (1, 20): (21, 10),
    (1, 21): (22, 10),
    (1, 23): (23, 11),
}
OLDEST = ".".join(str(part) for part in min(_READS))


def parse_target(text: str) -> tuple[int, int]:
    """`1.16` or `1.16.3` -> (1, 16).

    Raises:
        ConfigError: no version, or older than any this exporter knows.
    """
    parts = text.split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        raise ConfigError(f"--target-onnxruntime {text}: expected a version such as 1.16")
    version = int(parts[0]), int(parts[1])
    if version < min(_READS):
        raise ConfigError(f"--target-onnxruntime {text}: the oldest that edge-sdk writes for is {OLDEST}")
    return version


def fit_target(model: onnx.ModelProto, target: tuple[int, int] | None) -> onnx.ModelProto:
    """The model with an opset and IR version that the target reads.

    Args:
        model: opset 13 or later.
        target: (major, minor) of the oldest onnxruntime, or None for whatever the graph needs.

    Raises:
        ExportError: the graph uses operators that cannot be written for it.
    """
    model.ir_version = max(IR_VERSION, onnx.helper.find_min_ir_version_for(model.opset_import, ignore_unknown=True))
    if target is None:
        return model
    opset, ir_version = _READS[max(version for version in _READS if version <= target)]
    if opset_of(model) > opset:
        try:
            model = onnx.version_converter.convert_version(model, opset)
            _drop_newer_attributes(model)
            onnx.checker.check_model(model)
        except Exception as error:  # the converter raises RuntimeError and its own kinds
            raise ExportError(
                f"the graph needs opset {opset_of(model)}, onnxruntime {_text(target)} reads {opset}, and it cannot be "
                f"converted: {reason(error)}; use onnxruntime {oldest_reader(model)} or later on the device"
            ) from error
        model.ir_version = IR_VERSION
    found = opset_of(model)
    if found > opset or model.ir_version > ir_version:
        raise ExportError(
            f"the graph has opset {found} and IR version {model.ir_version}, onnxruntime {_text(target)} reads {opset} "
            f"and {ir_version}; use onnxruntime {oldest_reader(model)} or later on the device"
        )
    return model


def _drop_newer_attributes(model: onnx.ModelProto) -> None:
    """The converter turns a reduction's axes back into an attribute, and leaves one of opset 18 beside it."""
    for node in model.graph.node:
        if node.op_type.startswith("Reduce"):
            kept = [attribute for attribute in node.attribute if attribute.name != "noop_with_empty_axes"]
            del node.attribute[:]
            node.attribute.extend(kept)


def oldest_reader(model: onnx.ModelProto) -> str:
    """The oldest onnxruntime known to read a model, `1.14`; ends in "+" when it is newer than the table."""
    for version, (opset, ir_version) in sorted(_READS.items()):
        if opset_of(model) <= opset and model.ir_version <= ir_version:
            return _text(version)
    return f"{_text(max(_READS))}+"


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
