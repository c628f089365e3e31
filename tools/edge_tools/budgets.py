"""Budgets: what a deployment may use, as people type it ("64MB", "30ms"), and whether it is met."""

import re
from dataclasses import dataclass

from edge_sdk import ConfigError
from edge_tools.output import size

_UNITS = {"b": 1.0, "kb": 1024.0, "mb": 1024.0**2, "gb": 1024.0**3}
_MILLISECONDS = {"us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ]*)\s*")


@dataclass(frozen=True)
class Budget:
    """One limit and what was found."""

    name: str
    limit: float
    found: float
    unit: str
    """"bytes" or "ms"."""

    @property
    def is_met(self) -> bool:
        """Whether what was found is within the limit."""
        return self.found <= self.limit

    def __str__(self) -> str:
        verdict = "met" if self.is_met else "NOT met"
        return f"budget {self.name} {self._text(self.limit)}: {verdict}, needs {self._text(self.found)}"

    def _text(self, value: float) -> str:
        return size(value) if self.unit == "bytes" else f"{value:.2f} ms"


def parse_bytes(text: str) -> float:
    """Bytes of "64MB", "500 KB" or "1048576" (1 KB = 1024 bytes).

    Raises:
        ConfigError: something else.
    """
    return _parse(text, {**_UNITS, "": 1.0}, "64MB, 500KB or a number of bytes")


def parse_milliseconds(text: str) -> float:
    """Milliseconds of "30ms", "0.03s" or "30".

    Raises:
        ConfigError: something else.
    """
    return _parse(text, {**_MILLISECONDS, "": 1.0}, "30ms, 0.03s or a number of milliseconds")


def _parse(text: str, units: dict[str, float], examples: str) -> float:
    match = _QUANTITY.fullmatch(text)
    unit = match.group(2).lower().replace("ib", "b") if match else None
    if match is None or unit not in units:
        raise ConfigError(f'a budget is {examples}, got "{text}"')
    return float(match.group(1)) * units[unit]
