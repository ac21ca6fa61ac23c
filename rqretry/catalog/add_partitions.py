"""The part of the catalog that adds partitions to a topic, in two phases (decisions 26).

First the new partitions are made complete: every group is configured there and the route is there.
Only then does the route tell publishers of them. A call that is cut off in between is completed by
the next one, or by the next start of a group of the topic.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from rqretry.catalog.backfill import StartingCatalog
from rqretry.core.catalog_records import GroupRecord, TopicRecord
from rqretry.core.errors import ConfigError, InvalidArgument, show
from rqretry.protocol.command import Operation


class GrowingCatalog(StartingCatalog):
    """Adds partitions."""

    def grow_topic(self, name: str, partitions: int) -> Operation[TopicRecord]:
        """Give a topic so many partitions, which is at least as many as it has.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidArgument: It has more.
            ConfigError: Messages that must stay in order are unfinished, or a group's max_inflight
                is less than the partitions would be.
        """
        record = yield from self.refreshed(name)
        least = record.all_partitions
        if partitions < least:
            raise InvalidArgument(
                f"partitions {partitions} of topic {show(name)}: it has {least}, and what is in a"
                f" partition stays there, so there are never fewer; give {least} or more"
            )
        if partitions > least:
            yield from self._check_growth(record, partitions)
            stored = yield from self._change(self.keys.topics, name, _growing(name, partitions))
            record = self._keep(TopicRecord.decode(name, stored))
        return (yield from self._finish_growing(record))

    def _resume_growth(self, topics: Iterable[str]) -> Operation[None]:
        """Complete a growth that was cut off, unless ordered messages are in its way."""
        for name in topics:
            with suppress(ConfigError):
                yield from self._finish_growing((yield from self.refreshed(name)))

    def _finish_growing(self, record: TopicRecord) -> Operation[TopicRecord]:
        """Complete the new partitions, and let publishers use them."""
        if record.all_partitions == record.partitions:
            return record
        new = range(record.partitions, record.all_partitions)
        for member in record.members:
            group = yield from self._with_new_shares(member.name)
            yield from self._configure(group, topics=[record.name])
            if group.max_inflight:
                yield from self._configure(group)
        yield from self.install(record, partitions=new)
        yield from self._refuse_ordered(record)
        stored = yield from self._change(self.keys.topics, record.name, _grown(record.name))
        record = self._keep(TopicRecord.decode(record.name, stored))
        yield from self.install(record)
        return record

    def _with_new_shares(self, name: str) -> Operation[GroupRecord]:
        """A group's record; with max_inflight its next version, since every part is another one."""

        def touched(old: str) -> str:
            record = GroupRecord.decode(name, old) if old else None
            if record is None or not record.max_inflight:
                return old
            return replace(record, version=record.version + 1).encode()

        yield from self._change(self.keys.groups, name, touched)
        return (yield from self.group(name))

    def _check_growth(self, record: TopicRecord, partitions: int) -> Operation[None]:
        yield from self._refuse_ordered(record)
        for member in record.members:
            group = yield from self.group(member.name)
            others = yield from self._partitions_of(t for t in group.topics if t != record.name)
            most = group.max_inflight
            if most and most < len(others) + partitions:
                raise ConfigError(
                    f"partitions {partitions} of topic {show(record.name)}: group"
                    f" {show(group.name)} has max_inflight {most}, which is split over all its"
                    f" partitions; raise it to {len(others) + partitions} or more first"
                )

    def _refuse_ordered(self, record: TopicRecord) -> Operation[None]:
        unfinished = yield from self.unfinished_ordered(record)
        if unfinished:
            raise ConfigError(
                f"topic {show(record.name)} has {unfinished} unfinished ordered messages, which"
                " more partitions would put out of order; let them finish, and repeat this"
            )


def _growing(name: str, partitions: int) -> Callable[[str], str]:
    return lambda old: TopicRecord.decode(name, old).growing_to(partitions).encode()


def _grown(name: str) -> Callable[[str], str]:
    return lambda old: TopicRecord.decode(name, old).grown().encode()
