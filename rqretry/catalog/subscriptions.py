"""Subscriptions: a group joins topics, and leaves them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rqretry.catalog import group_rules
from rqretry.catalog.drain_group import drain
from rqretry.catalog.store import CatalogPart, without
from rqretry.core.catalog_records import DlqGroup, GroupRecord, TopicRecord
from rqretry.core.errors import ConfigError, GroupNotFound, show
from rqretry.core.route import EVERY_TAG
from rqretry.protocol import inspect
from rqretry.protocol.command import Operation, side_by_side
from rqretry.protocol.keys import bucket_key
from rqretry.protocol.series import forget, name_of

_ROUNDS = 20
_VERSIONS = "group_versions"


@dataclass(slots=True)
class Wish:
    """What a consumer asks for as it joins its group."""

    group: str
    kind: str
    create: bool
    ordered: bool | None
    source: str
    """Whose dead letters it consumes; "" for none."""
    names: tuple[str, ...]
    tags: str | None
    start: str | int
    explicit: bool
    """Whether tags and settings are also for what is there; else only for what is new."""
    settings: dict[str, Any]
    ignored: dict[str, Any] = field(default_factory=dict)
    """Settings that an operator has pinned to something else."""
    retagged: dict[str, str] = field(default_factory=dict)
    """Topics that it took something else of until now: what."""


class Subscriptions(CatalogPart):
    """Which groups consume which topics."""

    def join(self, wish: Wish, now_ms: int) -> Operation[GroupRecord | None]:
        """A group's record and the routes of its topics as the consumer asks for.

        None if the group is still leaving one of them, which is completed first.
        """
        first = yield from self._store.first_version(_VERSIONS)

        def joined(old: GroupRecord | None) -> GroupRecord:
            return self._joined(old, wish, now_ms, first)

        record = yield from self._store.groups.swap(wish.group, joined)
        assert record is not None
        self._store.learn(record)
        left = [name for name in wish.names if name in record.leaving]
        for name in left:
            yield from self._finish_leaving(record.name, name)
        return None if left else (yield from self._subscribe_all(wish.names, record))

    def plan(
        self, record: GroupRecord | None, wish: Wish, topics: Iterable[TopicRecord]
    ) -> GroupRecord:
        """A group's record as `join` would make it of this one; raises what `join` would raise."""
        planned = self._joined(record, wish, now_ms=0, first=1)
        for topic in topics:
            _subscribed(topic, planned)
        return planned

    def leave(self, group: str, topic: str) -> Operation[int]:
        """A group leaves a topic: what it has not finished there is gone for it.

        Done in steps that the next call (or the next start of the group) completes if this one is
        cut off: the group's record says that it leaves, the route loses it, what it held is freed,
        and the record forgets the topic.

        Returns:
            How many messages the group gave up.

        Raises:
            GroupNotFound: There is no such group, or it is not subscribed.
        """
        record = yield from self._store.group(group)
        if topic not in (*record.topics, *record.leaving):
            raise GroupNotFound(f"group {show(group)} is not subscribed to topic {show(topic)}")
        now_ms = yield from self._store.now_ms()

        def leaving(old: GroupRecord | None) -> GroupRecord | None:
            return old and old.changed(
                self._store.actor,
                now_ms,
                topics=without(old.topics, topic),
                leaving=(*without(old.leaving, topic), topic),
                tags=old.with_tags([topic], EVERY_TAG),
                catching_up=without(old.catching_up, topic),
            )

        yield from self._store.groups.swap(group, leaving)
        return (yield from self._finish_leaving(group, topic))

    def remove_group(self, name: str) -> Operation[int]:
        """Unsubscribe a group everywhere and delete its record. Returns how many messages went.

        Raises:
            GroupNotFound: There is no such group.
            ConfigError: Its workers subscribe it again and again.
        """
        gone = 0
        record = yield from self._store.group(name)
        for _ in range(_ROUNDS):
            for topic in (*record.topics, *record.leaving):
                gone += yield from self.leave(name, topic)
            now = yield from self._store.group(name)
            yield from self._store.raise_first_version(_VERSIONS, now.version + 1)

            def deleted(old: GroupRecord | None, seen: GroupRecord = now) -> GroupRecord | None:
                return old if old != seen or seen.topics or seen.leaving else None

            left = yield from self._store.groups.swap(name, deleted)
            if left is None:
                yield inspect.delete(bucket_key(self._store.namespace, name))
                return gone
            record = left
        raise ConfigError(
            f"group {show(name)} is subscribed again and again: stop its workers first"
        )

    def _joined(self, old: GroupRecord | None, wish: Wish, now_ms: int, first: int) -> GroupRecord:
        """The record of a group that a consumer joins; as it is where the group still leaves.

        `first`: the version of a group that is new.
        """
        record, explicit = old or self._new_group(wish, first), wish.explicit or old is None
        group_rules.check_kind(record, wish.kind, wish.ordered)
        group_rules.check_same_source(record, wish.source, wish.names)
        if any(name in record.leaving for name in wish.names):
            return record  # not before its messages there are deleted
        record = replace(record, source=wish.source)
        settings = wish.settings if explicit else {}
        wish.ignored = group_rules.against_pins(record, settings)
        wanted = {name: v for name, v in settings.items() if name not in wish.ignored}
        if wish.tags is not None:
            named = [name for name in wish.names if explicit or name not in record.topics]
            wanted["tags"] = record.with_tags(named, wish.tags)
            there = [name for name in named if name in record.topics]
            wish.retagged = {
                name: record.tags_of(name) for name in there if record.tags_of(name) != wish.tags
            }
            if wish.retagged:
                wanted |= {"tags_by": self._store.actor, "tags_at_ms": now_ms}
        subscribed = group_rules.with_topics(record, wish.names, wanted, start=wish.start)
        return record.changed(self._store.actor, now_ms, **subscribed)

    def _new_group(self, wish: Wish, version: int) -> GroupRecord:
        if not wish.create:
            raise GroupNotFound(
                f"{self._store.groups.missing(wish.group)};"
                " check its name, or create it with create_group=True (--create-group)"
            )
        record = GroupRecord.new(wish.group, wish.kind, ordered=bool(wish.ordered))
        return replace(record, version=version - 1)

    def _subscribe_all(self, topics: Iterable[str], record: GroupRecord) -> Operation[GroupRecord]:
        """Subscribe, until the topics have what the record says: another start may differ."""
        names = tuple(topics)
        for _ in range(_ROUNDS):
            copied = yield from self._copy_again(names, record)
            yield from self._subscribe([name for name in names if name not in copied], record)
            again = yield from self._store.group(record.name)
            if again == record:
                return again
            record = again
        raise ConfigError(f"group {show(record.name)} is changed all the time: repeat this")

    def _copy_again(self, topics: Sequence[str], group: GroupRecord) -> Operation[set[str]]:
        """Bring the partitions of those up to date that the group has as it wants; which."""
        records = yield from self._store.topics_now(topics)
        as_wanted = [record for record in records if _subscribed(record, group) == record]
        yield from self._copy(as_wanted, group)
        return {record.name for record in as_wanted}

    def _subscribe(self, topics: Iterable[str], group: GroupRecord) -> Operation[None]:
        change = self._store.topics.change
        changed = yield from side_by_side(
            [change(name, lambda old: _subscribed(old, group)) for name in topics]
        )
        yield from self._copy([self._store.keep(record) for record in changed], group)

    def _copy(self, records: Sequence[TopicRecord], group: GroupRecord) -> Operation[None]:
        if records:
            # The configuration first: no worker may find a message in a group that it cannot read.
            yield from self._store.configure(group, topics=[record.name for record in records])
            yield from self._store.install(*records)

    def _finish_leaving(self, group: str, topic: str) -> Operation[int]:
        store = self._store
        gone = 0
        before = yield from store.topics.find(topic)
        leaver = yield from store.groups.find(group)
        if leaver is None or topic not in leaver.leaving:
            return 0  # somebody else has completed this, and it may have joined again
        byte = (before.byte_of(group) or dict(before.leaving).get(group, 0)) if before else 0
        record = yield from store.topics.swap(
            topic, lambda old: old.without_group(group, byte) if old else None
        )
        if record is not None:
            if not record.deleting:
                yield from store.install(store.keep(record))
            for number in range(record.all_partitions):
                keys = store.group_keys(topic, number, group)
                gone += yield from drain(keys, store.actor, byte)
            record = yield from store.topics.swap(
                topic, lambda old: old.freed(group, byte) if old else None
            )
        if record is not None and (record.byte_of(group) or group in dict(record.leaving)):
            return gone  # it has joined again meanwhile
        rest = yield from store.groups.find(group)
        if rest is not None and rest.max_inflight:  # what it might lease here, it may elsewhere
            yield from store.configure(rest)
        yield [*forget(store.keys, [name_of(topic, group)])]
        yield from store.strike(group, topic, "leaving")
        return gone


def _subscribed(topic: TopicRecord, group: GroupRecord) -> TopicRecord:
    """A topic's record with a group as its own record says."""
    if group.source:
        return topic.with_dlq_group(DlqGroup(group.name, group.kind, group.source))
    return topic.with_group(group.name, group.kind, group.tags_of(topic.name), group.ordered)
