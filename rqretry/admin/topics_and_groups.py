"""Operations on topics and groups: create, set, pause, unsubscribe, delete."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rqretry.admin.context import AdminContext
from rqretry.admin.policy_preview import forecast
from rqretry.admin.topic_limits import kept_ms, kept_of, limits_of
from rqretry.admin.views import GroupInfo, TopicInfo
from rqretry.catalog.group_rules import group_settings
from rqretry.core import retry_policy
from rqretry.core.catalog_records import (
    BROADCAST,
    SIMPLE,
    GroupRecord,
    TopicRecord,
)
from rqretry.core.delay_levels import LevelTable
from rqretry.core.durations import Duration
from rqretry.core.errors import ConfigError, InvalidArgument, TopicNotFound, show
from rqretry.core.limits import (
    DLQ,
    KEEP,
    UNLIMITED,
    Keep,
    check_group,
    check_partitions,
    check_topic,
    check_unordered,
)
from rqretry.core.rates import Rate
from rqretry.core.retry_policy import RetryPolicy
from rqretry.core.worker_info import groups_of
from rqretry.protocol.command import Operation
from rqretry.protocol.maintain import LiveWorker


def topics(context: AdminContext) -> Operation[list[TopicInfo]]:
    """All topics of the namespace, by name."""
    records = yield from context.catalog.topics.all()
    return [_topic_info(record) for record in records]


def create_topic(
    context: AdminContext, name: str, partitions: int | None = None
) -> Operation[TopicInfo]:
    """Create a topic, or return the existing one.

    Args:
        name: 1 to 127 characters of A-Z a-z 0-9 _ . -, the first no dot.
        partitions: 1 to 1024; default 1 for a new topic.

    Raises:
        InvalidArgument: A value is outside its limits, or the topic exists with another
            number of partitions.
    """
    count = None if partitions is None else check_partitions(partitions)
    record = yield from context.catalog.topics.create(check_topic(name), count)
    return _topic_info(record)


def set_topic(
    context: AdminContext,
    name: str,
    *,
    partitions: int | None = None,
    max_messages: int | Keep | None = KEEP,
    max_history_bytes: int | Keep | None = KEEP,
    max_history_age: Duration | Keep | None = KEEP,
    keep: Duration | Keep | None = KEEP,
    keep_bytes: int | Keep | None = KEEP,
    unordered: str | None = None,
) -> Operation[TopicInfo]:
    """Change a topic's settings, effective everywhere at once.

    Args:
        name: The topic.
        partitions: At least as many as it has, at most 1024. Publishers use the new ones when
            they are complete; workers and clients find them within seconds.
        max_messages: How many messages it may store; a publish that would exceed it stores
            nothing and raises QueueFull. Each partition gets an equal share, rounded up.
            0 or None: no limit.
        max_history_bytes: How much history it keeps, in equal shares of at least 64 KiB for each
            partition; 64 KiB to 1 TiB. None: 64 MiB.
        max_history_age: History older than this is forgotten, from a minute to 10 years. None: it
            is kept as long as there is room.
        keep: For how long what was consumed is kept, so that a group can go back to a time
            (`reset`), from a minute to 10 years. None: not at all.
        keep_bytes: How much of it is kept, over all partitions, each message with 256 bytes more
            than its body; the oldest goes first. None: 1 GiB.
        unordered: What its ordered groups do with messages that have no message group: "queue"
            (one at a time, in the order of their partition), which is the default, or
            "parallel". It is about what is published from then on.

    Raises:
        TopicNotFound: There is no such topic.
        InvalidArgument: A limit is outside its range, or there would be fewer partitions.
        ConfigError: Ordered messages of the topic are unfinished, a worker of a broadcast group
            is alive, or a group's max_inflight is less than the partitions would be.
    """
    checked, arguments = check_topic(name), {"topic": name}
    count = None if partitions is None else check_partitions(partitions)
    record = yield from context.catalog.store.topic(checked)
    limits: dict[str, Any] = limits_of(max_messages, max_history_bytes, max_history_age)
    limits |= kept_of(record, keep, keep_bytes)
    if unordered is not None:
        limits["unordered"] = check_unordered(unordered)
    if limits:
        record = yield from context.catalog.topics.set_limits(checked, **limits)
        yield from context.audit("set_topic", arguments | limits)
    if count is not None:
        yield from _refuse_broadcasting(context, record)
        record = yield from context.catalog.growth.grow(checked, count)
        yield from context.audit("set_topic", arguments | {"partitions": count})
    return _topic_info(record)


def _refuse_broadcasting(context: AdminContext, record: TopicRecord) -> Operation[None]:
    """A running broadcast consumer reads only the partitions that existed when it started."""
    for worker in (yield from context.live()):
        about = groups_of(worker.about)
        for group in record.groups:
            serves = group.name in about.groups and record.name in about.topics
            if group.kind == BROADCAST and serves:
                raise ConfigError(
                    f"topic {show(record.name)} has broadcast group {show(group.name)}, whose"
                    f" worker {show(worker.name)} is alive and would miss messages in new"
                    " partitions; stop its workers, and start them again after this"
                )


def delete_topic(
    context: AdminContext, name: str, *, force: bool = False, dry_run: bool = False
) -> Operation[int]:
    """Delete a topic and everything it stores; producers' lanes expire within an hour.

    Args:
        name: The topic. Publishing to it afterwards creates it again.
        force: Unsubscribe its groups first, even those with live workers (which will subscribe
            again); their dead letters of this topic are deleted too.
        dry_run: Only count.

    Returns:
        How many messages were stored.

    Raises:
        TopicNotFound: There is no such topic.
        InvalidArgument: Groups are subscribed, and `force` is not given.
    """
    record = yield from _deletable(context, check_topic(name))
    if record.members and not force:
        raise InvalidArgument(
            f"topic {show(name)} has groups: {', '.join(g.name for g in record.members)};"
            " unsubscribe them first, or force it"
        )
    stored = yield from context.catalog.topics.count_stored(record)
    if not dry_run:
        for group in record.members:
            yield from context.catalog.subscriptions.leave(group.name, name)
        yield from context.catalog.topics.remove(name)
        yield from context.audit("delete_topic", {"topic": name}, {"messages": stored})
    return stored


def _deletable(context: AdminContext, name: str) -> Operation[TopicRecord]:
    """The topic, including one whose deletion was interrupted."""
    yield from context.catalog.open()
    found = yield from context.catalog.topics.find(name)
    if found is None:
        raise TopicNotFound(
            f"there is no topic {show(name)} in namespace {show(context.catalog.namespace)}"
        )
    return found


def groups(context: AdminContext) -> Operation[list[GroupInfo]]:
    """All consumer groups of the namespace, by name."""
    levels = yield from context.catalog.open()
    records = yield from context.catalog.groups.all()
    return [_group_info(record, levels) for record in records]


def group(context: AdminContext, name: str) -> Operation[GroupInfo]:
    """One consumer group. Raises GroupNotFound."""
    levels = yield from context.catalog.open()
    record = yield from context.catalog.groups.get(check_group(name))
    others = tuple(_other_retries(record, (yield from context.live())))
    return replace(_group_info(record, levels), other_retries=others)


def _other_retries(record: GroupRecord, workers: Sequence[LiveWorker]) -> Iterator[str]:
    """What live workers named at their start, and does not hold."""
    for worker in workers:
        for group, most, policy in groups_of(worker.about).retries:
            shown = "unlimited" if most == UNLIMITED else most
            if group == record.name and most not in (None, record.max_retries):
                yield f"{worker.name} named max_retries={shown}"
            if group == record.name and policy not in (None, str(record.policy)):
                yield f"{worker.name} named policy={policy}"


def set_group(
    context: AdminContext,
    group: str,
    *,
    max_retries: int | str | None = None,
    policy: RetryPolicy | str | None = None,
    max_inflight: int | str | Keep | None = KEEP,
    rate_limit: Rate | Keep | None = KEEP,
    dlq_retention: Duration | Keep | None = KEEP,
    pin: bool | None = None,
    dry_run: bool = False,
) -> Operation[GroupInfo]:
    """Change a group's settings for all its instances, at once.

    Args:
        group: The group's name.
        max_retries: 0 or more, or "unlimited"; there are at most max_retries + 1 deliveries.
        policy: A RetryPolicy, or its text such as "ladder:10s 30s"; its own max_retries
            is used if `max_retries` is not given.
        max_inflight: The most messages in flight, across all workers; divided among the
            partitions of the group's topics. None or "none": no limit.
        rate_limit: The most deliveries per time, across all workers: "100/s", "100/m", "100/h",
            or a number per second. None or "none": no limit.
        dlq_retention: Dead letters older than this, from a minute to 10 years, are purged.
            None or "none": they are kept for ever, which is the default.
        pin: True: a worker that starts and names other values changes nothing and warns;
            False: its values win again. Applies to the settings named here, or to all of them
            if none is named. Default: unchanged.
        dry_run: Write nothing. Returns the group as it would be; its `forecast` says what the
            next failures of its messages would mean, before and after.

    Raises:
        GroupNotFound: There is no such group.
        InvalidArgument: A value is outside its limits.
        ConfigError: max_inflight is less than the number of partitions.
    """
    settings = group_settings(max_retries, policy, max_inflight, rate_limit)
    if dlq_retention is not KEEP:
        settings["dlq_retention_ms"] = kept_ms(dlq_retention, "dlq_retention")
    texts = {name: str(value) for name, value in settings.items()}
    if dry_run:
        return (yield from _preview(context, group, settings, texts))
    return (yield from _set(context, "set_group", group, texts | {"pin": pin}, settings, pin=pin))


def _preview(
    context: AdminContext, group: str, settings: dict[str, Any], texts: dict[str, str]
) -> Operation[GroupInfo]:
    levels = yield from context.catalog.open()
    before, after = yield from context.catalog.groups.preview(check_group(group), **settings)
    places = yield from context.places(before)
    found = yield from forecast(before, after, levels, places, texts)
    return replace(_group_info(after, levels), forecast=found)


def pause(context: AdminContext, group: str) -> Operation[GroupInfo]:
    """Stop deliveries to a group; nothing is lost, running handlers finish.

    Raises:
        GroupNotFound: There is no such group.
    """
    return (yield from _set(context, "pause", group, {}, {"paused": True}))


def resume(context: AdminContext, group: str) -> Operation[GroupInfo]:
    """Resume a paused group, at once. Raises GroupNotFound."""
    return (yield from _set(context, "resume", group, {}, {"paused": False}))


def _set(
    context: AdminContext,
    verb: str,
    group: str,
    arguments: dict[str, Any],
    settings: dict[str, Any],
    *,
    pin: bool | None = None,
) -> Operation[GroupInfo]:
    levels = yield from context.catalog.open()
    _refuse_broadcast((yield from context.catalog.groups.get(check_group(group))))
    record = yield from context.catalog.groups.set(check_group(group), pin=pin, **settings)
    yield from context.audit(verb, {"group": group} | arguments)
    return _group_info(record, levels)


def unsubscribe(
    context: AdminContext, group: str, topic: str, *, force: bool = False, dry_run: bool = False
) -> Operation[int]:
    """A group leaves a topic and gives up its unfinished messages and dead letters there.

    Args:
        group: The group's name.
        topic: The topic.
        force: Even if a worker consumes this topic for the group; it will subscribe again.
        dry_run: Only count.

    Returns:
        How many messages the group gave up (or would).

    Raises:
        GroupNotFound: There is no such group, or it is not subscribed.
        ConfigError: A live worker consumes the topic for the group, or the group consumes dead
            dead_letters.
    """
    checked, name = check_group(group), check_topic(topic)
    record = yield from context.catalog.groups.get(checked)
    if record.source:
        raise ConfigError(
            f"group {show(group)} consumes {show(DLQ + record.source)} and is subscribed to no"
            " topic; delete the group instead"
        )
    if dry_run:
        return (yield from context.catalog.groups.count_held(checked, [name]))
    if not force:
        yield from context.refuse_live(checked, "unsubscribe", [name])
    gone = yield from context.catalog.subscriptions.leave(checked, name)
    yield from context.audit("unsubscribe", {"group": group, "topic": topic}, {"messages": gone})
    return gone


def delete_group(
    context: AdminContext, group: str, *, force: bool = False, dry_run: bool = False
) -> Operation[int]:
    """Delete a group with its dead letters; it leaves all its topics.

    Args:
        group: The group's name.
        force: Even if its workers are alive; they will create it again.
        dry_run: Only count.

    Returns:
        How many messages the group gave up (or would).

    Raises:
        GroupNotFound: There is no such group.
        ConfigError: A worker of the group is alive.
    """
    record = yield from context.catalog.groups.get(check_group(group))
    if dry_run:
        return (yield from context.catalog.groups.count_held(group, record.topics))
    if not force:
        yield from context.refuse_live(group, "delete_group", record.topics)
    gone = yield from context.catalog.subscriptions.remove_group(group)
    yield from context.audit("delete_group", {"group": group}, {"messages": gone})
    return gone


def _refuse_broadcast(record: GroupRecord) -> None:
    if record.kind == BROADCAST:
        raise ConfigError(
            f"group {show(record.name)} is a broadcast group: nothing is leased or retried for it,"
            " so there is nothing to set or to pause; stop its workers, or change their options"
        )


def _topic_info(record: TopicRecord) -> TopicInfo:
    groups = tuple(group.name for group in record.members)
    return TopicInfo(
        record.name, record.partitions, groups, record.max_messages or None,
        record.max_history_bytes, record.max_history_ms / 1000 or None,
        record.keep_ms / 1000 or None, record.keep_bytes if record.keep_ms else None,
        record.unordered,
    )  # fmt: skip


def _group_info(record: GroupRecord, levels: LevelTable) -> GroupInfo:
    return GroupInfo(
        record.name,
        record.kind,
        None if record.max_retries < 0 else record.max_retries,
        str(record.policy),
        _describe_policy(record, levels),
        (DLQ + record.source,) if record.source else record.topics,
        record.changed_by,
        record.changed_at_ms,
        record.paused,
        record.pinned,
        record.max_inflight or None,
        record.rate_limit or None,
        ordered=record.ordered,
        tags=dict(record.tags),
        tags_changed_by=record.tags_by or None,
        tags_changed_at_ms=record.tags_at_ms or None,
        dlq_retention_s=record.dlq_retention_ms / 1000 if record.dlq_retention_ms else None,
    )


def _describe_policy(record: GroupRecord, levels: LevelTable) -> str:
    """How often and when messages are retried; simple consumers do not use the policy."""
    if record.kind != SIMPLE:
        return retry_policy.describe(record.policy, record.max_retries, levels.ms)
    if record.max_retries < 0:
        return "unlimited deliveries, each when the previous one was not acknowledged in time"
    retries = "1 retry" if record.max_retries == 1 else f"{record.max_retries} retries"
    deliveries = record.max_retries + 1
    return f"{retries}, so at most {deliveries} deliveries, each when the previous lease has ended"
