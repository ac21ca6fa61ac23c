"""What the operator's verbs answer: workers, leases, the audit record, a redrive."""

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One live worker process; `since_ms` is when it first said so."""

    name: str
    groups: tuple[str, ...]
    topics: tuple[str, ...]
    pid: int | None
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class InflightMessage:
    """One message under a lease; past `deadline_ms` it expires."""

    id: str
    topic: str
    partition: int
    attempt: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One line of the audit record: who changed, moved or destroyed what, and when."""

    at_ms: int
    actor: str
    verb: str
    arguments: dict[str, Any]
    counts: dict[str, Any]


class RedriveReport(int):
    """How many dead letters were sent back (or would be), and how the canaries fared.

    Attributes:
        matched: Dead letters that the filter chose.
        canaries: Sent first and watched.
        failed: Canaries that failed again.
        stopped: The rest was not sent.
        reason: Why, in one sentence; "" where nothing stopped it.
    """

    matched: int
    canaries: int
    failed: int
    stopped: bool
    reason: str

    def __new__(
        cls, sent: int, *, matched: int, canaries: int = 0, failed: int = 0, reason: str = ""
    ) -> Self:
        """Make a report; it is stopped where there is a reason."""
        made = super().__new__(cls, sent)
        made.matched, made.canaries, made.failed = matched, canaries, failed
        made.stopped, made.reason = bool(reason), reason
        return made
