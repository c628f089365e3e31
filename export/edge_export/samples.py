"""Samples: seeded inputs on which a source and its export are compared.

Standard normal numbers for floats, uniform ones for integers (token ids below the smallest embedding table, pixels
from 0 to
255): a constant input would hide most differences, and real data is not always at hand.
"""

from dataclasses import dataclass

import numpy as np

from edge_sdk.errors import ConfigError
from edge_sdk.model import InputSpec

_SEED = 20240607
DTYPES = ("float32", "uint8", "int32", "int64")


@dataclass(frozen=True)
class Sampler:
    """Makes batches for one input."""

    shape: tuple[int, ...]
    """Shape of one sample."""

    dtype: str
    """One of `DTYPES`."""

    high: int = 256
    """For integers: one more than the largest value."""

    def batch(self, n: int, *, seed: int = 0) -> np.ndarray:
        """`n` samples, shape (n, *shape); the same for the same `n` and `seed` on every machine."""
        rng = np.random.default_rng((_SEED, seed, n))
        if self.dtype == "float32":
            return rng.standard_normal((n, *self.shape)).astype(np.float32)
        return rng.integers(0, self.high, (n, *self.shape)).astype(self.dtype)


def sampler_for(spec: InputSpec, *, high: int = 256) -> Sampler:
    """The sampler of an input; `high` bounds integers."""
    return Sampler(spec.shape, spec.dtype, min(high, 256) if spec.dtype == "uint8" else high)


def parse_shape(text: str) -> tuple[int, ...]:
    """`6,100` (or `6x100`) as typed for `--input-shape`: the shape of one sample, without the batch.

    Raises:
        ConfigError: not positive integers with commas between them.
    """
    try:
        shape = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise ConfigError(
            f"--input-shape {text}: expected the sizes of one sample without the batch, for example 6,100"
        )
    return shape
