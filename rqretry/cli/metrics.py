"""The numbers of `admin.stats` in the text format of Prometheus (version 0.0.4)."""

from collections.abc import Iterable, Iterator

from rqretry.admin.views import GroupStats, Stats, TopicStats
from rqretry.observability.prometheus_text import Family, Sample, build_info, expose

_NEVER_YET = dict.fromkeys(("dead", "expire", "fail", "lease", "stale", "succeed"), 0)
"""Exported as 0 before they happen: Prometheus sees no increase in a new series."""


def render(stats: Stats, *, evicts: bool, idle: int = 0) -> str:
    """All metrics of a namespace, each with its help and type; so many idle groups are left out."""
    return expose(_families(stats, float(evicts), idle), {"namespace": stats.namespace})


def _families(stats: Stats, evicts: float, idle: int) -> Iterator[Family]:
    topics = stats.topics
    pairs = [(topic, group) for topic in topics for group in topic.groups]
    yield from _group_families(pairs, stats.parked_age_s)
    yield from _work_families(pairs)
    yield from _topic_families(topics)
    yield build_info()
    used, most = stats.used_memory, stats.max_memory
    text = "Memory that the Redis server uses."
    yield "rqretry_redis_used_memory_bytes", "gauge", text, [] if used is None else [({}, used)]
    text = "The server's maxmemory; 0 for none."
    yield "rqretry_redis_max_memory_bytes", "gauge", text, [] if most is None else [({}, most)]
    text = "Transactions that are not decided, including parked ones."
    yield "rqretry_open_transactions", "gauge", text, [({}, float(stats.open_transactions))]
    text = "Transactions that are not asked about any more and wait for an operator."
    yield "rqretry_parked_transactions", "gauge", text, [({}, float(stats.parked_transactions))]
    text = "Groups without messages that have done nothing for ten minutes, and are left out."
    yield "rqretry_idle_groups", "gauge", text, [({}, float(idle))]
    text = "1 while a server throws messages away when it is full (maxmemory-policy)."
    yield "rqretry_redis_evicts", "gauge", text, [({}, evicts)]


def _group_families(
    pairs: list[tuple[TopicStats, GroupStats]], parked_age_s: float | None
) -> Iterator[Family]:
    def each(value: str) -> list[Sample]:
        return [(_of(t, g), float(getattr(g, value) or 0)) for t, g in pairs]

    text = "Messages of a group by state; what is due counts as ready or retry."
    states = [(_of(t, g) | {"state": s}, n) for t, g in pairs for s, n in _states(g)]
    yield "rqretry_messages", "gauge", text, states
    text = "Messages that could be delivered now and have not been."
    due = [(_of(t, g), float(g.ready + g.retry)) for t, g in pairs]
    yield "rqretry_due_messages", "gauge", text, due
    text = "Retries that wait at a delay level and are not due yet."
    rungs = [
        (_of(t, g) | {"level": str(rung.level)}, float(rung.count))
        for t, g in pairs
        for rung in g.waiting
    ]
    yield "rqretry_waiting_messages", "gauge", text, rungs
    text = (
        "Age of the oldest message in each state that has some, since it was published; parked:"
        " for how long the first transaction has been."
    )
    ages = [
        (_of(t, g) | {"state": state}, age)
        for t, g in pairs
        for state, age in sorted(g.oldest_ages_s.items())
    ]
    parked = [] if parked_age_s is None else [({"state": "parked"}, parked_age_s)]
    yield "rqretry_oldest_age_seconds", "gauge", text, [*ages, *parked]
    ordered = [(topic, group) for topic, group in pairs if group.ordered]
    text = "Messages of an ordered group behind an unfinished one of their message group."
    behind = [(_of(t, g), float(g.blocked)) for t, g in ordered]
    yield "rqretry_blocked_messages", "gauge", text, behind
    text = "Message groups of an ordered group of which a message has failed and is not done."
    blocked = [(_of(t, g), float(g.blocked_groups)) for t, g in ordered]
    yield "rqretry_blocked_message_groups", "gauge", text, blocked
    text = "How long the message group that has been blocked for longest has been; 0 for none."
    longest = [(_of(t, g), g.blocked_s) for t, g in ordered]
    yield "rqretry_blocked_seconds", "gauge", text, longest
    yield "rqretry_workers", "gauge", "Live worker processes of a group.", each("workers")
    yield "rqretry_paused", "gauge", "1 for a group that is paused.", each("paused")
    text = "How often each verb happened to a message of a group."
    verbs = [
        (_of(t, g) | {"verb": verb}, float(count))
        for t, g in pairs
        for verb, count in sorted({**_NEVER_YET, **g.counters}.items())
    ]
    yield "rqretry_verbs_total", "counter", text, verbs


def _work_families(pairs: list[tuple[TopicStats, GroupStats]]) -> Iterator[Family]:
    """How busy the workers are, and whether upkeep is done."""
    slots = [(topic, group) for topic, group in pairs if group.slots]
    text = "Attempts that the live workers of a group can run at once; busy: that they did lately."
    states = [
        (_of(t, g) | {"state": state}, float(count))
        for t, g in slots
        for state, count in (("busy", g.busy), ("free", g.slots - g.busy))
    ]
    yield "rqretry_slots", "gauge", text, states
    text = (
        "How long what could run takes at the rate of the last minute, if nothing is published;"
        " left out where nothing was finished."
    )
    drains = [(_of(t, g), g.drain_s) for t, g in pairs]
    known = [(labels, seconds) for labels, seconds in drains if seconds is not None]
    yield "rqretry_drain_seconds", "gauge", text, known
    text = "For how long what is due (retries, ends of leases, delayed messages) was not moved."
    yield "rqretry_upkeep_late_seconds", "gauge", text, [(_of(t, g), g.late_s) for t, g in pairs]


def _topic_families(topics: Iterable[TopicStats]) -> Iterator[Family]:
    families = {
        "stored": ("rqretry_stored_messages", "Message bodies that a topic keeps."),
        "scheduled": ("rqretry_scheduled_messages", "Published with a delay and not due."),
        "backlog": ("rqretry_backlog_messages", "Messages that wait for a first group."),
        "max_messages": ("rqretry_max_messages", "How many messages a topic may store."),
        "bytes": ("rqretry_stored_bytes", "What the bodies of a topic take, by a sample."),
        "history_bytes": ("rqretry_history_bytes", "What the history of a topic takes."),
    }
    for field, (name, text) in families.items():
        values = [({"topic": topic.topic}, getattr(topic, field)) for topic in topics]
        yield name, "gauge", text, [pair for pair in values if pair[1] is not None]


def _states(group: GroupStats) -> list[tuple[str, float]]:
    return [
        ("ready", group.ready),
        ("retry", group.retry),
        ("inflight", group.inflight),
        ("waiting_retry", group.waiting_count),
        ("dead", group.dead),
    ]


def _of(topic: TopicStats, group: GroupStats) -> dict[str, str]:
    return {"topic": topic.topic, "group": group.group}
