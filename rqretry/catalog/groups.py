"""Groups: find them, change their settings, and say where they have messages."""

from collections.abc import Iterable
from typing import Any

from rqretry.catalog.group_rules import check_shares, source_of
from rqretry.catalog.store import CatalogPart, Place
from rqretry.core.catalog_records import GroupRecord
from rqretry.core.errors import GroupNotFound, show
from rqretry.protocol import inspect
from rqretry.protocol.command import Operation

PINNABLE = ("max_retries", "policy", "max_inflight", "rate_limit")
"""The settings of a group that an operator can pin."""


class Groups(CatalogPart):
    """The consumer groups of a namespace."""

    def get(self, name: str) -> Operation[GroupRecord]:
        """A group's record as it is now. Raises GroupNotFound."""
        return (yield from self._store.group(name))

    def all(self) -> Operation[list[GroupRecord]]:
        """All groups, by name."""
        yield from self._store.open()
        return (yield from self._store.groups.all())

    def places(self, group: str, topics: Iterable[str]) -> Operation[list[Place]]:
        """Every partition of what a consumer names as its topics, with the group's keys there.

        Raises:
            GroupNotFound, TopicNotFound: One of them is not there.
        """
        names = tuple(topics)
        source = source_of(group, names)
        if source:
            names = (yield from self._store.group(source)).topics
            yield from self._store.group(group)
        partitions = yield from self._store.partitions_of(names)
        return [
            Place(topic, number, self._store.group_keys(topic, number, group))
            for topic, number in partitions
        ]

    def count_held(self, group: str, topics: Iterable[str]) -> Operation[int]:
        """How many messages a group holds in these topics. Raises GroupNotFound."""
        record = yield from self._store.group(group)
        count = 0
        for name in topics:
            if name not in (*record.topics, *record.leaving):
                raise GroupNotFound(f"group {show(group)} is not subscribed to topic {show(name)}")
            topic = yield from self._store.topic(name)
            keys = [self._store.group_keys(name, n, group) for n in range(topic.partitions)]
            parts: list[inspect.Stats] = yield [inspect.stats(key) for key in keys]
            count += sum(part.held for part in parts)
        return count

    def check_inflight(
        self, group: str, wanted: int | None, joining: Iterable[str] = ()
    ) -> Operation[None]:
        """Whether there is a share of it for each partition. Raises ConfigError."""
        record = yield from self._store.groups.find(group)
        if wanted is None:
            wanted = record.max_inflight if record else 0
        if wanted:
            known = record.topics if record else ()
            partitions = yield from self._store.partitions_of(dict.fromkeys((*known, *joining)))
            check_shares(group, wanted, len(partitions))

    def preview(self, name: str, **settings: Any) -> Operation[tuple[GroupRecord, GroupRecord]]:
        """A group's record as it is, and as it would be with these settings; nothing is written.

        Raises what `set` raises.
        """
        record = yield from self._store.group(name)
        if "max_inflight" in settings:
            yield from self.check_inflight(name, settings["max_inflight"])
        return record, record.changed(record.changed_by, record.changed_at_ms, **settings)

    def set(self, name: str, *, pin: bool | None = None, **settings: Any) -> Operation[GroupRecord]:
        """Change a group's settings everywhere at once. Raises GroupNotFound.

        `pin` True pins what is named (nothing named: all that can be), False unpins it.
        """
        store = self._store
        yield from store.group(name)
        if "max_inflight" in settings:
            yield from self.check_inflight(name, settings["max_inflight"])
        now_ms = yield from store.now_ms()
        named = {field for field in PINNABLE if field in settings} or set(PINNABLE)

        def changed(record: GroupRecord) -> GroupRecord:
            pinned = set(record.pinned)
            if pin is not None:
                pinned = pinned | named if pin else pinned - named
            kept = tuple(field for field in PINNABLE if field in pinned)
            return record.changed(store.actor, now_ms, pinned=kept, **settings)

        record = yield from store.groups.change(name, changed)
        yield from store.configure(record)
        return record
