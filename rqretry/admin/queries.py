"""Operations that only read: statistics, one message, workers, leases, the audit record."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn

from rqretry.admin.context import AdminContext
from rqretry.admin.explain import outcomes, states, view_from_history, why_half
from rqretry.admin.results import AuditEntry, InflightMessage, WorkerInfo
from rqretry.admin.statistics import Live, gather_stats
from rqretry.admin.timeline import (
    holders_of,
    ids_of_key,
    read_timeline,
    with_interruptions,
    with_record,
)
from rqretry.admin.views import GroupState, MessageView, Stats, TimelineEvent
from rqretry.catalog.catalog import Catalog
from rqretry.core.catalog_records import TopicRecord
from rqretry.core.dead_letter import born
from rqretry.core.envelope import Envelope, decode
from rqretry.core.errors import CodecError, MessageNotFound, show
from rqretry.core.limits import check_count, check_group, check_keys, check_message_id
from rqretry.core.message_id import born_ms, partition_of
from rqretry.core.route import RouteGroup
from rqretry.core.worker_info import groups_of
from rqretry.maintenance.due import Due
from rqretry.protocol import transaction
from rqretry.protocol.audit_log import notes
from rqretry.protocol.command import Operation
from rqretry.protocol.inspect import Peeked, peek, read_due
from rqretry.protocol.keys import PartitionKeys
from rqretry.protocol.operate import scan
from rqretry.protocol.publish import scheduled_member

_NO_GROUP = RouteGroup("-", 0, "")


def stats(
    context: AdminContext, topic: str | None = None, group: str | None = None
) -> Operation[Stats]:
    """How many messages are in which state; due messages count as ready, moved or not.

    Args:
        topic: Of this topic; default all.
        group: Of this group; default all.

    Raises:
        TopicNotFound, GroupNotFound: There is no such topic or group.
    """
    records = yield from context.topics_of(topic, group)
    abouts = [worker.about for worker in (yield from context.live())]
    gathered = gather_stats(
        context.catalog, records, group, abouts, context.move_due, sampled=topic is not None
    )
    return (yield from gathered)


def message(context: AdminContext, id: str) -> Operation[MessageView]:  # noqa: A002 - the name of the contract
    """The state of a message in each group, and its history as far as it is kept.

    Args:
        id: The message.

    Raises:
        MessageNotFound: Nothing is stored under this id: it was committed by all groups,
            purged, or never published to this namespace.
    """
    view = yield from _look(context, check_message_id(id))
    return view or _not_stored(context, id)


def remembered(context: AdminContext, id: str) -> Operation[MessageView]:  # noqa: A002 - the name of the contract
    """A message that is no longer stored, from its history: without its body.

    Args:
        id: The message.

    Raises:
        MessageNotFound: No history names it.
    """
    checked = check_message_id(id)
    return view_from_history(checked, (yield from _past(context, checked)))


def timeline(context: AdminContext, id: str) -> Operation[list[TimelineEvent]]:  # noqa: A002 - the name of the contract
    """What happened to a message, oldest first, as far as the history is kept.

    Also of a message that all its groups have committed, while its history is kept.

    Args:
        id: The message.

    Raises:
        MessageNotFound: It is not stored, and no history names it.
    """
    checked = check_message_id(id)
    view = yield from _look(context, checked)
    return list(view.timeline) if view else (yield from _past(context, checked))


def explain(context: AdminContext, id: str) -> Operation[dict[str, str]]:  # noqa: A002 - the name of the contract
    """Why a message is not running now: one sentence for each group.

    The group is "-" if the topic has none.

    Args:
        id: The message.

    Raises:
        MessageNotFound: It is not stored, and no history names it.
    """
    checked = check_message_id(id)
    view = yield from _look(context, checked)
    if view is not None:
        return {state.group: state.explain for state in view.states}
    return outcomes((yield from _past(context, checked)))


def find(context: AdminContext, key: str) -> Operation[list[str]]:
    """The ids of messages that were published with a message key.

    All stored messages, and of the others (committed, purged) those in the newest 50,000
    history entries of each partition.

    Args:
        key: One of the `keys` of the messages.

    Raises:
        InvalidArgument: It is not a valid message key.
    """
    (wanted,) = check_keys([key])
    found: list[str] = []
    for record in (yield from context.catalog.topics.all()):
        for partition in range(record.partitions):
            keys = context.catalog.partition(record.name, partition)
            found += yield from ids_of_key(keys, wanted)
    return found


_DOING = ("slots", "busy", "failed", "restarts", "blocked_s")


def workers(context: AdminContext) -> Operation[list[WorkerInfo]]:
    """The live worker processes, by name."""
    yield from context.catalog.open()
    rows = []
    for worker in (yield from context.live()):
        about = groups_of(worker.about)
        facts, host = about.facts, worker.name.partition(":")[0]
        did = [_whole(facts.get(name)) for name in _DOING]
        rows.append(
            WorkerInfo(
                worker.name, about.groups, about.topics, about.pid, worker.since_ms, host,
                str(facts.get("version", "")), str(facts.get("service", "")), *did,
            )
        )  # fmt: skip
    return sorted(rows, key=lambda row: row.name)


def _whole(value: object) -> int:
    """What a worker of any version says as a number."""
    return int(value) if isinstance(value, int | float) else 0


def inflight(context: AdminContext, group: str) -> Operation[list[InflightMessage]]:
    """The messages of a group that are in flight, by deadline.

    Args:
        group: The group's name.

    Raises:
        GroupNotFound: There is no such group.
    """
    record = yield from context.catalog.groups.get(check_group(group))
    found = []
    for topic, partition, keys in (yield from context.places_now(record)):
        rows = yield from scan(
            keys, keys.inflight, lambda page: zip(page.ids, page.attempts, page.due_ms, strict=True)
        )
        by = yield from holders_of(keys.partition, group, [id_ for id_, _, _ in rows])
        found += [
            InflightMessage(id_, topic, partition, attempt, due_ms or 0, *by.get(id_, ("", None)))
            for id_, attempt, due_ms in rows
        ]
    return sorted(found, key=lambda row: (row.deadline_ms, row.id))


def audit(context: AdminContext, count: int = 100) -> Operation[list[AuditEntry]]:
    """The newest audit records, newest first.

    Args:
        count: How many, 1 to 10,000; default 100.

    Raises:
        InvalidArgument: `count` is outside its limits.
    """
    most = check_count(count, name="count", maximum=10_000)
    found = yield notes(context.catalog.keys, count=most)
    return [AuditEntry(*entry) for entry in found]


def _look(context: AdminContext, id_: str) -> Operation[MessageView | None]:
    records = yield from context.catalog.topics.all()
    live = Live([worker.about for worker in (yield from context.live())])
    # The partition that its id selects, then all: partitions may have been added since.
    likely = [(r, partition_of(id_, r.partitions)) for r in records]
    candidates = [*likely, *((r, n) for r in records for n in range(r.partitions))]
    for record, partition in dict.fromkeys(candidates):
        served = {g.name for g in record.members if live.serves(g.name, record.name)}
        view = yield from _view(context, record, partition, id_, served)
        if view is not None:
            return view
    return None


def _past(context: AdminContext, id_: str) -> Operation[list[TimelineEvent]]:
    events: list[TimelineEvent] = []
    for record in (yield from context.catalog.topics.all()):
        likely = partition_of(id_, record.partitions)
        # Elsewhere if it had a message group, or partitions were added since.
        for partition in dict.fromkeys((likely, *range(record.partitions))):
            keys = context.catalog.partition(record.name, partition)
            found = yield from read_timeline(keys, id_, born_ms(id_))
            if found:
                place = {"topic": record.name, "partition": partition}
                events += [replace(event, **place) for event in found]
                break
    ordered = sorted(events, key=lambda event: event.at_ms)
    found = yield from with_interruptions(context.catalog, ordered)
    return found or _not_stored(context, id_)


def _not_stored(context: AdminContext, id_: str) -> NoReturn:
    raise MessageNotFound(
        f"no message {show(id_)} is stored in namespace {show(context.catalog.namespace)}: it was"
        " committed by every group, purged, or never published here"
    )


def _view(
    context: AdminContext, topic: TopicRecord, partition: int, id_: str, served: Collection[str]
) -> Operation[MessageView | None]:
    """The message, if this partition stores it; `served` are the groups with a live worker."""
    catalog, groups = context.catalog, topic.route.groups or (_NO_GROUP,)
    keys = catalog.partition(topic.name, partition)
    places = [catalog.group_keys(topic.name, partition, group.name) for group in groups]
    peeked: list[Peeked] = yield [peek(place, id_) for place in places]
    if not peeked[0].stored:
        return None
    try:
        envelope = decode(peeked[0].body)
    except CodecError:
        envelope = Envelope(None, None, (), {}, None, None)
    peeked = yield from _with_schedule(keys, id_, envelope, peeked)
    now_ms, scheduled_ms = peeked[0].now_ms, peeked[0].scheduled_ms
    late = [keys] if scheduled_ms is not None and scheduled_ms <= now_ms else []
    due = [
        Due(place)
        for place, p in zip(places, peeked, strict=True)
        if place.group not in served and _is_due(p)
    ]
    if (yield from context.move_due(due, late)):
        peeked = yield [peek(place, id_) for place in places]
        peeked = yield from _with_schedule(keys, id_, envelope, peeked)
    timeline = yield from read_timeline(keys, id_, born(id_, envelope))
    found = tuple(states(groups, peeked, timeline, served, envelope.tag or ""))
    half: transaction.StoredHalf | None = yield transaction.half_of(keys, id_)
    if half is not None:
        why = yield from _why_half(catalog, half, peeked[0].now_ms)
        found = (GroupState("-", "prepared", 1, None, why, ()),)
    return MessageView(
        id=id_,
        topic=topic.name,
        partition=partition,
        body=envelope.body,
        tag=envelope.tag,
        keys=envelope.keys,
        headers=dict(envelope.headers),
        born_ms=born(id_, envelope),
        states=found,
        timeline=tuple((yield from with_interruptions(catalog, with_record(timeline, found)))),
    )


def _with_schedule(
    keys: PartitionKeys, id_: str, envelope: Envelope, peeked: list[Peeked]
) -> Operation[list[Peeked]]:
    """The same; the member of a scheduled message includes its tag."""
    if envelope.tag is None:
        return peeked
    due_ms = yield read_due(keys, scheduled_member(id_, envelope.tag))
    return [p._replace(scheduled_ms=due_ms) for p in peeked]


def _is_due(p: Peeked) -> bool:
    """Whether its lease here has ended, or its wait."""
    times = [due_ms for _, due_ms in p.waiting]
    return any(ms is not None and ms <= p.now_ms for ms in (p.deadline_ms, *times))


def _why_half(catalog: Catalog, half: transaction.StoredHalf, now_ms: int) -> Operation[str]:
    record: transaction.Record | None = None
    with suppress(CodecError):
        record = yield transaction.read(catalog.keys, half.transaction)
    next_ms: int | None = None
    if record is not None:
        group = record.terms.group
        next_ms = yield transaction.next_check(catalog.keys, group, record.id)
    return why_half(record, next_ms, now_ms)
