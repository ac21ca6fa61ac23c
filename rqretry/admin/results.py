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


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a partition that should not be.

    Attributes:
        topic: The topic.
        partition: Which of its partitions.
        severity: "error" (a message is lost, stuck or would be handled twice) or "warning".
        kind: One word or two, the same for all problems of a kind.
        key: The Redis key it is in.
        id: The message, or the field, it is about.
        text: What is wrong, as a sentence.
        remedy: What a repair does about it; "" where a person must decide.
        advice: What a person can do; "" where there is a remedy.
    """

    topic: str
    partition: int
    severity: str
    kind: str
    key: str
    id: str
    text: str
    remedy: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Repair:
    """One kind of repair that was made in one partition.

    Attributes:
        topic: The topic.
        partition: Which of its partitions.
        group: In whose places; "" where it was about no group's.
        did: What was done, as a sentence.
        ids: To which messages; of an index, to which delay levels.
    """

    topic: str
    partition: int
    group: str
    did: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checkup:
    """What `fsck` answers.

    Attributes:
        partitions: How many were read.
        problems: What was found, errors first.
        repairs: What was changed; none without `repair`.
        left: The problems at the end: after the repairs, if there were some.
    """

    partitions: int
    problems: tuple[Problem, ...]
    repairs: tuple[Repair, ...]
    left: tuple[Problem, ...]

    @property
    def errors(self) -> int:
        """How many of those that are left are errors."""
        return sum(problem.severity == "error" for problem in self.left)


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
