"""The half of the catalog that is about the namespace and its topics (decisions 19).

The truth lives in the namespace's own slot and is copied to the partitions, version by version,
newer wins. Everything is read, decide, swap, so a call that is cut off can be made again; what one
client left half copied, the next one that meets it completes.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from rqretry.core.catalog_records import SCHEMA, TopicRecord
from rqretry.core.delay_levels import DEFAULT_LEVELS, LevelTable
from rqretry.core.errors import ConfigError, InvalidArgument, TopicNotFound, show
from rqretry.core.route import Route
from rqretry.protocol import audit_log, operate
from rqretry.protocol import inspect as admin
from rqretry.protocol.command import Command, Operation
from rqretry.protocol.keys import GroupKeys, NamespaceKeys, PartitionKeys, partition_keys

_SETTINGS = "settings"
_VERSIONS = "topic_versions"
"""The least version of a new topic: above those of all deleted ones, which clients may know."""
_UNKNOWN = Route(version=-1)


class TopicCatalog:
    """One client's view of a namespace and its topics; catalog.py adds the groups."""

    def __init__(self, namespace: str, levels: LevelTable | None = None, actor: str = "") -> None:
        self.namespace = namespace
        self.keys = NamespaceKeys(namespace)
        self.actor = actor
        self._wanted = levels
        self._levels: LevelTable | None = None
        self._topics: dict[str, TopicRecord] = {}
        self._routes: dict[tuple[str, int], Route] = {}
        self._made: dict[str, tuple[TopicRecord, Route]] = {}
        """Routes as records say them; every publish asks."""
        self._views: dict[str, str] = {}
        """Groups that consume dead letters, and whose."""
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
        source = self._views.get(group, "")
        return self.partition(topic, partition).group(group, len(self._levels), source)

    def topic(self, name: str, *, create: bool = False) -> Operation[TopicRecord]:
        """A topic's record, cached. Raises TopicNotFound unless `create`."""
        if name in self._topics:
            return self._topics[name]
        yield from self.open()
        if create:
            return (yield from self.create_topic(name, self.declared.get(name)))
        return (yield from self.refreshed(name))

    def known_topic(self, name: str) -> TopicRecord | None:
        """A topic's record, if nothing has to be asked to publish to it."""
        return None if self._levels is None else self._topics.get(name)

    def any_topic(self, name: str) -> Operation[TopicRecord | None]:
        """A topic's record, also of one that is being deleted."""
        stored = yield admin.read_record(self.keys.topics, name)
        return TopicRecord.decode(name, stored) if stored else None

    def stored(self, record: TopicRecord) -> Operation[int]:
        """How many message bodies a topic keeps."""
        keys = [self.partition(record.name, number) for number in range(record.partitions)]
        return sum((yield [admin.stored(key) for key in keys]))

    def unfinished_ordered(self, record: TopicRecord) -> Operation[int]:
        """How many unfinished messages of a topic must stay in order.

        Those in the lines of its ordered groups; while it has no group, which may become one, all
        that have a message group.
        """
        yield from self.open()
        numbers = range(record.partitions)
        if not record.groups:
            places = [self.partition(record.name, number) for number in numbers]
            return sum((yield [admin.in_message_groups(keys) for keys in places]))
        lines = [
            admin.in_line(self.group_keys(record.name, number, group.name))
            for group in record.groups
            if group.ordered
            for number in numbers
        ]
        return sum((yield lines)) if lines else 0

    def refreshed(self, name: str) -> Operation[TopicRecord]:
        """A topic's record as it is now. Raises TopicNotFound."""
        yield from self.open()
        stored = yield admin.read_record(self.keys.topics, name)
        record = TopicRecord.decode(name, stored) if stored else None
        if record is None or record.deleting:
            self._forget(name)
            raise TopicNotFound(
                f"there is no topic {show(name)} in namespace {show(self.namespace)}"
            )
        return self._keep(record)

    def create_topic(self, name: str, partitions: int | None) -> Operation[TopicRecord]:
        """Create a topic, or find it; `partitions` None: 1 for a new one.

        Raises:
            InvalidArgument: The topic exists with another number of partitions.
        """
        yield from self.open()
        record = yield from self._found_or_made(name, partitions or 1)
        if partitions is not None and record.partitions != partitions:
            raise InvalidArgument(
                f"partitions {partitions} of topic {show(name)}: it exists with {record.partitions}"
            )
        yield from self.install(record)
        return self._keep(record)

    def _found_or_made(self, name: str, partitions: int) -> Operation[TopicRecord]:
        while True:
            stored = yield admin.read_record(self.keys.topics, name)
            if not stored:
                version = yield admin.read_record(self.keys.settings, _VERSIONS)
                made = TopicRecord(name, partitions, int(version or 1)).encode()
                stored = yield from self._change(self.keys.topics, name, _unless(made))
            record = TopicRecord.decode(name, stored)
            if not record.deleting:
                return record
            yield from self._erase(record)

    def limit_topic(self, name: str, max_messages: int) -> Operation[TopicRecord]:
        """Change how many messages a topic may hold (0: any number). Raises TopicNotFound."""

        def limited(old: str) -> str:
            record = TopicRecord.decode(name, old)
            if record.deleting or record.max_messages == max_messages:
                return old
            version = record.version + 1
            return replace(record, version=version, max_messages=max_messages).encode()

        yield from self.refreshed(name)
        stored = yield from self._change(self.keys.topics, name, limited)
        record = self._keep(TopicRecord.decode(name, stored))
        yield from self.install(record)
        return record

    def remove_topic(self, name: str) -> Operation[None]:
        """Delete a topic that no group is subscribed to, with all it stores.

        Raises:
            InvalidArgument: A group is subscribed.
        """

        def deleting(old: str) -> str:
            record = TopicRecord.decode(name, old)
            if record.members:
                raise InvalidArgument(
                    f"topic {show(name)} has groups: {', '.join(g.name for g in record.members)};"
                    " unsubscribe them first, or force it"
                )
            if record.deleting:
                return old
            return replace(record, version=record.version + 1, deleting=True).encode()

        stored = yield admin.read_record(self.keys.topics, name)
        if stored:
            stored = yield from self._change(
                self.keys.topics, name, lambda old: deleting(old) if old else old
            )
        if stored:
            yield from self._erase(TopicRecord.decode(name, stored))
        self._forget(name)

    def _erase(self, record: TopicRecord) -> Operation[None]:
        """Empty the partitions of a topic that is being deleted; its record goes last."""
        yield [
            operate.erase(self.partition(record.name, number))
            for number in range(record.all_partitions)
        ]
        after = record.version + 1
        yield from self._change(
            self.keys.settings, _VERSIONS, lambda old: str(max(int(old or 1), after))
        )

        def gone(old: str) -> str:
            return "" if old and TopicRecord.decode(record.name, old).deleting else old

        yield from self._change(self.keys.topics, record.name, gone)

    def topics(self) -> Operation[list[TopicRecord]]:
        """All topics, by name."""
        yield from self.open()
        stored = yield admin.read_records(self.keys.topics)
        records = [TopicRecord.decode(name, stored[name]) for name in sorted(stored)]
        for record in records:
            self._learn_views(record)
        return [record for record in records if not record.deleting]

    def route(self, topic: str, partition: int) -> Route:
        """What is known of a partition's route."""
        known = self._routes.get((topic, partition))
        record = self._topics.get(topic)
        if known is not None or record is None:
            return known or _UNKNOWN
        made = self._made.get(topic)
        if made is None or made[0] is not record:
            made = self._made[topic] = record, record.route
        return made[1]

    def note_route(
        self, topic: str, partition: int, route: Route, *, create: bool = False
    ) -> Operation[None]:
        """A partition said that its route is another one: believe it, or bring it up to date.

        Raises:
            TopicNotFound: The topic was deleted, and must not be created again.
        """
        known = self._topics.get(topic)
        if known is not None and route.version >= known.version:
            if route.partitions != known.partitions:  # there are more now
                yield from self.refreshed(topic)
            self._routes[topic, partition] = route
            return
        # It is behind: a copy is missing, the server lost its data, or the topic was deleted.
        try:
            record = yield from self.refreshed(topic)
        except TopicNotFound:
            if not create:
                raise
            yield from self.create_topic(topic, known.partitions if known else None)
        else:
            yield from self.install(record, partitions=[partition])
            self._routes.pop((topic, partition), None)

    def now_ms(self) -> Operation[int]:
        """The server's time in milliseconds."""
        return (yield audit_log.now(self.keys))  # type: ignore[no-any-return]

    # -- copying and swapping ----------------------------------------------------------------

    def install(
        self, record: TopicRecord, partitions: Iterable[int] | None = None
    ) -> Operation[None]:
        """Copy a topic's route to its partitions; the first group takes the backlog."""
        rest = list(range(record.all_partitions) if partitions is None else partitions)
        while rest:
            left = yield [
                admin.subscribe(self.partition(record.name, number), record.route)
                for number in rest
            ]
            rest = [number for number, waiting in zip(rest, left, strict=True) if waiting]

    def _keep(self, record: TopicRecord) -> TopicRecord:
        self._learn_views(record)
        known = self._topics.get(record.name)
        if known is None or known.version < record.version:
            self._topics[record.name] = record
            for number in range(record.all_partitions):
                self._routes.pop((record.name, number), None)
        return self._topics[record.name]

    def _learn_views(self, record: TopicRecord) -> None:
        for view in record.views:
            self._views[view.name] = view.source

    def _forget(self, name: str) -> None:
        self._topics.pop(name, None)
        for place in [place for place in self._routes if place[0] == name]:
            self._routes.pop(place, None)

    def _change(self, records: str, name: str, decide: Callable[[str], str]) -> Operation[str]:
        while True:
            old: str = yield admin.read_record(records, name)
            new = decide(old)
            if new == old:
                return old
            swapped: Command[bool] = admin.swap(self.keys, records, name, old, new)
            if (yield swapped):
                return new


def _unless(made: str) -> Callable[[str], str]:
    """Keep the record that is there, else take this one."""
    return lambda old: old or made
