"""Adding partitions to a topic, in two phases (docs/decisions/0017).

First the new partitions are made complete: every group is configured there and the route is there.
Only then does the route show them to publishers. A call that is cut off in between is completed by
the next one, or by the next start of a group of the topic.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from rqretry.catalog.store import CatalogPart
from rqretry.core.catalog_records import GroupRecord, TopicRecord
from rqretry.core.errors import ConfigError, InvalidArgument, show
from rqretry.protocol import inspect
from rqretry.protocol.command import Operation


class PartitionGrowth(CatalogPart):
    """Adds partitions to topics."""

    def grow(self, name: str, partitions: int) -> Operation[TopicRecord]:
        """Give a topic so many partitions, which is at least as many as it has.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidArgument: It has more.
            ConfigError: Messages that must stay in order are unfinished, or a group's max_inflight
                is less than the partitions would be.
        """
        record = yield from self._store.topic(name)
        least = record.all_partitions
        if partitions < least:
            raise InvalidArgument(
                f"partitions {partitions} of topic {show(name)}: it has {least}, and what is in a"
                f" partition stays there, so there are never fewer; give {least} or more"
            )
        if partitions > least:
            yield from self._check(record, partitions)
            changed = yield from self._store.topics.change(
                name, lambda old: old.growing_to(partitions)
            )
            record = self._store.keep(changed)
        return (yield from self._finish(record))

    def resume(self, topics: Iterable[str]) -> Operation[None]:
        """Complete a growth that was cut off, unless ordered messages are in its way."""
        for name in topics:
            with suppress(ConfigError):
                yield from self._finish((yield from self._store.topic(name)))

    def unfinished_ordered(self, record: TopicRecord) -> Operation[int]:
        """How many unfinished messages of a topic must stay in order.

        Those that wait in the message groups of its ordered groups; while it has no group, which
        may become one, all that have a message group.
        """
        yield from self._store.open()
        numbers = range(record.partitions)
        if not record.groups:
            partitions = [self._store.partition(record.name, number) for number in numbers]
            return sum((yield [inspect.in_message_groups(keys) for keys in partitions]))
        counts = [
            inspect.messages_in_order(self._store.group_keys(record.name, number, group.name))
            for group in record.groups
            if group.ordered
            for number in numbers
        ]
        return sum((yield counts)) if counts else 0

    def _finish(self, record: TopicRecord) -> Operation[TopicRecord]:
        """Complete the new partitions, and let publishers use them."""
        if record.all_partitions == record.partitions:
            return record
        store = self._store
        for member in record.members:
            group = yield from self._with_new_shares(member.name)
            yield from store.configure(group, topics=[record.name])
            if group.max_inflight:
                yield from store.configure(group)
        yield from store.install(record, range(record.partitions, record.all_partitions))
        yield from self._refuse_ordered(record)
        record = store.keep((yield from store.topics.change(record.name, TopicRecord.grown)))
        yield from store.install(record)
        return record

    def _with_new_shares(self, name: str) -> Operation[GroupRecord]:
        """A group's record; with max_inflight its next version, since every share is another."""
        yield from self._store.groups.change(
            name, lambda old: replace(old, version=old.version + 1) if old.max_inflight else old
        )
        return (yield from self._store.group(name))

    def _check(self, record: TopicRecord, partitions: int) -> Operation[None]:
        yield from self._refuse_ordered(record)
        for member in record.members:
            group = yield from self._store.group(member.name)
            others = [topic for topic in group.topics if topic != record.name]
            least = len((yield from self._store.partitions_of(others))) + partitions
            if 0 < group.max_inflight < least:
                raise ConfigError(
                    f"partitions {partitions} of topic {show(record.name)}: group"
                    f" {show(group.name)} has max_inflight {group.max_inflight}, which is split"
                    f" over all its partitions; raise it to {least} or more first"
                )

    def _refuse_ordered(self, record: TopicRecord) -> Operation[None]:
        unfinished = yield from self.unfinished_ordered(record)
        if unfinished:
            raise ConfigError(
                f"topic {show(record.name)} has {unfinished} unfinished ordered messages, which"
                " more partitions would put out of order; let them finish, and repeat this"
            )
