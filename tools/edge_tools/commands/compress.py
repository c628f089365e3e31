"""edge-sdk compress: the most accurate memory that fits the bytes you have."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edge_sdk import ConfigError, Datastore, Interpolation, ModelFile
from edge_tools.options import DatastoreArgument, JsonOption, parse_bytes
from edge_tools.output import percent, print_json, print_table, say, size
from edge_tools.progress import progress

if TYPE_CHECKING:
    from edge_tools.compression import Point, Search
    from edge_tools.memories import Kernel

EXAMPLE = "edge-sdk compress me.store --model watch.onnx --budget 64KB --yes"


def compress_command(
    datastore: DatastoreArgument,
    budget: Annotated[str, typer.Option("--budget", help="Bytes for the whole datastore, such as 64KB.")],
    model: Annotated[
        Path | None, typer.Option("--model", help="The exported model file, to check that they belong together.")
    ] = None,
    min_accuracy: Annotated[
        float | None,
        typer.Option("--min-accuracy", min=0.0, max=1.0, help="Held-out accuracy below which nothing is written."),
    ] = None,
    tail: Annotated[int, typer.Option("--tail", min=1, help="Newest entries to keep exactly from now on.")] = 32,
    output: Annotated[
        Path | None, typer.Option("--output", help="Folder of the result (default: DATASTORE.compressed).")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Put the result in the original's place, which is removed.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of k-means and of training.")] = 0,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw bytes and accuracy to this file (.png, .svg).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Search for the most accurate memory within a budget, judged on entries held out of the store, and write it.

    Without --yes the result lies beside the original. Exit code 3: nothing fits; the nearest possible is named.
    """
    limit = parse_bytes(budget)
    from edge_tools import compression  # scikit-learn, which no other command should wait for

    if yes and output is not None:
        raise ConfigError("--yes puts the result in the original's place, --output elsewhere; give one of them")
    with Datastore.open(datastore, model=None if model is None else ModelFile.open(model).metadata) as store:
        entries = compression.read_entries(store)
        sizes = compression.sizes_of(store, entries, tail=tail)
        kernel = _kernel_of(store)
        recipes = compression.candidates(sizes, limit, kernel=kernel, seed=seed)
        found = compression.search(
            entries,
            progress(recipes, total=len(recipes), label="judging"),
            sizes,
            original_bytes=compression.folder_bytes(datastore),
            kernel=kernel,
        )
        best = found.best(limit)
        if plot is not None:
            from edge_tools.compression_plot import draw

            draw(found, limit, plot)
        _show(found, best, as_json=as_json)
        if best is None or (min_accuracy is not None and best.judgement.accuracy < min_accuracy):
            say(_nearest(found, best, limit, min_accuracy))
            raise typer.Exit(3)
        memory = compression.final_memory(best, entries, store)
        if yes:
            written = compression.put_in_place(store, memory, tail=tail)
            say(f"{datastore}: now {written} bytes, was {found.original_bytes}")
            return
        folder = output or datastore.with_name(datastore.name + ".compressed")
        written = compression.write_beside(store, memory, folder, tail=tail)
        say(f"{folder}: {written} bytes; the original is as it was, run again with --yes to put this in its place")


def _kernel_of(store: Datastore) -> "Kernel":
    """Of the full store, tuned or not."""
    from edge_tools.memories import Kernel

    settings = Interpolation(0.0) if store.interpolation is None else Interpolation.from_mapping(store.interpolation)
    return Kernel(settings.kernel, settings.bandwidth, settings.k)


def _show(found: "Search", best: "Point | None", *, as_json: bool) -> None:
    """The frontier, on stdout."""
    frontier = found.frontier()
    if as_json:
        print_json(
            {
                "original": {"bytes": found.original_bytes, "accuracy": found.original.accuracy},
                "frontier": [_mapping(point) for point in frontier],
                "chosen": None if best is None else _mapping(best),
            }
        )
        return
    rows = [
        (
            point.judgement.recipe.name,
            _count(point),
            point.memory_bytes,
            point.total_bytes,
            point.bytes_without_projection,
            percent(point.judgement.accuracy),
            f"{point.judgement.interpolation_weight:.2f}",
            "chosen" if point is best else "",
        )
        for point in (frontier if best is None or best in frontier else [*frontier, best])
    ]
    print_table(
        f"Bytes and accuracy on {found.original.n_held_out} held-out entries "
        f"(the full store: {size(found.original_bytes)}, {percent(found.original.accuracy)})",
        ("memory", "prototypes", "its file", "whole store", "without projection", "accuracy", "λ_m", ""),
        rows,
    )


def _count(point: "Point") -> str:
    recipe = point.judgement.recipe
    return "all" if recipe.method == "keys" else str(recipe.n_prototypes)


def _mapping(point: "Point") -> dict[str, object]:
    judged = point.judgement
    return {
        "method": judged.recipe.name,
        "prototypes": _count(point),
        "memory_bytes": point.memory_bytes,
        "total_bytes": point.total_bytes,
        "bytes_without_projection": point.bytes_without_projection,
        "accuracy": judged.accuracy,
        "log_loss": judged.log_loss,
        "interpolation_weight": judged.interpolation_weight,
    }


def _nearest(found: "Search", best: "Point | None", limit: int, min_accuracy: float | None) -> str:
    """One line: what does not fit, and the nearest that does."""
    if best is None:
        smallest = found.smallest()
        return (
            f"edge-sdk: nothing fits {limit} bytes; the nearest possible is {smallest.judgement.recipe.name}, "
            f"{smallest.total_bytes} bytes at {percent(smallest.judgement.accuracy)} "
            f"({smallest.total_bytes - smallest.memory_bytes} of them lock, manifest and tail: a smaller --tail helps)"
        )
    reaching = [point for point in found.frontier() if point.judgement.accuracy >= (min_accuracy or 0.0)]
    nearest = reaching[0] if reaching else max(found.points, key=lambda point: point.judgement.accuracy)
    return (
        f"edge-sdk: {percent(best.judgement.accuracy)} is the best within {limit} bytes, asked for "
        f"{percent(min_accuracy or 0.0)}; the nearest possible is {nearest.judgement.recipe.name}, "
        f"{nearest.total_bytes} bytes at {percent(nearest.judgement.accuracy)}"
    )
