"""The namespace's records, what a client knows of them, and their copies in the partitions.

The truth lives in the namespace's own slot and is copied to the partitions, version by version,
newer wins (docs/decisions/0017). Every change reads a record, decides, and sets it if it has not
changed meanwhile, so a call that was cut off can be repeated; what a client has left half copied is
completed by the next one that finds it.
"""

import logging
import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple

from rqretry.core.catalog_records import (
    SCHEMA,
    GroupRecord,
    Record,
    TopicRecord,
    raised,
    schema_and_levels,
    settings_of,
    with_unknown,
)
from rqretry.core.delay_levels import DEFAULT_LEVELS, LevelTable
from rqretry.core.errors import (
    CodecError,
    ConfigError,
    GroupNotFound,
    RqretryError,
    StoreUnavailable,
    TopicNotFound,
    show,
)
from rqretry.core.route import Route
from rqretry.core.suggestion import did_you_mean
from rqretry.protocol import audit_log, catalog, inspect, rate_limit
from rqretry.protocol.command import Command, Each, Operation, Pause, batches
from rqretry.protocol.keys import (
    GroupKeys,
    NamespaceKeys,
    PartitionKeys,
    bucket_key,
    partition_keys,
)

log = logging.getLogger("rqretry")
Partition = catalog.Partition

SCHEMA_EVERY_S = 15.0
"""How often a client that goes on reads which schema the namespace has by now."""
_SETTINGS = "settings"
_ROUNDS, _AT_ONCE, _LONGEST_PAUSE_S = 200, 10, 0.1
"""How often a change of a record is tried, and how often without a pause."""
NAMESPACE = ("", 0)
"""Its slot, where partitions are named."""


class NewerNamespace(ConfigError):
    """A newer rqretry keeps the namespace in a way that this one must not touch."""


class Place(NamedTuple):
    """One group in one partition of one topic."""

    topic: str
    partition: int
    keys: GroupKeys


class Records(Generic[Record]):
    """The records of all topics, or of all groups, in the namespace's slot."""

    def __init__(
        self,
        keys: NamespaceKeys,
        stored_in: str,
        decode: Callable[[str, str], Record],
        missing: Callable[[str], RqretryError],
    ) -> None:
        self._keys = keys
        self._stored_in = stored_in
        self._decode = decode
        self.missing = missing
        """The error for a name without a record."""
        self.damaged: dict[str, str] = {}
        """What `all` could not read, and why."""

    def find(self, name: str) -> Operation[Record | None]:
        """One record, if it is there."""
        stored: str = yield inspect.read_record(self._stored_in, name)
        return self._decode(name, stored) if stored else None

    def all(self) -> Operation[list[Record]]:
        """All that can be read, by name; one that is damaged concerns itself alone."""
        stored: dict[str, str] = yield inspect.read_records(self._stored_in)
        found, before = [], self.damaged
        self.damaged = {}
        for name in sorted(stored):
            try:
                found.append(self._decode(name, stored[name]))
            except CodecError as error:
                self.damaged[name] = str(error)
                if name not in before:
                    log.warning("%s; it is left out", error)
        return found

    def change(self, name: str, decide: Callable[[Record], Record]) -> Operation[Record]:
        """Change a record that is there; `decide` may be asked more than once.

        Raises what `missing` makes.
        """

        def checked(old: Record | None) -> Record:
            if old is None:
                raise self.missing(name)
            return decide(old)

        changed = yield from self.swap(name, checked)
        assert changed is not None
        return changed

    def swap(
        self, name: str, decide: Callable[[Record | None], Record | None]
    ) -> Operation[Record | None]:
        """Create, change or delete a record: `decide` turns what is stored into what should be.

        None stands for no record. Returns what is stored in the end. New versions come from the
        time: none is given out twice, not by a server that went back to older data.
        """
        now_ms: int = yield audit_log.now(self._keys)

        def decided(old: str) -> str:
            was = self._decode(name, old) if old else None
            record = decide(was)
            if record is was:
                return old
            if was is None or record is None:
                return record.encode() if record else ""
            return with_unknown(old, was.encode(), raised(was, record, now_ms).encode())

        stored = yield from compare_and_set(self._keys, self._stored_in, name, decided)
        return self._decode(name, stored) if stored else None


def meant(stored_in: str, name: str) -> Operation[str]:
    """A question such as "; did you mean orders?", or nothing, where names may not be read too."""
    (known,) = yield Each([inspect.read_records(stored_in)], None)
    return "" if isinstance(known, RqretryError) else did_you_mean(name, known)


def compare_and_set(
    keys: NamespaceKeys, stored_in: str, name: str, decide: Callable[[str], str]
) -> Operation[str]:
    """Change one field of the namespace, until nobody else has changed it in between.

    Raises:
        StoreUnavailable: Others change it all the time; nothing was written.
    """
    for round_ in range(_ROUNDS):
        old: str = yield inspect.read_record(stored_in, name)
        new = decide(old)
        if new == old:
            return old
        if (yield catalog.compare_and_set(keys, stored_in, name, old, new)):
            return new
        if round_ >= _AT_ONCE:
            yield Pause(random.uniform(0, _LONGEST_PAUSE_S))
    raise StoreUnavailable(f"{stored_in} {show(name)} is changed by others all the time: try again")


class CatalogStore:
    """What all parts of the catalog share."""

    def __init__(self, namespace: str, levels: LevelTable | None = None, actor: str = "") -> None:
        self.namespace = namespace
        self.keys = NamespaceKeys(namespace)
        self.actor = actor
        self.topics = Records(self.keys, self.keys.topics, TopicRecord.decode, self._no_topic)
        self.groups = Records(self.keys, self.keys.groups, GroupRecord.decode, self._no_group)
        self.levels: LevelTable | None = None
        """The namespace's level table, once it is known."""
        self.known: dict[str, TopicRecord] = {}
        """Topics that were read before."""
        self.noted: dict[tuple[str, int], Route] = {}
        """Routes that partitions reported and that are newer than the topic's known record."""
        self.times: dict[tuple[str, int], int] = {}
        """What partitions, and the NAMESPACE, reported as their time to who came too late."""
        self._wanted = levels
        self._read_at = math.inf
        self._sources: dict[str, str] = {}
        """Groups that consume dead letters, and whose."""

    def open(self) -> Operation[LevelTable]:
        """The namespace's level table; the first client of all sets it.

        The first client of a newer schema takes the namespace over, and older ones stop: so it is
        read again from time to time.

        Raises:
            ConfigError: This client names another table than the namespace has, or a newer
                rqretry wrote the namespace.
        """
        now = time.monotonic()
        if self.levels is None or now >= self._read_at + SCHEMA_EVERY_S:
            keys, levels = self.keys, self._wanted or DEFAULT_LEVELS
            stored = yield from compare_and_set(
                keys, keys.settings, _SETTINGS, lambda old: settings_of(old, levels)
            )
            self.note_settings(stored)
        assert self.levels is not None
        return self.levels

    def note_settings(self, stored: str) -> None:
        """The namespace's settings as they are now. Raises as `open` does."""
        self.levels = self._checked(*schema_and_levels(stored))
        self._read_at = time.monotonic()

    def _checked(self, schema: int, levels: LevelTable) -> LevelTable:
        if schema > SCHEMA:
            raise NewerNamespace(
                f"namespace {show(self.namespace)} has schema {schema}, written by a newer"
                f" rqretry; this one knows {SCHEMA}. Upgrade this client."
            )
        if self._wanted is not None and self._wanted != levels:
            raise ConfigError(
                f"delay_levels {show(str(self._wanted))} differ from those of namespace"
                f" {show(self.namespace)}, {show(str(levels))}, which were set when it was first"
                " used; name the same ones, none, or use another namespace"
            )
        return levels

    def now_ms(self) -> Operation[int]:
        """The server's time in milliseconds."""
        return (yield audit_log.now(self.keys))  # type: ignore[no-any-return]

    def _no_topic(self, name: str) -> TopicNotFound:
        return TopicNotFound(f"there is no topic {show(name)} in namespace {show(self.namespace)}")

    def _no_group(self, name: str) -> GroupNotFound:
        return GroupNotFound(
            f"there is no consumer group {show(name)} in namespace {show(self.namespace)}"
        )

    # -- records -----------------------------------------------------------------------------

    def topic(self, name: str) -> Operation[TopicRecord]:
        """A topic's record as it is now. Raises TopicNotFound."""
        record = yield from self.topic_if_there(name)
        if record is None:
            raise (yield from self.missing_topic(name))
        return record

    def topic_if_there(self, name: str) -> Operation[TopicRecord | None]:
        """The same; None where it was deleted, or never was."""
        yield from self.open()
        record = yield from self.topics.find(name)
        if record is None or record.deleting:
            self.forget(name)
            return None
        return self.keep(record)

    def missing_topic(self, name: str, remedy: str = "") -> Operation[TopicNotFound]:
        """The error for somebody who named it; to find what was meant, all names are read."""
        hint = yield from meant(self.keys.topics, name)
        return TopicNotFound(f"{self._no_topic(name)}{remedy}{hint}")

    def topics_now(self, names: Iterable[str]) -> Operation[list[TopicRecord]]:
        """The records of many topics as they are now; those that are there."""
        yield from self.open()
        found = []
        for some in batches(tuple(names)):
            stored = yield inspect.read_these(self.keys.topics, some)
            texts = zip(some, stored, strict=True)
            records = (TopicRecord.decode(name, text) for name, text in texts if text)
            found += [self.keep(record) for record in records if not record.deleting]
        return found

    def topics_of(self, names: Iterable[str]) -> Operation[list[TopicRecord]]:
        """The same of topics that all have to be there. Raises TopicNotFound."""
        wanted = tuple(names)
        there = {record.name: record for record in (yield from self.topics_now(wanted))}
        for name in wanted:
            if name not in there:
                there[name] = yield from self.topic(name)
        return [there[name] for name in wanted]

    def group(self, name: str) -> Operation[GroupRecord]:
        """A group's record as it is now. Raises GroupNotFound."""
        yield from self.open()
        record = yield from self.groups.find(name)
        if record is None:
            hint = yield from meant(self.keys.groups, name)
            raise GroupNotFound(f"{self._no_group(name)}{hint}")
        return self.learn(record)

    def keep(self, record: TopicRecord) -> TopicRecord:
        """Remember a topic as it was just read; it is older where the server has lost its data."""
        self.learn_dlq_groups(record)
        known = self.known.get(record.name)
        if known is None or known.version != record.version:
            self.forget(record.name)
            self.known[record.name] = record
        return self.known[record.name]

    def forget(self, name: str) -> None:
        """A topic is not there any more."""
        self.known.pop(name, None)
        for reported in (self.noted, self.times):
            for partition in [partition for partition in reported if partition[0] == name]:
                reported.pop(partition, None)

    def learn(self, record: GroupRecord) -> GroupRecord:
        """Remember whose dead letters a group consumes, if it does."""
        if record.source:
            self._sources[record.name] = record.source
        return record

    def learn_dlq_groups(self, record: TopicRecord) -> None:
        """Remember which groups of a topic consume dead letters, and whose."""
        for group in record.dlq_groups:
            self._sources[group.name] = group.source

    def strike(self, group: str, topic: str, field: str) -> Operation[GroupRecord | None]:
        """Take a topic off a list in a group's record, `leaving` or `catching_up`."""

        def done(old: GroupRecord | None) -> GroupRecord | None:
            rest = without(getattr(old, field), topic) if old else ()
            return old and old.changed(old.changed_by, old.changed_at_ms, **{field: rest})

        return (yield from self.groups.swap(group, done))

    def first_version(self, setting: str) -> Operation[int]:
        """The first version of a new topic, or group.

        It is above the versions of all that were deleted, and of all that a server has lost:
        clients and partitions may still know one of the same name.
        """
        deleted: str = yield inspect.read_record(self.keys.settings, setting)
        return max(int(deleted or 1), (yield from self.now_ms()))

    def raise_first_version(self, setting: str, least: int) -> Operation[None]:
        """One with a version below `least` is being deleted."""

        def raised(old: str) -> str:
            return str(max(int(old or 1), least))

        yield from compare_and_set(self.keys, self.keys.settings, setting, raised)

    # -- partitions --------------------------------------------------------------------------

    def partition(self, topic: str, number: int) -> PartitionKeys:
        """The keys of a partition."""
        return partition_keys(self.namespace, topic, number)

    def group_keys(self, topic: str, partition: int, group: str) -> GroupKeys:
        """The keys of a group in a partition; after `open`."""
        assert self.levels is not None
        source = self._sources.get(group, "")
        return self.partition(topic, partition).group(group, len(self.levels), source)

    def partitions_of(self, topics: Iterable[str]) -> Operation[list[Partition]]:
        """All partitions of these topics, as they are now. Raises TopicNotFound."""
        return _all_of((yield from self.topics_of(topics)))

    def install(self, *records: TopicRecord, partitions: Iterable[int] = ()) -> Operation[None]:
        """Copy the routes of topics to their partitions; the first group takes the backlog."""
        there = {record.name: record for record in records}

        def copy(partition: Partition, here: str) -> Command[int | str]:
            route = there[partition[0]].route
            return catalog.subscribe(self.partition(*partition), route, here)

        def again() -> Operation[list[Partition]]:
            for record in (yield from self.topics_of([*there])):
                there[record.name] = record
            return _all_of(there.values())

        some = [(record.name, number) for record in records for number in partitions]
        yield from catalog.copied(some or _all_of(records), copy, again)

    def configure(self, group: GroupRecord, topics: Iterable[str] | None = None) -> Operation[None]:
        """Copy a group's settings to the partitions of these topics; default all of its topics.

        A rate limit is in force once the partitions ask for tokens, so the bucket comes before
        them, and is emptied after them.
        """
        yield from self.open()
        bucket = bucket_key(self.namespace, group.name)
        limit = rate_limit.rate_set(bucket, group.version, group.rate_limit)
        if group.rate_limit:
            yield limit
        names = tuple(group.topics if topics is None else topics)
        yield from self._configure_in(names, group)
        if not group.rate_limit:
            yield limit

    def _configure_in(self, names: Sequence[str], group: GroupRecord) -> Operation[None]:
        shares: dict[Partition, int] = {}
        there: dict[str, TopicRecord] = {}

        def read() -> Operation[list[Partition]]:
            shares.update((yield from self._shares(group)))
            there.update((topic.name, topic) for topic in (yield from self.topics_of(names)))
            found = there.values()
            return _all_of(topic for topic in found if topic.byte_of(group.name) or group.source)

        def copy(partition: Partition, here: str) -> Command[int | str]:
            assert self.levels is not None
            name, number = partition
            byte, share = there[name].byte_of(group.name), shares.get(partition, 0)
            fields = group.configuration(self.levels, byte, name, share)
            keys = self.group_keys(name, number, group.name)
            return catalog.configure(keys, group.version, fields, here)

        def again() -> Operation[list[Partition]]:
            nonlocal group
            group = yield from self.group(group.name)
            shares.clear()
            return (yield from read())

        yield from catalog.copied((yield from read()), copy, again)

    def _shares(self, group: GroupRecord) -> Operation[dict[Partition, int]]:
        """Each partition's share of a group's max_inflight; none if there is no limit."""
        if not (group.max_inflight and group.topics):
            return {}
        partitions = yield from self.partitions_of(group.topics)
        least, more = divmod(group.max_inflight, len(partitions))
        # None is no limit. A group that joins while a topic grows may have fewer than partitions.
        return {place: max(1, least + (index < more)) for index, place in enumerate(partitions)}


def _all_of(topics: Iterable[TopicRecord]) -> list[Partition]:
    return [(topic.name, number) for topic in topics for number in range(topic.all_partitions)]


def without(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    """All names but one."""
    return tuple(other for other in names if other != name)


class CatalogPart:
    """One part of the catalog, over what all of them share."""

    def __init__(self, store: CatalogStore) -> None:
        self._store = store
