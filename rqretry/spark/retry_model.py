"""What another retry policy would have meant for one message: the model of simulate.

What is known of a message is when it was tried and how that ended. Assumed is that the moment
decides: whatever is tried up to the last observed failure fails, and whatever is tried from the
observed success on succeeds. In between, and after the last failure of a message that never
succeeded, nothing is known: such an attempt succeeds at best, and fails at worst.

Times are milliseconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rqretry.core.retry_policy import CompiledPolicy

MOST_ATTEMPTS = 10_000
"""A message that is tried more often is not followed further."""
COMMITTED, DEAD, UNFINISHED = "committed", "dead", "unfinished"
REJECTED = frozenset({"rejected", "undecodable", "mismatch"})
"""Failures by which a handler declares that no retry can help."""
_SETTLED = frozenset({"succeed", "fail", "expire"})


class Attempt(NamedTuple):
    """One delivery that was settled.

    Attributes:
        begun: When it was leased.
        ended: When it was settled.
        how: "succeed", "fail" or "expire".
        late: How long after it was due it was leased.
        rejected: The handler declared that no retry can help.
    """

    begun: int
    ended: int
    how: str
    late: int = 0
    rejected: bool = False


class Case(NamedTuple):
    """What is known of one message in one group.

    Attributes:
        ready: When it could first be delivered; None if that is not in the archive.
        attempts: All that were settled, in time; the first one was attempt 1.
        before: How many of them were before the message was ever redriven.
        outcome: What had become of it by then.
    """

    ready: int | None
    attempts: tuple[Attempt, ...]
    before: int
    outcome: str


class Played(NamedTuple):
    """What became of a message, or would have.

    Attributes:
        outcome: "committed", "dead" or "unfinished".
        begun: When each delivery began.
        busy: How long handlers ran.
        took: From ready to committed; None if it was not, or that is not known.
        known: No attempt with an unknown outcome had to be guessed.
    """

    outcome: str
    begun: list[int]
    busy: int
    took: int | None
    known: bool = True


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy to try.

    Attributes:
        name: As users write it.
        policy: Its waits; jitter is left out.
        deliveries: The most deliveries; None for no limit.
    """

    name: str
    policy: CompiledPolicy
    deliveries: int | None


def read_case(ready: int | None, steps: Sequence[Mapping[str, Any]], retried: int) -> Case | None:
    """A case from its events in order; None if its beginning is not among them.

    Args:
        ready: When it could first be delivered.
        steps: event, at, attempt, outcome, error_type and due of each.
        retried: The highest attempt that was retried in the group: a message that died no later
            was rejected by its handler.
    """
    attempts: list[Attempt] = []
    before, outcome = -1, UNFINISHED
    begun: int | None = None
    due: int | None = None
    for step in steps:
        event, at = step["event"], step["at"]
        if event == "lease":
            begun = at
        elif event == "release":
            begun = None
        elif event == "redrive":
            if not attempts:
                return None
            before, due = len(attempts) if before < 0 else before, step["due"] or at
        elif begun is not None and event in _SETTLED:
            if not attempts and step["attempt"] != 1:
                return None
            late = 0 if due is None else max(0, begun - due)
            attempts.append(Attempt(begun, at, event, late, _is_rejected(step, retried)))
            begun, due = None, step["due"] or at
            outcome = _after(step) if before < 0 else outcome
    if not attempts:
        return None
    return Case(ready, tuple(attempts), len(attempts) if before < 0 else before, outcome)


def observed(case: Case) -> Played:
    """What became of a message before it was ever redriven."""
    own = case.attempts[: case.before]
    took = None
    if case.outcome == COMMITTED and case.ready is not None:
        took = own[-1].ended - case.ready
    busy = sum(one.ended - one.begun for one in own)
    return Played(case.outcome, [one.begun for one in own], busy, took)


def replay(case: Case, candidate: Candidate, until: int, *, hopeful: bool) -> Played:
    """What would have become of a message under another policy.

    Args:
        case: What is known of it.
        candidate: The policy.
        until: The end of the history; where deliveries have no limit, it is followed so far.
        hopeful: Whether attempts with an unknown outcome are assumed to succeed.
    """
    begun: list[int] = []
    at, busy, expiries, known = case.attempts[0].begun, 0, 0, True
    while True:
        begun.append(at)
        like, sure = _outcome_at(case.attempts, at, hopeful=hopeful)
        known = known and sure
        busy += like.ended - like.begun
        ended = at + like.ended - like.begun
        if like.how == "succeed" or (hopeful and not sure):
            took = None if case.ready is None else ended - case.ready
            return Played(COMMITTED, begun, busy, took, known)
        if like.rejected or len(begun) == candidate.deliveries:
            return Played(DEAD, begun, busy, None, known)
        at_once = like.how == "expire" and expiries == 0
        expiries += like.how == "expire"
        at = ended + (0 if at_once else candidate.policy.delay_ms(len(begun)))
        at += _late(case, len(begun))
        endless = candidate.deliveries is None and at > until
        if endless or len(begun) == MOST_ATTEMPTS:
            return Played(UNFINISHED, begun, busy, None, known)


def _outcome_at(attempts: Sequence[Attempt], at: int, *, hopeful: bool) -> tuple[Attempt, bool]:
    """The observed attempt that one begun now would be like, and whether that is known."""
    like, coming = attempts[0], None
    for one in attempts:
        if one.begun > at:
            coming = one
            break
        like = one
        if one.how == "succeed":
            return one, True
    failed_later = coming is not None and coming.how != "succeed"
    if failed_later or like.begun == at or like.rejected:
        return like, True
    return (coming if hopeful and coming else like), False


def _late(case: Case, number: int) -> int:
    """How long after it is due the next attempt begins: as it did, or as the last one did."""
    return case.attempts[min(number, case.before - 1)].late


def _is_rejected(step: Mapping[str, Any], retried: int) -> bool:
    if step["event"] != "fail" or step["outcome"] != DEAD:
        return False
    return step["error_type"] in REJECTED or (step["attempt"] or 0) <= retried


def _after(step: Mapping[str, Any]) -> str:
    return step["outcome"] if step["outcome"] in (COMMITTED, DEAD) else UNFINISHED
