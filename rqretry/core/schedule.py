"""Schedules: when a periodic message is due, and what is kept of each schedule.

A slot is a time at which a message is published, in seconds since the epoch. All slots of a
schedule follow from its timetable alone, so every worker finds the same ones
(docs/decisions/0079-periodic-messages.md).
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from itertools import takewhile
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo, available_timezones

from rqretry.core.durations import Duration, compact, milliseconds
from rqretry.core.errors import CodecError, ConfigError, InvalidArgument, refuse, show
from rqretry.core.limits import check_name

CatchUp = Literal["last", "all", "none"]
ON_TIME_S = 60
"""A slot that is published up to so much later is on time; a later one was missed."""
MOST_CAUGHT_UP = 100
"""How many missed slots "all" publishes, the newest ones."""
MAX_NAME = 100
"""Of a schedule: its messages' ids are longer by a slot."""
_FIELDS = 5
_TIMETABLE = {"cron": str, "every_s": int, "timezone": str}
_RECORD = {
    "catch_up": str, "body": object, "position": int, "last": int | None, "paused": bool,
    "changed_by": str, "changed_at_ms": int,
}  # fmt: skip
"""What is stored of a schedule, and as what."""
_NEVER = "never fires: no month that it names has such a day"
_SECOND = 1000
_LONGEST_S = 366 * 86_400


@dataclass(frozen=True, slots=True)
class Timetable:
    """When the slots of a schedule are: by a cron line, or every so many seconds.

    Attributes:
        cron: Minute, hour, day of month, month and day of week; "" for an interval.
        every_s: The interval, counted from the epoch; 0 for a cron line.
        timezone: Where the cron line is read.
    """

    cron: str = ""
    every_s: int = 0
    timezone: str = "UTC"

    @staticmethod
    def parse(cron: object, every: Duration | None, timezone: object) -> "Timetable":
        """Check what a user wrote.

        Raises:
            InvalidArgument: Both or neither is given, or one of them means nothing.
            ConfigError: What reads cron lines is not installed.
        """
        if (cron is None) is (every is None):
            wrong = "both a cron line and every=" if every is not None else "neither of them"
            raise InvalidArgument(
                'a schedule takes a cron line such as "0 3 * * *" or an interval such as'
                f' every="10m", and this one has {wrong}: give one'
            )
        if every is not None:
            if timezone is not None:
                refuse("timezone", timezone, "cannot be given with every=: remove it")
            return Timetable(every_s=_interval(every))
        found = Timetable(_line(cron), 0, _zone("UTC" if timezone is None else timezone).key)
        if next(found.after(0), None) is None:
            refuse("cron", cron, _NEVER)
        return found

    def after(self, at: int) -> Iterator[int]:
        """The slots after a time, in their order."""
        if self.every_s:
            slot = at - at % self.every_s
            while True:
                slot += self.every_s
                yield slot
        begin = datetime.fromtimestamp(at, UTC).astimezone(_zone(self.timezone))
        library = _cronsim()
        try:
            slots = library.CronSim(self.cron, begin)
        except library.CronSimError as error:
            raise CodecError(f"the cron line {show(self.cron)} cannot be read: {error}") from error
        for found in slots:
            slot = int(found.timestamp())
            if slot > at:  # an hour that comes twice is read from its beginning
                yield slot

    def upto(self, after: int, until: int) -> list[int]:
        """The slots after a time, up to and with another one."""
        return list(takewhile(lambda slot: slot <= until, self.after(after)))

    def newest(self, after: int, until: int, most: int) -> list[int]:
        """The last ones of them, found without going through all."""
        found: list[int] = []
        window = most * max(60, self.every_s)
        while most > 0 and len(found) < most and after < until:
            found = self.upto(max(after, until - window), until)
            if until - window <= after:
                break
            window *= 4
        return found[-most:] if most else []

    def pending(self, after: int, now: int, catch_up: str) -> list[int]:
        """The slots to publish now, where those up to `after` are done."""
        late = now - ON_TIME_S
        on_time = self.upto(max(after, late - 1), now)
        most = {"all": MOST_CAUGHT_UP, "last": 0 if on_time else 1}.get(catch_up, 0)
        return self.newest(after, late - 1, most) + on_time

    def __str__(self) -> str:
        """As tables show it."""
        return self.cron or f"every {compact(self.every_s * _SECOND)}"


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """What is stored of a schedule.

    Attributes:
        name: The schedule, and the topic and the group of its messages.
        timetable: When it is due.
        catch_up: What happens to missed slots.
        body: What each of its messages holds.
        position: Slots up to this time are done with.
        last: The last slot that was published; None for none yet.
        paused: Nothing is published.
        changed_by, changed_at_ms: Who defined, paused or resumed it last, and when.
    """

    name: str
    timetable: Timetable
    catch_up: str = "last"
    body: Any = None
    position: int = 0
    last: int | None = None
    paused: bool = False
    changed_by: str = ""
    changed_at_ms: int = 0

    def redefined(self, old: "ScheduleRecord | None", now_ms: int) -> "ScheduleRecord":
        """This definition in place of an old one; another timetable begins now."""
        now = now_ms // _SECOND
        if old is None:
            return replace(self, position=now, changed_at_ms=now_ms)
        same = old.timetable == self.timetable
        if same and (old.catch_up, old.body) == (self.catch_up, self.body):
            return old
        position = old.position if same else max(old.position, now)
        return replace(
            self, position=position, last=old.last, paused=old.paused, changed_at_ms=now_ms
        )

    def next_slot(self, now: int) -> int | None:
        """The next slot after now; None if it is paused."""
        return None if self.paused else next(self.timetable.after(max(now, self.position)), None)

    def encode(self) -> str:
        """As it is stored."""
        fields = asdict(self)
        del fields["name"]
        return json.dumps(fields, separators=(",", ":"), sort_keys=True)

    @staticmethod
    def decode(name: str, text: str) -> "ScheduleRecord":
        """Read what is stored; a newer version may have stored more. Raises CodecError."""
        try:
            found = json.loads(text)
            timetable = Timetable(**_read_fields(found["timetable"], _TIMETABLE))
            record = ScheduleRecord(name, timetable, **_read_fields(found, _RECORD))
            for time in (record.position, record.last or 0, record.changed_at_ms // _SECOND):
                spell_slot(time + timetable.every_s + _LONGEST_S)
        except (ValueError, TypeError, KeyError, AttributeError, OSError, OverflowError) as error:
            raise CodecError(f"the record of schedule {show(name)} is damaged: {error}") from error
        return record


def _read_fields(found: dict[str, Any], kinds: dict[str, Any]) -> dict[str, Any]:
    """The fields that this version knows. Raises TypeError where one cannot be."""
    values = {name: found[name] for name in kinds if name in found}
    for name, value in values.items():
        if not isinstance(value, kinds[name]) or (name == "every_s" and value < 0):
            raise TypeError(f"{name} is {show(value)}")
    return values


def check_schedule(name: object) -> str:
    """A schedule's name: 1 to 100 characters of A-Z a-z 0-9 _ . -, the first no dot."""
    return check_name("schedule", name, MAX_NAME)


def check_catch_up(value: object) -> CatchUp:
    """What happens to missed slots. Raises InvalidArgument."""
    if value not in get_args(CatchUp):
        refuse("catch_up", value, 'must be "last", "all" or "none"')
    return value  # type: ignore[return-value]


def spell_slot(slot: int) -> str:
    """A slot as ids and headers have it: "2026-11-22T03:00:00Z"."""
    return datetime.fromtimestamp(slot, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def message_id(name: str, slot: int) -> str:
    """The id of a slot's message: the same whoever publishes it."""
    return f"{name}:{spell_slot(slot)}"


def _interval(every: Duration) -> int:
    every_ms = milliseconds(every, name="every", minimum=1, maximum=_LONGEST_S)
    if every_ms % _SECOND:
        refuse("every", every, "must be whole seconds")
    return every_ms // _SECOND


def _line(cron: object) -> str:
    if not isinstance(cron, str):
        refuse("cron", cron, 'must be a str such as "0 3 * * *"')
    fields = cron.split()
    if len(fields) != _FIELDS:
        rule = (
            f"has {len(fields)} field{'s'[: len(fields) != 1]} and must have 5: minute, hour, day"
            " of month, month and day of week; for seconds give an interval such as"
            ' every="30s"'
        )
        refuse("cron", cron, rule)
    error = _error_in(fields)
    if error and not _error_in([*fields[:3], "*", fields[4]]):
        refuse("cron", cron, _NEVER)
    if error:
        refuse("cron", cron, f"cannot be read ({error}): correct that field")
    return " ".join(fields)


def _error_in(fields: list[str]) -> str:
    library = _cronsim()
    try:
        library.CronSim(" ".join(fields), datetime.fromtimestamp(0, UTC))
    except library.CronSimError as error:
        return str(error).lower()
    return ""


@lru_cache(maxsize=64)
def _zone(name: Any) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError, AttributeError):
        known = available_timezones()
    if not known:
        raise ConfigError(
            f"timezone {show(name)} cannot be read, since this machine has no time zone data:"
            " install rqretry[cron], which brings it"
        )
    near = get_close_matches(str(name), known, 1)
    meant = f"; did you mean {near[0]}?" if near else ', such as "Europe/Berlin"'
    return refuse("timezone", name, f"is not a known time zone{meant}")


def _cronsim() -> Any:
    try:
        return import_module("cronsim")
    except ImportError as error:
        raise ConfigError(
            "reading a cron line needs the package cronsim: install rqretry[cron], or give an"
            ' interval such as every="10m"'
        ) from error
