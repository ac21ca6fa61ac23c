"""Topics: create, find, limit and delete them, and their routes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rqretry.catalog.store import CatalogPart, CatalogStore
from rqretry.core.catalog_records import TopicRecord
from rqretry.core.errors import ConfigError, InvalidArgument, TopicNotFound, show
from rqretry.core.route import Route
from rqretry.protocol import inspect, operate
from rqretry.protocol.command import Operation

_VERSIONS = "topic_versions"
_UNKNOWN = Route(version=-1)
_ROUNDS = 20


class Topics(CatalogPart):
    """The topics of a namespace."""

    def __init__(self, store: CatalogStore) -> None:
        super().__init__(store)
        self._routes: dict[str, tuple[TopicRecord, Route]] = {}
        """Routes as records have them; every publish asks."""
        self.declared: Mapping[str, int | None] = {}
        """Partitions of topics that this program declares, for when it creates them."""
        self.only_declared = False
        """This program creates no others."""

    def get(self, name: str, *, create: bool = False) -> Operation[TopicRecord]:
        """A topic's record, as it was last seen. Raises TopicNotFound unless it is created."""
        if name in self._store.known:
            return self._store.known[name]
        yield from self._store.open()
        if create and self._may_create(name):
            return (yield from self.create(name, self.declared.get(name)))
        record = yield from self._store.topic_if_there(name)
        if record is None:
            raise (yield from self._missing(name, create=create))
        return record

    def get_if_there(self, name: str) -> Operation[TopicRecord | None]:
        """The same; None where it was deleted, or never was."""
        known = self._store.known.get(name)
        return known or (yield from self._store.topic_if_there(name))

    def check_declared(self, record: TopicRecord) -> None:
        """Raises InvalidArgument: This program declares another number of partitions."""
        _check_partitions(record, self.declared.get(record.name))

    def _may_create(self, name: str) -> bool:
        return not self.only_declared or name in self.declared

    def _missing(self, name: str, *, create: bool) -> Operation[TopicNotFound]:
        remedy = (
            f", and create_topics=False: declare it with app.topic({show(name)}), or"
            f" create it with: rqretry topic create {name}"
        )
        return (yield from self._store.missing_topic(name, remedy if create else ""))

    def find(self, name: str) -> Operation[TopicRecord | None]:
        """A topic's record as it is now, also of one that is being deleted."""
        yield from self._store.open()
        return (yield from self._store.topics.find(name))

    def all(self) -> Operation[list[TopicRecord]]:
        """All topics, by name."""
        yield from self._store.open()
        records = yield from self._store.topics.all()
        for record in records:
            self._store.learn_dlq_groups(record)
        return [record for record in records if not record.deleting]

    def count_stored(self, record: TopicRecord) -> Operation[int]:
        """How many message bodies a topic keeps."""
        keys = [self._store.partition(record.name, number) for number in range(record.partitions)]
        return sum((yield [inspect.stored(key) for key in keys]))

    def create(self, name: str, partitions: int | None) -> Operation[TopicRecord]:
        """Create a topic, or find it; `partitions` None: 1 for a new one.

        Raises:
            InvalidArgument: The topic exists with another number of partitions.
        """
        yield from self._store.open()
        record = yield from self._found_or_made(name, partitions or 1)
        _check_partitions(record, partitions)
        yield from self._store.install(record)
        return self._store.keep(record)

    def _found_or_made(self, name: str, partitions: int) -> Operation[TopicRecord]:
        store = self._store
        for _ in range(_ROUNDS):
            record = yield from store.topics.find(name)
            if record is None:
                made = TopicRecord(name, partitions, (yield from store.first_version(_VERSIONS)))
                record = yield from store.topics.swap(name, lambda old, made=made: old or made)  # type: ignore[misc]
                assert record is not None
            if not record.deleting:
                return record
            yield from self._erase(record)
        raise ConfigError(f"topic {show(name)} is deleted again and again; create it later")

    def set_limits(self, name: str, **limits: Any) -> Operation[TopicRecord]:
        """Change how much a topic may hold: fields of its record. Raises TopicNotFound."""

        def limited(old: TopicRecord) -> TopicRecord:
            if old.deleting or replace(old, **limits) == old:
                return old
            return replace(old, version=old.version + 1, **limits)

        yield from self._store.topic(name)
        record = self._store.keep((yield from self._store.topics.change(name, limited)))
        yield from self._store.install(record)
        return record

    def remove(self, name: str) -> Operation[None]:
        """Delete a topic that no group is subscribed to, with all it stores.

        Raises:
            InvalidArgument: A group is subscribed.
        """

        def deleting(old: TopicRecord | None) -> TopicRecord | None:
            if old is None:
                return None
            check_no_groups(old)
            if old.deleting:
                return old
            return replace(old, version=old.version + 1, deleting=True)

        record = yield from self._store.topics.swap(name, deleting)
        if record is not None:
            yield from self._erase(record)
        self._store.forget(name)

    def _erase(self, record: TopicRecord) -> Operation[None]:
        """Empty the partitions of a topic that is being deleted; its record goes last."""
        store = self._store
        yield [
            operate.erase(store.partition(record.name, number))
            for number in range(record.all_partitions)
        ]
        yield from store.raise_first_version(_VERSIONS, record.version + 1)
        yield from store.topics.swap(record.name, lambda old: None if old and old.deleting else old)

    def route(self, topic: str, partition: int) -> Route:
        """What is known of a partition's route."""
        noted = self._store.noted.get((topic, partition))
        record = self._store.known.get(topic)
        if noted is not None or record is None:
            return noted or _UNKNOWN
        made = self._routes.get(topic)
        if made is None or made[0] is not record:
            made = self._routes[topic] = record, record.route
        return made[1]

    def note_route(
        self, topic: str, partition: int, route: Route, *, create: bool = False
    ) -> Operation[None]:
        """A partition reported another route: believe it, or bring the partition up to date.

        Raises:
            TopicNotFound: The topic was deleted, and must not be created again.
        """
        store = self._store
        known = store.known.get(topic)
        if known is not None and route.version >= known.version:
            wanted = route.partitions, route.compress_from
            if wanted != (known.partitions, known.compress_from):  # publishers go by the record
                yield from store.topic(topic)
            store.noted[topic, partition] = route
            return
        # It is behind: a copy is missing, the server lost its data, or the topic was deleted.
        record = yield from store.topic_if_there(topic)
        if record is not None:
            yield from store.install(record, partitions=[partition])
            store.noted.pop((topic, partition), None)
        elif create and self._may_create(topic):
            # Whoever was quicker may have made it with another number of partitions.
            record = yield from self._found_or_made(topic, known.partitions if known else 1)
            yield from store.install(store.keep(record))
        else:
            raise (yield from self._missing(topic, create=create))


def _check_partitions(record: TopicRecord, wanted: int | None) -> None:
    has = record.partitions
    if wanted is not None and has != wanted:
        raise InvalidArgument(
            f"partitions {wanted} of topic {show(record.name)}: it exists with {has};"
            f" {_remedy(record.name, wanted, has)}"
        )


def _remedy(name: str, wanted: int, has: int) -> str:
    """What to do where a topic has another number of partitions than a program declares."""
    if wanted > has:
        return f"add the others with: rqretry topic set {name} --partitions {wanted}"
    return f"partitions are never removed, so declare partitions={has}, or none"


def check_no_groups(record: TopicRecord) -> None:
    """Whether a topic can be deleted without force. Raises InvalidArgument."""
    if record.members:
        raise InvalidArgument(
            f"topic {show(record.name)} has groups: {', '.join(g.name for g in record.members)};"
            " unsubscribe them first, or force it (force=True, --force)"
        )
