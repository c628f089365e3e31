"""Progress bars on stderr, silent when stderr is no terminal."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")


def progress(items: Iterable[T], *, total: int | None, label: str) -> Iterator[T]:
    """Yield the items while a bar with count and remaining time moves.

    Args:
        items: what to go through.
        total: how many there are; None while that is unknown.
        label: what is being done, a few words.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task(label, total=total)
        for item in items:
            yield item
            bar.advance(task)
