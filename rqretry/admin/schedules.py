"""Operations on schedules: list, pause, resume and delete them."""

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rqretry.admin.context import AdminContext
from rqretry.core.errors import RqretryError
from rqretry.core.schedule import ScheduleRecord, message_id
from rqretry.protocol.command import Operation

log = logging.getLogger("rqretry")


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """One schedule.

    Attributes:
        name: The schedule, and the topic and the group of its messages.
        schedule: Its cron line, or "every 10m".
        timezone: Where the line is read.
        catch_up: What happens to missed slots: "last", "all" or "none".
        body: What each message holds.
        paused: Nothing is published.
        next_ms: The next slot, milliseconds since the epoch; None if it is paused.
        last_ms: The last slot that was published; None for none yet.
        last_id: The id of its message.
        changed_by: Who defined, paused or resumed it last.
        changed_at_ms: When.
    """

    name: str
    schedule: str
    timezone: str
    catch_up: str
    body: Any
    paused: bool
    next_ms: int | None
    last_ms: int | None
    last_id: str | None
    changed_by: str
    changed_at_ms: int


def schedules(context: AdminContext) -> Operation[list[ScheduleInfo]]:
    """All schedules that can be read, by name; `fsck` names the others."""
    now_ms = yield from context.catalog.store.now_ms()
    found, damaged = yield from context.catalog.schedules.all()
    for error in damaged.values():
        log.warning("%s; it is left out", error)
    return [_info(record, now_ms) for record in found]


def schedule(context: AdminContext, name: str) -> Operation[ScheduleInfo]:
    """One schedule.

    Args:
        name: The schedule.

    Raises:
        ScheduleNotFound: There is no such schedule.
    """
    record = yield from context.catalog.schedules.find(name)
    return _info(record, (yield from context.catalog.store.now_ms()))


def pause_schedule(context: AdminContext, name: str) -> Operation[ScheduleInfo]:
    """Publish no periodic messages until it is resumed; those that are stored are delivered.

    Args:
        name: The schedule.

    Raises:
        ScheduleNotFound: There is no such schedule.
    """
    return (yield from _paused(context, name, paused=True))


def resume_schedule(context: AdminContext, name: str) -> Operation[ScheduleInfo]:
    """Publish again from now on: slots in the pause are not made up.

    Args:
        name: The schedule.

    Raises:
        ScheduleNotFound: There is no such schedule.
    """
    return (yield from _paused(context, name, paused=False))


def delete_schedule(context: AdminContext, name: str) -> Operation[None]:
    """Delete a schedule that no live worker declares; its topic and its messages stay.

    Args:
        name: The schedule.

    Raises:
        ScheduleNotFound: There is no such schedule.
        ConfigError: A live worker declares it, and would define it again.
    """
    yield from context.catalog.schedules.find(name)
    yield from context.refuse_live(name, "delete_schedule", [name])
    yield from context.catalog.schedules.delete(name)
    yield from context.audit("delete_schedule", {"schedule": name})


def _paused(context: AdminContext, name: str, *, paused: bool) -> Operation[ScheduleInfo]:
    record = yield from context.catalog.schedules.pause(name, paused=paused)
    verb = "pause_schedule" if paused else "resume_schedule"
    yield from context.audit(verb, {"schedule": name})
    return _info(record, (yield from context.catalog.store.now_ms()))


def _info(record: ScheduleRecord, now_ms: int) -> ScheduleInfo:
    next_slot = None
    with suppress(RqretryError):  # workers may have what reads it, or a newer version
        next_slot = record.next_slot(now_ms // 1000)
    last = record.last
    return ScheduleInfo(
        record.name,
        str(record.timetable),
        record.timetable.timezone,
        record.catch_up,
        record.body,
        record.paused,
        None if next_slot is None else next_slot * 1000,
        None if last is None else last * 1000,
        None if last is None else message_id(record.name, last),
        record.changed_by,
        record.changed_at_ms,
    )
