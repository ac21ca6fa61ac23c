"""The result of a demo run, and its end report for people."""

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from rqretry.demo.proof import ArchiveReport, Proof, compare
from rqretry.demo.topology import CLAIMS_GROUP


@dataclass(frozen=True, slots=True)
class Archived:
    """The archive of a run: how many events Spark archived, and its report on them."""

    events: int
    report: ArchiveReport


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a demo run.

    Attributes:
        rows: Flights.
        proof: How each of them ended.
        seconds: From the first publish until every message was committed or dead.
        redriven: Dead claims sent back after their arrival was filed by hand.
        redriven_committed: How many of them are in the ledger.
        archived: The archive before the redrive and the report on it; None without Spark.
    """

    rows: int
    proof: Proof
    seconds: float
    redriven: int
    redriven_committed: int
    archived: Archived | None = None

    @property
    def differences(self) -> list[str]:
        """Where the report of the archive differs, one sentence each."""
        return compare(self.proof, self.archived.report) if self.archived else []

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
            spark["report"] = str(self.archived.report.page)
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


def print_report(console: Console, result: Result) -> None:
    """A compact table, and what it proves."""
    proof = result.proof
    table = Table(show_edge=False)
    table.add_column("group")
    for name in ("published", "committed", "dead", "retries"):
        table.add_column(name, justify="right")
    for name, group in proof.groups.items():
        numbers = (group.published, group.committed, group.dead, group.retries)
        table.add_row(name, *(f"{number:,}" for number in numbers))
    console.print(table)
    for line in _findings(result):
        console.print(line, soft_wrap=True)


def _findings(result: Result) -> list[str]:
    proof = result.proof
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in proof.dead_reasons.items())
    deliveries = proof.groups[CLAIMS_GROUP].attempts
    retried = f"{proof.retried_and_committed:,} claims came before their arrival, were retried and"
    redriven = f"{result.redriven_committed} of {result.redriven} dead claims committed after their"
    found = [
        f"{retried} committed; most deliveries of one claim: {max(deliveries, default=0)}",
        f"dead: {reasons or 'none'}",
        f"{redriven} arrival was filed by hand and they were redriven",
        f"{result.seconds:.1f} s, {result.messages_per_second:,.0f} messages per second",
    ]
    if result.archived is not None:
        dead = " and ".join(f"{n:,} {reason}" for reason, n in result.archived.report.dead.items())
        found.append(
            f"Spark archived {result.archived.events:,} events of the history; its report has the"
            f" dead letters in {len(result.archived.report.dead)} clusters: {dead or 'none'}"
        )
    if proof.explained_duplicates:
        twice = f"{proof.explained_duplicates} effects happened twice"
        found.append(f"{twice}: the lease of the first delivery had ended before it was settled")
    return found


def problems(result: Result) -> list[str]:
    """What is not as promised, one sentence each; empty if all is."""
    found = [*result.proof.lost, *result.proof.wrong, *result.differences]
    missing = result.redriven - result.redriven_committed
    if missing:
        found.append(f"{missing} of the {result.redriven} redriven claims did not commit")
    return found
