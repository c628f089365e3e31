"""The measured part of docs/results.md, and the same tables on the terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from edge_tools.benchmarks.reproduce.curves import Curves
from edge_tools.benchmarks.reproduce.shift import CAPACITY, Shift
from edge_tools.benchmarks.reproduce.table import Table
from edge_tools.benchmarks.reproduce.unseen import Unseen

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
"""What `write_report` replaces lies between these lines."""


class Section(NamedTuple):
    """One table with its heading and, perhaps, a picture."""

    heading: str
    picture: str | None
    """Name without folder and ending."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def results(tables: Sequence[Table]) -> dict[str, dict[str, list[float]]]:
    """Set -> method -> [average, decile], in percent with two decimals."""
    return {
        table.name: {
            method: [round(100 * score.average, 2), round(100 * score.decile, 2)]
            for method, score in table.scores.items()
        }
        for table in tables
    }


def sections(
    tables: Sequence[Table], curves: Curves | None, shift: Shift | None, unseen: Sequence[Unseen]
) -> list[Section]:
    """Everything that was measured, in the order of the page."""
    found: list[Section] = []
    for table in tables:
        heading = f"{table.name}: {table.clients} clients, {table.entries:.0f} entries each on average"
        rows = [
            (
                method,
                _percent(score.average),
                _percent(score.decile),
                f"{score.log_loss:.3f}",
                f"{score.calibration_error:.3f}",
            )
            for method, score in table.scores.items()
        ]
        found.append(
            Section(heading, None, ("method", "average", "bottom decile", "log-loss", "calibration error"), rows)
        )
    if tables:
        found.append(_oracle_section(tables))
    if curves is not None:
        found += _curve_sections(curves)
    if shift is not None:
        found.append(_shift_section(shift))
    if unseen:
        found.append(_unseen_section(unseen))
    return found


def write_report(path: Path, found: Sequence[Section], folder: str) -> None:
    """Put the sections between the two marks of a Markdown file.

    Args:
        path: has both marks.
        found: from `sections`.
        folder: of the pictures, relative to the file.
    """
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    blocks = [BEGIN]
    for heading, picture, columns, rows in found:
        lines = [f"### {heading}", ""]
        if picture:
            lines += [f"![{heading}]({folder}/{picture}.png)", ""]
        lines += ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
        blocks.append("\n".join(lines))
    path.write_text(before + "\n\n".join([*blocks, END]) + after, encoding="utf-8")


def _oracle_section(tables: Sequence[Table]) -> Section:
    rows = []
    for table in tables:
        best, reached = table.oracle, table.scores["knn"].average
        rows.append(
            (table.name, f"{best[0]:.2f}", _percent(best[1]), _percent(reached), f"{100 * (best[1] - reached):+.2f}")
        )
    columns = ("set", "best fixed λ", "its average", "leave-one-out λ_m", "gap, points")
    return Section("λ_m against the best fixed λ in hindsight", "methods", columns, rows)


def _curve_sections(curves: Curves) -> list[Section]:
    chosen = [
        (str(n), f"{curves.chosen[n]:.2f}", f"{_best(curves, n):.2f}", _percent(max(curves.by_entries[n])))
        for n in curves.chosen
    ]
    settings = [("k", str(k), _percent(value)) for k, value in curves.by_k]
    settings += [("σ", f"{sigma:g}", _percent(value)) for sigma, value in curves.by_bandwidth]
    capacity = [(_percent(share), _percent(knn), _percent(head)) for share, knn, head in curves.by_capacity]
    return [
        Section("λ and n_m", "lambda", ("n_m", "mean λ_m by leave-one-out", "best fixed λ", "its accuracy"), chosen),
        Section("k and bandwidth", "settings", ("setting", "value", "accuracy"), settings),
        Section("Capacity", "capacity", ("kept, newest first", "knn", "knn+head"), capacity),
    ]


def _best(curves: Curves, n: int) -> float:
    accuracies = curves.by_entries[n]
    return curves.weights[accuracies.index(max(accuracies))]


def _shift_section(shift: Shift) -> Section:
    rows = [(policy, _percent(value)) for policy, value in shift.regained.items()]
    seen = sorted(delay for delay in shift.delays if delay > 0)
    rows.append(("entries from the shift to the drift signal, each user", ", ".join(map(str, seen)) or "none"))
    rows.append(("users without a signal", str(len(shift.delays) - len(seen))))
    rows.append(("false signals", f"{shift.false_signals} in {shift.quiet_entries} entries"))
    return Section(
        "A user who changes",
        "shift",
        ("policy", f"drop regained after {CAPACITY} new entries (one capacity)"),
        rows,
    )


def _unseen_section(unseen: Sequence[Unseen]) -> Section:
    rows = []
    for one in unseen:
        for threshold in one.known_rejected:
            rows.append(
                (
                    one.name,
                    f"{threshold:g}",
                    _percent(one.known_rejected[threshold]),
                    _percent(one.new_rejected[threshold]),
                    f"{one.area:.3f}",
                )
            )
    return Section(
        "None of these",
        None,
        ("set", "reject above", "known inputs rejected", "inputs of an unseen class rejected", "area under ROC"),
        rows,
    )


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}"
