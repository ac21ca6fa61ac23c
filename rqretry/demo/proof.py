"""How every flight ended, checked against the input file and not against the counters."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rqretry.admin.views import GroupStats
from rqretry.cli.output import fields_of
from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.demo.book import Effect
from rqretry.demo.flights import Flight, expected_dead
from rqretry.demo.topology import BOOK_GROUP, CLAIMS_GROUP, MAX_RETRIES, Progress

_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was read from Redis when nothing was left to do.

    Attributes:
        settled, booked: The ledgers that the handlers of the two groups wrote.
        dead_claims, dead_arrivals: The dead letters of the two groups.
        published: Claims and arrivals, as the answers to publishing count them.
        last: The groups when they were done.
    """

    settled: Sequence[Effect]
    booked: Sequence[Effect]
    dead_claims: Sequence[DeadLetterRecord]
    dead_arrivals: Sequence[DeadLetterRecord]
    published: tuple[int, int]
    last: Progress


@dataclass(frozen=True, slots=True)
class Figures:
    """One group of the report.

    Attributes:
        published: Messages published for the group.
        committed: Messages whose effect is in the ledger and that are not dead.
        dead: Messages in the dead-letter queue.
        attempts: Deliveries at the end -> messages, of all that are committed or dead.
    """

    published: int
    committed: int
    dead: int
    attempts: Mapping[int, int]

    @property
    def retries(self) -> int:
        """Deliveries after the first, of all messages."""
        return sum((deliveries - 1) * count for deliveries, count in self.attempts.items())

    @property
    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        numbers = fields_of(self, "published committed dead retries")
        histogram = {str(deliveries): count for deliveries, count in sorted(self.attempts.items())}
        return numbers | {"attempts_histogram": histogram}


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """The claims in the report of the archive.

    Attributes:
        page: The HTML page.
        dead: Error -> dead letters.
        succeeded: Attempt -> deliveries that succeeded.
    """

    page: Path
    dead: Mapping[str, int]
    succeeded: Mapping[int, int]


@dataclass(slots=True)
class Proof:
    """The verdict.

    Attributes:
        groups: Figures by group name, before the redrive.
        succeeded: Attempt at which a claim was committed -> how many.
        retried_and_committed: Claims that failed at first and were committed.
        dead_reasons: Why claims are dead -> how many.
        explained_duplicates: Effects that happened twice because the lease of the first ran out.
        lost: What is missing, in two places, or done twice without a reason; empty: nothing.
        wrong: What ended in another way than the file says it must.
    """

    groups: dict[str, Figures]
    succeeded: Mapping[int, int]
    retried_and_committed: int
    dead_reasons: dict[str, int]
    explained_duplicates: int = 0
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def conserved(self) -> bool:
        """Every message is committed or dead, once."""
        return not self.lost


def prove(flights: Sequence[Flight], seen: Evidence) -> Proof:
    """Compare what happened with what the file says must happen."""
    dead = {record.id: record for record in seen.dead_claims}
    settled = {effect.flight_id: effect for effect in seen.settled}
    booked = {effect.flight_id: effect for effect in seen.booked}
    dead_arrivals = Counter(record.attempt for record in seen.dead_arrivals)
    claims = Counter(effect.attempt for id_, effect in settled.items() if id_ not in dead)
    proof = Proof(
        groups={
            BOOK_GROUP: Figures(
                seen.published[1],
                len(booked),
                len(seen.dead_arrivals),
                Counter(effect.attempt for effect in booked.values()) + dead_arrivals,
            ),
            CLAIMS_GROUP: Figures(
                seen.published[0],
                claims.total(),
                len(dead),
                claims + Counter(record.attempt for record in dead.values()),
            ),
        },
        succeeded=claims,
        retried_and_committed=claims.total() - claims[1],
        dead_reasons=dict(Counter(map(_reason, dead.values()))),
    )
    _check_conservation(proof, flights, seen, settled.keys(), dead.keys())
    _check_outcomes(proof, flights, dead)
    return proof


def _check_conservation(
    proof: Proof,
    flights: Sequence[Flight],
    seen: Evidence,
    settled: Iterable[str],
    dead: Iterable[str],
) -> None:
    every = {flight.id for flight in flights}
    arrived = {flight.id for flight in flights if flight.expected == "committed"}
    committed, dead_lettered = set(settled), set(dead)
    booked = {effect.flight_id for effect in seen.booked}
    lost = proof.lost
    lost += _named("neither committed nor dead", every - committed - dead_lettered)
    lost += _named("both committed and dead", committed & dead_lettered)
    lost += _named("not in the file", (committed | dead_lettered) - every)
    lost += _named("arrived and not in the book", arrived - booked)
    lost += _named("in the book and did not arrive", booked - arrived)
    if seen.published != (len(every), len(arrived)):
        lost.append(f"published {seen.published}, and the file has {len(every), len(arrived)}")
    if seen.last.unfinished:
        lost.append(f"{seen.last.unfinished} messages are unfinished")
    ledgers = ((seen.settled, seen.last.claims), (seen.booked, seen.last.book))
    proof.explained_duplicates = sum(_explained(lost, *ledger) for ledger in ledgers)


def compare(proof: Proof, report: ArchiveReport) -> list[str]:
    """Where the report of the archive differs from the verdict, one sentence each."""
    wrong: list[str] = []
    if report.dead != proof.dead_reasons:
        wrong.append(f"the report has the dead letters {report.dead}, and not {proof.dead_reasons}")
    if report.succeeded != proof.succeeded and not proof.explained_duplicates:
        expected = dict(sorted(proof.succeeded.items()))
        wrong.append(f"the report has successes by attempt {report.succeeded}, and not {expected}")
    return wrong


def _explained(lost: list[str], ledger: Sequence[Effect], group: GroupStats) -> int:
    """How many effects happened again for a good reason; the others go to `lost`.

    A delivery whose lease expired, or that a stopping worker released, may have taken effect and
    not been settled. The next one has another fencing token; one token twice has no excuse.
    """
    again = len(ledger) - len({effect.flight_id for effect in ledger})
    twice = len(ledger) - len({(effect.flight_id, effect.lease) for effect in ledger})
    excuses = group.counters.get("expire", 0) + group.counters.get("release", 0)
    if twice:
        lost.append(f"group {group.group}: {twice} deliveries took effect twice")
    if again - twice > excuses:
        lost.append(
            f"group {group.group}: {again - twice} effects happened again, and only {excuses}"
            " leases ended without a result"
        )
    return min(again - twice, excuses)


def _check_outcomes(
    proof: Proof, flights: Sequence[Flight], dead: dict[str, DeadLetterRecord]
) -> None:
    expected = expected_dead(flights)
    wrong = proof.wrong
    wrong += _named("dead, and must not be", dead.keys() - expected.keys())
    wrong += _named("not dead, and must be", expected.keys() - dead.keys())
    both = dead.keys() & expected.keys()
    wrong += _named("dead for another reason", {i for i in both if _reason(dead[i]) != expected[i]})
    wrong += _named(
        f"dead after another number of deliveries than {MAX_RETRIES + 1}",
        {i for i in both if dead[i].attempt != MAX_RETRIES + 1},
    )


def _reason(record: DeadLetterRecord) -> str:
    return record.errors[-1].message if record.errors else record.cause


def _named(what: str, ids: set[str]) -> list[str]:
    if not ids:
        return []
    some = ", ".join(sorted(ids)[:_EXAMPLES])
    return [f"{len(ids)} flights are {what}: {some}{', ...' if len(ids) > _EXAMPLES else ''}"]
