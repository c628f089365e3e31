"""What commands print: tables for people, one JSON document for programs."""

import json
import sys
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

_PIPE_WIDTH = 160  # columns when stdout is no terminal; rich would wrap at 80


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table on stdout; numbers are right-aligned, columns are as wide as they need.

    Args:
        title: above it; empty: none.
        columns: their names; where all are empty, the table has no head.
        rows: one cell a column; "-" or nothing stands for a number that does not exist.
    """
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, show_header=any(columns))
    for number, column in enumerate(columns):
        cells = [str(row[number]) for row in rows]
        numeric = any(map(_is_number, cells)) and all(cell in ("", "-") or _is_number(cell) for cell in cells)
        table.add_column(column, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(table)
    sys.stdout.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


def print_facts(facts: Mapping[str, object]) -> None:
    """Print named values as a table of one row."""
    print_table("", [spoken(name) for name in facts], [tuple(facts.values())])


def spoken(name: str) -> str:
    """A name from a JSON document as people read it."""
    return name.replace("_", " ")


def spoken_fact(name: str, value: object) -> tuple[str, str]:
    """A name and its value from a JSON document as people read them: the unit goes from the name to the value."""
    if value is None:
        return spoken(name), "-"
    if isinstance(value, bool):
        return spoken(name), "yes" if value else "no"
    if name == "ram_budget" and isinstance(value, int):
        return "RAM limit", size(value)
    if name.endswith("_bytes") and isinstance(value, int):
        stem = spoken(name.removesuffix("_bytes"))
        return "RAM" if stem == "ram" else stem, size(value)
    for unit in ("ms", "s"):
        if name.endswith(f"_{unit}"):
            return spoken(name.removesuffix(f"_{unit}")), f"{value} {unit}"
    return spoken(name), str(value)


def print_json(value: object) -> None:
    """Print one JSON document on one line of stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def print_line(text: str) -> None:
    """Print one line on stdout."""
    sys.stdout.write(text + "\n")


def say(text: str) -> None:
    """Talk to the person at the terminal, on stderr."""
    sys.stderr.write(text + "\n")


def percent(fraction: float) -> str:
    """A fraction as a percentage with one decimal, "-" where it does not exist."""
    return "-" if fraction != fraction else f"{100 * fraction:.1f} %"


def size(n_bytes: float) -> str:
    """Bytes in the largest unit that leaves a number of at least 1 (1 KB = 1024 bytes)."""
    for unit in ("B", "KB", "MB"):
        if n_bytes < 1024:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.1f} GB"


def _is_number(cell: str) -> bool:
    return cell.replace("%", "").replace("x", "").split(" ")[0].replace(".", "").replace("-", "").isdigit()
