"""edge-sdk doctor: can this machine run the product, and is the datastore well?

This module imports nothing native, see `edge_tools.doctor`; `edge_tools.start` runs it without the other commands.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from edge_tools.doctor import Finding, Verdict, examine

EXAMPLE = "edge-sdk doctor --model watch.onnx --datastore me.store"

_MARKS = {Verdict.OK: "ok     ", Verdict.SKIPPED: "-      ", Verdict.WARNING: "WARNING", Verdict.PROBLEM: "PROBLEM"}


def doctor_command(
    model: Annotated[Path | None, typer.Option("--model", help="A model file to compare with its reference.")] = None,
    datastore: Annotated[Path | None, typer.Option("--datastore", help="A datastore's folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of lines.")] = False,
) -> None:
    """Look for what would go wrong here, each native library in a child process; exit 1 if something does not work."""
    findings = []
    for finding in examine(model, datastore):
        findings.append(finding)
        if not as_json:
            _print(finding)
    if as_json:
        sys.stdout.write(json.dumps([asdict(finding) for finding in findings], ensure_ascii=False) + "\n")
    if any(finding.verdict is Verdict.PROBLEM for finding in findings):
        raise typer.Exit(1)


def _print(finding: Finding) -> None:
    advice = f"\n        {'-> ' + finding.advice}" if finding.advice else ""
    sys.stdout.write(f"{_MARKS[finding.verdict]} {finding.subject}: {finding.detail}{advice}\n")
    sys.stdout.flush()
