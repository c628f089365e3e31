"""ExportReport: what was written, and how it compares with its source."""

from dataclasses import dataclass
from pathlib import Path

from edge_export.parity import BatchParity
from edge_export.projection import ProjectionReport
from edge_export.quantise import QuantisationReport


@dataclass(frozen=True)
class ExportReport:
    """What was written, and how it compares with its source."""

    path: Path
    source: str
    """Kind of the source file."""

    classes: tuple[str, ...]
    input_shape: tuple[int, ...]
    input_dtype: str
    dim: int
    embedding: str
    """Where the embedding comes from."""

    head: str
    """What the class scores were, and what was added."""

    parity: tuple[BatchParity, ...]
    """Of the float32 graph, in which it was proved; int8 has a report of its own."""

    size_bytes: int
    opset: int
    ir_version: int
    onnxruntime: str
    """Oldest onnxruntime known to read the file."""

    fingerprint: str
    notes: tuple[str, ...]
    """What was adapted on the way, one sentence each."""

    quantisation: QuantisationReport | None
    projection: ProjectionReport | None
    seconds: float
