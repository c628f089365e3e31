"""The memory waterfall: what each step of a device's start adds to resident memory, as a picture."""

from collections.abc import Sequence
from pathlib import Path

from edge_sdk import MissingExtraError
from edge_tools.measurement import Step

_MB = 1 << 20


def draw_waterfall(steps: Sequence[Step], path: Path) -> None:
    """Draw resident memory after each step as a bar that starts where the last one ended.

    Args:
        steps: in their order.
        path: of the picture; its suffix says which kind (.png, .svg, .pdf).

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot") from error
    ends = [step.resident / _MB for step in steps]
    starts = [0.0, *ends[:-1]]
    figure = Figure(figsize=(8, 0.45 * len(steps) + 1.2), layout="constrained")
    axes = figure.subplots()
    names = [step.name for step in steps]
    axes.barh(names, [end - start for start, end in zip(starts, ends, strict=True)], left=starts, color="tab:blue")
    for name, start, end in zip(names, starts, ends, strict=True):
        axes.annotate(f" {end:.1f} ({end - start:+.1f})", (max(start, end), name), va="center", fontsize=8)
    peak = max(step.peak for step in steps) / _MB
    axes.axvline(peak, color="tab:red", linewidth=1, label=f"peak {peak:.1f} MB")
    axes.set_xlim(0, 1.2 * peak)
    axes.invert_yaxis()
    axes.set_xlabel("resident memory, MB")
    axes.legend(loc="lower right")
    figure.savefig(path)
