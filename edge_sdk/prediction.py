"""What a Predictor answers and reports: plain values without behaviour.

Named tuples, as all values of the runtime that check nothing: defining one takes 0.08 ms of every start, a frozen
dataclass 0.4 to 1.1.
"""

from typing import NamedTuple

import numpy as np


class Distributions(NamedTuple):
    """Two answers to the same batch, both (n, n_classes) with rows summing to 1."""

    blended: np.ndarray
    """float64, or the very array of `global_probabilities` at λ_m = 0 and with an empty datastore."""

    global_probabilities: np.ndarray
    """float32; 0 in the columns of classes that only the datastore knows."""

    classes: tuple[str, ...]
    """The columns' labels."""

    novelty: np.ndarray | None = None
    """float64 (n,), see `Prediction.novelty`; None unless asked for, and while nothing was tuned."""


class Learnt(NamedTuple):
    """What `learn` stored."""

    sequences: np.ndarray
    """uint64, the sequences of the new entries, in the order of the input."""

    duplicates: int
    """Inputs left out because the same input with the same label is stored already."""

    near: int
    """Inputs left out as near copies (`min_distance`)."""

    rows: np.ndarray
    """int (n_stored,), which rows of the input were stored, ascending."""

    drifted: bool = False
    """Whether these inputs completed the evidence that the user has changed (`online=True`; see `Predictor.record`)."""


class Voter(NamedTuple):
    """One neighbour and its share in p_knn."""

    sequence: int
    """0: a prototype of a compressed datastore, which stands for many entries."""

    label: str
    distance: float
    """Euclidean, between embeddings (in the projected space of a compressed datastore)."""

    age: int
    """How many entries were learnt after it; -1: a prototype, which has no age."""

    share: float
    """Its weight in p_knn, in [0, 1]; the shares of all voters sum to 1."""


class Prediction(NamedTuple):
    """One answer with everything it rests on. Distributions are float32 (n_classes,), columns in `Predictor.classes`
    order.
    """

    label: str
    probability: float
    probabilities: np.ndarray
    """The blend."""

    global_probabilities: np.ndarray
    knn_probabilities: np.ndarray
    """p_knn (of a compressed datastore: what its prototypes say); all zero where the memory was not asked."""

    interpolation_weight: float
    """λ_m as used: 0 while the store is empty. `probabilities` is the plain blend of the two distributions with it,
    but while classes are unmet, when the memory defers to the global model (`interpolation.coverage`).
    """

    source: str
    """"global" (λ_m = 0 or an empty store), "knn" (λ_m = 1) or "blend"."""

    voters: tuple[Voter, ...]
    """Nearest first."""

    novelty: float | None = None
    """How unlike the entries the input is, in [0, 1]: of inputs that are like them, 1 in 100 scores above 0.99. None
    while nothing was tuned, and with prototypes.
    """
