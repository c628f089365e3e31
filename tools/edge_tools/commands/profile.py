"""edge-sdk profile: bytes and milliseconds of a model file and a datastore, before deployment."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from edge_sdk import Datastore, ModelFile, ModelMetadata
from edge_tools import formulas
from edge_tools.budgets import Budget
from edge_tools.measurement import Measurement, measure
from edge_tools.options import JsonOption, parse_bytes, parse_milliseconds
from edge_tools.output import print_json, print_table, say, size, spoken, spoken_fact
from edge_tools.storage import disk_by_part, table_bytes

EXAMPLE = "edge-sdk profile watch.onnx --datastore me.store --capacity 10000 --budget-ram 64MB"

_BUDGET_NOT_MET = 3


@dataclass(frozen=True)
class Profile:
    """What was measured, and what follows for the capacity asked for."""

    measurement: Measurement
    disk: dict[str, int]
    """Bytes of the model file and of the datastore's parts."""

    checks: list[tuple[str, int, int]]
    """(what, by formula, measured) of the datastore as it is."""

    predicted: formulas.Prediction | None

    @property
    def disk_bytes(self) -> int:
        """The model file and the datastore, of the capacity asked for if there is one."""
        store = self.disk.get("total", 0)
        if self.predicted is not None:
            others = store - self.disk.get("entries.npy", 0) - self.disk.get("lock", 0)
            store = self.predicted.disk_bytes + others
        return self.disk["model_file"] + store

    @property
    def ram_bytes(self) -> int:
        """The peak, with a full datastore of the capacity asked for if there is one."""
        grown = 0
        if self.predicted is not None:
            now = sum(by_formula for what, by_formula, _ in self.checks if what.startswith("RAM"))
            grown = max(0, self.predicted.ram_bytes - now)
        return self.measurement.peak + grown

    @property
    def latency_ms(self) -> float:
        """p95 of a whole prediction; without a datastore, of the model alone."""
        parts = self.measurement.latency_ms
        return parts.get("predict", parts["encode"])["p95"]


def profile_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The exported model file (.onnx).")],
    datastore: Annotated[Path | None, typer.Option("--datastore", help="The datastore's folder.")] = None,
    capacity: Annotated[
        int | None, typer.Option("--capacity", min=1, help="Also predict a full datastore of so many entries.")
    ] = None,
    budget_ram: Annotated[str | None, typer.Option("--budget-ram", help="Most memory at the peak, as 64MB.")] = None,
    budget_disk: Annotated[str | None, typer.Option("--budget-disk", help="Most bytes on disk, as 20MB.")] = None,
    budget_latency: Annotated[
        str | None, typer.Option("--budget-latency", help="Longest prediction (p95), as 30ms.")
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", min=10, help="How often each part is timed.")] = 200,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw memory after each step into this file (.png, .svg).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure memory, disk, latency and recall in a fresh process; exit 3 when a budget is not met.

    Inputs are random numbers of the model's input shape.
    """
    limits = [
        (name, None if text is None else parse(text), unit)
        for name, text, parse, unit in (
            ("ram", budget_ram, parse_bytes, "bytes"),
            ("disk", budget_disk, parse_bytes, "bytes"),
            ("latency", budget_latency, parse_milliseconds, "ms"),
        )
    ]
    metadata = ModelFile.open(model).metadata
    if datastore is not None:
        Datastore.open(datastore, model=metadata, read_only=True).close()
    profile = _profile(model, metadata, datastore, capacity, repeats)
    found = {"ram": profile.ram_bytes, "disk": profile.disk_bytes, "latency": profile.latency_ms}
    budgets = [Budget(name, limit, found[name], unit) for name, limit, unit in limits if limit is not None]
    if plot is not None:
        from edge_tools.waterfall import draw_waterfall  # matplotlib, only for who asks

        draw_waterfall(profile.measurement.steps, plot)
    if as_json:
        _print_json(profile, budgets)
    else:
        _print(profile)
        for budget in budgets:
            say(str(budget))
    if not all(budget.is_met for budget in budgets):
        raise typer.Exit(_BUDGET_NOT_MET)


def _profile(
    model: Path, metadata: ModelMetadata, datastore: Path | None, capacity: int | None, repeats: int
) -> Profile:
    measurement = measure(model, datastore, repeats=repeats)
    disk = {"model_file": model.stat().st_size}
    checks: list[tuple[str, int, int]] = []
    columns, dtype, kind = None, "float16", "exact"
    if datastore is not None and measurement.index is not None:
        with Datastore.open(datastore, read_only=True) as store:
            disk |= disk_by_part(store)
            checks = _checks(store, measurement.index)
            dtype = store.dtype
        columns, kind = _columns(measurement.index, capacity), str(measurement.index["kind"])
    predicted = None
    if capacity is not None:
        predicted = formulas.predict(
            capacity,
            dim=metadata.dim,
            n_model_classes=len(metadata.classes),
            dtype=dtype,
            columns=columns,
            index=kind,
        )
    return Profile(measurement, disk, checks, predicted)


def _checks(store: Datastore, index: dict[str, Any]) -> list[tuple[str, int, int]]:
    """The formulas beside what the datastore measures, for its own capacity and entries."""
    columns, kind = int(index.get("columns", 0)), str(index["kind"])
    full = formulas.predict(
        store.capacity,
        dim=store.dim,
        n_model_classes=store.n_model_classes,
        dtype=store.dtype,
        columns=columns,
        index=kind,
    )
    index_bytes = 4 * columns * len(store) if kind == "exact" else full.index_bytes
    return [
        ("entries.npy", full.entries_bytes, (store.folder / "entries.npy").stat().st_size),
        ("RAM of the slot table", full.table_bytes, table_bytes(store)),
        ("RAM of the index" if kind == "exact" else "RAM of the index, most", index_bytes, int(index["ram_bytes"])),
    ]


def _columns(index: dict[str, Any], capacity: int | None) -> int | None:
    """What the index keeps an entry at this capacity, as far as its present state tells."""
    columns = int(index.get("columns", 0)) or None
    if columns is None or capacity is None or index.get("method") != "matrix product":
        return columns
    return columns if 4 * columns * capacity <= int(index.get("ram_budget", 0)) else None


def _print_json(profile: Profile, budgets: list[Budget]) -> None:
    measurement = profile.measurement
    print_json(
        {
            "disk_bytes": profile.disk,
            "memory": [asdict(step) for step in measurement.steps],
            "start_up_ms": measurement.start_up_ms,
            "latency_ms": measurement.latency_ms,
            "threads": measurement.threads,
            "index": measurement.index,
            "recall": measurement.recall,
            "formulas": [
                {"what": what, "formula": formula, "measured": measured} for what, formula, measured in profile.checks
            ],
            "predicted": None if profile.predicted is None else asdict(profile.predicted),
            "ram_bytes": profile.ram_bytes,
            "total_disk_bytes": profile.disk_bytes,
            "budgets": [{**asdict(budget), "met": budget.is_met} for budget in budgets],
        }
    )


def _print(profile: Profile) -> None:
    measurement = profile.measurement
    print_table(
        "Disk", ("part", "bytes", ""), [(spoken(name), count, size(count)) for name, count in profile.disk.items()]
    )
    print_table(
        "Memory of a fresh process (resident; private is what nobody shares), and time since its start",
        ("after", "resident", "private", "peak", "ms"),
        [
            (step.name, size(step.resident), size(step.private), size(step.peak), f"{step.milliseconds:.0f}")
            for step in measurement.steps
        ],
    )
    print_table(
        "Latency of one prediction by part, of the whole, and of one learn, ms",
        ("part", "p50", "p95", "p99"),
        [
            (name, f"{part['p50']:.3f}", f"{part['p95']:.3f}", f"{part['p99']:.3f}")
            for name, part in measurement.latency_ms.items()
        ],
    )
    print_table("", ("what", "value"), _facts(measurement))
    if profile.checks:
        print_table("The formulas on this datastore", ("bytes of", "formula", "measured"), profile.checks)
    if profile.predicted is not None:
        predicted = profile.predicted
        print_table(
            f"Predicted: {predicted.capacity} entries",
            ("what", "bytes", ""),
            [
                (what, count, size(count))
                for what, count in (
                    ("one slot", predicted.slot_bytes),
                    ("entries.npy", predicted.entries_bytes),
                    ("on disk, with the model file", profile.disk_bytes),
                    ("RAM of the slot table", predicted.table_bytes),
                    ("RAM of the index", predicted.index_bytes),
                    ("RAM at the peak", profile.ram_bytes),
                )
            ],
        )


def _facts(measurement: Measurement) -> list[tuple[str, str]]:
    threads = measurement.threads
    facts = [
        ("start-up to the first answer", f"{measurement.start_up_ms:.0f} ms"),
        ("threads", f"{threads['inference']} for the model, {threads['process']} in the process"),
    ]
    if measurement.index is not None:
        for name, value in measurement.index.items():
            what, text = spoken_fact(name, value)
            facts.append(("index" if name == "kind" else f"index, {what}", text))
    if measurement.recall is not None:
        found = measurement.recall
        facts.append(("recall", f"{found['recall']:.4f} at k = {found['k']}, {found['n_queries']} queries"))
    return facts
