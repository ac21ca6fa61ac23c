"""What somebody on call must see: one judgement, for the dashboard, `status` and the alert rules.

Names, severities and thresholds are those of deploy/alerts.yaml, which a test compares.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rqretry.admin.results import WorkerInfo
from rqretry.admin.views import GroupStats, Stats, TopicStats
from rqretry.core.durations import spell

PAGE, TICKET = "page", "ticket"
ALERTS = {
    "RedisEvicts": PAGE,
    "RedisNearlyFull": PAGE,
    "TransactionParked": TICKET,
    "TopicWithoutGroup": TICKET,
    "TopicNearlyFull": PAGE,
    "MessageGroupBlocked": PAGE,
    "GroupWithoutWorker": PAGE,
    "GroupPaused": TICKET,
    "BacklogOld": PAGE,
    "DeadLettersGrow": PAGE,
    "EverythingFails": PAGE,
    "LagGrows": PAGE,
    "LeasesExpire": TICKET,
    "UpkeepMissing": PAGE,
    "VersionsDiffer": TICKET,
}
"""The alert rules that are judged here, without "Rqretry", and their severity."""
UNREADABLE, STUCK = "Unreadable", "WorkerStuck"
"""What workers cannot lease from, and those that do nothing: alerts are on the worker itself."""
_NAMED = 3
NEARLY_FULL = 0.9
LAG, BACKLOG_OLD_S = 100, 900
BLOCKED_S = 300
UPKEEP_S = 120
FAILED, EXPIRED = 10, 10
"""More failures without a success, and more ended leases, than these within a window."""
STEADY_S = 300
"""How much must have been seen before something counts as not happening, or as growing."""


class Moment(NamedTuple):
    """What a group had due, and had counted, at some time."""

    due: int = 0
    succeed: int = 0
    fail: int = 0
    dead: int = 0
    lease: int = 0
    expire: int = 0


@dataclass(frozen=True, slots=True)
class Earlier:
    """Groups as they were `seconds` ago, by topic and group."""

    seconds: float = 0.0
    groups: Mapping[tuple[str, str], Moment] | None = None


@dataclass(frozen=True, slots=True)
class Incident:
    """One thing that somebody must look at.

    Attributes:
        name: As that of the alert rule without "Rqretry".
        text: What is the case, in one line.
        weight: How bad it is, among those of the same name.
    """

    name: str
    text: str
    topic: str = ""
    group: str = ""
    weight: float = 0.0

    @property
    def severity(self) -> str:
        """As that of the alert: "page" or "ticket"."""
        return ALERTS.get(self.name, PAGE)


@dataclass(frozen=True, slots=True)
class OtherVersion:
    """Live workers of another version than most.

    Attributes:
        usual: The version of most; of as many of each the newest.
        workers: Those of another one, by name.
    """

    usual: str
    workers: Mapping[str, str]

    @property
    def text(self) -> str:
        """In one line."""
        named = [f"{name} runs {version}" for name, version in self.workers.items()]
        more = len(named) - _NAMED
        rest = f", and {more} more do not" if more > 0 else ""
        return f"{', '.join(named[:_NAMED])}{rest}; the other workers run {self.usual}"


def other_version(workers: Sequence[WorkerInfo]) -> OtherVersion | None:
    """Who runs another version of rqretry than most; None where all run the same."""
    counts = Counter(worker.version for worker in workers if worker.version)
    if len(counts) <= 1:
        return None
    usual = max(counts, key=lambda version: (counts[version], _in_order(version)))
    others = {w.name: w.version for w in workers if w.version not in ("", usual)}
    return OtherVersion(usual, others)


def _in_order(version: str) -> list[tuple[int, str]]:
    """A version, to be compared."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in version.split(".")]


def moment(group: GroupStats) -> Moment:
    """What a group has due and has counted now."""
    counted = [group.counters.get(verb, 0) for verb in Moment._fields[1:]]
    return Moment(group.ready + group.retry, *counted)


def incidents(
    stats: Stats,
    *,
    evicts: str | None = None,
    earlier: Earlier | None = None,
    workers: Sequence[WorkerInfo] = (),
) -> list[Incident]:
    """Whatever is wrong, the worst first.

    Args:
        stats: The numbers of now.
        evicts: What is wrong with the server's settings, if anything is.
        earlier: What is compared with, for rates; without it they are not judged.
        workers: Those that live.
    """
    found = [*_server(stats, evicts)]
    if (differ := other_version(workers)) is not None:
        found.append(Incident("VersionsDiffer", differ.text, weight=len(differ.workers)))
    for one in workers:
        if one.blocked_s:
            text = f"the event loop of {one.name} has stood still for {spell(one.blocked_s)}"
            found.append(Incident(STUCK, text, weight=one.blocked_s))
    for topic in stats.topics:
        found += _topic(topic)
        for group in topic.groups:
            found += _group(topic.topic, group, earlier or Earlier())
    return sorted(found, key=lambda one: (one.severity != PAGE, one.name, -one.weight))


def _server(stats: Stats, evicts: str | None) -> Iterator[Incident]:
    if evicts:
        yield Incident("RedisEvicts", evicts)
    if stats.max_memory and (stats.used_memory or 0) > NEARLY_FULL * stats.max_memory:
        part = (stats.used_memory or 0) / stats.max_memory
        text = f"Redis uses {part:.0%} of its maxmemory; at 100 % publishing is refused"
        yield Incident("RedisNearlyFull", text, weight=part)
    if stats.parked_transactions:
        text = f"{stats.parked_transactions} were given up and wait for a decision"
        yield Incident("TransactionParked", text)
    for reason in stats.refused:
        yield Incident(UNREADABLE, reason)


def _topic(topic: TopicStats) -> Iterator[Incident]:
    if topic.backlog and not topic.groups:
        text = f"{topic.backlog} messages wait for a first group"
        yield Incident("TopicWithoutGroup", text, topic.topic, weight=topic.backlog)
    if topic.max_messages and topic.stored > NEARLY_FULL * topic.max_messages:
        part = topic.stored / topic.max_messages
        text = f"has {part:.0%} of the {topic.max_messages} messages it may store"
        yield Incident("TopicNearlyFull", text, topic.topic, weight=part)


def _group(topic: str, group: GroupStats, earlier: Earlier) -> Iterator[Incident]:
    def found(name: str, text: str, weight: float) -> Incident:
        return Incident(name, text, topic, group.group, weight)

    due = group.ready + group.retry
    before = (earlier.groups or {}).get((topic, group.group))
    leased = before is not None and group.counters.get("lease", 0) > before.lease
    if group.blocked_s > BLOCKED_S:
        for_, (first, *_) = spell(round(group.blocked_s)), group.blockers
        text = f"message {first.id} has failed for {for_}; {first.behind} wait behind it"
        yield found("MessageGroupBlocked", text, group.blocked_s)
    if due and not group.workers and group.kind == "push" and not leased:
        text = f"{due} messages could run, and no worker lives"
        yield found("GroupWithoutWorker", text, due)
    if group.late_s > UPKEEP_S and (group.workers or group.kind != "push"):
        text = (
            f"what is due has not been moved for {spell(round(group.late_s))}: no process does it"
        )
        yield found("UpkeepMissing", text, group.late_s)
    if due and group.paused:
        yield found("GroupPaused", f"{due} messages could run, and it is paused", due)
    old = group.oldest_age_s or 0.0
    if old > BACKLOG_OLD_S and group.workers and not group.paused:
        text = f"a message has been ready for {spell(round(old))}, though workers live"
        yield found("BacklogOld", text, old)
    if before is not None:
        yield from _changes(topic, group, before, earlier.seconds)


def _changes(topic: str, group: GroupStats, before: Moment, seconds: float) -> Iterator[Incident]:
    """What has happened since `before`, and what has not."""
    now, lately = moment(group), f"in {spell(max(1, round(seconds)))}"
    due, done, failed, dead, _, expired = (a - b for a, b in zip(now, before, strict=True))

    def found(name: str, text: str, weight: float) -> Incident:
        return Incident(name, text, topic, group.group, weight)

    if dead > 0:
        yield found("DeadLettersGrow", f"{dead} more dead letters {lately}", dead)
    waiting = group.waiting_count
    if done <= 0 and (failed > FAILED or (waiting > FAILED and seconds >= STEADY_S)):
        text = f"{failed} attempts failed {lately}, none succeeded; {waiting} wait for a retry"
        yield found("EverythingFails", text, failed)
    if now.due > LAG and due > 0 and seconds >= STEADY_S and not group.paused:
        text = f"{now.due} messages could run, {due} more than {lately[3:]} ago"
        yield found("LagGrows", text, now.due)
    if expired > EXPIRED:
        text = f"{expired} leases ended without a result {lately}"
        yield found("LeasesExpire", text, expired)
