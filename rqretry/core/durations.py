"""Durations as users write them: seconds, a timedelta, or text such as "1m30s"; and dates.

Python works in seconds, the store in whole milliseconds; both conversions are here,
with the two ways to print one: `spell` for people, `compact` for tables and settings.
"""

import math
import re
from datetime import datetime, timedelta
from typing import TypeAlias

from rqretry.core.errors import refuse, show

Duration: TypeAlias = float | int | str | timedelta
"""Seconds as a number, a timedelta, or text such as "10s", "1m30s" or "250ms"."""

_ALLOWED = 'seconds, or text such as "10s", "1m30s" or "250ms"'
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_TEXT = re.compile(
    rf"\s*(?:{_NUMBER}\s*d)?\s*(?:{_NUMBER}\s*h)?\s*(?:{_NUMBER}\s*m(?!s))?"
    rf"\s*(?:{_NUMBER}\s*s)?\s*(?:{_NUMBER}\s*ms)?\s*",
    re.ASCII,
)
_BARE = re.compile(rf"\s*{_NUMBER}\s*", re.ASCII)
_TEXT_UNITS_S = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_LONGEST_TEXT = 100
_LONGEST_S = 10_000 * 366 * 86_400
_LAST_SECOND = 253_402_300_800
"""Of the year 9999, the last that a datetime knows."""


def seconds(
    value: Duration,
    *,
    name: str,
    minimum: float = 0.0,
    maximum: float | None = None,
) -> float:
    """Return a duration in seconds.

    Args:
        value: Seconds as a number, a timedelta, or text in the units d h m s ms,
            largest first ("1d", "1h30m", "250ms"); text without a unit means seconds.
        name: What the argument is called, for the error.
        minimum: The least allowed value, in seconds.
        maximum: The largest allowed value, in seconds; None for no limit.

    Raises:
        InvalidArgument: It is not a duration, not finite, or outside the two limits.
    """
    result = _in_seconds(value)
    if result is None or not abs(result) <= _LONGEST_S:
        refuse(name, value, f"is not a duration: give {_ALLOWED}")
    if result < minimum or (maximum is not None and result > maximum):
        limits = f"at least {spell(minimum)}"
        if maximum is not None:
            limits = f"between {spell(minimum)} and {spell(maximum)}"
        refuse(name, value, f"is out of range: it must be {limits}")
    return result


def milliseconds(
    value: Duration,
    *,
    name: str,
    minimum: float = 0.0,
    maximum: float | None = None,
) -> int:
    """Like `seconds`, in whole milliseconds; anything above 0 is at least 1.

    `minimum` and `maximum` are in seconds.
    """
    exact = seconds(value, name=name, minimum=minimum, maximum=maximum)
    return max(round(exact * 1000), 1) if exact > 0 else 0


def epoch_ms(name: str, value: datetime | float) -> int:
    """A date as users write it, in milliseconds since the epoch.

    Args:
        name: What the argument is called, for the error.
        value: A datetime with a time zone, or seconds since the epoch.

    Raises:
        InvalidArgument: It is not a date, or a datetime without a time zone.
    """
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            refuse(name, value, "has no time zone: use an aware datetime")
        return round(value.timestamp() * 1000)
    number = not isinstance(value, bool) and isinstance(value, int | float)
    if not number or not abs(value) < _LAST_SECOND:
        refuse(name, value, "must be an aware datetime, or seconds since the epoch")
    return round(value * 1000)


def spell(duration: float) -> str:
    """Seconds in words for people: 17140 is "4 h 45 m 40 s", 0.25 is "250 ms"."""
    if not math.isfinite(duration):
        return show(duration)
    rest = round(abs(duration) * 1000)
    if rest == 0:
        return "0 s" if duration == 0 else f"{duration * 1000:g} ms"
    return ("-" if duration < 0 else "") + " ".join(_parts(rest, " "))


def compact(duration_ms: int) -> str:
    """Milliseconds as the shortest text that `seconds` reads back: "1m30s", "2h"."""
    return "".join(_parts(duration_ms, "")) or "0s"


def _parts(rest_ms: int, space: str) -> list[str]:
    parts = []
    for unit, unit_ms in _UNITS_MS.items():
        count, rest_ms = divmod(rest_ms, unit_ms)
        if count:
            parts.append(f"{count}{space}{unit}")
    return parts


def _in_seconds(value: object) -> float | None:
    """None if the value is not a duration at all."""
    if isinstance(value, bool):
        return None
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        return _parsed(value)
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    return None


def _parsed(text: str) -> float | None:
    if len(text) > _LONGEST_TEXT:
        return None
    if bare := _BARE.fullmatch(text):
        return float(bare[1])
    match = _TEXT.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    parts = zip(match.groups(), _TEXT_UNITS_S, strict=True)
    # fsum: the parts of "4 h 45 m 40 s" must add up to the same float as the number.
    return math.fsum(float(count) * unit for count, unit in parts if count)
