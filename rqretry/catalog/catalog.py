"""The catalog: the truth about topics, groups and the level table (decisions 19).

It lives in the namespace's own slot and is copied to the partitions, version by version, newer
wins. Everything is read, decide, swap, so a call that is cut off can be made again; what one client
left half copied, the next one that meets it completes.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rqretry.catalog.add_partitions import GrowingCatalog
from rqretry.catalog.backfill import with_topics
from rqretry.catalog.dlq_groups import check_same_source, missing, source_of
from rqretry.catalog.drain_group import drain
from rqretry.core.catalog_records import SIMPLE, GroupRecord, TopicRecord, View
from rqretry.core.errors import ConfigError, GroupNotFound, show
from rqretry.core.limits import LATEST
from rqretry.core.retry_policy import ORDERED_POLICY, RetryPolicy
from rqretry.core.route import EVERY_TAG
from rqretry.protocol import inspect as admin
from rqretry.protocol.command import Operation
from rqretry.protocol.keys import bucket_key

log = logging.getLogger("rqretry")

_ROUNDS = 20
PINNABLE = ("max_retries", "policy", "max_inflight", "rate_limit")
"""The settings of a group that an operator can pin."""


@dataclass(slots=True)
class _Wish:
    """What a consumer asks for as it joins its group."""

    kind: str
    create: bool
    ordered: bool | None
    source: str
    """Whose dead letters it consumes; "" for none."""
    names: tuple[str, ...]
    tags: str | None
    start: str
    settings: dict[str, Any]
    refused: dict[str, Any] = field(default_factory=dict)
    """Settings that an operator has pinned to something else."""


class Catalog(GrowingCatalog):
    """One client's view of a namespace: cached records and the operations that change them."""

    def groups(self) -> Operation[list[GroupRecord]]:
        """All groups, by name."""
        yield from self.open()
        stored = yield admin.read_records(self.keys.groups)
        return [GroupRecord.decode(name, stored[name]) for name in sorted(stored)]

    def join(
        self,
        group: str,
        kind: str,
        topics: Iterable[str],
        *,
        create: bool = True,
        create_topics: bool = True,
        tags: str | None = None,
        start: str = LATEST,
        ordered: bool | None = None,
        **settings: Any,
    ) -> Operation[GroupRecord]:
        """Subscribe a group to topics, and tell every partition.

        `settings` (max_retries, policy) are those that the caller names: they win, except over
        what an operator has pinned; that is logged and changes nothing. `tags`, where named, are
        what the group takes of these topics from now on. With `start` "earliest" the group gets
        what is still stored in the topics that are new to it. `ordered` None is as the group is.

        Raises:
            GroupNotFound, TopicNotFound: It is not there, and must not be created.
            ConfigError: The group is of another kind, or consumes topics and is to consume dead
                letters, or the other way round.
            InvalidArgument: It is ordered and its policy is not fixed; or it would begin with what
                is stored, and is ordered or takes only some tags.
        """
        source, names = yield from self._found(group, tuple(topics), create=create_topics)
        if source and ordered:
            raise ConfigError(
                f"group {show(group)} consumes dead letters of {show(source)}, which have no order:"
                " leave out ordered=True"
            )
        wish = _Wish(
            kind=kind, create=create, ordered=ordered, source=source, names=names, tags=tags,
            start=start, settings=settings,
        )  # fmt: skip
        now_ms = yield from self.now_ms()
        yield from self._check_inflight(group, settings.get("max_inflight"), names)
        for _ in range(_ROUNDS):
            stored = yield from self._change(
                self.keys.groups, group, lambda old: self._joined(group, old, wish, now_ms)
            )
            record = yield from self._complete_joining(GroupRecord.decode(group, stored), names)
            if record is not None:
                if wish.refused:
                    _warn(record, wish.refused)
                return record
        raise ConfigError(f"group {show(group)} is unsubscribed all the time; start it later")

    def _joined(self, group: str, old: str, wish: _Wish, now_ms: int) -> str:
        """The record of a group that a consumer joins; as it is where the group still leaves."""
        record = (
            GroupRecord.decode(group, old)
            if old
            else self._new_group(group, wish.kind, wish.create, ordered=bool(wish.ordered))
        )
        _check_kind(record, wish.kind, wish.ordered)
        check_same_source(record, wish.source, wish.names)
        record = replace(record, source=wish.source)
        if any(name in record.leaving for name in wish.names):
            return old  # what is being freed there must be gone first
        wish.refused = _against_pins(record, wish.settings)
        wanted = {field: v for field, v in wish.settings.items() if field not in wish.refused}
        if wish.tags is not None:
            wanted["tags"] = record.with_tags(wish.names, wish.tags)
        subscribed = with_topics(record, wish.names, wanted, start=wish.start)
        return record.changed(self.actor, now_ms, **subscribed).encode()

    def _complete_joining(
        self, record: GroupRecord, names: tuple[str, ...]
    ) -> Operation[GroupRecord | None]:
        """Tell every partition; None where the group has to join again."""
        record = self._learnt(record)
        left = [name for name in names if name in record.leaving]
        for name in left:
            yield from self._finish_leaving(record.name, name)
        if left:
            return None
        record = yield from self._subscribe_all(names, record)
        yield from self._resume_growth(names)
        yield from self._configure(record)
        yield from self._finish_catching_up(record)
        record = yield from self.group(record.name)
        if not set(names) <= set(record.topics):  # an operator unsubscribed it meanwhile
            return None
        return record

    def _found(
        self, group: str, topics: tuple[str, ...], *, create: bool
    ) -> Operation[tuple[str, tuple[str, ...]]]:
        """Whose dead letters a consumer names as its topic, and the topics that it is about."""
        source = source_of(group, topics)
        if source:
            topics = yield from self._topics_of_source(group, source)
        for name in topics:
            yield from self.topic(name, create=create)
        return source, topics

    def foreseen(self, name: str, **settings: Any) -> Operation[tuple[GroupRecord, GroupRecord]]:
        """A group's record as it is and with other settings; nothing is written.

        Raises what set_group raises.
        """
        record = yield from self.group(name)
        yield from self._check_inflight(name, settings.get("max_inflight"), ())
        return record, record.changed(record.changed_by, record.changed_at_ms, **settings)

    def set_group(
        self, name: str, *, pin: bool | None = None, **settings: Any
    ) -> Operation[GroupRecord]:
        """Change a group's settings everywhere at once. Raises GroupNotFound.

        `pin` True pins what is named (nothing named: all that can be), False unpins it.
        """
        yield from self.group(name)
        yield from self._check_inflight(name, settings.get("max_inflight"), ())
        now_ms = yield from self.now_ms()
        named = [field for field in PINNABLE if field in settings] or list(PINNABLE)

        def changed(old: str) -> str:
            if not old:
                raise missing(name, self.namespace)
            record = GroupRecord.decode(name, old)
            pinned = set(record.pinned)
            if pin is not None:
                pinned = pinned | set(named) if pin else pinned - set(named)
            kept = tuple(field for field in PINNABLE if field in pinned)
            return record.changed(self.actor, now_ms, pinned=kept, **settings).encode()

        stored = yield from self._change(self.keys.groups, name, changed)
        record = GroupRecord.decode(name, stored)
        yield from self._configure(record)
        return record

    def unsubscribe(self, group: str, topic: str) -> Operation[int]:
        """A group leaves a topic: what it has not finished there is gone for it.

        Done in steps that the next call (or the next start of the group) completes if this one is
        cut off: the group's record says that it leaves, the route loses it, what it held is freed,
        and the record forgets the topic.

        Returns:
            How many messages the group gave up.

        Raises:
            GroupNotFound: There is no such group, or it is not subscribed.
        """
        record = yield from self.group(group)
        if topic not in (*record.topics, *record.leaving):
            raise GroupNotFound(f"group {show(group)} is not subscribed to topic {show(topic)}")
        now_ms = yield from self.now_ms()

        def leaving(old: str) -> str:
            if not old:
                return old
            record = GroupRecord.decode(group, old)
            rest = tuple(name for name in record.topics if name != topic)
            left = (*(name for name in record.leaving if name != topic), topic)
            behind = tuple(name for name in record.catching_up if name != topic)
            fields = {"tags": record.with_tags([topic], EVERY_TAG), "catching_up": behind}
            return record.changed(self.actor, now_ms, topics=rest, leaving=left, **fields).encode()

        yield from self._change(self.keys.groups, group, leaving)
        return (yield from self._finish_leaving(group, topic))

    def held_by(self, group: str, topics: Iterable[str]) -> Operation[int]:
        """How many messages a group holds in these topics. Raises GroupNotFound."""
        record = yield from self.group(group)
        count = 0
        for name in topics:
            if name not in (*record.topics, *record.leaving):
                raise GroupNotFound(f"group {show(group)} is not subscribed to topic {show(name)}")
            topic = yield from self.refreshed(name)
            places = [self.group_keys(name, n, group) for n in range(topic.partitions)]
            parts: list[admin.Stats] = yield [admin.stats(keys) for keys in places]
            count += sum(part.held for part in parts)
        return count

    def remove_group(self, name: str) -> Operation[int]:
        """Unsubscribe a group everywhere and delete its record; answers the messages it gave up.

        Raises:
            GroupNotFound: There is no such group.
            ConfigError: Its workers subscribe it again all the time.
        """
        gone = 0
        record = yield from self.group(name)
        for _ in range(_ROUNDS):
            for topic in (*record.topics, *record.leaving):
                gone += yield from self.unsubscribe(name, topic)
            stored = yield from self._change(self.keys.groups, name, _without_topics(name))
            if not stored:
                yield admin.delete(bucket_key(self.namespace, name))
                return gone
            record = GroupRecord.decode(name, stored)
        raise ConfigError(f"group {show(name)} is subscribed again all the time: stop its workers")

    def _finish_leaving(self, group: str, topic: str) -> Operation[int]:
        def without(old: str) -> str:
            return TopicRecord.decode(topic, old).without_group(group).encode() if old else old

        gone = 0
        stored = yield from self._change(self.keys.topics, topic, without)
        if stored:
            record = TopicRecord.decode(topic, stored)
            if not record.deleting:
                yield from self.install(self._keep(record))
            for number in range(record.all_partitions):
                gone += yield from drain(self.group_keys(topic, number, group), self.actor)

        def left(old: str) -> str:
            if not old:
                return old
            found = GroupRecord.decode(group, old)
            rest = tuple(name for name in found.leaving if name != topic)
            return found.changed(found.changed_by, found.changed_at_ms, leaving=rest).encode()

        yield from self._change(self.keys.groups, group, left)
        return gone

    def _new_group(
        self,
        name: str,
        kind: str,
        create: bool,  # noqa: FBT001 - private
        *,
        ordered: bool,
    ) -> GroupRecord:
        if not create:
            raise GroupNotFound(
                f"there is no consumer group {show(name)} in namespace {show(self.namespace)};"
                " check its name, or create it with create_group=True (--create-group)"
            )
        policy = ORDERED_POLICY if ordered else RetryPolicy.rocketmq()
        return GroupRecord(name, kind, policy=policy, version=0, ordered=ordered)

    def _subscribe_all(self, topics: Iterable[str], record: GroupRecord) -> Operation[GroupRecord]:
        """Subscribe, until the routes say what the record says: another start may differ."""
        while True:
            for name in topics:
                yield from self._subscribe(name, record)
            again = yield from self.group(record.name)
            if again.tags == record.tags:
                return again
            record = again

    def _subscribe(self, topic: str, group: GroupRecord) -> Operation[None]:
        tags = group.tags_of(topic)

        def subscribed(old: str) -> str:
            record = TopicRecord.decode(topic, old)
            if group.source:
                return record.with_view(View(group.name, group.kind, group.source)).encode()
            return record.with_group(group.name, group.kind, tags, group.ordered).encode()

        stored = yield from self._change(self.keys.topics, topic, subscribed)
        record = self._keep(TopicRecord.decode(topic, stored))
        # The configuration first: a worker must not find a message in a group it cannot read.
        yield from self._configure(group, topics=[topic])
        yield from self.install(record)


def _check_kind(record: GroupRecord, kind: str, ordered: bool | None) -> None:  # noqa: FBT001
    if ordered is not None and ordered != record.ordered:
        was, is_ = ("ordered", "not") if record.ordered else ("not ordered", "ordered")
        raise ConfigError(
            f"group {show(record.name)} is {was} and this consumer of it is {is_}: name the same"
            " (ordered=), delete the group first, or use another group name"
        )
    if record.kind == kind:
        return
    what = {SIMPLE: "a simple consumer"}.get(record.kind, f"a {record.kind} consumer")
    raise ConfigError(
        f"group {show(record.name)} is the group of {what} and cannot also be {kind};"
        " use another group name"
    )


def _without_topics(name: str) -> Callable[[str], str]:
    def decide(old: str) -> str:
        if not old:
            return old
        record = GroupRecord.decode(name, old)
        return old if record.topics or record.leaving else ""

    return decide


def _against_pins(record: GroupRecord, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a start names and an operator has pinned to something else."""
    return {
        field: value
        for field, value in settings.items()
        if field in record.pinned and getattr(record, field) != value
    }


def _warn(record: GroupRecord, refused: Mapping[str, Any]) -> None:
    said = " and ".join(
        f"{field} is pinned to {getattr(record, field)}, not {value}"
        for field, value in refused.items()
    )
    log.warning(
        "group %s: %s; this start changes nothing (unpin it with: rqretry group set)",
        record.name,
        said,
    )
