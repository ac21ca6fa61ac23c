"""What the admin verbs answer: plain records of what is where."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.failure_record import AttemptError


@dataclass(frozen=True, slots=True)
class Waiting:
    """One rung of the ladder.

    Attributes:
        level: 1 for the shortest.
        count: Messages that wait there and are not due yet.
        next_due_ms: Server time, milliseconds since the epoch, when the first is due.
    """

    level: int
    count: int
    next_due_ms: int


@dataclass(frozen=True, slots=True)
class GroupStats:
    """One group of one topic, over all partitions. What is due counts as ready."""

    group: str
    kind: str
    ready: int
    """New messages that can be delivered now, and those that wait for their turn (`blocked`)."""
    retry: int
    """Retries, and messages whose lease ran out, that can be delivered now."""
    inflight: int
    waiting: tuple[Waiting, ...]
    dead: int
    oldest_age_s: float | None
    """Age of the message at the head of the ready list; None when it is empty."""
    paused: bool
    workers: int
    """Live worker processes of the group."""
    counters: dict[str, int] = field(default_factory=dict)
    """How often each verb happened to a message: publish, lease, succeed, fail, ..."""
    max_inflight: int | None = None
    """Under a lease at once, over all partitions of this topic; None for any number."""
    rate_limit: str | None = None
    """Deliveries of the group in a time, such as "100/s"; None for any number."""

    tags: str = "*"
    """What it takes of the topic; "*" is everything."""
    ordered: bool = False
    """It gets one message of a message group at a time."""
    blocked: int = 0
    """Of an ordered group: messages behind an unfinished one of their message group."""

    @property
    def filtered(self) -> int:
        """Messages that were not for it, because it does not take their tags."""
        return self.counters.get("filtered", 0)

    @property
    def waiting_count(self) -> int:
        """Messages on all rungs."""
        return sum(rung.count for rung in self.waiting)


@dataclass(frozen=True, slots=True)
class TopicStats:
    """One topic over all partitions."""

    topic: str
    partitions: int
    stored: int
    """Message bodies kept."""
    scheduled: int
    """Published with a delay and not due."""
    backlog: int
    """Waiting for the topic's first group."""
    groups: tuple[GroupStats, ...]
    max_messages: int | None = None
    """How many it may store; None for any number."""
    bytes: int | None = None
    """Of the bodies, by a sample; None where the server does not say."""
    history_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """What `admin.stats` answers; sums over all that it names, details in `topics`."""

    namespace: str
    topics: tuple[TopicStats, ...]
    used_memory: int | None = None
    """Of the whole server, in bytes; None where it does not say."""
    max_memory: int | None = None
    """The server's limit, in bytes; 0 for none, None where it does not say."""
    open_transactions: int = 0
    """Of the namespace: not finished, parked ones too."""
    parked_transactions: int = 0
    """Of the namespace: no checker could decide them, and they wait for an operator."""

    @property
    def groups_without_consumer(self) -> list[tuple[str, str]]:
        """(topic, group) of each push group that no live worker serves; simple ones cannot tell."""
        return [
            (topic.topic, group.group)
            for topic in self.topics
            for group in topic.groups
            if group.kind != "simple" and group.workers == 0
        ]

    @property
    def topics_without_group(self) -> list[str]:
        """Topics whose messages wait for a first group."""
        return [topic.topic for topic in self.topics if not topic.groups]

    @property
    def groups(self) -> Iterator[GroupStats]:
        """All groups of all topics."""
        return (group for topic in self.topics for group in topic.groups)

    @property
    def ready(self) -> int:
        """New messages that can be delivered now."""
        return sum(group.ready for group in self.groups)

    @property
    def retry(self) -> int:
        """Retries that can be delivered now."""
        return sum(group.retry for group in self.groups)

    @property
    def inflight(self) -> int:
        """Messages under a lease."""
        return sum(group.inflight for group in self.groups)

    @property
    def waiting(self) -> int:
        """Messages on the ladder."""
        return sum(group.waiting_count for group in self.groups)

    @property
    def filtered(self) -> int:
        """Messages that were not for a group, because it does not take their tags."""
        return sum(group.filtered for group in self.groups)

    @property
    def dead(self) -> int:
        """Dead letters."""
        return sum(group.dead for group in self.groups)

    @property
    def scheduled(self) -> int:
        """Published with a delay and not due."""
        return sum(topic.scheduled for topic in self.topics)

    @property
    def backlog(self) -> int:
        """Waiting for a topic's first group."""
        return sum(topic.backlog for topic in self.topics)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Dead letters with one fingerprint."""

    fingerprint: str
    error: str
    count: int
    first_ms: int
    last_ms: int
    sample_id: str


@dataclass(frozen=True, slots=True)
class GroupState:
    """Where one message is, for one group.

    Attributes:
        state: "ready", "inflight", "waiting_retry", "dead", "committed", "scheduled" or "filtered"
            (it does not take the message's tag).
        attempt: The number of the current delivery, else of the next one.
        due_ms: Server time when it moves: due time, or deadline of the lease; None for none.
        explain: Why it is not running now, in one sentence.
    """

    group: str
    state: str
    attempt: int
    due_ms: int | None
    explain: str
    errors: tuple[AttemptError, ...] = ()


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One line of a message's history.

    Attributes:
        at_ms: Server time in milliseconds since the epoch.
        event: The verb: publish, lease, succeed, fail, release, expire, promote, redrive, ...
        group: The consumer group; "" for what is no group's.
        worker: Who did it.
        note: What became of the message, in words; "" where the verb says it all.
        attempt: Which delivery; None where it is none.
        level: The delay level at which it waits from then on; None for none.
        due_ms: When it is due again, server time.
        error: Of a failure, its type and text.
        trace_id: The trace of the publish, or of the attempt that failed; None where it is not
            known.
    """

    at_ms: int
    event: str
    group: str
    worker: str
    note: str
    attempt: int | None = None
    level: int | None = None
    due_ms: int | None = None
    error: str = ""
    trace_id: str | None = None
    topic: str = ""
    """Of a message that is not stored any more, where it was."""
    partition: int = 0

    def at(self, topic: str, partition: int) -> "TimelineEvent":
        """The same, with its place."""
        return replace(self, topic=topic, partition=partition)

    def traced(self, trace_id: str | None) -> "TimelineEvent":
        """The same, with its trace."""
        return replace(self, trace_id=trace_id)


@dataclass(frozen=True, slots=True)
class MessageView:
    """What `admin.message` answers."""

    id: str
    topic: str
    partition: int
    body: Any
    tag: str | None
    keys: tuple[str, ...]
    headers: dict[str, str]
    born_ms: int | None
    states: tuple[GroupState, ...]
    timeline: tuple[TimelineEvent, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """What `admin.topics` answers for one topic."""

    name: str
    partitions: int
    groups: tuple[str, ...]
    max_messages: int | None = None
    """How many it may store; None for any number."""


@dataclass(frozen=True, slots=True)
class AttemptForecast:
    """The messages whose next delivery has one number, and what their failure would mean.

    Attributes:
        attempt: The number of their current delivery, else of the next one.
        count: How many they are.
        wait_before_s: How long they would wait after failing it, as the group is set now, in
            seconds without jitter; None: they would be dead.
        wait_after_s: The same with the other settings.
    """

    attempt: int
    count: int
    wait_before_s: float | None
    wait_after_s: float | None


@dataclass(frozen=True, slots=True)
class GroupForecast:
    """What `set_group(..., dry_run=True)` answers.

    Attributes:
        group: The group.
        settings: What would be set, as text.
        waiting: Messages that wait for a retry; their due time stays as it is.
        unfinished: Those and all that are ready or in flight.
        dead_at_next_failure: Of them, how many would be dead when their next delivery fails, which
            they would not be as the group is set now. Each is delivered once more before that.
        attempts: By the number of the next delivery.
    """

    group: str
    settings: dict[str, str]
    waiting: int
    unfinished: int
    dead_at_next_failure: int
    attempts: tuple[AttemptForecast, ...]


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """What `admin.groups` answers for one group; max_retries None is unlimited."""

    name: str
    kind: str
    max_retries: int | None
    policy: str
    ladder: str
    """In words: retries, deliveries and how long they take."""
    topics: tuple[str, ...]
    changed_by: str
    changed_at_ms: int = 0
    paused: bool = False
    pinned: tuple[str, ...] = ()
    """Settings that a starting worker does not change: max_retries, policy, ..."""
    max_inflight: int | None = None
    """Under a lease at once, over all workers; None for any number."""
    rate_limit: str | None = None
    """Deliveries in a time, over all workers, such as "100/s"; None for any number."""
    forecast: GroupForecast | None = None
    """Of a dry run: what the settings would do to the messages that the group has now."""
    dlq_retention_s: float | None = None
    """How long dead letters are kept, in seconds; None for ever."""
    ordered: bool = False


def clusters(letters: Sequence[DeadLetterRecord]) -> list[Cluster]:
    """Dead letters by fingerprint, the most frequent first."""
    found: dict[str, list[DeadLetterRecord]] = {}
    for letter in letters:
        found.setdefault(letter.fingerprint, []).append(letter)
    rows = [
        Cluster(
            fingerprint,
            members[-1].error,
            len(members),
            min(letter.dead_since_ms for letter in members),
            max(letter.dead_since_ms for letter in members),
            members[-1].id,
        )
        for fingerprint, members in found.items()
    ]
    return sorted(rows, key=lambda row: (-row.count, row.fingerprint))
