"""What commands print: tables for people, one JSON document for programs."""

import json
import sys
from collections.abc import Sequence
from typing import NoReturn

from rich import box
from rich.console import Console
from rich.table import Table


class _Console(Console):
    """rich's console, but that a closed pipe is the command line's business, see `cli`."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise it again."""
        raise BrokenPipeError


_PIPE_WIDTH = 160  # columns when stdout is no terminal; rich would wrap at 80


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table on stdout; numbers are right-aligned, columns are as wide as they need."""
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        numeric = bool(rows) and all(_is_number(row[number]) for row in rows)
        table.add_column(column, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    _Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False, markup=False).print(table)


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


def _is_number(cell: object) -> bool:
    return str(cell).replace("%", "").replace("x", "").split(" ")[0].replace(".", "").replace("-", "").isdigit()
