"""edge-sdk tune: choose λ_m, kernel, bandwidth and k by leave-one-out, and save them in the datastore."""

from edge_sdk import Datastore, Interpolation
from edge_sdk.interpolation import tune_datastore
from edge_sdk.neighbors import ExactIndex
from edge_tools.options import DatastoreArgument, JsonOption
from edge_tools.output import percent, print_json, print_table

EXAMPLE = "edge-sdk tune me.store"


def tune_command(datastore: DatastoreArgument, as_json: JsonOption = False) -> None:
    """Choose λ_m, kernel, bandwidth and k by leave-one-out over the stored entries, and save them."""
    with Datastore.open(datastore) as store:
        chosen = tune_datastore(store, ExactIndex(store))
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
        ("chosen by", f"{settings.chosen_by}, at {settings.n_entries} entries"),
    ]
    if settings.evidence:
        evidence = settings.evidence
        rows.append(("leave-one-out accuracy, global", percent(evidence["global_accuracy"])))
        rows.append(("leave-one-out accuracy, blend", percent(evidence["accuracy"])))
    return rows
