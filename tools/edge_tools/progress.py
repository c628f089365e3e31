"""Progress bars on stderr, silent when stderr is no terminal."""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

T = TypeVar("T")


class RateColumn(ProgressColumn):
    """How many are done in a second."""

    def render(self, task: Task) -> Text:
        """The rate so far, nothing before the first."""
        return Text(f"{task.speed:.0f}/s" if task.speed else "")


def progress(
    items: Iterable[T], *, total: int | None, label: str, size: Callable[[T], int] = lambda item: 1
) -> Iterator[T]:
    """Yield the items while a bar with count, rate and remaining time moves.

    Args:
        items: what to go through.
        total: how many there are; None while that is unknown.
        label: what is being done, a few words.
        size: how far one item moves the bar.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), RateColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task(label, total=total)
        for item in items:
            yield item
            bar.advance(task, size(item))
