"""What admin operations return: statistics, messages, topics, groups."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from rqretry.core.failure_record import AttemptError


@dataclass(frozen=True, slots=True)
class Waiting:
    """The messages waiting at one delay level.

    Attributes:
        level: 1 for the shortest.
        count: Messages that wait there and are not due yet.
        next_due_ms: Server time, milliseconds since the epoch, when the first is due.
    """

    level: int
    count: int
    next_due_ms: int


@dataclass(frozen=True, slots=True)
class Blocker:
    """A message that has failed and holds up its message group in an ordered group."""

    id: str
    message_group: str | None
    """None: that of the messages without one, in their partition."""
    partition: int
    attempt: int
    """The number of its current delivery, else of the next one."""
    blocked_s: float
    """Since its first failure."""
    behind: int
    """How many messages wait behind it."""


@dataclass(frozen=True, slots=True)
class GroupStats:
    """One group of one topic, summed over its partitions. Due messages count as ready."""

    group: str
    kind: str
    ready: int
    """New messages that can be delivered now, and those that wait for others (`blocked`)."""
    retry: int
    """Retries, and messages with an expired lease, that can be delivered now."""
    inflight: int
    waiting: tuple[Waiting, ...]
    dead: int
    oldest_age_s: float | None
    """Age of the oldest message that is not done, since it was published; None if all are."""
    paused: bool
    workers: int
    """Live worker processes of the group."""
    counters: dict[str, int] = field(default_factory=dict)
    """How often each verb happened to a message: publish, lease, succeed, fail, ..."""
    max_inflight: int | None = None
    """The most messages in flight, in all partitions of this topic; None for no limit."""
    rate_limit: str | None = None
    """The most deliveries per time, such as "100/s"; None for no limit."""

    tags: str = "*"
    """The tags it selects; "*" for everything."""
    other_tags: tuple[str, ...] = ()
    """What live workers of it named at their start that does not hold: one item for each."""
    ordered: bool = False
    """It gets one message of a message group at a time."""
    blocked: int = 0
    """In an ordered group: messages behind an unfinished one of their message group."""
    unordered: str = ""
    """In an ordered group: "queue" where messages without a message group are handled one at a time
    in the order of their partition, "parallel" where all at once."""
    oldest_ages_s: dict[str, float] = field(default_factory=dict)
    """The same of each state that has messages: "ready", "retry", "inflight", "waiting_retry" and
    "blocked". Of the first of each partition and delay level, of 200 blocked ones: so at least."""
    blocked_groups: int = 0
    """In an ordered group: message groups of which a message has failed and is not done."""
    blockers: tuple[Blocker, ...] = ()
    """Those that have been blocked for the longest time, ten at most."""
    busy: int = 0
    """How many slots of its live workers ran an attempt, a few seconds ago."""
    slots: int = 0
    """How many attempts they can run at once."""
    done_per_s: float = 0.0
    """How many messages a second they finished in the last minute, committed or dead."""
    late_s: float = 0.0
    """For how long what is due (a retry, the end of a lease, a delayed message) had not been moved
    by any process."""

    @property
    def drain_s(self) -> float | None:
        """How long what could run takes at the rate of the last minute, if nothing is published.

        None where nothing was finished.
        """
        due = self.ready + self.retry
        if not due:
            return 0.0
        return due / self.done_per_s if self.done_per_s else None

    @property
    def blocked_s(self) -> float:
        """For how long a message group has been blocked, at most; 0 if none is."""
        return max((blocker.blocked_s for blocker in self.blockers), default=0.0)

    @property
    def filtered(self) -> int:
        """Messages it did not get because it does not select their tags."""
        return self.counters.get("filtered", 0)

    @property
    def waiting_count(self) -> int:
        """Messages waiting at all levels."""
        return sum(level.count for level in self.waiting)


@dataclass(frozen=True, slots=True)
class TopicStats:
    """One topic, summed over its partitions."""

    topic: str
    partitions: int
    stored: int
    """Stored message bodies."""
    scheduled: int
    """Published with a delay and not due."""
    backlog: int
    """Waiting for the topic's first group."""
    groups: tuple[GroupStats, ...]
    max_messages: int | None = None
    """How many it may store; None for no limit."""
    bytes: int | None = None
    """Memory of the bodies, estimated; None if the server does not report it."""
    history_bytes: int = 0
    keep_s: float | None = None
    """For how long it keeps what was consumed; None: not at all."""
    kept: int = 0
    """Consumed messages that are kept."""
    kept_bytes: int = 0
    """What they take."""
    compress_from: int | None = None
    """From how many bytes on publishers compress a body; None: not at all."""
    compression_ratio: float | None = None
    """What a sample of its messages would take uncompressed, divided by what it takes; None where
    it does not compress, nothing is stored, or not only this topic was asked for."""


@dataclass(frozen=True, slots=True)
class Stats:
    """What `admin.stats` returns: sums over all topics, with details in `topics`."""

    namespace: str
    topics: tuple[TopicStats, ...]
    used_memory: int | None = None
    """Of the whole server, in bytes; None if it does not report it."""
    max_memory: int | None = None
    """The server's limit, in bytes; 0 for none, None if it does not report it."""
    open_transactions: int = 0
    """Unfinished ones of the namespace, including parked ones."""
    parked_transactions: int = 0
    """Those of the namespace that no checker could decide; they wait for an operator."""
    refused: tuple[str, ...] = ()
    """What live workers cannot lease from, and what cannot be read, with the reason."""
    parked_age_s: float | None = None
    """For how long the first of the parked transactions has been; None for none."""

    @property
    def groups_without_consumer(self) -> list[tuple[str, str]]:
        """(topic, group) of each push group without a live worker; unknown for simple groups."""
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
        """Messages in flight."""
        return sum(group.inflight for group in self.groups)

    @property
    def waiting(self) -> int:
        """Messages that wait for a retry."""
        return sum(group.waiting_count for group in self.groups)

    @property
    def filtered(self) -> int:
        """Messages that a group did not get because it does not select their tags."""
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
    """The newest; the error is its last one."""

    def with_more(self, other: "Cluster") -> "Cluster":
        """Those of another place, too."""
        newest = max(self, other, key=lambda cluster: (cluster.last_ms, cluster.sample_id))
        count, first_ms = self.count + other.count, min(self.first_ms, other.first_ms)
        return replace(newest, count=count, first_ms=first_ms)


@dataclass(frozen=True, slots=True)
class GroupState:
    """The state of one message in one group.

    Attributes:
        state: "ready", "inflight", "waiting_retry", "dead", "committed", "scheduled" or "filtered"
            (the group does not select its tag).
        attempt: The number of the current delivery, else of the next one; where all has ended, of
            the last one, or 0 if the history does not say.
        due_ms: Its due time, or the deadline of its lease, in server time; None for neither.
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
    """One event of a message's history.

    Attributes:
        at_ms: Server time in milliseconds since the epoch.
        event: The verb: publish, lease, succeed, fail, release, expire, promote, redrive, ...
        group: The consumer group; "" for events of no group.
        worker: Who did it.
        note: What became of the message, in words; "" if the verb says it all.
        attempt: The number of the delivery; None for other events.
        level: The delay level at which it waits from then on; None for none.
        due_ms: When it is due again, server time.
        error: The type and text of a failure.
        trace_id: The trace of the publish, or of the failed attempt; None if unknown.
        queue_seconds, buffer_seconds, handler_seconds: How long it was ready before this lease,
            was leased before its handler started, and was handled; None if unknown.
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
    """Where the message was, if it is no longer stored."""
    partition: int = 0
    queue_seconds: float | None = None
    buffer_seconds: float | None = None
    handler_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class MessageView:
    """What `admin.message` returns."""

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
    stored: bool = True
    """Whether its body is; else this is what its history says."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """What `admin.topics` returns for one topic."""

    name: str
    partitions: int
    groups: tuple[str, ...]
    max_messages: int | None = None
    """How many it may store; None for no limit."""
    max_history_bytes: int | None = None
    """How much history it keeps; None where that was not asked."""
    max_history_age_s: float | None = None
    """How long it keeps history; None for as long as there is room."""
    keep_s: float | None = None
    """For how long it keeps what was consumed; None: not at all."""
    keep_bytes: int | None = None
    """How much of it, where it keeps some."""
    unordered: str = "queue"
    """What ordered groups do with messages that have no message group: "queue" or "parallel"."""
    compress_from: int | None = None
    """From how many bytes on publishers compress a body; None: not at all."""


@dataclass(frozen=True, slots=True)
class AttemptForecast:
    """The messages with the same next delivery number, and what its failure would mean.

    Attributes:
        attempt: The number of their current delivery, else of the next one.
        count: How many there are.
        wait_before_s: How long they would wait after its failure with the present settings, in
            seconds without jitter; None: they would be dead.
        wait_after_s: The same with the new settings.
    """

    attempt: int
    count: int
    wait_before_s: float | None
    wait_after_s: float | None


@dataclass(frozen=True, slots=True)
class GroupForecast:
    """What `set_group(..., dry_run=True)` returns.

    Attributes:
        group: The group.
        settings: What would be set, as text.
        waiting: Messages that wait for a retry; their due times do not change.
        unfinished: Those, and all that are ready or in flight.
        dead_at_next_failure: How many of them would be dead if their next delivery fails, and
            would not be with the present settings. Each is delivered once more before that.
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
    """What `admin.groups` returns for one group; max_retries None is unlimited."""

    name: str
    kind: str
    max_retries: int | None
    policy: str
    ladder: str
    """A description: retries, deliveries and how long they take."""
    topics: tuple[str, ...]
    changed_by: str
    changed_at_ms: int = 0
    paused: bool = False
    pinned: tuple[str, ...] = ()
    """Settings that a starting worker cannot change: max_retries, policy, ..."""
    max_inflight: int | None = None
    """The most messages in flight, across all workers; None for no limit."""
    rate_limit: str | None = None
    """The most deliveries per time, across all workers, such as "100/s"; None for no limit."""
    forecast: GroupForecast | None = None
    """After a dry run: what the settings would mean for the group's present messages."""
    dlq_retention_s: float | None = None
    """How long dead letters are kept, in seconds; None: for ever."""
    ordered: bool = False
    tags: dict[str, str] = field(default_factory=dict)
    """What it takes of each topic that it does not take everything of."""
    tags_changed_by: str | None = None
    """Who named other tags than it had, last; None for nobody."""
    tags_changed_at_ms: int | None = None
    other_retries: tuple[str, ...] = ()
    """What live workers named at their start, and does not hold: the last start wins, or a pin."""


def date(at_ms: int) -> str:
    """ISO 8601 in UTC; of what damaged data has in place of a time, the number."""
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
