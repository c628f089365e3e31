"""edge-sdk info: what a datastore holds."""

from collections import Counter
from dataclasses import dataclass

from edge_sdk import Datastore, EdgeSDKError, Interpolation
from edge_sdk.compressed import CompressedMemory
from edge_sdk.datastore import entries_bytes
from edge_sdk.datastore.notices import LOCK_BYTES
from edge_sdk.datastore.storage import PROTOTYPES
from edge_sdk.neighbors import chosen_index, open_index
from edge_sdk.record import Record
from edge_tools.commands.tune import interpolation_rows
from edge_tools.options import DatastoreArgument, JsonOption
from edge_tools.output import percent, print_json, print_table, say, size, spoken_fact
from edge_tools.sparkline import sparkline
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
        facts: dict[str, object] = {
            "datastore": str(store.folder),
            "model_fingerprint": store.manifest.fingerprint,
            "entries": len(store),
            "capacity": store.capacity,
            "policy": store.policy,
            "dtype": store.dtype,
            "dim": store.dim,
            "damaged_slots": store.damaged,
            "index": chosen_index(store)["kind"],
        }
        facts |= {f"index_{name}": value for name, value in chosen_index(store).items() if name != "kind"}
        obstacle = _index_obstacle(store)
        record = Record.of(store)
        formula = formula_bytes(store)
        memory = CompressedMemory(store)
        if memory.refresh():
            prototypes = memory.prototypes
            facts["compressed"] = f"{prototypes.method}: {len(prototypes)} for {prototypes.n_entries} entries"
            facts["projection_bytes"] = prototypes.projection_bytes
            formula[PROTOTYPES] = prototypes.file_bytes
        emptied, evicted = store.emptied, store.evicted_classes
        kept = store.kept_inputs
        if kept is not None:
            facts |= {"kept_inputs": len(kept), "kept_inputs_capacity": kept.spec.slots}
    if as_json:
        classes = {
            each.label: {"entries": each.entries, "youngest": each.youngest, "oldest": each.oldest} for each in counts
        }
        document = {**facts, "interpolation": settings.to_mapping(), "classes": classes, "bytes": parts}
        online = {} if record is None else {"online": record_document(record)}
        print_json({**document, "bytes_by_formula": formula, "emptied_classes": list(emptied), **online})
        return
    print_table("Datastore", ("", ""), [spoken_fact(name, value) for name, value in facts.items()])
    print_table("Interpolation", ("setting", "value"), interpolation_rows(settings))
    if record is not None:
        print_table(*record_table(record))
    print_table(
        "Classes (age: how many entries were learnt later)",
        ("label", "entries", "youngest", "oldest"),
        [(each.label, each.entries, _age(each.youngest), _age(each.oldest)) for each in counts],
    )
    print_table(
        "Bytes on disk",
        ("part", "bytes", "", "by formula"),
        [(name, count, size(count), str(formula.get(name, "-"))) for name, count in parts.items()],
    )
    if obstacle:
        say(f"warning: this index cannot be used here: {obstacle}")
    for name in emptied:
        cure = "label some anew, or use policy balanced" if name in evicted else "it was forgotten"
        say(f'warning: class "{name}" has lost its last entry; {cure}')
    if facts["damaged_slots"]:
        say(f"warning: {facts['damaged_slots']} slots are damaged; each cost one entry, and is used again first")


def _index_obstacle(store: Datastore) -> str:
    """Why a Predictor could not search this store; empty when it could."""
    try:
        open_index(None, store)
    except EdgeSDKError as error:
        return str(error)
    return ""


def formula_bytes(store: Datastore) -> dict[str, int]:
    """What each file of fixed size must take, from the settings alone."""
    manifest = store.manifest
    size_of_entries = entries_bytes(manifest.dim, manifest.n_model_classes, manifest.dtype, capacity=manifest.capacity)
    kept = store.kept_inputs
    inputs = {} if kept is None else {"inputs.npy": kept.spec.n_bytes}
    return {"entries.npy": size_of_entries, "lock": LOCK_BYTES, **inputs}


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
    memory = CompressedMemory(store)
    if memory.refresh():
        return memory.interpolation
    stored = store.interpolation
    return Interpolation.untuned(len(store)) if stored is None else Interpolation.from_mapping(stored)


def _age(age: int | None) -> str:
    return "-" if age is None else str(age)


def record_document(record: Record) -> dict[str, object]:
    """What learning online has recorded, for programs."""
    return {
        "seen": record.weight.seen,
        "curve": [
            {"seen": seen, "global": theirs, "personalised": ours} for seen, theirs, ours in record.weight.curve()
        ],
        "drifts": record.drift.signals,
        "changed_at": record.drift.changed_at,
    }


def record_table(record: Record) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]]:
    """Title, columns and rows of the predict-then-learn curve."""
    curve = record.weight.curve()
    theirs, ours = record.weight.accuracies()
    title = f"Predicted, then learnt: {record.weight.seen} inputs, {record.weight.stride} to a bar"
    if record.drift.signals:
        title += f"; {record.drift.signals} drifts, the last one from entry {record.drift.changed_at} on"
    rows = [
        ("global", percent(theirs), sparkline([point[1] for point in curve])),
        ("personalised", percent(ours), sparkline([point[2] for point in curve])),
    ]
    return title, ("model", "accuracy", "over time"), list(rows)
