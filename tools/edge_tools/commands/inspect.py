"""`edge-sdk inspect`: what a model file says about itself, and whether this machine can run it."""

import dataclasses
import math
from pathlib import Path

import onnxruntime
import typer

from edge_sdk import ModelFileError
from edge_sdk.encoder import Encoder
from edge_sdk.model import ModelFile
from edge_sdk.selfcheck import REFERENCE_KEY, SelfCheck, self_check
from edge_tools.output import percent, print_json, print_table, size

EXAMPLE = "edge-sdk inspect watch.onnx"


def inspect_command(
    model: Path = typer.Argument(..., metavar="MODEL", help="A model file written by edge-sdk export."),
    as_json: bool = typer.Option(False, "--json", help="Print everything as JSON."),
) -> None:
    """Show a model file's metadata, sizes and cost, run it, and check its reference answers; exit 1 if it fails."""
    file = ModelFile.open(model)
    check, refusal = _try(file)
    if as_json:
        _print_json(file, check, refusal)
    else:
        _print(file, check, refusal)
    if refusal is not None or (check is not None and not check.passed):
        raise typer.Exit(1)


def _try(file: ModelFile) -> tuple[SelfCheck | None, str | None]:
    """The self-check's result, or why this onnxruntime cannot run the file."""
    try:
        return self_check(Encoder(file, threads=1).encode, file.metadata), None
    except ModelFileError as error:
        return None, str(error)


def _print_json(file: ModelFile, check: SelfCheck | None, refusal: str | None) -> None:
    metadata = dataclasses.asdict(file.metadata)
    metadata["extensions"].pop(REFERENCE_KEY, None)  # thousands of digits that say nothing to a reader
    print_json(
        {
            **metadata,
            "path": str(file.path),
            "size_bytes": file.path.stat().st_size,
            "ir_version": file.ir_version,
            "runs": refusal is None,
            "refusal": refusal,
            "self_check": None if check is None else {**check._asdict(), "passed": check.passed},
        }
    )


def _print(file: ModelFile, check: SelfCheck | None, refusal: str | None) -> None:
    metadata, says = file.metadata, file.metadata.extensions
    spec = metadata.input
    shape = ", ".join(str(length) for length in spec.shape)
    weights = f", {size(says['weight_bytes'])} of it weights" if "weight_bytes" in says else ""
    rows: list[tuple[str, object]] = [
        (
            "input",
            f"{spec.dtype} (batch, {shape}), {spec.kind}, {size(math.prod(spec.shape) * _width(spec.dtype))} a sample",
        ),
        *(("before the graph", f"{name} {value}") for name, value in spec.preprocessing.items()),
        *((("in the graph", says["in_graph"]),) if "in_graph" in says else ()),
        ("embedding", f"{metadata.dim} numbers: {says.get('embedding', 'origin not recorded')}"),
        ("classes", f"{len(metadata.classes)}: {', '.join(metadata.classes)}"),
        ("scores", says.get("head", "not recorded")),
        ("file", f"{size(file.path.stat().st_size)}{weights}"),
        ("format", f"version {metadata.format_version}, opset {says.get('opset', '-')}, IR {file.ir_version}"),
        (
            "cost",
            f"{says['macs'] / 1e6:,.2f} million multiply-accumulates a sample" if "macs" in says else "not recorded",
        ),
        *_reports(says),
        ("fingerprint", metadata.fingerprint),
        ("needs", f"onnxruntime {says.get('onnxruntime', '-')} or later; here is {onnxruntime.__version__}"),
        ("runs here", "yes" if refusal is None else f"no: {refusal}"),
    ]
    if refusal is None:
        rows.append(
            ("answers", "no reference in the file" if check is None else check.message.removeprefix("self-check: "))
        )
    print_table(str(file.path), ("what", "value"), rows)


def _reports(says: dict[str, object]) -> list[tuple[str, str]]:
    """What the exporting machine measured."""
    rows = []
    int8 = says.get("quantisation")
    if isinstance(int8, dict):
        smaller = int8["weight_bytes_before"] / int8["weight_bytes_after"]
        rows.append(("int8", f"{percent(int8['agreement'])} of answers as float32, weights {smaller:.2f} x smaller"))
    kept = says.get("projection")
    if isinstance(kept, dict):
        rows.append(
            (
                "projection",
                f"{kept['dim_before']} -> {kept['dim_after']}, {percent(kept['retained_variance'])} of variance",
            )
        )
    return rows


def _width(dtype: str) -> int:
    return {"uint8": 1, "int64": 8}.get(dtype, 4)
