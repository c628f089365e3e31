"""A curve in one line of text."""

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], *, low: float = 0.0, high: float = 1.0) -> str:
    """One bar for each value, the lowest at `low` and below, the highest at `high` and above."""
    steps = ((value - low) / (high - low) * len(_BARS) for value in values)
    return "".join(_BARS[min(len(_BARS) - 1, max(0, int(step)))] for step in steps)
