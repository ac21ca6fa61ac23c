"""What `status --watch` shows: the ladder with its next due times, workers, and what has died."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rqretry.admin.dead_letters import clusters
from rqretry.admin.results import WorkerInfo
from rqretry.admin.views import Cluster, GroupStats, Stats
from rqretry.cli.output import Part, date, rows_of, table_of
from rqretry.client import Client
from rqretry.core.durations import spell
from rqretry.core.parts import parts_of

_MOST_CLUSTERS = 5
MOST_WATCHED = 200
"""Groups on one page; rqretry status has all of them."""


def worst_first(stats: Stats) -> Stats:
    """The topics of the groups that need somebody most, and these groups in their order."""
    pairs = [(topic, group) for topic in stats.topics for group in topic.groups]
    pairs.sort(key=lambda pair: _need(pair[1]), reverse=True)
    by_topic: dict[str, list[GroupStats]] = {}
    for topic, group in pairs[:MOST_WATCHED]:
        by_topic.setdefault(topic.topic, []).append(group)
    known = {topic.topic: topic for topic in stats.topics}
    unread = [topic for topic in stats.topics if not topic.groups]
    worst = [replace(known[name], groups=tuple(groups)) for name, groups in by_topic.items()]
    return replace(stats, topics=(*worst, *unread[:MOST_WATCHED]))


def _need(group: GroupStats) -> tuple[bool, bool, bool, float, int]:
    """What nobody works on, what fails, what is dead; then by age and number."""
    due = group.ready + group.retry
    stands = group.paused or (group.kind == "push" and not group.workers)
    fails = bool(group.waiting_count or group.blocked_groups or group.retry)
    return bool(due and stands), fails, bool(group.dead), group.oldest_age_s or 0.0, due


def details(client: Client, stats: Stats) -> Iterator[Part]:
    """Below the numbers of the groups; nothing if there is nothing to show."""
    yield from _ladder(client, stats)
    yield from _workers(client.admin.workers())
    for group in dict.fromkeys(g.group for g in stats.groups if g.dead):
        found = parts_of(client).store.perform(clusters(parts_of(client.admin).operations, group))
        yield from _clusters(group, found)


def _ladder(client: Client, stats: Stats) -> Iterator[Part]:
    now_ms = parts_of(client).store.clock.now_ms()
    rows = [
        (topic.topic, group.group, rung.level, rung.count, _due(rung.next_due_ms, now_ms))
        for topic in stats.topics
        for group in topic.groups
        for rung in group.waiting
    ]
    if rows:
        yield ""
        yield table_of(["topic", "group", "#level", "#waiting", "next due"], rows)


def _due(due_ms: int, now_ms: int) -> str:
    when = date(due_ms) or ""
    return f"{when}, in {spell(round((due_ms - now_ms) / 1000))}" if due_ms > now_ms > 0 else when


def _workers(workers: Sequence[WorkerInfo]) -> Iterator[Part]:
    if workers:
        yield ""
        rows = rows_of(workers, "name groups pid since_ms")
        yield table_of(["worker", "groups", "#pid", "since"], rows)


def _clusters(group: str, found: Sequence[Cluster]) -> Iterator[Part]:
    yield ""
    rows = [
        (group, k.fingerprint, k.count, date(k.last_ms), k.error) for k in found[:_MOST_CLUSTERS]
    ]
    yield table_of(["dead letters of", "fingerprint", "#count", "last", "error"], rows)
