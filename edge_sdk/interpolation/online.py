"""OnlineWeight: λ_m learnt from one labelled input after the other, each judged before it is stored.

For one input with p_k and p_g, the probabilities that memory and global model gave to its label (stochastic EM;
APFL's rule, Deng et al. 2020, applied to the blend is the same step with rate γ·λ·(1-λ)):

    r = λ·p_k / (λ·p_k + (1-λ)·p_g)        λ ← (1-γ)·λ + γ·r

No sample is predicted by itself, so nothing is left out and nothing shrunk. λ_m stays within [0.01, 0.99], because 0
and 1 would be for ever.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from edge_sdk.errors import ConfigError
from edge_sdk.interpolation.mixture import SMALLEST_PROBABILITY

DEFAULT_RATE = 0.05
"""γ: the last 20 or so inputs count."""

_EDGE = 0.01
_MOST_POINTS = 64


@dataclass
class OnlineWeight:
    """λ_m as it is now, and the predict-then-learn record that led to it."""

    weight: float
    """λ_m, in [0.01, 0.99]."""

    rate: float = DEFAULT_RATE
    """γ in (0, 1): how fast the past is forgotten."""

    seen: int = 0
    """Inputs judged."""

    stride: int = 8
    """Inputs a point of the curve stands for; doubles when there are 64 points."""

    global_right: list[int] = field(default_factory=list)
    """Inputs that the global model got right, by point."""

    personalised_right: list[int] = field(default_factory=list)
    """Inputs that the blend got right, by point."""

    def __post_init__(self) -> None:
        """Check the ranges; bring the weight into its own."""
        if not 0.0 < self.rate < 1.0:
            raise ConfigError(f"the forgetting rate must lie between 0 and 1, got {self.rate}")
        self.weight = float(np.clip(self.weight, _EDGE, 1.0 - _EDGE))

    def update(self, local: float, global_: float, *, personalised_right: bool, global_right: bool) -> float:
        """Take in one labelled input, predicted before it is stored; returns the new λ_m.

        Args:
            local: p_local of its label.
            global_: p_global of its label.
            personalised_right: whether the blend had it right.
            global_right: whether the global model had it right.
        """
        local, global_ = max(local, SMALLEST_PROBABILITY), max(global_, SMALLEST_PROBABILITY)
        responsibility = self.weight * local / (self.weight * local + (1.0 - self.weight) * global_)
        self.weight = float(np.clip((1.0 - self.rate) * self.weight + self.rate * responsibility, _EDGE, 1.0 - _EDGE))
        self.count(personalised_right=personalised_right, global_right=global_right)
        return self.weight

    def curve(self) -> list[tuple[int, float, float]]:
        """The predict-then-learn curve: inputs seen, global accuracy and personalised accuracy since the point
        before.
        """
        points = []
        for number, (theirs, ours) in enumerate(zip(self.global_right, self.personalised_right, strict=True)):
            end = min((number + 1) * self.stride, self.seen)
            points.append((end, theirs / (end - number * self.stride), ours / (end - number * self.stride)))
        return points

    def accuracies(self) -> tuple[float, float]:
        """Global and personalised accuracy over everything seen; NaN before the first input."""
        if not self.seen:
            return float("nan"), float("nan")
        return sum(self.global_right) / self.seen, sum(self.personalised_right) / self.seen

    def to_mapping(self) -> dict[str, Any]:
        """The JSON mapping that the manifest stores."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, mapping: dict[str, Any]) -> "OnlineWeight":
        """Read back what `to_mapping` gave; unknown keys of later versions are ignored."""
        return cls(**{name: mapping[name] for name in cls.__dataclass_fields__ if name in mapping})

    def count(self, *, personalised_right: bool, global_right: bool) -> None:
        """Take one input into the curve alone."""
        if self.seen == self.stride * len(self.global_right):
            if len(self.global_right) == _MOST_POINTS:
                self.global_right = _paired(self.global_right)
                self.personalised_right = _paired(self.personalised_right)
                self.stride *= 2
            self.global_right.append(0)
            self.personalised_right.append(0)
        self.seen += 1
        self.global_right[-1] += global_right
        self.personalised_right[-1] += personalised_right


def _paired(counts: list[int]) -> list[int]:
    """Sums of neighbouring pairs, half as many."""
    return [first + second for first, second in zip(counts[::2], counts[1::2], strict=True)]
