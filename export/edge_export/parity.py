"""Parity: the finished file, run by onnxruntime, against its source on batches of several sizes.

Also finds what no graph shows: rows that depend on their neighbours in the batch (batch statistics still in training
mode, a softmax over the wrong axis) and answers that change between two runs (dropout or noise that eval mode does
not switch off).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort

from edge_export.samples import Sampler
from edge_sdk.errors import ExportError
from edge_sdk.model import EMBEDDING_OUTPUT, PROBABILITIES_OUTPUT

Reference = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""A batch -> the source's (embedding, probabilities)."""

BATCHES = (1, 2, 5, 64)
PROBABILITIES_TOLERANCE = 1e-5
EMBEDDING_TOLERANCE = 1e-4
"""Relative to the largest absolute value of the embeddings in the batch."""

_SMALLEST_SCALE = 1e-6
"""Below it an embedding holds nothing but rounding."""

_ROW_TOLERANCE = 1e-4
_SUM_TOLERANCE = 1e-3


@dataclass(frozen=True)
class BatchParity:
    """The largest differences on one batch."""

    batch: int
    probabilities: float
    embedding: float
    """Relative, as `EMBEDDING_TOLERANCE` is."""


def check_parity(
    path: Path,
    reference: Reference,
    sampler: Sampler,
    *,
    batches: Sequence[int] = BATCHES,
    probabilities_tolerance: float = PROBABILITIES_TOLERANCE,
    embedding_tolerance: float = EMBEDDING_TOLERANCE,
) -> tuple[BatchParity, ...]:
    """Compare a model file with its source.

    Raises:
        ExportError: onnxruntime cannot run the file, or a difference is above its tolerance; both values are named.
    """
    session = open_session(path)
    results = []
    for batch in batches:
        x = sampler.batch(batch, seed=1)
        embedding, probabilities = run(session, x)
        expected_embedding, expected_probabilities = reference(x)
        result = BatchParity(
            batch,
            difference(probabilities, expected_probabilities, "probabilities"),
            difference(embedding, expected_embedding, "embedding")
            / max(_SMALLEST_SCALE, float(np.abs(expected_embedding).max())),
        )
        if not result.probabilities <= probabilities_tolerance:  # written so that NaN fails
            raise ExportError(
                f"the file differs from its source: probabilities by {result.probabilities:.2g} at batch {batch} "
                f"(at most {probabilities_tolerance:.0g} allowed); no file was written"
            )
        if not result.embedding <= embedding_tolerance:
            raise ExportError(
                f"the file differs from its source: embedding by {result.embedding:.2g} at batch {batch} "
                f"(at most {embedding_tolerance:.0g} of its largest value allowed); no file was written"
            )
        results.append(result)
    return tuple(results)


def check_deterministic(reference: Reference, sampler: Sampler) -> None:
    """Run the source twice, and a row alone and in company.

    Raises:
        ExportError: the answers differ, or are not finite.
    """
    x = sampler.batch(5, seed=2)
    first, again = reference(x), reference(x)
    if not all(np.isfinite(values).all() for values in first):
        raise ExportError("the model gives NaN or infinity on random inputs; check its weights and --input-shape")
    if not all(np.array_equal(a, b) for a, b in zip(first, again, strict=True)):
        raise ExportError(
            "the model gives other answers each run: dropout or noise stays active in eval mode; "
            "write F.dropout(x, training=self.training), or use nn.Dropout"
        )
    try:
        alone = reference(x[:1])
    except Exception as error:  # a model's own code may raise anything
        raise ExportError(
            f"the model cannot run one sample alone ({' '.join(str(error).split())[:200]}): are batch statistics in "
            "training mode?"
        ) from error
    for name, whole, single in zip((EMBEDDING_OUTPUT, PROBABILITIES_OUTPUT), first, alone, strict=True):
        largest = difference(whole[:1], single, name)
        if not largest <= _ROW_TOLERANCE * max(1.0, float(np.abs(whole).max())):
            raise ExportError(
                f"a sample's {name} depends on the rest of its batch (differs by {largest:.2g}): batch statistics in "
                "training mode, or an operation over the batch axis; every sample must stand for itself"
            )


def check_runs(path: Path, sampler: Sampler, *, batches: Sequence[int] = BATCHES) -> None:
    """Run a file whose numbers are judged elsewhere (int8) at every batch size.

    Raises:
        ExportError: it fails, gives NaN or infinity, or probabilities that do not sum to one.
    """
    session = open_session(path)
    for batch in batches:
        embedding, probabilities = run(session, sampler.batch(batch, seed=1))
        if not (np.isfinite(embedding).all() and np.isfinite(probabilities).all()):
            raise ExportError(f"the exported file gives NaN or infinity at batch {batch}; no file was written")
        largest = float(np.abs(probabilities.sum(axis=1, dtype=np.float64) - 1).max())
        if not largest <= _SUM_TOLERANCE:
            raise ExportError(
                f"the exported file's probabilities sum to 1 ± {largest:.2g} at batch {batch}; no file was written"
            )


def open_session(path: Path) -> ort.InferenceSession:
    """A single-threaded CPU session.

    Raises:
        ExportError: onnxruntime refuses the file.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own exceptions share no public base
        raise ExportError(
            f"onnxruntime {ort.__version__} refuses the exported graph: {' '.join(str(error).split())[:300]}"
        ) from error


def run(session: ort.InferenceSession, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(embedding, probabilities) of a batch.

    Raises:
        ExportError: the batch size is frozen in the graph, or an operator fails.
    """
    try:
        embedding, probabilities = session.run(
            [EMBEDDING_OUTPUT, PROBABILITIES_OUTPUT], {session.get_inputs()[0].name: x}
        )
    except Exception as error:  # as above
        raise ExportError(
            f"the exported graph fails at batch {x.shape[0]}: {' '.join(str(error).split())[:300]}"
        ) from error
    return np.asarray(embedding), np.asarray(probabilities)


def difference(found: np.ndarray, expected: np.ndarray, name: str) -> float:
    """The largest absolute difference.

    Raises:
        ExportError: the shapes differ.
    """
    if found.shape != expected.shape:
        raise ExportError(f"the exported {name} has shape {found.shape}, the source gives {expected.shape}")
    return float(np.abs(found.astype(np.float64) - expected.astype(np.float64)).max(initial=0.0))
