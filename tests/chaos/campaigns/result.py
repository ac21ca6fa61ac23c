"""What a run proved, as its report and its JSON have it."""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.campaigns.evidence import Verdict
from tests.chaos.campaigns.report import UNCOVERED


@dataclass
class Result:
    """A run, as its report and its JSON have it.

    Attributes:
        kind, seed, name, plan: What was to be done.
        trials: See Kind; what was done, not what was planned.
        kills: Processes that ran and were killed with -9: workers, publishers, servers.
        strikes: What was done, by its words.
        idle_kills: Workers that were killed before their first message.
        seconds: What it took.
        verdict: What it proves.
        counters: Of the groups.
        notes: What the proxy did.
    """

    kind: str
    seed: int
    name: str
    plan: str
    trials: int
    kills: int
    strikes: dict[str, int]
    idle_kills: int
    seconds: float
    verdict: Verdict
    counters: dict[str, int] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def asserted_losses(self) -> list[str]:
        """What is lost of what may not be."""
        shown_only = UNCOVERED.get(self.kind, ())
        return [
            f"{tier}: {line}"
            for tier, lines in self.verdict.lost.items()
            if tier not in shown_only
            for line in lines
        ]

    @property
    def shown_losses(self) -> int:
        """What is lost of what plain asynchronous durability does not promise."""
        return sum(map(len, self.verdict.lost.values())) - len(self.asserted_losses)

    @property
    def findings(self) -> list[str]:
        """Everything that must not be, in words."""
        verdict = self.verdict
        return [
            *(f"lost: {line}" for line in self.asserted_losses),
            *(f"double lease: {line}" for line in verdict.double_leases),
            *(f"unexplained duplicate: {line}" for line in verdict.unexplained),
            *(f"phantom: {id_}" for id_ in verdict.phantoms),
            *verdict.findings,
        ]

    def as_json(self) -> dict[str, Any]:
        """Everything but the names of what is only counted."""
        return {
            **asdict(self),
            "shown_losses": self.shown_losses,
            "findings": self.findings,
        }


def save(result: Result, folder: Path) -> Path:
    """Write what a run proved beside its evidence."""
    path = folder / "result.json"
    path.write_text(json.dumps(result.as_json(), indent=1, default=str) + os.linesep)
    return path
