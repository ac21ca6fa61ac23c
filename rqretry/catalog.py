"""The catalog: the truth about topics, groups and the level table (decisions 19).

It lives in the namespace's own slot and is copied to the partitions, version by version, newer
wins. Everything is read, decide, swap, so a call that is cut off can be made again; what one client
left half copied, the next one that meets it completes.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rqretry.command import Command, Operation
from rqretry.commands import administering as admin
from rqretry.errors import ConfigError, GroupNotFound, InvalidArgument, TopicNotFound, show
from rqretry.keys import GroupKeys, NamespaceKeys, PartitionKeys, partition_keys
from rqretry.levels import DEFAULT_LEVELS, LevelTable
from rqretry.records import SCHEMA, SIMPLE, GroupRecord, TopicRecord
from rqretry.routes import Route

_SETTINGS = "settings"


class Catalog:
    """One client's view of a namespace: cached records and the operations that change them."""

    def __init__(self, namespace: str, levels: LevelTable | None = None, actor: str = "") -> None:
        self.namespace = namespace
        self.keys = NamespaceKeys(namespace)
        self.actor = actor
        self._wanted = levels
        self._levels: LevelTable | None = None
        self._topics: dict[str, TopicRecord] = {}
        self._routes: dict[tuple[str, int], Route] = {}
        self.declared: Mapping[str, int] = {}
        """Partitions of topics that this program declares, for when it creates them."""

    # -- the namespace ---------------------------------------------------------------------

    def open(self) -> Operation[LevelTable]:
        """The namespace's level table; the first client of all sets it.

        Raises:
            ConfigError: This client names another table than the namespace has, or a newer
                rqretry wrote the namespace.
        """
        if self._levels is None:
            stored = yield from self._change(self.keys.settings, _SETTINGS, self._settings)
            self._levels = self._checked(json.loads(stored))
        return self._levels

    def _settings(self, old: str) -> str:
        levels = self._wanted or DEFAULT_LEVELS
        return old or json.dumps({"schema": SCHEMA, "delay_levels": levels.encode()})

    def _checked(self, settings: Mapping[str, Any]) -> LevelTable:
        if settings["schema"] > SCHEMA:
            raise ConfigError(
                f"namespace {show(self.namespace)} has schema {settings['schema']}, written by a"
                f" newer rqretry; this one knows {SCHEMA}. Upgrade this client."
            )
        levels = LevelTable.decode(settings["delay_levels"])
        if self._wanted is not None and self._wanted != levels:
            raise ConfigError(
                f"delay_levels {show(str(self._wanted))} differ from those of namespace"
                f" {show(self.namespace)}, {show(str(levels))}, which were set when it was first"
                " used; name the same ones, none, or use another namespace"
            )
        return levels

    # -- topics ----------------------------------------------------------------------------

    def partition(self, topic: str, number: int) -> PartitionKeys:
        """The keys of a partition."""
        return partition_keys(self.namespace, topic, number)

    def group_keys(self, topic: str, partition: int, group: str) -> GroupKeys:
        """The keys of a group in a partition; after `open`."""
        assert self._levels is not None
        return self.partition(topic, partition).group(group, len(self._levels))

    def topic(self, name: str, *, create: bool = False) -> Operation[TopicRecord]:
        """A topic's record, cached. Raises TopicNotFound unless `create`."""
        if name in self._topics:
            return self._topics[name]
        yield from self.open()
        if create:
            return (yield from self.create_topic(name, self.declared.get(name)))
        return (yield from self.refreshed(name))

    def refreshed(self, name: str) -> Operation[TopicRecord]:
        """A topic's record as it is now. Raises TopicNotFound."""
        yield from self.open()
        stored = yield admin.read_record(self.keys.topics, name)
        if not stored:
            self._topics.pop(name, None)
            raise TopicNotFound(
                f"there is no topic {show(name)} in namespace {show(self.namespace)}"
            )
        return self._keep(TopicRecord.decode(name, stored))

    def create_topic(self, name: str, partitions: int | None) -> Operation[TopicRecord]:
        """Create a topic, or find it; `partitions` None: 1 for a new one.

        Raises:
            InvalidArgument: The topic exists with another number of partitions.
        """
        yield from self.open()
        new = TopicRecord(name, partitions or 1)
        stored = yield from self._change(self.keys.topics, name, lambda old: old or new.encode())
        record = TopicRecord.decode(name, stored)
        if partitions is not None and record.partitions != partitions:
            raise InvalidArgument(
                f"partitions {partitions} of topic {show(name)}: it exists with {record.partitions}"
            )
        yield from self.install(record)
        return self._keep(record)

    def topics(self) -> Operation[list[TopicRecord]]:
        """All topics, by name."""
        yield from self.open()
        stored = yield admin.read_records(self.keys.topics)
        return [TopicRecord.decode(name, stored[name]) for name in sorted(stored)]

    def route(self, topic: str, partition: int) -> Route:
        """What is known of a partition's route."""
        known = self._routes.get((topic, partition))
        return known or self._topics[topic].route

    def note_route(self, topic: str, partition: int, route: Route) -> Operation[None]:
        """A partition said that its route is another one: believe it, or bring it up to date."""
        record = self._topics[topic]
        if route.version < record.version:
            yield from self.install(record, partitions=[partition])
            self._routes.pop((topic, partition), None)
        else:
            self._routes[topic, partition] = route

    # -- groups ----------------------------------------------------------------------------

    def group(self, name: str) -> Operation[GroupRecord]:
        """A group's record. Raises GroupNotFound."""
        yield from self.open()
        stored = yield admin.read_record(self.keys.groups, name)
        if not stored:
            raise GroupNotFound(
                f"there is no consumer group {show(name)} in namespace {show(self.namespace)}"
            )
        return GroupRecord.decode(name, stored)

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
        **settings: Any,
    ) -> Operation[GroupRecord]:
        """Subscribe a group to topics, and tell every partition.

        `settings` (max_retries, policy) are those that the caller names: they win.

        Raises:
            GroupNotFound, TopicNotFound: It is not there, and must not be created.
            ConfigError: The group is of another kind.
        """
        names = tuple(topics)
        for name in names:
            yield from self.topic(name, create=create_topics)

        def joined(old: str) -> str:
            record = GroupRecord.decode(group, old) if old else self._new_group(group, kind, create)
            _check_kind(record, kind)
            union = record.topics + tuple(name for name in names if name not in record.topics)
            return record.changed(self.actor, topics=union, **settings).encode()

        stored = yield from self._change(self.keys.groups, group, joined)
        record = GroupRecord.decode(group, stored)
        for name in names:
            yield from self._subscribe(name, record)
        yield from self._configure(record)
        return record

    def set_group(self, name: str, **settings: Any) -> Operation[GroupRecord]:
        """Change a group's settings everywhere at once. Raises GroupNotFound."""
        yield from self.group(name)

        def changed(old: str) -> str:
            return GroupRecord.decode(name, old).changed(self.actor, **settings).encode()

        stored = yield from self._change(self.keys.groups, name, changed)
        record = GroupRecord.decode(name, stored)
        yield from self._configure(record)
        return record

    def _new_group(self, name: str, kind: str, create: bool) -> GroupRecord:  # noqa: FBT001 - private
        if not create:
            raise GroupNotFound(
                f"there is no consumer group {show(name)} in namespace {show(self.namespace)};"
                " check its name, or create it with create_group=True (--create-group)"
            )
        return GroupRecord(name, kind, version=0)

    def _subscribe(self, topic: str, group: GroupRecord) -> Operation[None]:
        def subscribed(old: str) -> str:
            return TopicRecord.decode(topic, old).with_group(group.name, group.kind).encode()

        stored = yield from self._change(self.keys.topics, topic, subscribed)
        record = self._keep(TopicRecord.decode(topic, stored))
        # The configuration first: a worker must not find a message in a group it cannot read.
        yield from self._configure(group, topics=[topic])
        yield from self.install(record)

    def _configure(
        self, group: GroupRecord, topics: Iterable[str] | None = None
    ) -> Operation[None]:
        levels = yield from self.open()
        for name in group.topics if topics is None else topics:
            topic = yield from self.refreshed(name)
            byte = topic.byte_of(group.name)
            fields = group.configuration(levels, byte)
            commands = [
                admin.configure(self.group_keys(name, number, group.name), group.version, fields)
                for number in range(topic.partitions)
                if byte
            ]
            yield commands

    # -- copying and swapping ----------------------------------------------------------------

    def install(
        self, record: TopicRecord, partitions: Iterable[int] | None = None
    ) -> Operation[None]:
        """Copy a topic's route to its partitions; the first group takes the backlog."""
        rest = list(range(record.partitions) if partitions is None else partitions)
        while rest:
            left = yield [
                admin.subscribe(self.partition(record.name, number), record.route)
                for number in rest
            ]
            rest = [number for number, waiting in zip(rest, left, strict=True) if waiting]

    def _keep(self, record: TopicRecord) -> TopicRecord:
        known = self._topics.get(record.name)
        if known is None or known.version < record.version:
            self._topics[record.name] = record
            for number in range(record.partitions):
                self._routes.pop((record.name, number), None)
        return self._topics[record.name]

    def _change(self, records: str, name: str, decide: Callable[[str], str]) -> Operation[str]:
        while True:
            old: str = yield admin.read_record(records, name)
            new = decide(old)
            if new == old:
                return old
            swapped: Command[bool] = admin.swap(self.keys, records, name, old, new)
            if (yield swapped):
                return new


def _check_kind(record: GroupRecord, kind: str) -> None:
    if record.kind == kind:
        return
    what = {SIMPLE: "a simple consumer"}.get(record.kind, f"a {record.kind} consumer")
    raise ConfigError(
        f"group {show(record.name)} is the group of {what} and cannot also be {kind};"
        " use another group name"
    )
