"""Operations on groups: list, set, pause, unsubscribe, delete."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rqretry.admin.context import AdminContext
from rqretry.admin.policy_preview import forecast
from rqretry.admin.topic_limits import kept_ms
from rqretry.admin.views import GroupInfo
from rqretry.catalog.group_rules import group_settings, in_words
from rqretry.core import retry_policy
from rqretry.core.catalog_records import BROADCAST, SIMPLE, GroupRecord
from rqretry.core.delay_levels import LevelTable
from rqretry.core.durations import Duration
from rqretry.core.errors import ConfigError, show
from rqretry.core.limits import DLQ, KEEP, UNLIMITED, Keep, check_group, check_topic
from rqretry.core.rates import Rate
from rqretry.core.retry_policy import RetryPolicy
from rqretry.core.worker_info import groups_of
from rqretry.protocol.command import Operation
from rqretry.protocol.maintain import LiveWorker


def groups(context: AdminContext) -> Operation[list[GroupInfo]]:
    """All consumer groups of the namespace, by name."""
    levels = yield from context.catalog.open()
    records = yield from context.catalog.groups.all()
    return [_group_info(record, levels) for record in records]


def group(context: AdminContext, name: str) -> Operation[GroupInfo]:
    """One consumer group.

    Args:
        name: The group's name.

    Raises:
        GroupNotFound: There is no such group.
    """
    checked = check_group(name)
    levels = yield from context.catalog.open()
    record = yield from context.catalog.groups.get(checked)
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
            Default unchanged.
        policy: A RetryPolicy, or its text such as "ladder:10s 30s"; its own max_retries
            is used if `max_retries` is not given. Default unchanged.
        max_inflight: The most messages in flight, across all workers; divided among the
            partitions of the group's topics. None or "none": no limit.
        rate_limit: The most deliveries per time, across all workers: "100/s", "100/m", "100/h",
            or a number per second. None or "none": no limit.
        dlq_retention: Dead letters older than this, from 60 s to 10 years, are purged.
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
    texts = in_words(settings)
    if dry_run:
        return (yield from _preview(context, group, settings, texts))
    return (yield from _set(context, "set_group", group, texts | {"pin": pin}, settings, pin=pin))


def _preview(
    context: AdminContext, group: str, settings: dict[str, Any], texts: dict[str, str]
) -> Operation[GroupInfo]:
    checked = check_group(group)
    levels = yield from context.catalog.open()
    before, after = yield from context.catalog.groups.preview(checked, **settings)
    places = yield from context.places(before)
    found = yield from forecast(before, after, levels, places, texts)
    return replace(_group_info(after, levels), forecast=found)


def pause(context: AdminContext, group: str) -> Operation[GroupInfo]:
    """Stop deliveries to a group; nothing is lost, running handlers finish.

    Args:
        group: The group's name.

    Raises:
        GroupNotFound: There is no such group.
        ConfigError: It is a broadcast group.
    """
    return (yield from _set(context, "pause", group, {}, {"paused": True}))


def resume(context: AdminContext, group: str) -> Operation[GroupInfo]:
    """Resume a paused group, at once.

    Args:
        group: The group's name.

    Raises:
        GroupNotFound: There is no such group.
    """
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
    checked = check_group(group)
    levels = yield from context.catalog.open()
    _refuse_broadcast((yield from context.catalog.groups.get(checked)))
    record = yield from context.catalog.groups.set(checked, pin=pin, **settings)
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
