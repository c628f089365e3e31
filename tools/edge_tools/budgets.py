"""Budget: what a deployment may use of one thing, and whether that is enough."""

from dataclasses import dataclass

from edge_tools.output import size


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
