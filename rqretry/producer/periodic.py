"""Publishing periodic messages, without I/O: each slot of a schedule once, whoever is up.

All messages of a schedule go through one lane of one partition, whose calls are numbered by their
slots: a slot that is not above the last one stores nothing, however late its worker is
(docs/decisions/0079-periodic-messages.md).
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rqretry.catalog.catalog import Catalog
from rqretry.core.envelope import checksum
from rqretry.core.errors import CodecError, RqretryError, ScriptError
from rqretry.core.message import SLOT_HEADER, OutgoingMessage
from rqretry.core.message_id import make_id
from rqretry.core.schedule import ScheduleRecord, check_schedule, message_id, spell_slot
from rqretry.producer.encode import draft
from rqretry.producer.lane import Call, Lane, Publishing
from rqretry.protocol.command import Operation
from rqretry.protocol.publish import compressed
from rqretry.transport.session import ServerClock

log = logging.getLogger("rqretry")

LANE_TTL_MS = 400 * 86_400_000
"""How long a partition remembers a schedule's last slot: no worker hangs for longer."""
_AGAIN_S, _FOLDED_S = 1, 60
"""A schedule that cannot be published is tried again so soon, and named so seldom."""
_PARTITION = 0
"""Of all periodic messages: a slot has the same one whatever partitions are added."""


class PeriodicMessages:
    """The periodic messages of an app: its schedules, and where they are published."""

    def __init__(self, publishing: Publishing, declared: Sequence[ScheduleRecord]) -> None:
        self.declared = declared
        self._publishing = publishing
        self._schedules = publishing.catalog.schedules
        self._named: dict[str, int] = {}
        """When a failure of a schedule was logged last."""

    def define(self) -> Operation[None]:
        """Store what the app declares, as its worker starts."""
        for definition in self.declared:
            try:
                yield from self._schedules.define(definition)
            except CodecError as error:
                log.warning("schedule %s is not published: %s", definition.name, error)

    def publish_due(self, latest_ms: int | None = None) -> Operation[tuple[int, int | None]]:
        """Publish the slots that are due.

        What is stored of a schedule counts, and not what this app declares.

        Args:
            latest_ms: A time above this one cannot be true yet: nothing is published.

        Returns:
            The server's time, and when the next slot is due, in its milliseconds; None for never.
        """
        names = [definition.name for definition in self.declared]
        now_ms, stored = yield from self._schedules.now_and(names)
        if latest_ms is not None and now_ms > latest_ms:
            return now_ms, None
        found: list[int | None] = []
        for definition, text in zip(self.declared, stored, strict=True):
            try:
                found.append((yield from self._publish_due(definition, text, now_ms // 1000)))
            except RqretryError as error:
                now = now_ms // 1000
                if now - self._named.get(definition.name, -_FOLDED_S) >= _FOLDED_S:
                    self._named[definition.name] = now
                    log.warning("schedule %s, trying again: %s", definition.name, error)
                found.append(now + _AGAIN_S)
        next_slot = min((slot for slot in found if slot is not None), default=None)
        return now_ms, None if next_slot is None else next_slot * 1000

    def _publish_due(
        self, definition: ScheduleRecord, text: str, now: int
    ) -> Operation[int | None]:
        name = definition.name
        if text:
            record = ScheduleRecord.decode(name, text)
        else:  # deleted, or the server lost its data
            record = yield from self._schedules.define(definition)
        first = record.next_slot(record.position)
        if first is None or first > now:
            return first
        slots = record.timetable.pending(record.position, now, record.catch_up)
        for slot in slots:
            yield from self._publish_slot(record, slot)
        if first not in slots:
            log.warning(
                "schedule %s missed slots since %s: catch_up=%s publishes %d of them and of those"
                " that are due",
                name, spell_slot(first), record.catch_up, len(slots),
            )  # fmt: skip
        yield from self._schedules.move(name, now, slots[-1] if slots else None)
        return record.next_slot(now)

    def _publish_slot(self, record: ScheduleRecord, slot: int) -> Operation[None]:
        topic, publishing = record.name, self._publishing
        item = _message(record, slot, id_=message_id(topic, slot))
        message, _ = draft(item, "", publishing.clock.now_ms())
        yield from publishing.catalog.open()
        found = yield from publishing.catalog.topics.get(topic, create=True)
        messages, same = compressed([message], found.compress_from), checksum([message.id])
        call = Call(topic, _PARTITION, f"cron.{topic}", slot, messages, same, LANE_TTL_MS)
        answer = yield from publishing.call(call)
        if answer.status not in {"OK", "DUPLICATE", "LANE_CONFLICT"}:
            raise ScriptError("lua/publish.lua", 0, f"unexpected answer {answer.status}")


class Operator(Protocol):
    """What triggering needs: see rqretry.admin.context.AdminContext."""

    @property
    def catalog(self) -> Catalog:
        """The namespace's."""

    def audit(
        self, verb: str, arguments: Mapping[str, Any], counts: Mapping[str, Any] | None = None
    ) -> Operation[None]:
        """Add an audit record."""


def trigger(context: Operator, name: str) -> Operation[str]:
    """Publish a message of a schedule now, paused or not; its slots stay as they are.

    Args:
        name: The schedule.

    Returns:
        The message's id.

    Raises:
        ScheduleNotFound: There is no such schedule.
        AmbiguousResult: It may be published.
        StoreUnavailable, QueueFull: Nothing was published.
    """
    catalog, checked = context.catalog, check_schedule(name)
    yield from catalog.open()
    record = yield from catalog.schedules.find(checked)
    now_ms = yield from catalog.store.now_ms()
    message, _ = draft(_message(record, now_ms // 1000), make_id(now_ms), now_ms)
    topic = yield from catalog.topics.get(name, create=True)
    lane = Lane(name, _PARTITION, topic.partitions)
    messages = compressed([message], topic.compress_from)
    (answer,) = yield from Publishing(catalog, ServerClock()).send(lane, messages)
    if isinstance(answer, Exception):
        raise answer
    yield from context.audit("trigger", {"schedule": name, "id": str(answer)})
    return str(answer)


def _message(record: ScheduleRecord, slot: int, id_: str | None = None) -> OutgoingMessage:
    return OutgoingMessage(body=record.body, headers={SLOT_HEADER: spell_slot(slot)}, id=id_)
