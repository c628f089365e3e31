"""Finding: one thing that was looked at, what was found, and what to do about it in one line."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How bad it is."""

    OK = "ok"
    SKIPPED = "skipped"
    """Not installed and not needed, or cannot be told here."""
    WARNING = "warning"
    """It works, and will bite later."""
    PROBLEM = "problem"
    """It does not work."""


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    subject: str
    verdict: Verdict
    detail: str
    advice: str = ""
    """One line; empty where there is nothing to do."""
