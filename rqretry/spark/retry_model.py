"""What an archive says of one message in one group, and the policies to try; times are in ms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rqretry.core.retry_policy import CompiledPolicy

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
        kind: Of its failure; "" if it succeeded.
        handler: How long its handler ran; None if that is not known.
    """

    begun: int
    ended: int
    how: str
    late: int = 0
    rejected: bool = False
    kind: str = ""
    handler: float | None = None


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

    def waits(self, number: int, size: int, rng: np.random.Generator) -> Any:  # noqa: ARG002
        """How long the retry after this delivery waits, in so many simulations."""
        return float(self.policy.delay_ms(number))


def read_case(ready: int | None, steps: Sequence[Mapping[str, Any]], retried: int) -> Case | None:
    """A case from its events in order; None if its beginning is not among them.

    Args:
        ready: When it could first be delivered.
        steps: event, at, attempt, outcome, error_type, fingerprint, due and handler of each.
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
            rejected = _is_rejected(step, retried)
            kind = _kind(step, rejected)
            attempts.append(Attempt(begun, at, event, late, rejected, kind, step["handler"]))
            begun, due = None, step["due"] or at
            outcome = _after(step) if before < 0 else outcome
    if not attempts:
        return None
    return Case(ready, tuple(attempts), len(attempts) if before < 0 else before, outcome)


def _is_rejected(step: Mapping[str, Any], retried: int) -> bool:
    if step["event"] != "fail" or step["outcome"] != DEAD:
        return False
    return step["error_type"] in REJECTED or (step["attempt"] or 0) <= retried


def _kind(step: Mapping[str, Any], rejected: bool) -> str:  # noqa: FBT001 - of the step
    if step["event"] == "succeed":
        return ""
    name = step["fingerprint"] or step["error_type"] or step["event"]
    return f"rejected {name}" if rejected else str(name)


def _after(step: Mapping[str, Any]) -> str:
    return step["outcome"] if step["outcome"] in (COMMITTED, DEAD) else UNFINISHED
