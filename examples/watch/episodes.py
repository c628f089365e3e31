"""Training batches: a few people at a time, each with some windows of every activity.

A batch is put together like this because the model is judged twice, as a classifier for everyone and as a space in
which one person's windows are compared with that same person's: the second needs several windows of one person at once.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Recordings:
    """The windows of some people, rows sorted by (subject, label, time)."""

    x: np.ndarray
    """Raw integer steps, int16, shape (n, 6, 100)."""
    label: np.ndarray
    """Classes, int64, shape (n,)."""
    subject: np.ndarray
    """Subject ids, int64, shape (n,)."""
    run: np.ndarray
    """Stretch without a logging gap within (subject, label), int64, shape (n,)."""

    def of(self, users: np.ndarray) -> "Recordings":
        """The windows of `users` alone, in the same order."""
        rows = np.flatnonzero(np.isin(self.subject, users))
        return Recordings(self.x[rows], self.label[rows], self.subject[rows], self.run[rows])


@dataclass(frozen=True)
class Augmentation:
    """How far an invented wearer may be from the real one. All windows of a person in a batch share one draw."""

    tilt: float = 15.0
    """Standard deviation of the strap's rotation about each axis, degrees. 15 and 5 (with half the vigour) are as good
    on average (89.4 and 89.2 % personalised, folds 0 and 1, 800 steps); fold 1's worst person gets 85.6 and 82.7 %."""
    vigour: float = 0.1
    """Standard deviation of the logarithm of the movement's size."""
    jitter: float = 0.05
    """Noise on every value, in standard deviations of its channel."""
    mirrored: float = 0.0
    """Share of people turned into wearers of the watch on the other wrist."""


class Batch:
    """Windows of a few people: `x` (n, 6, 100) float32 in raw steps, `label`, `person`, `time` int64 (n,)."""

    def __init__(self, x: np.ndarray, label: np.ndarray, person: np.ndarray, time: np.ndarray) -> None:
        self.x = x
        self.label = label
        self.person = person  # 0, 1, ... within the batch
        self.time = time  # row in the recordings: differences within one person's activity count windows


class Episodes:
    """Draws batches from recordings; the same seed gives the same batches."""

    def __init__(
        self, recordings: Recordings, *, people: int, windows: int, augmentation: Augmentation, seed: int
    ) -> None:
        self._recordings = recordings
        self._people = people
        self._windows = windows
        self._augmentation = augmentation
        self._random = np.random.default_rng(seed)
        self._users = np.unique(recordings.subject)
        self._rows = {
            int(user): [
                np.flatnonzero((recordings.subject == user) & (recordings.label == label))
                for label in np.unique(recordings.label[recordings.subject == user])
            ]
            for user in self._users
        }
        key = np.stack([recordings.subject, recordings.label, recordings.run])
        self._has_next = np.append((key[:, 1:] == key[:, :-1]).all(axis=0), False)
        self._channel_std = recordings.x.astype(np.float32).std(axis=(0, 2))
        self._queue: list[int] = []

    def draw(self) -> Batch:
        """One batch: every person comes once before anyone comes again."""
        rows: list[np.ndarray] = []
        person: list[np.ndarray] = []
        for number in range(self._people):
            if not self._queue:
                self._queue = [int(user) for user in self._random.permutation(self._users)]
            for of_label in self._rows[self._queue.pop()]:
                some = self._random.choice(of_label, min(self._windows, len(of_label)), replace=False)
                rows.append(some)
                person.append(np.full(len(some), number))
        row = np.concatenate(rows)
        who = np.concatenate(person)
        return Batch(self._augmented(self._shifted(row), who), self._recordings.label[row], who, row)

    def _shifted(self, row: np.ndarray) -> np.ndarray:
        """Windows that start up to one window later where the recording goes on, (n, 6, 100) float32."""
        following = row + self._has_next[row]
        pair = np.concatenate([self._recordings.x[row], self._recordings.x[following]], axis=2)  # (n, 6, 200)
        start = np.where(self._has_next[row], self._random.integers(0, 100, len(row)), 0)
        moments = start[:, None] + np.arange(100)
        return np.take_along_axis(pair, moments[:, None, :], axis=2).astype(np.float32)

    def _augmented(self, x: np.ndarray, person: np.ndarray) -> np.ndarray:
        setting = self._augmentation
        turn = _rotations(self._random.normal(0.0, np.deg2rad(setting.tilt), (self._people, 3)))
        mirror = np.where(self._random.random(self._people) < setting.mirrored, -1.0, 1.0).astype(np.float32)
        # A mirrored body: accelerations flip along one axis, angular velocities (pseudovectors) along the other two.
        flip_acceleration = np.stack([mirror, np.ones_like(mirror), np.ones_like(mirror)], axis=1)
        flip_rotation = np.stack([np.ones_like(mirror), mirror, mirror], axis=1)
        size = np.exp(self._random.normal(0.0, setting.vigour, self._people)).astype(np.float32)
        acceleration = (turn * flip_acceleration[:, None, :])[person] @ x[:, :3]
        rotation = (turn * flip_rotation[:, None, :])[person] @ x[:, 3:]
        level = acceleration.mean(axis=2, keepdims=True)  # gravity keeps its size
        factor = size[person][:, None, None]
        moved = np.concatenate([level + (acceleration - level) * factor, rotation * factor], axis=1)
        noise = self._random.standard_normal(moved.shape, dtype=np.float32)
        noisy: np.ndarray = moved + noise * (setting.jitter * self._channel_std)[:, None]
        return noisy


def _rotations(angle: np.ndarray) -> np.ndarray:
    """Angles about x, y, z in radians, (n, 3) -> rotation matrices (n, 3, 3)."""
    cos, sin = np.cos(angle), np.sin(angle)
    one, zero = np.ones(len(angle)), np.zeros(len(angle))
    about_x = np.array([[one, zero, zero], [zero, cos[:, 0], -sin[:, 0]], [zero, sin[:, 0], cos[:, 0]]])
    about_y = np.array([[cos[:, 1], zero, sin[:, 1]], [zero, one, zero], [-sin[:, 1], zero, cos[:, 1]]])
    about_z = np.array([[cos[:, 2], -sin[:, 2], zero], [sin[:, 2], cos[:, 2], zero], [zero, zero, one]])
    turned: np.ndarray = np.einsum("ijn,jkn,kln->nil", about_x, about_y, about_z).astype(np.float32)
    return turned
