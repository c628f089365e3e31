"""DriftDetector: tells from the running errors that the user's inputs or labels have changed.

Page's cumulative sum (Page, "Continuous Inspection Schemes", Biometrika 1954; Page-Hinkley with a running mean), and
not ADWIN (Bifet and Gavaldà 2007): it needs six numbers instead of a growing window, names the entry at which the
change began, and its two constants say what they do:

    s ← max(0, s + error - mean - 0.1);  drift when s > 10

0.1 is the rise of the error rate that is not worth a signal. 10 / (rise - 0.1) is how many entries the signal takes:
33 for a rise of 0.4. Without drift the chance that one excursion of s reaches 10 is e^(-2/v) for errors of variance
v, at most e^(-8); measured over 100 000 entries: at most 0.3 signals in 10 000, at any error rate. The mean is over
about the last thousand entries, so that a store that is still filling (and erring less and less) never hides a later
change.
"""

from dataclasses import asdict, dataclass
from typing import Any

TOLERANCE = 0.1
"""Rise of the error rate that is no drift."""

THRESHOLD = 10.0
"""Sum of errors above mean and tolerance at which drift is signalled."""

_MEMORY = 1000
_PRIOR_ENTRIES = 10.0  # of error rate 0.5: the first few errors of a new store are no drift


@dataclass
class DriftDetector:
    """The running state; JSON-able."""

    mean: float = 0.5
    """Error rate, about the last thousand entries."""

    seen: int = 0
    """Entries since the last signal."""

    excess: float = 0.0
    """s, between 0 and `THRESHOLD`."""

    started: int = 0
    """Sequence at which s last left 0: where a change, if it is one, began."""

    signals: int = 0
    """Drifts signalled so far."""

    changed_at: int = 0
    """Sequence at which the last signalled drift began; 0: none yet."""

    def update(self, error: float, sequence: int) -> bool:
        """Take in one entry that was predicted before it was learnt.

        Args:
            error: 1 where the prediction was wrong, 0 where it was right (or any loss in [0, 1]).
            sequence: the entry's.

        Returns:
            Whether this entry completes the evidence of a drift; the state then starts anew.
        """
        above = self.excess + error - self.mean - TOLERANCE
        self.seen += 1
        self.mean += (error - self.mean) / min(self.seen + _PRIOR_ENTRIES, _MEMORY)
        if above <= 0.0:
            self.excess = 0.0
            return False
        if self.excess == 0.0:
            self.started = sequence
        self.excess = above
        if above <= THRESHOLD:
            return False
        self.signals += 1
        self.changed_at = self.started
        self.mean, self.seen, self.excess = 0.5, 0, 0.0
        return True

    def to_mapping(self) -> dict[str, Any]:
        """The JSON mapping that the manifest stores."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, mapping: dict[str, Any]) -> "DriftDetector":
        """Read back what `to_mapping` gave; unknown keys of later versions are ignored."""
        return cls(**{name: mapping[name] for name in cls.__dataclass_fields__ if name in mapping})
