"""Who is unseen, and which of an unseen user's windows are for learning.

This is the one place that knows both. Every (person, activity) was recorded once, for three minutes, so a random split
would put neighbouring moments on both sides; the split is by time, and one window between the sides is left out.
"""

from typing import NamedTuple

import numpy as np

EVERY = 4
"""Every fourth person in the order of the subject ids (index 3, 7, 11, ...) is unseen; the others train the model."""


class Split(NamedTuple):
    """Rows of one user's windows, each an int64 array, grouped by activity and in time order within each."""

    learn: np.ndarray
    test: np.ndarray


def unseen_users(subject: np.ndarray) -> np.ndarray:
    """The people that the global model never sees.

    Args:
        subject: integer subject ids, shape (n,), any order, repeats allowed.

    Returns:
        The sorted ids at index 3, 7, 11, ... of the sorted distinct ids.
    """
    return np.unique(subject)[EVERY - 1 :: EVERY]


def training_users(subject: np.ndarray) -> np.ndarray:
    """The people that train the global model: all but `unseen_users`, sorted."""
    return np.setdiff1d(subject, unseen_users(subject))


def split_user(subject: np.ndarray, label: np.ndarray, user: int) -> Split:
    """Cut one user's windows by time: of each activity the first half is learnt, one is skipped, the rest tests.

    Args:
        subject: integer subject ids, shape (n,).
        label: integer classes, shape (n,). The rows of one (subject, label) are in time order.
        user: a subject id.

    Returns:
        Rows into `subject` and `label`. With m windows of an activity, m // 2 are learnt and m - m // 2 - 1 test.
    """
    learn: list[np.ndarray] = []
    test: list[np.ndarray] = []
    of_user = subject == user
    for activity in np.unique(label[of_user]):
        rows = np.flatnonzero(of_user & (label == activity))
        half = len(rows) // 2
        learn.append(rows[:half])
        test.append(rows[half + 1 :])
    if not learn:
        return Split(np.empty(0, np.int64), np.empty(0, np.int64))
    return Split(np.concatenate(learn), np.concatenate(test))
