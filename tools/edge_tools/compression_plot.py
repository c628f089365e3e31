"""The picture of a search: bytes to the right, held-out accuracy upwards, the frontier as a line."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from edge_sdk import MissingExtraError

if TYPE_CHECKING:
    from edge_tools.compression import Search


def draw(found: "Search", budget: int, path: Path) -> None:
    """Write the picture.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "plot")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for method in sorted({point.judgement.recipe.method for point in found.points}):
        points = [point for point in found.points if point.judgement.recipe.method == method]
        axes.plot(
            [point.total_bytes for point in points],
            [100 * point.judgement.accuracy for point in points],
            "o",
            label=method,
        )
    frontier = found.frontier()
    axes.step(
        [point.total_bytes for point in frontier],
        [100 * point.judgement.accuracy for point in frontier],
        where="post",
        color="grey",
        label="frontier",
    )
    axes.axvline(budget, linestyle=":", color="black", label="budget")
    axes.axhline(100 * found.original.accuracy, linestyle="--", color="black", label="full store")
    axes.set_xscale("log")
    axes.set_xlabel("bytes of the whole datastore")
    axes.set_ylabel("accuracy on held-out entries, %")
    axes.legend()
    figure.savefig(path)
