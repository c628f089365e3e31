"""Calibration data: real inputs, with labels where there are any, read as every edge-sdk command reads inputs."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_sdk.errors import InputError
from edge_sdk.inputs import open_source
from edge_sdk.model import InputSpec

LARGEST_COUNT = 2048
"""Rows that are kept: more change neither ranges nor principal directions, and the quantiser holds all activations."""


@dataclass(frozen=True)
class Calibration:
    """Inputs in the model file's dtype and shape."""

    x: np.ndarray
    """(n, *shape)."""

    labels: np.ndarray | None
    """(n,) positions in the model's classes, -1 for a label it does not know; None without labels."""


def read_calibration(path: Path, spec: InputSpec, classes: tuple[str, ...]) -> Calibration:
    """Read calibration data; of more than `LARGEST_COUNT` rows, evenly spaced ones.

    Raises:
        InputError: nothing that can be read, or of another shape.
    """
    source = open_source(path, spec, labels="optional")
    blocks, labels = [], []
    for batch in source.batches():
        blocks.append(batch.x)
        labels.extend(batch.labels or [])
    x = np.concatenate(blocks) if blocks else np.empty((0, *spec.shape), spec.dtype)
    if len(x) < 2:
        raise InputError(
            f"{path}: {len(x)} usable inputs, calibration needs at least 2 and does well with some hundred"
        )
    rows = np.unique(np.linspace(0, len(x) - 1, min(len(x), LARGEST_COUNT)).astype(np.int64))
    position = {name: number for number, name in enumerate(classes)}
    numbers = np.array([position.get(label, -1) for label in labels], np.int64) if len(labels) == len(x) else None
    return Calibration(x[rows], None if numbers is None else numbers[rows])
