"""Traced: what every kind of source becomes before the steps they all share."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx

INPUT = "input"
"""Name of the graph's one input."""

SCORES = "scores"
"""Name of the class scores while nobody knows yet whether they are logits."""

Run = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""A batch -> (embedding, scores), computed by the source itself."""


@dataclass(frozen=True)
class SourceOptions:
    """What a user may say about a source."""

    model: str | None = None
    """`module:factory` that builds the network for a state_dict."""

    input_shape: tuple[int, ...] | None = None
    """Shape of one sample as the source takes it, without the batch; some sources know it themselves."""

    input_dtype: str | None = None
    """NumPy name of the dtype the source takes; None for what the source says, or float32."""

    embedding: str | None = None
    """Layer whose output is the embedding, or a returned tensor; None to find it."""

    scores: str | None = None
    """Which output holds the class scores; None to find it."""

    trust_pickle: bool = False
    """Whether a pickled object may be loaded, which runs the code that the file names."""


@dataclass(frozen=True)
class Traced:
    """A graph of (embedding, scores), and the source to hold it against."""

    model: onnx.ModelProto
    """One input `INPUT`, outputs `embedding` (batch, dim) and `SCORES` (batch, columns)."""

    kind: str
    """What the source is, for people."""

    input_shape: tuple[int, ...]
    input_dtype: str
    vocabulary: int
    """Random integers given to the source stay below this."""

    embedding: str
    """Where the embedding comes from, for people."""

    run: Run
    notes: tuple[str, ...] = ()
    """What was adapted on the way, one sentence each."""

    labels: tuple[str, ...] | None = None
    """Class names that the source itself carries."""
