"""`edge-sdk export`: a trained model becomes one verified model file."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from edge_sdk import ConfigError
from edge_tools.output import percent, print_json, print_table, say, size

if TYPE_CHECKING:
    from edge_export import ExportReport

EXAMPLE = (
    "edge-sdk export examples/watch/model.pt --model examples.watch.net:ActivityNet "
    "--input-shape 6,100 --labels examples/watch/labels.txt -o watch.onnx"
)


def export_command(
    source: Path = typer.Argument(
        ...,
        metavar="MODEL",
        help="state_dict or checkpoint, TorchScript, .pt2, safetensors or .onnx; told apart by bytes.",
    ),
    output: Path = typer.Option(..., "-o", "--output", help="The model file to write."),
    model: str | None = typer.Option(None, "--model", help="MODULE:NAME that builds the network for a state_dict."),
    input_shape: str | None = typer.Option(None, "--input-shape", help="Shape of one sample without the batch: 6,100."),
    input_dtype: str | None = typer.Option(None, "--input-dtype", help="float32 (default), uint8, int32 or int64."),
    input_kind: str | None = typer.Option(
        None, "--input-kind", help="array, image or audio; else told by --preprocess."
    ),
    input_rule: list[str] = typer.Option(
        [], "--input-rule", help="What happens to a file before the graph, once each: resize=256, fit=pad, rate=16000."
    ),
    labels: str | None = typer.Option(
        None, "--labels", help="File with one label a line, or names with commas; without it the classes are 0, 1, ..."
    ),
    embedding: str | None = typer.Option(
        None, "--embedding", help="Layer whose output is the embedding; default: the input of the last linear layer."
    ),
    scores: str | None = typer.Option(None, "--scores", help="Which output holds the class scores, if several fit."),
    preprocess: list[str] = typer.Option(
        [],
        "--preprocess",
        help="Step before the model, once each: uint8, nhwc, scale=1/255, mean=..., std=..., imagenet.",
    ),
    target: str | None = typer.Option(None, "--target-onnxruntime", help="Oldest onnxruntime of the devices: 1.16."),
    calibration: Path | None = typer.Option(None, "--calibration", help="Real inputs, with labels if there are any."),
    quantize: str | None = typer.Option(None, "--quantize", help="int8: static, needs --calibration."),
    min_agreement: float = typer.Option(
        0.95, "--min-agreement", help="Share of calibration inputs on which int8 must agree with float32, else exit 3."
    ),
    project: int | None = typer.Option(None, "--project", help="Keep R principal directions, needs --calibration."),
    trust_pickle: bool = typer.Option(False, "--trust-pickle", help="Load a pickled model, which runs its code."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Check everything, write nothing."),
    as_json: bool = typer.Option(False, "--json", help="Print the report as JSON."),
) -> None:
    """Turn a trained model into one self-describing ONNX file, and prove that it equals its source."""
    from edge_export import AgreementError, export_model, parse_preprocess
    from edge_export.classes import read_classes
    from edge_export.input_kind import parse_rules
    from edge_export.samples import parse_shape

    if quantize not in (None, "int8"):
        raise ConfigError(f"--quantize {quantize}: expected int8")
    say(f"exporting {source} ...")
    try:
        report = export_model(
            source,
            output,
            model=model,
            input_shape=parse_shape(input_shape) if input_shape else None,
            input_dtype=input_dtype,
            input_kind=input_kind,
            input_rules=parse_rules(input_rule),
            classes=read_classes(labels) if labels else None,
            embedding=embedding,
            scores=scores,
            trust_pickle=trust_pickle,
            preprocess=parse_preprocess(preprocess),
            target=target,
            calibration=calibration,
            int8=quantize is not None,
            min_agreement=min_agreement,
            project=project,
            dry_run=dry_run,
        )
    except AgreementError as error:
        say(f"edge-sdk: {error}")
        raise typer.Exit(3) from error
    if as_json:
        print_json({**dataclasses.asdict(report), "path": str(report.path)})
    else:
        _print_report(report, dry_run=dry_run)


def _print_report(report: "ExportReport", *, dry_run: bool) -> None:
    shape = ", ".join(str(length) for length in report.input_shape)
    more = ", ..." if len(report.classes) > 6 else ""
    print_table(
        f"{report.path}{' (dry run: not written)' if dry_run else ''}",
        ("what", "value"),
        (
            ("source", report.source),
            ("input", f"{report.input_dtype} (batch, {shape})"),
            ("embedding", f"{report.dim} numbers: {report.embedding}"),
            ("classes", f"{len(report.classes)}: {', '.join(report.classes[:6])}{more}"),
            ("scores", report.head),
            *(("note", note) for note in report.notes),
            ("file", f"{size(report.size_bytes)}, opset {report.opset}, IR {report.ir_version}"),
            ("runs on", f"onnxruntime {report.onnxruntime} or later"),
            ("fingerprint", report.fingerprint[:16]),
            ("time", f"{report.seconds:.1f} s"),
        ),
    )
    print_table(
        "largest difference from the source" + (", before int8" if report.quantisation else ""),
        ("batch", "probabilities", "embedding (relative)"),
        [(row.batch, f"{row.probabilities:.1e}", f"{row.embedding:.1e}") for row in report.parity],
    )
    if report.quantisation is not None:
        int8 = report.quantisation
        print_table(
            "int8 against float32, on the calibration data",
            ("weights", "smaller", "same class", "embedding cosine (mean, min)", "accuracy", "int8", "time"),
            [
                (
                    f"{size(int8.weight_bytes_before)} -> {size(int8.weight_bytes_after)}",
                    f"{int8.weight_bytes_before / int8.weight_bytes_after:.2f} x",
                    percent(int8.agreement),
                    f"{int8.cosine_mean:.4f}, {int8.cosine_min:.4f}",
                    _percent(int8.accuracy_before),
                    _percent(int8.accuracy_after),
                    f"{int8.latency_ratio:.2f} x float32",
                )
            ],
        )
    if report.projection is not None:
        kept = report.projection
        print_table(
            "projection, on the calibration data (accuracy: leave-one-out nearest neighbours)",
            ("numbers", "variance kept", "accuracy before", "after"),
            [
                (
                    f"{kept.dim_before} -> {kept.dim_after}",
                    percent(kept.retained_variance),
                    _percent(kept.accuracy_before),
                    _percent(kept.accuracy_after),
                )
            ],
        )


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None else percent(fraction)
