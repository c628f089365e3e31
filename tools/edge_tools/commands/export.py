"""`edge-sdk export`: a trained model becomes one verified model file."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from edge_tools.output import print_json, print_table, say, size

if TYPE_CHECKING:
    from edge_export import ExportReport

EXAMPLE = (
    "edge-sdk export examples/watch/model.pt --model examples.watch.net:ActivityNet "
    "--input-shape 6,100 --labels examples/watch/labels.txt -o watch.onnx"
)


def export_command(
    source: Path = typer.Argument(..., metavar="MODEL", help="The trained model: a state_dict written by torch.save."),
    output: Path = typer.Option(..., "-o", "--output", help="The model file to write."),
    model: str | None = typer.Option(None, "--model", help="MODULE:NAME that builds the network for a state_dict."),
    input_shape: str | None = typer.Option(None, "--input-shape", help="Shape of one sample without the batch: 6,100."),
    input_dtype: str = typer.Option("float32", "--input-dtype", help="float32, uint8, int32 or int64."),
    labels: str | None = typer.Option(
        None, "--labels", help="File with one label a line, or names with commas; without it the classes are 0, 1, ..."
    ),
    embedding: str | None = typer.Option(
        None, "--embedding", help="Layer whose output is the embedding; default: the input of the last linear layer."
    ),
    scores: str | None = typer.Option(None, "--scores", help="Which output holds the class scores, if several fit."),
    as_json: bool = typer.Option(False, "--json", help="Print the report as JSON."),
) -> None:
    """Turn a trained PyTorch model into one self-describing ONNX file, and prove that it equals its source."""
    from edge_export import export_model
    from edge_export.classes import read_classes
    from edge_export.samples import parse_shape

    say(f"exporting {source} ...")
    report = export_model(
        source,
        output,
        model=model,
        input_shape=parse_shape(input_shape) if input_shape else None,
        input_dtype=input_dtype,
        classes=read_classes(labels) if labels else None,
        embedding=embedding,
        scores=scores,
    )
    if as_json:
        print_json({**dataclasses.asdict(report), "path": str(report.path)})
    else:
        _print_report(report)


def _print_report(report: "ExportReport") -> None:
    shape = ", ".join(str(length) for length in report.input_shape)
    print_table(
        f"{report.path}",
        ("what", "value"),
        (
            ("source", report.source),
            ("input", f"{report.input_dtype} (batch, {shape})"),
            ("embedding", f"{report.dim} numbers: {report.embedding}"),
            ("classes", f"{len(report.classes)}: {', '.join(report.classes[:6])}{', ...' * (len(report.classes) > 6)}"),
            ("scores", report.head),
            *(("note", note) for note in report.notes),
            ("file", f"{size(report.size_bytes)}, opset {report.opset}, IR {report.ir_version}"),
            ("fingerprint", report.fingerprint[:16]),
            ("time", f"{report.seconds:.1f} s"),
        ),
    )
    print_table(
        "largest difference from the source",
        ("batch", "probabilities", "embedding (relative)"),
        [(row.batch, f"{row.probabilities:.1e}", f"{row.embedding:.1e}") for row in report.parity],
    )
