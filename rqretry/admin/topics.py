"""Operations on topics: list, create, set, delete."""

from typing import Any

from rqretry.admin.context import AdminContext
from rqretry.admin.topic_limits import compressed_of, kept_of, limits_of, with_both
from rqretry.admin.views import TopicInfo
from rqretry.catalog.topics import check_no_groups
from rqretry.core.catalog_records import BROADCAST, TopicRecord
from rqretry.core.durations import Duration
from rqretry.core.errors import ConfigError, TopicNotFound, show
from rqretry.core.limits import KEEP, Keep, check_partitions, check_topic, check_unordered
from rqretry.core.worker_info import groups_of
from rqretry.protocol.command import Operation


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
    compress_from: int | Keep | None = KEEP,
) -> Operation[TopicInfo]:
    """Change a topic's settings, effective everywhere at once.

    Args:
        name: The topic.
        partitions: At least as many as it has, at most 1024. Publishers use the new ones when
            they are complete; workers and clients find them within seconds. Default unchanged.
        max_messages: How many messages it may store; a publish that would exceed it stores
            nothing and raises QueueFull. Each partition gets an equal share, rounded up.
            0 or None: no limit.
        max_history_bytes: How much history it keeps, in equal shares of at least 64 KiB for each
            partition; 64 KiB to 1 TiB. None: 64 MiB.
        max_history_age: History older than this is forgotten, from 60 s to 10 years. None: it
            is kept as long as there is room.
        keep: For how long what was consumed is kept, so that a group can go back to a time
            (`reset`), from 60 s to 10 years. None: not at all.
        keep_bytes: How much of it is kept, over all partitions, each message with 256 bytes more
            than its body; the oldest goes first. None: 1 GiB.
        unordered: What its ordered groups do with messages that have no message group: "queue"
            (one at a time, in the order of their partition), which is the default, or
            "parallel". It is about what is published from then on.
        compress_from: Publishers compress bodies that take so many bytes encoded, or more, where
            that makes them smaller. Whoever reads or publishes them needs rqretry[zstd].
            0 or None: they are stored as they are.

    Raises:
        TopicNotFound: There is no such topic.
        InvalidArgument: A limit is outside its range, or there would be fewer partitions.
        ConfigError: Ordered messages of the topic are unfinished, a worker of a broadcast group
            is alive, or a group's max_inflight is less than the partitions would be.
    """
    checked, arguments = check_topic(name), {"topic": name}
    count = None if partitions is None else check_partitions(partitions)
    limits: dict[str, Any] = limits_of(max_messages, max_history_bytes, max_history_age)
    limits |= kept_of(keep, keep_bytes) | compressed_of(compress_from)
    if unordered is not None:
        limits["unordered"] = check_unordered(unordered)
    record = yield from context.catalog.store.topic(checked)
    limits |= with_both(record, limits)
    if count is not None:
        yield from _refuse_broadcasting(context, record)
        if limits:  # none is set where the growth will be refused
            yield from context.catalog.growth.check(checked, count)
    if limits:
        record = yield from context.catalog.topics.set_limits(checked, **limits)
        yield from context.audit("set_topic", arguments | limits)
    if count is not None:
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
    if not force:
        check_no_groups(record)
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


def _topic_info(record: TopicRecord) -> TopicInfo:
    groups = tuple(group.name for group in record.members)
    return TopicInfo(
        record.name, record.partitions, groups, record.max_messages or None,
        record.max_history_bytes, record.max_history_ms / 1000 or None,
        record.keep_ms / 1000 or None, record.keep_bytes if record.keep_ms else None,
        record.unordered, record.compress_from or None,
    )  # fmt: skip
