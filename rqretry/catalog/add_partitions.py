"""Adding partitions to a topic, in three phases (docs/decisions/0036).

First the new partitions are made complete: every group is configured there and the route is there.
Then the topic is closed: publishers wait, until nothing is unfinished that must stay in order. Only
then does the route show the new partitions. A call that is cut off is completed by the next one, or
by the next start of a group of the topic; until then, a publisher that waited long enough opens it.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from rqretry.catalog.store import CatalogPart
from rqretry.core.catalog_records import GroupRecord, TopicRecord
from rqretry.core.errors import ConfigError, InvalidArgument, show
from rqretry.protocol import inspect
from rqretry.protocol.command import Operation, Pause
from rqretry.protocol.keys import GroupKeys, PartitionKeys

_LOOK_S = 0.05
LOOKS_WHILE_CLOSED = 40
"""So long a topic is closed while what must stay in order is finished; else it does not grow."""
LOOKS_BEFORE_OPENING = 200
"""So long publishers wait; then whoever closed the topic is taken for dead."""


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
        record = yield from self.check(name, partitions)
        if partitions > record.all_partitions:
            changed = yield from self._store.topics.change(
                name, lambda old: old.growing_to(partitions)
            )
            record = self._store.keep(changed)
        return (yield from self._finish(record))

    def check(self, name: str, partitions: int) -> Operation[TopicRecord]:
        """The topic, if it may have so many partitions; raises what `grow` raises."""
        record = yield from self._store.topic(name)
        least = record.all_partitions
        if partitions < least:
            raise InvalidArgument(
                f"partitions {partitions} of topic {show(name)}: it has {least}, and what is in a"
                f" partition stays there, so there are never fewer; give {least} or more"
            )
        if partitions > least:
            yield from self._check(record, partitions)
        return record

    def wait(self, name: str) -> Operation[None]:
        """Wait until a closed topic is open; after some seconds open it.

        Raises TopicNotFound.
        """
        record = yield from self._store.topic(name)
        for _ in range(LOOKS_BEFORE_OPENING):
            if not record.closed:
                return
            yield Pause(_LOOK_S)
            record = yield from self._store.topic(name)
        yield from self.open(record)

    def open(self, record: TopicRecord) -> Operation[None]:
        """Let publishers use a closed topic again, with the partitions that it had."""
        yield from self._change(record, lambda old: old.open(record.closed, old.partitions))

    def resume(self, topics: Iterable[str]) -> Operation[None]:
        """Complete a growth that was cut off, unless ordered messages are in its way."""
        for record in (yield from self._store.topics_now(topics)):
            with suppress(ConfigError):
                yield from self._finish(record)

    def unfinished_ordered(self, record: TopicRecord) -> Operation[int]:
        """How many unfinished messages of a topic must stay in order.

        Those that wait in the message groups of its ordered groups; while it has no group, which
        may become one, all that have a message group; and those of transactions that may come.
        """
        yield from self._store.open()
        ordered = [group.name for group in record.groups if group.ordered]
        if record.groups and not ordered:
            return 0
        now_ms = yield from self._store.now_ms()
        unfinished = 0
        for number in range(record.partitions):
            keys = self._store.partition(record.name, number)
            halves, due, grouped, *held = yield [
                inspect.halves(keys),
                inspect.scheduled_before(keys, now_ms),
                inspect.in_message_groups(keys),
                *[inspect.messages_in_order(self._group_keys(keys, name)) for name in ordered],
            ]
            # What a transaction has committed is scheduled until it is delivered.
            unfinished += halves + (due if grouped else 0) + (sum(held) if ordered else grouped)
        return unfinished

    def _group_keys(self, keys: PartitionKeys, group: str) -> GroupKeys:
        return self._store.group_keys(keys.topic, keys.partition, group)

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
        yield from store.install(record, partitions=range(record.partitions, record.all_partitions))
        yield from self._refuse_ordered(record)
        record = yield from self._change(record, TopicRecord.close)
        for _ in range(LOOKS_WHILE_CLOSED):
            if not (yield from self.unfinished_ordered(record)):
                break
            yield Pause(_LOOK_S)
        else:
            yield from self.open(record)
            yield from self._refuse_ordered(record)
        now_ms = yield from store.now_ms()
        grown = yield from self._change(
            record, lambda old: old.open(record.closed, old.all_partitions, now_ms)
        )
        if grown.partitions < record.all_partitions:
            raise ConfigError(
                f"topic {show(record.name)} was closed for too long, and took messages before it"
                " had its new partitions; repeat this"
            )
        return grown

    def _change(
        self, record: TopicRecord, decide: Callable[[TopicRecord], TopicRecord]
    ) -> Operation[TopicRecord]:
        """Change a topic's record and its copies in all partitions."""
        changed = self._store.keep((yield from self._store.topics.change(record.name, decide)))
        yield from self._store.install(changed)
        return changed

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
