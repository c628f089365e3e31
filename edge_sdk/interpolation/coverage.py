"""How far the memory may speak while it has not met every class.

p_knn sums to 1 over the classes it has met, so a memory that knows 2 of 18 activities would answer one of the two to
everything: on the watch example, taught one activity after the other, the personalised accuracy falls from 79 % to 11 %
and is below the global model until 17 of 18 classes are known. Whether an input may belong to a class that the memory
has not met is asked on three sides: the global model says how much of its own probability lies on such classes, the
order of the entries says whether new classes are still to be expected, and the distance says how unlike the entries the
input is. The last keeps corrections quick: what was corrected a moment ago is near.
"""

import numpy as np


def unseen_probability(labels: np.ndarray) -> float:
    """How likely the next activity is one that was never met, after Good and Turing (Biometrika, 1953).

    What is counted are runs of equal labels, not entries: a user does one thing for a while. A class met in one run
    only is a discovery, and the share of discoveries among all runs estimates the share of those to come. Classes
    taught one after the other give 1; two classes in ever changing order give 0: the memory may speak of everything.

    Args:
        labels: int (n,), class ids in the order of the entries; n at least 1.
    """
    starts = np.flatnonzero(np.diff(labels, prepend=-1))
    runs = np.bincount(labels[starts])
    return float((runs == 1).sum() / len(starts))


def deferring(
    local: np.ndarray,
    global_probabilities: np.ndarray,
    *,
    is_met: np.ndarray,
    n_model_classes: int,
    unseen: float,
    novelty: np.ndarray,
) -> np.ndarray:
    """What the memory says, with the global model's answer as far as the memory may not have met the class.

    The trust in the memory is 1 - u·v·(1 - m), with u the probability that new classes come, v the novelty of the input
    and m the probability of the classes that it has met: the global model's, or all of it where the memory votes for a
    class that only it knows.

    Args:
        local: float64 (n, n_classes), rows summing to 1.
        global_probabilities: (n, n_classes).
        is_met: bool (n_classes,), classes with an entry.
        n_model_classes: the first columns, which the global model knows.
        unseen: u, from `unseen_probability`.
        novelty: v, float64 (n,) in [0, 1]; 1 while it is not known.

    Returns:
        float64 (n, n_classes), rows summing to 1; `local` itself where every class was met or none is expected.
    """
    if unseen == 0.0 or is_met[:n_model_classes].all():
        return local
    own = local[:, n_model_classes:].sum(axis=1, keepdims=True)
    met = global_probabilities[:, is_met].sum(axis=1, keepdims=True)
    trust = 1.0 - unseen * novelty[:, None] * (1.0 - own) * (1.0 - met)
    deferred: np.ndarray = trust * local + (1.0 - trust) * global_probabilities
    return deferred
