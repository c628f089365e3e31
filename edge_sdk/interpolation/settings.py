"""Interpolation: the blend's settings, where they came from and what they rest on; the manifest keeps it as JSON."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from edge_sdk.errors import ConfigError
from edge_sdk.head import HeadSettings
from edge_sdk.interpolation.kernel import KERNELS
from edge_sdk.novelty import Novelty

EXPERTS = ("knn", "knn+head")
"""What answers from memory: the neighbours alone (the paper), or mixed with the closed-form head."""

LARGEST_TUNED_WEIGHT = 0.99
"""At λ_m = 1 a class absent from the store could never be predicted; only a user may set that."""

SHRINKAGE_ENTRIES = 10
"""λ_m = λ·n/(n + 10): the global model until there is evidence."""

_UNTUNED_WEIGHT = 0.5


@dataclass(frozen=True)
class Interpolation:
    """The blend's settings and where they came from."""

    interpolation_weight: float
    """λ_m in [0, 1]; 0 is the global model alone."""

    kernel: str = "laplacian"
    """"laplacian" exp(-d/σ), "gaussian" exp(-d²/σ²) or "uniform" (every neighbour counts the same)."""

    bandwidth: float = 1.0
    """σ, an absolute distance, above 0."""

    k: int = 10
    """How many neighbours vote."""

    chosen_by: str = "default"
    """"default" (untuned), "leave-one-out", "online" or "user"."""

    n_entries: int = 0
    """Entries in the store when this was chosen."""

    newest_sequence: int = 0
    """Of the newest entry when this was chosen by leave-one-out."""

    evidence: dict[str, float] = field(default_factory=dict)
    """What the choice rests on: leave-one-out accuracy and log-loss of the global model and of the blend."""

    experts: str = "knn"
    """One of `EXPERTS`."""

    head_share: float = 0.0
    """The head's share of the memory's answer, in [0, 1]: p_local = (1 - share)·p_knn + share·p_head."""

    head: HeadSettings | None = None
    """The head's settings; None: there is no head."""

    novelty: Novelty | None = None
    """How far entries are from each other, the yardstick of "none of these"; None before the first tuning."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0.0 <= self.interpolation_weight <= 1.0:
            raise ConfigError(f"the interpolation weight λ must lie in [0, 1], got {self.interpolation_weight}")
        if self.kernel not in KERNELS:
            raise ConfigError(f"unknown kernel {self.kernel!r}; choose one of {', '.join(KERNELS)}")
        if not (np.isfinite(self.bandwidth) and self.bandwidth > 0.0):
            raise ConfigError(f"the bandwidth must be a distance above 0, got {self.bandwidth}")
        if self.k < 1:
            raise ConfigError(f"k must be at least 1, got {self.k}")
        check_experts(self.experts)
        if not 0.0 <= self.head_share <= 1.0:
            raise ConfigError(f"the head's share must lie in [0, 1], got {self.head_share}")

    def is_outdated(self, n_entries: int, newest_sequence: int) -> bool:
        """Whether as many entries were learnt since the choice as it rests on, or nothing was chosen yet.

        A growing store has then doubled; a full one that evicts is another store.
        """
        return n_entries > 0 and (not self.evidence or newest_sequence - self.newest_sequence >= self.n_entries)

    def to_mapping(self) -> dict[str, Any]:
        """The JSON mapping that the manifest stores."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, mapping: dict[str, Any]) -> "Interpolation":
        """Read back what `to_mapping` gave; unknown keys of later versions are ignored."""
        known = {name: mapping[name] for name in cls.__dataclass_fields__ if name in mapping}
        if known.get("head") is not None:
            known["head"] = HeadSettings(**known["head"])
        if known.get("novelty") is not None:
            known["novelty"] = Novelty.from_mapping(known["novelty"])
        return cls(**known)

    @classmethod
    def untuned(cls, n_entries: int) -> "Interpolation":
        """The settings before any tuning: λ_m = 0.5·n/(n + 10)."""
        return cls(shrink(_UNTUNED_WEIGHT, n_entries), n_entries=n_entries)


def check_experts(experts: str) -> str:
    """The name itself.

    Raises:
        ConfigError: not one of `EXPERTS`.
    """
    if experts not in EXPERTS:
        raise ConfigError(f"unknown experts {experts!r}; choose one of {', '.join(EXPERTS)}")
    return experts


def shrink(weight: float, n_entries: int) -> float:
    """λ·n/(n + 10), so that a handful of entries does not rule everything."""
    return weight * n_entries / (n_entries + SHRINKAGE_ENTRIES)
