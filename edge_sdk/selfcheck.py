"""Self-check: does this machine compute what the exporting machine computed?

A model file carries the answers to a few reference inputs. The inputs themselves are not stored (one picture would be
600 KB): they are numbers from a formula in integer arithmetic, the same on every machine and NumPy version. A wrong CPU
kernel, above all for int8, is then found when the file is first loaded and not after months of strange neighbours.
"""

import binascii
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from edge_sdk.errors import ModelFileError
from edge_sdk.model import InputSpec, ModelMetadata

REFERENCE_KEY = "reference"
"""Where in `ModelMetadata.extensions` the reference lies."""

Encode = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""A batch in the model's dtype -> (embeddings, probabilities)."""


class SelfCheck(NamedTuple):
    """How far this machine's answers are from the exporting machine's."""

    embedding: float
    """Largest difference, relative to the largest absolute value of the reference embeddings."""

    probabilities: float
    """Largest difference."""

    tolerance: float
    """What `embedding` and `probabilities` may be."""

    @property
    def passed(self) -> bool:
        """Whether both differences are within the tolerance (NaN is not)."""
        return self.embedding <= self.tolerance and self.probabilities <= self.tolerance

    @property
    def message(self) -> str:
        """One line for a log."""
        verdict = "as it should" if self.passed else "not what the exporting machine computed"
        cure = "" if self.passed else "; try another onnxruntime version, or a float32 model file"
        return (
            f"self-check: this machine computes {verdict}: embeddings differ by {self.embedding:.2g}, probabilities by "
            f"{self.probabilities:.2g} (at most {self.tolerance:.2g} allowed){cure}"
        )


def reference_inputs(spec: InputSpec, *, n: int, low: float, high: float, seed: int) -> np.ndarray:
    """The inputs of the reference: uniform numbers of [low, high), integers for an integer dtype.

    Args:
        spec: the model file's input.
        n: samples, at least 1.
        low: smallest value.
        high: one more than the largest value, for integers.
        seed: which of the sequences.

    Returns:
        Shape (n, *spec.shape), dtype `spec.dtype`.
    """
    # splitmix64 (Steele, Lea, Flood 2014): a counter times odd constants, so numbers can be made all at once.
    count = n * prod(spec.shape)
    state = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    unit = (state >> np.uint64(40)).astype(np.float64) / (1 << 24)  # 24 bits: exact in float32 too
    values = low + unit * (high - low)
    return values.astype(spec.dtype).reshape(n, *spec.shape)


def make_reference(
    encode: Encode, spec: InputSpec, *, low: float, high: float, tolerance: float, n: int = 2, seed: int = 1
) -> dict[str, Any]:
    """The reference of a model file, to be stored under `REFERENCE_KEY`."""
    embeddings, probabilities = encode(reference_inputs(spec, n=n, low=low, high=high, seed=seed))
    return {
        "n": n,
        "low": low,
        "high": high,
        "seed": seed,
        "tolerance": tolerance,
        "embeddings": _packed(embeddings),
        "probabilities": _packed(probabilities),
    }


def self_check(encode: Encode, metadata: ModelMetadata) -> SelfCheck | None:
    """Encode the reference inputs and compare; None for a model file without a reference.

    Raises:
        ModelFileError: the reference in the metadata is damaged.
    """
    reference = metadata.extensions.get(REFERENCE_KEY)
    if reference is None:
        return None
    try:
        n = int(reference["n"])
        x = reference_inputs(
            metadata.input, n=n, low=float(reference["low"]), high=float(reference["high"]), seed=int(reference["seed"])
        )
        embeddings = _unpacked(reference["embeddings"], (n, metadata.dim))
        probabilities = _unpacked(reference["probabilities"], (n, len(metadata.classes)))
        tolerance = float(reference["tolerance"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"damaged reference in the model file ({error!r}); export the model again") from error
    found = encode(x)
    scale = max(float(np.abs(embeddings).max(initial=0.0)), 1e-12)
    return SelfCheck(
        embedding=_difference(found[0], embeddings) / scale,
        probabilities=_difference(found[1], probabilities),
        tolerance=tolerance,
    )


def _difference(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found.astype(np.float64) - expected.astype(np.float64)).max(initial=0.0))


def _packed(values: np.ndarray) -> str:
    return binascii.b2a_base64(np.ascontiguousarray(values, "<f4").tobytes(), newline=False).decode("ascii")


def _unpacked(text: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(binascii.a2b_base64(text, strict_mode=True), "<f4").reshape(shape)
