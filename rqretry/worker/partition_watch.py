"""Finding the partitions that were added or have gone since a worker started, within a look."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from rqretry.catalog.catalog import Catalog
from rqretry.catalog.group_rules import source_of
from rqretry.catalog.store import NewerNamespace
from rqretry.consumer.registry import ConsumerSpec
from rqretry.core.catalog_records import TopicRecord
from rqretry.core.errors import RqretryError
from rqretry.protocol.inspect import read_these
from rqretry.protocol.keys import GroupKeys
from rqretry.transport.store import Store
from rqretry.worker.leases import Intake, LeasedPlace

log = logging.getLogger("rqretry")

LOOK_EVERY_S = 20.0


class Joined(Intake, Protocol):
    """A consumer that has joined its group."""

    spec: ConsumerSpec


C = TypeVar("C", bound=Joined)


@dataclass(eq=False)
class PartitionWatch(Generic[C]):
    """Finds new places for the consumers of a process."""

    _store: Store
    _catalog: Catalog
    _consumers: Sequence[C]
    _add: Callable[[C, tuple[str, int, GroupKeys]], None]
    _remove: Callable[[C, LeasedPlace], None]
    _look_again: Callable[[C], None]
    _seen: list[str] = field(default_factory=list, init=False)
    """The records of the topics at the last look."""

    async def run(self) -> None:
        """Look every few seconds, for ever. Raises NewerNamespace."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self._store.perform(self._catalog.open())
                await self._look_at_all()
            except NewerNamespace:
                raise  # this worker must not go on
            except RqretryError as error:
                log.info("looking for new partitions failed, trying again: %s", error)

    async def _look_at_all(self) -> None:
        """Compare the topics with the last look; while nothing changes, that is one command."""
        plain = [c for c in self._consumers if not source_of(c.spec.group, c.spec.topics)]
        names = sorted({name for consumer in plain for name in consumer.spec.topics})
        if names:
            records = await self._store.run(read_these(self._catalog.keys.topics, names))
            stored = dict(zip(names, records, strict=True))
            if records == self._seen:
                plain = []
            for consumer in plain:
                _warn_of_tags(consumer.spec, stored)
            plain = [c for c in plain if _differs(c, stored)]
            self._seen = records
        for consumer in self._consumers:
            if consumer in plain or source_of(consumer.spec.group, consumer.spec.topics):
                try:
                    await self._look(consumer)
                    if consumer in plain:
                        self._look_again(consumer)
                except RqretryError as error:
                    self._seen = []  # look again, though nothing changes
                    group = consumer.spec.group
                    log.info("new partitions of group %s cannot be read yet: %s", group, error)

    async def _look(self, consumer: C) -> None:
        known = {(place.topic, place.partition) for place in consumer.places}
        places = await self._store.perform(
            self._catalog.groups.places(consumer.spec.group, consumer.spec.topics)
        )
        for place in places:
            topic, number, keys = place
            if (topic, number) not in known:
                self._add(consumer, place)
                log.info("group %s: partition %d of %s is new", keys.group, number, topic)
        there = {(topic, number) for topic, number, _ in places}
        for old in list(consumer.places):
            # As where a topic was deleted, or the server lost it, and it has fewer partitions now.
            if (old.topic, old.partition) not in there and not (old.leases or old.outbox):
                self._remove(consumer, old)
                log.warning("%s is not there any more", old.keys)


def _warn_of_tags(spec: ConsumerSpec, stored: Mapping[str, str]) -> None:
    """Log that the group takes something else than this instance named."""
    for name in spec.topics if spec.tags is not None else ():
        groups = TopicRecord.decode(name, stored[name]).groups if stored[name] else ()
        taken = next((group.tags for group in groups if group.name == spec.group), spec.tags)
        if taken != spec.tags:
            log.warning(
                "group %s takes %s of topic %s, as another instance of it named, and not %s as this"
                " one did: name the same tags in all of them, or use another group name",
                spec.group, taken, name, spec.tags,
            )  # fmt: skip


def _differs(consumer: Joined, stored: Mapping[str, str]) -> bool:
    """Whether a topic is gone, does not know the group, or has other partitions than it had."""
    counts = Counter(place.topic for place in consumer.places)
    for name in consumer.spec.topics:
        record = TopicRecord.decode(name, stored[name]) if stored[name] else None
        if record is None or not record.byte_of(consumer.spec.group):
            return True
        if record.all_partitions != counts[name]:
            return True
    return False
