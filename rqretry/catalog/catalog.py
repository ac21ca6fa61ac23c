"""The catalog: one client's view of a namespace, its topics and its groups."""

import random
from collections.abc import Iterable
from typing import Any

from rqretry.catalog.add_partitions import PartitionGrowth
from rqretry.catalog.backfill import Backfill
from rqretry.catalog.group_rules import (
    check_has_dead_letters,
    check_shares,
    check_unordered,
    source_of,
    warn_of_comma,
    warn_of_pins,
    warn_of_tags,
)
from rqretry.catalog.groups import Groups
from rqretry.catalog.schedules import Schedules
from rqretry.catalog.store import CatalogStore
from rqretry.catalog.subscriptions import Subscriptions, Wish
from rqretry.catalog.topics import Topics
from rqretry.core.catalog_records import GroupRecord
from rqretry.core.delay_levels import LevelTable
from rqretry.core.errors import ConfigError, TopicNotFound, show
from rqretry.core.start import LATEST
from rqretry.protocol.command import Operation, side_by_side
from rqretry.protocol.keys import GroupKeys, PartitionKeys

_ROUNDS = 20


class Catalog:
    """Topics, groups, and what is between them.

    Attributes:
        namespace: The namespace's name.
        keys: The keys of its own slot.
        topics: Topics and their routes.
        groups: Groups and their settings.
        subscriptions: Leaving topics; `join` is here, since it takes all the others.
        growth: Adding partitions to topics.
        backfill: Giving groups what was stored before they came.
        schedules: When periodic messages are published.
    """

    def __init__(self, namespace: str, levels: LevelTable | None = None, actor: str = "") -> None:
        self.store = CatalogStore(namespace, levels, actor)
        self.namespace = namespace
        self.keys = self.store.keys
        self.topics = Topics(self.store)
        self.groups = Groups(self.store)
        self.subscriptions = Subscriptions(self.store)
        self.growth = PartitionGrowth(self.store)
        self.backfill = Backfill(self.store)
        self.schedules = Schedules(self.store)
        self.chance = random.Random()
        """Where simple consumers begin."""

    def open(self) -> Operation[LevelTable]:
        """The namespace's level table; see CatalogStore.open."""
        return self.store.open()

    def partition(self, topic: str, number: int) -> PartitionKeys:
        """The keys of a partition."""
        return self.store.partition(topic, number)

    def group_keys(self, topic: str, partition: int, group: str) -> GroupKeys:
        """The keys of a group in a partition; after `open`."""
        return self.store.group_keys(topic, partition, group)

    def join(
        self,
        group: str,
        kind: str,
        topics: Iterable[str],
        *,
        create: bool = True,
        create_topics: bool = True,
        tags: str | None = None,
        start: str | int = LATEST,
        ordered: bool | None = None,
        explicit: bool = True,
        **settings: Any,
    ) -> Operation[GroupRecord]:
        """Subscribe a group to topics, and bring every partition up to date.

        `settings` (max_retries, policy) are those that the caller names: they win, except over
        what an operator has pinned; that is logged and changes nothing. `tags`, where named, are
        what the group takes of these topics from now on. Unless `explicit`, both are only for a
        group or a subscription that is not there. With `start` "earliest" the group gets
        what is still stored in the topics that are new to it. `ordered` None is as the group is.

        Raises:
            GroupNotFound, TopicNotFound: It is not there, and must not be created.
            ConfigError: The group is of another kind, or consumes topics and is to consume dead
                letters, or the other way round.
            InvalidArgument: It is ordered and its policy is not fixed, or it consumes dead letters;
                or it would begin with what is stored, and is ordered or takes only some tags.
        """
        source, names = yield from self._found(group, tuple(topics), create=create_topics)
        check_unordered(group, source, ordered)
        wish = Wish(group, kind, create, ordered, source, names, tags, start, explicit, settings)
        now_ms = yield from self.store.now_ms()
        most = settings.get("max_inflight") if explicit else None
        yield from self.groups.check_inflight(group, most, names)
        for _ in range(_ROUNDS):
            record = yield from self.subscriptions.join(wish, now_ms)
            if record is None:
                continue
            yield from self.growth.resume(names)
            if record.max_inflight or not set(record.topics) <= set(names):
                yield from self.store.configure(record)  # its settings, and shares, elsewhere too
            yield from self.backfill.finish(record)
            record = yield from self.groups.get(group)
            if set(names) <= set(record.topics):  # else an operator unsubscribed it meanwhile
                if wish.ignored:
                    warn_of_pins(record, wish.ignored)
                if wish.retagged:
                    warn_of_tags(record, wish.retagged)
                warn_of_comma(group, tags or "")
                return record
        raise ConfigError(f"group {show(group)} is unsubscribed again and again; start it later")

    def check(
        self,
        planned: dict[str, GroupRecord],
        group: str,
        kind: str,
        topics: Iterable[str],
        *,
        tags: str | None = None,
        start: str | int = LATEST,
        ordered: bool | None = None,
        explicit: bool = True,
        **settings: Any,
    ) -> Operation[None]:
        """Raise what `join` would raise for what is there; nothing is written.

        `planned` are groups as others will have made them by then; this one is added.
        """
        names = tuple(topics)
        source = source_of(group, names)
        if source:
            dead = planned.get(source) or (yield from self.store.groups.find(source))
            if dead is None:
                return
            check_has_dead_letters(dead, group)
            names = dead.topics
        check_unordered(group, source, ordered)
        record = planned.get(group) or (yield from self.store.groups.find(group))
        wanted = dict.fromkeys((*(record.topics if record else ()), *names))
        there = {topic.name: topic for topic in (yield from self.store.topics_now(wanted))}
        wish = Wish(
            group,
            kind,
            create=True,
            ordered=ordered,
            source=source,
            names=names,
            tags=tags,
            start=start,
            explicit=explicit,
            settings=settings,
        )
        known = [there[name] for name in names if name in there]
        for topic in known:
            self.topics.check_declared(topic)
        planned[group] = self.subscriptions.plan(record, wish, known)
        partitions = [
            there[name].all_partitions if name in there else self.topics.declared.get(name) or 1
            for name in wanted
        ]
        check_shares(group, planned[group].max_inflight, sum(partitions))

    def _found(
        self, group: str, topics: tuple[str, ...], *, create: bool
    ) -> Operation[tuple[str, tuple[str, ...]]]:
        """Whose dead letters a consumer names as its topic, and the topics that it is about."""
        source = source_of(group, topics)
        if source:
            record = yield from self.groups.get(source)
            check_has_dead_letters(record, group)
            topics = record.topics
        declared = self.topics.declared
        yield from self.store.topics_now(name for name in topics if not declared.get(name))
        yield from side_by_side([self._topic(name, create=create) for name in topics])
        return source, topics

    def _topic(self, name: str, *, create: bool) -> Operation[None]:
        try:
            yield from self.topics.get(name, create=create)
        except TopicNotFound as error:
            missing = str(self.store.topics.missing(name))
            raise TopicNotFound(
                f"{missing}; a consumer that receives by hand creates groups but no topics:"
                f" publish to it first, or create it with admin.create_topic({name!r})"
                f" (rqretry topic create {name}){str(error).removeprefix(missing)}"
            ) from None
