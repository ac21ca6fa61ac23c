"""What the processes of a run wrote down, and what that proves: nothing here asks rqretry.

`confirmed` is what a publisher was told is stored, `handled` what a handler finished with success,
by their own files; dead letters and what is still queued come from the store at the end.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from tests.chaos.campaigns.actors import VISIBILITY_S
from tests.chaos.campaigns.report import EMPTIED
from tests.model.checker.history import FAIL, OK, Effect, Operation
from tests.model.checker.report import Report

MEMORY = "memory"
SUCCESS, FAILURE, DEAD = "success", "failure", "dead_letter"
NS = 1_000_000_000
SETTLES_WITHIN_S = 1.0
"""Between the end of a handler and its settle in Redis; a kill in this time repeats the message."""
STANDS_STILL_S = 0.5
"""How long a process on a busy machine may stand still between two of its own steps."""
_REFUSED = frozenset(
    {"InvalidArgument", "MessageIdTaken", "ScriptError", "CodecError", "ConfigError"}
)
"""Errors that no fault of these campaigns can explain."""


Entity = tuple[str, str]
"""A group and a message id."""


@dataclass
class History:
    """What the publishers wrote.

    Attributes:
        confirmed: Id → what confirmed it: "memory", "replica:1", the strongest.
        unsure: Ids that may be stored, as far as their publisher knows.
        failed: Ids that are not stored, as far as their publisher knows.
        refused: Errors that no fault explains.
        calls: How many calls there were.
    """

    confirmed: dict[str, str] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    calls: int = 0

    @property
    def definitely_not(self) -> set[str]:
        """Ids that must not be there."""
        return self.failed - self.unsure - self.confirmed.keys()


@dataclass
class Faults:
    """What the driver did, and when (nanoseconds by the clock of the machine).

    Attributes:
        killed: Process → when it was killed.
        stopped: Process → the times in which it stood still.
        server: Times in which the server or the network was in trouble.
    """

    killed: dict[str, int] = field(default_factory=dict)
    stopped: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    server: list[tuple[int, int]] = field(default_factory=list)
    emptied_ns: int = 0
    """When the data were gone last; 0 for never."""


@dataclass
class Verdict:
    """What a run proves.

    Attributes:
        accepted: Confirmed messages, by what confirmed them.
        lost: Those that were neither handled by each group nor are dead or queued.
        double_leases: Two starts under one lease, or two leases at once.
        explained: Extra starts that a fault or a planned failure explains.
        unexplained: Extra starts that nothing explains.
        phantoms: Handled, though their publisher was told that they are not stored.
        starts: Handler starts.
        findings: Anything else that must not be, in words.
    """

    accepted: dict[str, int] = field(default_factory=dict)
    lost: dict[str, list[str]] = field(default_factory=dict)
    double_leases: list[str] = field(default_factory=list)
    explained: int = 0
    unexplained: list[str] = field(default_factory=list)
    phantoms: list[str] = field(default_factory=list)
    starts: int = 0
    findings: list[str] = field(default_factory=list)


def stated(operations: Iterable[Operation], emptied_ns: int = 0) -> History:
    """What the publishers were told, of what they wrote; what began before that may be gone."""
    history = History()
    for operation in operations:
        if operation.op == "publish":
            _note(history, operation)
            if operation.began_ns < emptied_ns and operation.id in history.confirmed:
                history.confirmed[operation.id] = EMPTIED
    return history


def _note(history: History, operation: Operation) -> None:
    history.calls += 1
    id_, error = operation.id, str(operation.fields.get("error", ""))
    if error in _REFUSED:
        text = operation.fields.get("text", "")
        history.refused.append(f"{error}: the publish of {id_ or 'a message'} was refused: {text}")
    if not id_:
        return
    if operation.outcome == OK:
        if history.confirmed.get(id_, MEMORY) == MEMORY:
            history.confirmed[id_] = str(operation.fields.get("tier_confirmed", MEMORY))
    elif operation.outcome == FAIL:
        history.failed.add(id_)
    else:
        history.unsure.add(id_)


def by_message(effects: Iterable[Effect]) -> dict[Entity, list[Effect]]:
    """Every start of a handler, per group and message, in order of time."""
    starts: dict[Entity, list[Effect]] = defaultdict(list)
    for effect in effects:
        starts[effect.group, effect.id].append(effect)
    for found in starts.values():
        found.sort(key=lambda effect: effect.began_ns)
    return starts


def judge(
    history: History,
    starts: Mapping[Entity, list[Effect]],
    failures_seen: Faults,
    groups: Iterable[str],
    held: Mapping[str, set[str]],
) -> Verdict:
    """Compare what was promised with what was done.

    Args:
        history: What the publishers were told.
        starts: What the handlers did.
        troubles: What the driver did.
        groups: The consumer groups.
        held: What the store holds at the end, per group: dead letters and what is queued.
    """
    verdict = Verdict(findings=list(history.refused))
    for tier in history.confirmed.values():
        verdict.accepted[tier] = verdict.accepted.get(tier, 0) + 1
    for group in groups:
        done = {id_ for (of, id_), all_ in starts.items() if of == group and _finished(all_)}
        for id_ in history.confirmed.keys() - done - held.get(group, set()):
            verdict.lost.setdefault(history.confirmed[id_], []).append(f"{group} {id_}")
    seen = {id_ for _, id_ in starts}.union(*held.values())
    verdict.phantoms = sorted(history.definitely_not & seen)
    for (group, id_), found in starts.items():
        verdict.starts += len(found)
        verdict.double_leases += _same_lease(group, id_, found, failures_seen)
        for before, after in pairwise(found):
            if _explains(before, after, failures_seen):
                verdict.explained += 1
            else:
                verdict.unexplained.append(f"{group} {id_}: {before} then {after}")
    return verdict


def consult(verdict: Verdict, report: Report, *, journal: bool) -> None:
    """Add what the checker says; where it has the journal, it knows better about leases."""
    if journal:
        verdict.unexplained = []
        verdict.explained = sum(report.duplicates.values())
    for finding in report.findings:
        text = f"{finding.subject}: {finding.text}"
        if finding.invariant in ("I5", "I6"):
            verdict.double_leases.append(text)
        elif finding.invariant == "I8":
            verdict.unexplained.append(text)
        else:
            verdict.findings.append(f"{finding.invariant} {text}")


def _finished(starts: Iterable[Effect]) -> bool:
    return any(start.outcome in (SUCCESS, DEAD) for start in starts)


def _same_lease(group: str, id_: str, found: list[Effect], failures_seen: Faults) -> Iterator[str]:
    """Two starts under one lease number, or one under a lease that was long over.

    A process may stand still for a moment between its last look at the clock and the handler.
    """
    for before, after in pairwise(found):
        late_ns = after.began_ns - before.began_ns
        if after.lease_no == before.lease_no:
            yield f"{group} {id_}: lease {after.lease_no} twice"
        elif _overlaps(failures_seen.server, before.began_ns, after.began_ns):
            continue
        elif after.lease_no < before.lease_no and late_ns > STANDS_STILL_S * NS:
            late = f"{late_ns / NS:.2f} s after lease {before.lease_no}"
            yield f"{group} {id_}: lease {after.lease_no} began {late}"


def _explains(before: Effect, after: Effect, failures_seen: Faults) -> bool:
    """Whether one of the cases D-a to D-i is why a message was started again."""
    if before.outcome == FAILURE:  # D-e
        return True
    if after.lease_no < before.lease_no:  # D-a: it was leased first, and began late
        return True
    settled_ns = (before.ended_ns or before.began_ns) + round(SETTLES_WITHIN_S * NS)
    killed_ns = failures_seen.killed.get(before.proc)
    if killed_ns is not None and (not before.ended_ns or killed_ns <= settled_ns):  # D-b
        return killed_ns >= before.began_ns
    if _overlaps(failures_seen.stopped.get(before.proc, ()), before.began_ns, settled_ns):  # D-a
        return True
    if _overlaps(failures_seen.server, before.began_ns, after.began_ns):  # D-c, D-d, D-f, D-g
        return True
    # D-a: no lease is looked at twice before it is over; a start that soon has another reason.
    return after.began_ns - before.began_ns >= VISIBILITY_S * NS / 2 and _late(before)


def _late(start: Effect) -> bool:
    """The handler itself ran longer than a lease that nobody renewed."""
    return start.ended_ns == 0 or start.ended_ns - start.began_ns >= VISIBILITY_S * NS / 2


def _overlaps(times: Iterable[tuple[int, int]], first_ns: int, last_ns: int) -> bool:
    return any(begin <= last_ns and end >= first_ns for begin, end in times)
