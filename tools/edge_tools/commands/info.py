"""edge-sdk info: what a datastore holds."""

from collections import Counter
from dataclasses import dataclass

from edge_sdk import Datastore, Interpolation
from edge_tools.commands.tune import interpolation_rows
from edge_tools.options import DatastoreArgument, JsonOption
from edge_tools.output import print_json, print_table, size
from edge_tools.storage import disk_by_part

EXAMPLE = "edge-sdk info me.store"


@dataclass(frozen=True)
class ClassCount:
    """One class in the datastore."""

    label: str
    entries: int
    youngest: int | None
    """Age of the youngest entry: how many entries were learnt after it. None when there is no entry."""

    oldest: int | None


def info_command(datastore: DatastoreArgument, as_json: JsonOption = False) -> None:
    """Show what a datastore holds: entries per class and their ages, settings of the blend, bytes on disk."""
    with Datastore.open(datastore, read_only=True) as store:
        parts = disk_by_part(store)
        counts = count_classes(store)
        settings = current_interpolation(store)
        facts = {
            "datastore": str(store.folder),
            "model fingerprint": store.manifest.fingerprint,
            "entries": len(store),
            "capacity": store.capacity,
            "policy": store.policy,
            "dtype": store.dtype,
            "dim": store.dim,
            "damaged slots": store.damaged,
            "index": "exact",
        }
    if as_json:
        classes = {
            each.label: {"entries": each.entries, "youngest": each.youngest, "oldest": each.oldest} for each in counts
        }
        print_json({**facts, "interpolation": settings.to_mapping(), "classes": classes, "bytes": parts})
        return
    print_table("Datastore", ("", ""), [(name, str(value)) for name, value in facts.items()])
    print_table("Interpolation", ("setting", "value"), interpolation_rows(settings))
    print_table(
        "Classes (age: how many entries were learnt later)",
        ("label", "entries", "youngest", "oldest"),
        [(each.label, each.entries, _age(each.youngest), _age(each.oldest)) for each in counts],
    )
    print_table("Bytes on disk", ("part", "bytes", ""), [(name, count, size(count)) for name, count in parts.items()])


def count_classes(store: Datastore) -> list[ClassCount]:
    """Entries and ages of every class that the model or the datastore knows."""
    order = store.table.order
    labels = store.table.labels[order].tolist()
    sequences = store.table.sequences[order].tolist()
    newest = sequences[-1] if sequences else 0
    counts = Counter(labels)
    youngest = dict(zip(labels, sequences, strict=True))
    oldest = dict(zip(reversed(labels), reversed(sequences), strict=True))
    return [
        ClassCount(
            label,
            counts[number],
            newest - youngest[number] if number in youngest else None,
            newest - oldest[number] if number in oldest else None,
        )
        for number, label in enumerate(store.classes)
    ]


def current_interpolation(store: Datastore) -> Interpolation:
    """The settings a Predictor would use now."""
    stored = store.interpolation
    return Interpolation.untuned(len(store)) if stored is None else Interpolation.from_mapping(stored)


def _age(age: int | None) -> str:
    return "-" if age is None else str(age)
