"""Read-only operations: statistics, one message, workers, leases, the audit record."""

from rqretry.admin import explain, timeline
from rqretry.admin.base import AdminBase
from rqretry.admin.interruptions import with_interruptions
from rqretry.admin.results import AuditEntry, InflightMessage, WorkerInfo
from rqretry.admin.statistics import gather_stats
from rqretry.admin.views import MessageView, Stats, TimelineEvent
from rqretry.core.errors import GroupNotFound, MessageNotFound, show
from rqretry.core.limits import check_count, check_group, check_keys, check_message_id, check_topic
from rqretry.core.message_id import born_ms, partition_of
from rqretry.core.worker_info import groups_of
from rqretry.protocol.audit_log import notes
from rqretry.protocol.command import Command, Operation
from rqretry.protocol.operate import Held, scan_group


class QueryAdmin(AdminBase):
    """Read-only operations."""

    def stats(self, topic: str | None = None, group: str | None = None) -> Operation[Stats]:
        """How many messages are in which state; due messages count as ready, moved or not.

        Raises:
            TopicNotFound, GroupNotFound: There is no such topic or group.
        """
        if topic is None:
            records = yield from self.catalog.topics.all()
        else:
            records = [(yield from self.catalog.topics.refreshed(check_topic(topic)))]
        if group is not None:
            wanted = yield from self.catalog.groups.get(check_group(group))
            records = [record for record in records if record.name in wanted.topics]
            if topic is not None and not records:
                raise GroupNotFound(f"group {show(group)} is not subscribed to topic {show(topic)}")
        abouts = [worker.about for worker in (yield from self._live())]
        return (yield from gather_stats(self.catalog, records, group, abouts))

    def message(self, id: str) -> Operation[MessageView]:  # noqa: A002 - the name of the contract
        """The state of a message in each group, and its history as far as it is kept.

        Raises:
            MessageNotFound: Nothing is stored under this id: it was committed by all groups,
                purged, or never published to this namespace.
        """
        view = yield from self._look(check_message_id(id))
        if view is None:
            raise self._not_stored(id)
        return view

    def remembered(self, id: str) -> Operation[MessageView]:  # noqa: A002 - the name of the contract
        """A message that is no longer stored, from its history: without its body.

        Raises:
            MessageNotFound: No history names it.
        """
        checked = check_message_id(id)
        events = yield from self._past(checked)
        if not events:
            raise self._not_stored(id)
        return timeline.remembered(checked, events)

    def timeline(self, id: str) -> Operation[list[TimelineEvent]]:  # noqa: A002 - the name of the contract
        """What happened to a message, oldest first, as far as the history is kept.

        Also of a message that all its groups have committed, while its history is kept.

        Raises:
            MessageNotFound: It is not stored, and no history names it.
        """
        checked = check_message_id(id)
        view = yield from self._look(checked)
        if view is not None:
            return list(view.timeline)
        events = yield from self._past(checked)
        if not events:
            raise self._not_stored(id)
        return events

    def explain(self, id: str) -> Operation[dict[str, str]]:  # noqa: A002 - the name of the contract
        """Why a message is not running now: one sentence for each group.

        The group is "-" if the topic has none.

        Raises:
            MessageNotFound: It is not stored, and no history names it.
        """
        checked = check_message_id(id)
        view = yield from self._look(checked)
        if view is not None:
            return {state.group: state.explain for state in view.states}
        events = yield from self._past(checked)
        if not events:
            raise self._not_stored(id)
        return timeline.ends(events)

    def find(self, key: str) -> Operation[list[str]]:
        """The ids of messages that were published with a message key.

        All stored messages, and of the others (committed, purged) those in the newest 50,000
        history entries of each partition.

        Raises:
            InvalidArgument: It is not a valid message key.
        """
        (wanted,) = check_keys(key)
        found: list[str] = []
        for record in (yield from self.catalog.topics.all()):
            for partition in range(record.partitions):
                found += yield from timeline.ids_of_key(
                    self.catalog, record.name, partition, wanted
                )
        return found

    def workers(self) -> Operation[list[WorkerInfo]]:
        """The live worker processes, by name."""
        yield from self.catalog.open()
        live = yield from self._live()
        found = [(worker, groups_of(worker.about)) for worker in live]
        rows = [
            WorkerInfo(worker.name, about.groups, about.topics, about.pid, worker.since_ms)
            for worker, about in found
        ]
        return sorted(rows, key=lambda row: row.name)

    def inflight(self, group: str) -> Operation[list[InflightMessage]]:
        """The messages of a group that are in flight, by deadline.

        Raises:
            GroupNotFound: There is no such group.
        """
        record = yield from self.catalog.groups.get(check_group(group))
        found = []
        for topic, partition, keys in (yield from self._places(record)):
            offset, total = 0, 1
            while offset < total:
                look: Command[Held] = scan_group(keys, keys.inflight, in_list=False, offset=offset)
                page = yield look
                if not page.ids:
                    break
                offset, total = offset + len(page.ids), page.total
                rows = zip(page.ids, page.attempts, page.due_ms, strict=True)
                found += [
                    InflightMessage(id_, topic, partition, attempt, due_ms or 0)
                    for id_, attempt, due_ms in rows
                ]
        return sorted(found, key=lambda row: (row.deadline_ms, row.id))

    def audit(self, count: int = 100) -> Operation[list[AuditEntry]]:
        """The newest audit records, newest first.

        Args:
            count: How many, 1 to 10,000.

        Raises:
            InvalidArgument: `count` is outside its limits.
        """
        most = check_count(count, name="count", maximum=10_000)
        found = yield notes(self.catalog.keys, count=most)
        return [AuditEntry(*line) for line in found]

    def _look(self, id_: str) -> Operation[MessageView | None]:
        records = yield from self.catalog.topics.all()
        live = [groups_of(worker.about) for worker in (yield from self._live())]
        # First where its id places it; elsewhere if partitions were added since.
        likely = [(r, partition_of(id_, r.partitions)) for r in records]
        places = [*likely, *((r, n) for r in records for n in range(r.partitions))]
        for record, partition in dict.fromkeys(places):
            served = {
                group for about in live if record.name in about.topics for group in about.groups
            }
            view = yield from explain.look(self.catalog, record, partition, id_, served)
            if view is not None:
                return view
        return None

    def _past(self, id_: str) -> Operation[list[TimelineEvent]]:
        events: list[TimelineEvent] = []
        for record in (yield from self.catalog.topics.all()):
            likely = partition_of(id_, record.partitions)
            # Elsewhere if it had a message group, or partitions were added since.
            for partition in dict.fromkeys((likely, *range(record.partitions))):
                found = yield from timeline.read_timeline(
                    self.catalog, record.name, partition, id_, born_ms(id_)
                )
                if found:
                    events += [event.at(record.name, partition) for event in found]
                    break
        ordered = sorted(events, key=lambda event: event.at_ms)
        return (yield from with_interruptions(self.catalog, ordered))

    def _not_stored(self, id_: str) -> MessageNotFound:
        return MessageNotFound(
            f"no message {show(id_)} is stored in namespace {show(self.catalog.namespace)}: it was"
            " committed by every group, purged, or never published here"
        )
