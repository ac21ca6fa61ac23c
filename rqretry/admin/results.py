"""What admin operations return: workers, leases, audit records, repairs, a redrive."""

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One live worker process; `since_ms` is when it first registered.

    Attributes:
        host: The machine.
        version: Of rqretry; "" for a version that does not say so.
        service: What OTEL_SERVICE_NAME or the command calls it.
        slots: How many attempts it can run at once.
        busy: How many it ran when it registered last, a few seconds ago.
        failures: Attempts that failed there in the last minute.
        restarts: How many processes its supervisor has started in place of one that had ended.
        blocked_s: For how long its event loop has stood still; 0: it does not.
    """

    name: str
    groups: tuple[str, ...]
    topics: tuple[str, ...]
    pid: int | None
    since_ms: int | None
    host: str = ""
    version: str = ""
    service: str = ""
    slots: int = 0
    busy: int = 0
    failures: int = 0
    restarts: int = 0
    blocked_s: int = 0


@dataclass(frozen=True, slots=True)
class InflightMessage:
    """One message in flight; past `deadline_ms` it expires.

    `holder` is the worker that leased it and `since_ms` when; "" and None where the newest history
    does not say so.
    """

    id: str
    topic: str
    partition: int
    attempt: int
    deadline_ms: int
    holder: str = ""
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ListedMessage:
    """A message that a group has not finished with.

    Attributes:
        id: The message.
        topic: Its topic.
        partition: Its partition there.
        state: "inflight", "waiting_retry", "ready", "blocked", "scheduled" or "parked".
        attempt: The number of its current delivery, else of the next one.
        why: Its last error in one line; "" if it has not failed. For what is scheduled or parked,
            how it came to that.
        fingerprint: Of its last error; "" for none.
        since_ms: In flight: since its lease. Otherwise since its last failure; for one that has not
            failed, since it was published. Server time; None if that is not known.
        due_ms: Its due time, or the deadline of its lease, in server time; None for neither.
        holder: In flight: the worker that leased it ("" where the newest 5,000 history entries do
            not say). Blocked: the message that is out of its message group. Parked: its
            transaction.
        tag: Its tag.
        keys: Its message keys.
        message_group: Its message group.
        published_ms: When it was published; None if its body cannot be read.
    """

    id: str
    topic: str
    partition: int
    state: str
    attempt: int
    why: str
    fingerprint: str
    since_ms: int | None
    due_ms: int | None
    holder: str
    tag: str | None
    keys: tuple[str, ...]
    message_group: str | None
    published_ms: int | None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """A page of messages that a group has not finished with."""

    messages: tuple[ListedMessage, ...]
    looked: int
    """How many it looked at; those that it did not select are not among `messages`."""
    next: str | None
    """Where the next page begins (`after=`); None at the end."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One kind of error of messages that wait."""

    fingerprint: str
    error: str
    count: int
    sample_id: str


@dataclass(frozen=True, slots=True)
class Reasons:
    """The commonest last errors of the messages of a group in a topic that wait for a retry.

    Attributes:
        topic: The topic.
        group: The group.
        waiting: Messages that wait for a retry, or could be retried now.
        looked: How many of them were looked at, 500 at most in a partition: what is counted.
        errors: The commonest errors of these, the most frequent first.
    """

    topic: str
    group: str
    waiting: int
    looked: int
    errors: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One audit record: who changed, moved or deleted what, and when."""

    at_ms: int
    actor: str
    verb: str
    arguments: dict[str, Any]
    counts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Problem:
    """An inconsistency in a partition.

    Attributes:
        topic: The topic.
        partition: Which of its partitions.
        severity: "error" (a message is lost, stuck or would be handled twice) or "warning".
        kind: One or two words, the same for all problems of this kind.
        key: The Redis key in which it was found.
        id: The message, or the field, that is affected.
        text: What is wrong, as a sentence.
        remedy: What a repair does about it; "" if a person must decide.
        advice: What a person can do; "" if there is a remedy.
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
    """One kind of repair, made in one partition.

    Attributes:
        topic: The topic.
        partition: Which of its partitions.
        group: The group whose lists and sets were repaired; "" if none.
        did: What was done, as a sentence.
        ids: The repaired messages; for an index, the delay levels.
    """

    topic: str
    partition: int
    group: str
    did: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checkup:
    """What `fsck` returns.

    Attributes:
        partitions: How many were read.
        problems: What was found, errors first.
        repairs: What was changed; none without `repair`.
        left: The problems that remain, after repairs if there were any.
    """

    partitions: int
    problems: tuple[Problem, ...]
    repairs: tuple[Repair, ...]
    left: tuple[Problem, ...]

    @property
    def errors(self) -> int:
        """How many of the remaining problems are errors."""
        return sum(problem.severity == "error" for problem in self.left)


class RedriveReport(int):
    """How many dead letters were sent back (or would be), and what became of the canaries.

    Attributes:
        matched: Dead letters that the filter selected.
        canaries: Sent first and watched.
        failed: Canaries that failed again.
        stopped: The rest was not sent.
        reason: Why, in one sentence; "" if it was not stopped.
    """

    matched: int
    canaries: int
    failed: int
    stopped: bool
    reason: str

    def __new__(
        cls, sent: int, *, matched: int, canaries: int = 0, failed: int = 0, reason: str = ""
    ) -> Self:
        """Make a report; it is stopped if there is a reason."""
        made = super().__new__(cls, sent)
        made.matched, made.canaries, made.failed = matched, canaries, failed
        made.stopped, made.reason = bool(reason), reason
        return made
