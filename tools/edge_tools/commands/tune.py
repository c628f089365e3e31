"""edge-sdk tune: choose λ_m, kernel, bandwidth and k by leave-one-out, and save them in the datastore."""

from typing import Annotated

import typer

from edge_sdk import Datastore, Interpolation
from edge_sdk.compressed import tune_memory
from edge_sdk.interpolation import CRITERIA, EXPERTS
from edge_sdk.neighbors import open_index
from edge_tools.options import DatastoreArgument, JsonOption
from edge_tools.output import percent, print_json, print_table

EXAMPLE = "edge-sdk tune me.store --experts knn+head"

ExpertsOption = Annotated[
    str | None,
    typer.Option(
        "--experts", help=f"What answers from memory: {' or '.join(EXPERTS)}; default: as before, knn at first."
    ),
]
CriterionOption = Annotated[
    str, typer.Option("--criterion", help=f"How λ_m is chosen: {' or '.join(CRITERIA)} (the paper's seven values).")
]
GapOption = Annotated[
    int,
    typer.Option(
        "--gap",
        min=0,
        help="Leave out entries up to so many places before and after as well (sensor windows in a row).",
    ),
]


def tune_command(
    datastore: DatastoreArgument,
    experts: ExpertsOption = None,
    criterion: CriterionOption = CRITERIA[0],
    gap: GapOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Choose λ_m, kernel, bandwidth and k by leave-one-out and save them; of a compressed datastore λ_m alone."""
    with Datastore.open(datastore) as store:
        chosen = tune_memory(store, open_index(None, store), experts=experts, criterion=criterion, gap=gap)
    if as_json:
        print_json(chosen.to_mapping())
    else:
        print_table("Interpolation", ("setting", "value"), interpolation_rows(chosen))


def interpolation_rows(settings: Interpolation) -> list[tuple[str, str]]:
    """The blend's settings and their evidence, for a table."""
    rows = [
        ("λ_m", f"{settings.interpolation_weight:.3f}"),
        ("kernel", settings.kernel),
        ("bandwidth σ", f"{settings.bandwidth:.3f}"),
        ("k", str(settings.k)),
        *_head_rows(settings),
        ("chosen by", f"{settings.chosen_by}, at {settings.n_entries} entries"),
    ]
    if settings.evidence:
        evidence = settings.evidence
        rows.append(("leave-one-out accuracy, global", percent(evidence["global_accuracy"])))
        rows.append(("leave-one-out accuracy, blend", percent(evidence["accuracy"])))
    return rows


def _head_rows(settings: Interpolation) -> list[tuple[str, str]]:
    """The closed-form head's settings, if there is one."""
    if settings.head is None:
        return [("experts", settings.experts)]
    head = f"ridge {settings.head.ridge:g}, sharpness {settings.head.sharpness:g}"
    return [("experts", settings.experts), ("head's share of the memory", percent(settings.head_share)), ("head", head)]
