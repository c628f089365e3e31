"""Projection: the embedding's leading principal directions, folded into the graph.

Every device then stores R numbers an entry in place of dim. The mean is subtracted as well: distances do not change,
and half-precision keys keep more of their digits around zero.
"""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_export.accuracy import neighbor_accuracy
from edge_export.surgery import declare_outputs, rename_everywhere
from edge_sdk.errors import ConfigError
from edge_sdk.model import EMBEDDING_OUTPUT, PROBABILITIES_OUTPUT

_UNPROJECTED = "edge_sdk/unprojected"


@dataclass(frozen=True)
class Projection:
    """(embedding - mean) @ directions."""

    mean: np.ndarray
    """float64 (dim,)."""

    directions: np.ndarray
    """float64 (dim, r), orthonormal columns, largest variance first."""

    retained: float
    """Share of the variance that the directions keep."""

    def apply(self, embeddings: np.ndarray) -> np.ndarray:
        """(n, dim) -> float64 (n, r)."""
        return np.asarray((embeddings.astype(np.float64) - self.mean) @ self.directions)


@dataclass(frozen=True)
class ProjectionReport:
    """What a projection keeps, on the calibration data."""

    dim_before: int
    dim_after: int
    retained_variance: float
    accuracy_before: float | None
    """Leave-one-out nearest neighbours; None without labels."""

    accuracy_after: float | None


def fit_projection(embeddings: np.ndarray, r: int) -> Projection:
    """PCA by the eigenvectors of the covariance, in float64.

    Args:
        embeddings: (n, dim).
        r: directions to keep.

    Raises:
        ConfigError: r is not in [1, dim), or there are fewer rows than directions.
    """
    n, dim = embeddings.shape
    if not 1 <= r < dim:
        raise ConfigError(f"--project {r}: the embedding has {dim} numbers; expected from 1 to {dim - 1}")
    if n <= r:
        raise ConfigError(f"--project {r}: {n} calibration inputs cannot show {r} directions; give more, some hundred")
    values = embeddings.astype(np.float64)
    mean = values.mean(axis=0)
    variances, vectors = np.linalg.eigh(np.cov(values - mean, rowvar=False))
    directions = vectors[:, ::-1][:, :r]
    # The sign of an eigenvector is arbitrary; the same file must come out on every machine.
    directions = directions * np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(r)])
    total = float(variances.sum())
    retained = float(variances[::-1][:r].sum()) / total if total > 0 else 1.0
    return Projection(mean, directions, retained)


def insert_projection(model: onnx.ModelProto, projection: Projection) -> None:
    """Put a projection before the output `embedding`."""
    graph = model.graph
    columns = next(v for v in graph.output if v.name == PROBABILITIES_OUTPUT).type.tensor_type.shape.dim[1].dim_value
    rename_everywhere(graph, {EMBEDDING_OUTPUT: _UNPROJECTED})
    directions = projection.directions.astype(np.float32)
    bias = (-projection.mean @ projection.directions).astype(np.float32)
    graph.initializer.append(numpy_helper.from_array(directions, "edge_sdk/projection"))
    graph.initializer.append(numpy_helper.from_array(bias, "edge_sdk/projection_bias"))
    graph.node.append(
        helper.make_node(
            "Gemm",
            [_UNPROJECTED, "edge_sdk/projection", "edge_sdk/projection_bias"],
            [EMBEDDING_OUTPUT],
            name="edge_sdk/project",
        )
    )
    declare_outputs(graph, {EMBEDDING_OUTPUT: directions.shape[1], PROBABILITIES_OUTPUT: columns})


def report_projection(projection: Projection, embeddings: np.ndarray, labels: np.ndarray | None) -> ProjectionReport:
    """What the projection keeps of these embeddings."""
    return ProjectionReport(
        dim_before=projection.directions.shape[0],
        dim_after=projection.directions.shape[1],
        retained_variance=projection.retained,
        accuracy_before=None if labels is None else neighbor_accuracy(embeddings, labels),
        accuracy_after=None if labels is None else neighbor_accuracy(projection.apply(embeddings), labels),
    )
