"""What a run of the demo came to."""

from dataclasses import dataclass
from typing import Any

from rqretry.demo.proof import Proof, Told, compare


@dataclass(frozen=True, slots=True)
class Archived:
    """What Spark made of a run: how many events it archived, and what its report says."""

    events: int
    told: Told


@dataclass(frozen=True, slots=True)
class Result:
    """What a run of the demo came to.

    Attributes:
        rows: Flights.
        proof: What became of them.
        seconds: From the first publish until every message was committed or dead.
        redriven: Dead claims sent back after their arrival was filed by hand.
        redriven_committed: How many of them are in the ledger.
        archived: The archive and the report of what came before the redrive; None without Spark.
    """

    rows: int
    proof: Proof
    seconds: float
    redriven: int
    redriven_committed: int
    archived: Archived | None = None

    @property
    def differences(self) -> list[str]:
        """Where the report of the archive says something else, one sentence each."""
        return compare(self.proof, self.archived.told) if self.archived else []

    @property
    def messages_per_second(self) -> float:
        """Messages of both topics, committed or dead, by `seconds`."""
        done = sum(group.committed + group.dead for group in self.proof.groups.values())
        return done / self.seconds

    @property
    def as_promised(self) -> bool:
        """Nothing lost, every flight ended as the file says, all redriven committed."""
        return (
            self.proof.conserved
            and not self.proof.wrong
            and self.redriven_committed == self.redriven
            and not self.differences
        )

    @property
    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        spark: dict[str, Any] = {}
        if self.archived is not None:
            spark["archived_events"] = self.archived.events
            spark["report"] = str(self.archived.told.page)
        return {
            "rows": self.rows,
            "groups": {name: group.as_json for name, group in self.proof.groups.items()},
            "dead_reasons": self.proof.dead_reasons,
            "redriven_committed": self.redriven_committed,
            "conserved": self.proof.conserved,
            "seconds": round(self.seconds, 3),
            "messages_per_second": round(self.messages_per_second, 1),
            **spark,
        }
