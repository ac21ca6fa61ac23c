"""One figure of the scenario, and its bar."""

from typing import NamedTuple


class Measure(NamedTuple):
    """What was measured, and the most that it may be."""

    name: str
    value: float
    bar: float

    def __str__(self) -> str:
        verdict = "met" if self.met else "MISSED"
        return f"{self.name}: {self.value:.2f}, at most {self.bar:g}: {verdict}"

    @property
    def met(self) -> bool:
        """Whether it is at most that."""
        return self.value <= self.bar
