"""edge-sdk profile: bytes and milliseconds of a model file and a datastore, before deployment."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from edge_sdk import Encoder, Predictor
from edge_tools.latency import NOTHING, Latency, measure_encoding, measure_latency, random_samples
from edge_tools.memory import measure_memory
from edge_tools.options import JsonOption
from edge_tools.output import print_json, print_table, size
from edge_tools.storage import disk_by_part

EXAMPLE = "edge-sdk profile watch.onnx --datastore me.store"


def profile_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The exported model file (.onnx).")],
    datastore: Annotated[Path | None, typer.Option("--datastore", help="The datastore's folder.")] = None,
    repeats: Annotated[int, typer.Option("--repeats", min=10, help="How often each part is timed.")] = 200,
    as_json: JsonOption = False,
) -> None:
    """Measure disk, memory and latency by part; inputs are random numbers of the model's input shape."""
    memory = measure_memory(model, datastore)
    disk = {"model file": model.stat().st_size}
    if datastore is None:
        encoder = Encoder.open(model)
        encode = measure_encoding(encoder, random_samples(encoder.metadata.input), repeats=repeats)
        latency = Latency(encode, NOTHING, NOTHING, repeats)
    else:
        with Predictor.open(model, datastore, read_only=True) as predictor:
            disk |= disk_by_part(predictor.datastore)
            latency = measure_latency(predictor, random_samples(predictor.metadata.input), repeats=repeats)
    if as_json:
        print_json({"disk_bytes": disk, "memory": [asdict(step) for step in memory], "latency_ms": asdict(latency)})
        return
    print_table("Disk", ("part", "bytes", ""), [(name, count, size(count)) for name, count in disk.items()])
    print_table(
        "Memory of a fresh process (resident; private is what nobody shares)",
        ("after", "resident", "private", "peak"),
        [(step.name, size(step.resident), size(step.private), size(step.peak)) for step in memory],
    )
    print_table(
        f"Latency of one prediction, ms ({latency.repeats} repeats)",
        ("part", "p50", "p95", "p99"),
        [
            (name, f"{part.p50:.3f}", f"{part.p95:.3f}", f"{part.p99:.3f}")
            for name, part in (("encode", latency.encode), ("search", latency.search), ("blend", latency.blend))
        ],
    )
