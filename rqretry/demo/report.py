"""The end report of the demo, for people."""

from rich.console import Console
from rich.table import Table

from rqretry.demo.feed import CLAIMS_GROUP
from rqretry.demo.result import Result


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
        letters = " and ".join(f"{n:,} {reason}" for reason, n in result.archived.told.dead.items())
        found.append(
            f"Spark archived {result.archived.events:,} events of the history; its report has the"
            f" dead letters in {len(result.archived.told.dead)} clusters: {letters or 'none'}"
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
