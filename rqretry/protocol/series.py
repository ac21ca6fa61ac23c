"""What every group did: by the minute for a day, by ten minutes for a week; recorded and read."""

import math
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple

from rqretry.protocol.command import MAX_BATCH, Command, Operation, batches, call, query, text
from rqretry.protocol.keys import HOUR_RING, NamespaceKeys

ALL = "all"
"""The name of all groups together."""
DAY, WEEK = 1440, 10_080
"""In minutes."""
_HOUR, _SPAN, _TEN = 60, 360, 10
_SPANS_KEPT = 28
_HEAD, _RECORD = 3, Struct(">BBHBHBH")
"""Bucket, and three numbers of three bytes; lua/record_series.lua writes it."""


class Row(NamedTuple):
    """The counters of a group now, and what is due."""

    name: str
    due: int
    succeeded: int
    failed: int


class Recorded(NamedTuple):
    """What a call answered."""

    minute: str
    """Since the epoch; "" if another writer has it."""
    now_ms: int
    succeeded: int
    failed: int


class Point(NamedTuple):
    """A stretch of time."""

    at_s: float
    """When it ended, since the epoch."""
    seconds: float
    due: int
    """At most."""
    succeeded: int
    failed: int


def name_of(topic: str, group: str) -> str:
    """The name of a group of a topic."""
    return f"{topic}/{group}"


def record_series(keys: NamespaceKeys, minute: str = "", rows: Iterable[Row] = ()) -> Command[Any]:
    """Take the minute; or, with what that answered, record what these have done."""
    flat = (value for row in rows for value in row)
    return call(keys.scripts, "record_series", (minute, *flat), _recorded)


def forget(keys: NamespaceKeys, names: Sequence[str]) -> Iterable[Command[int]]:
    """These groups are gone."""
    for some in batches(names):
        for key in (keys.series, *keys.rings):
            yield Command("forget", (), (), int, arguments=("HDEL", key, *some))


def read_series(
    keys: NamespaceKeys, names: Sequence[str], minutes: int = WEEK, *, all_points: bool = True
) -> Operation[dict[str, list[Point]]]:
    """What is known of the last so many minutes: of the last day each, before that each ten.

    A stretch in which nobody recorded is part of the next one. Without `all_points` those in which
    a group did nothing are left out.
    """
    last = yield query(lambda reply: int(reply or 0), "HGET", keys.series, "minute")
    first, day = last - min(minutes, WEEK) + 1, _TEN * math.ceil((last - DAY + 1) / _TEN)
    turns = [(turn, _HOUR, 1) for turn in range(max(first, day) // _HOUR, last // _HOUR + 1)]
    if first < day:
        turns += [(turn, _SPAN, _TEN) for turn in range(first // _SPAN, day // _SPAN + 1)]
    found: dict[str, dict[int, tuple[int, int, int]]] = {name: {} for name in (ALL, *names)}
    for some in batches((ALL, *dict.fromkeys(names)), MAX_BATCH):
        answers = yield [
            query(list, "HMGET", _key(keys, turn, length), *some) for turn, length, _ in turns
        ]
        for (turn, length, width), blobs in zip(turns, answers, strict=True):
            low, high = (max(first, day), last + 1) if width == 1 else (first, day)
            for name, blob in zip(some, blobs, strict=True):
                for bucket, *row in _unpacked(blob or b"", turn):
                    start = turn * length + bucket * width
                    if low <= start < high:
                        found[name][start] = row[0], row[1], row[2]
    widths = {start: 1 if start >= day else _TEN for start in sorted(found[ALL])}
    seconds = _seconds(widths)
    return {
        name: [
            Point((start + widths[start]) * 60.0, seconds[start], *rows.get(start, (0, 0, 0)))
            for start in (seconds if all_points else sorted(rows.keys() & seconds))
        ]
        for name, rows in found.items()
    }


def _key(keys: NamespaceKeys, turn: int, length: int) -> str:
    hours, spans = keys.rings[:HOUR_RING], keys.rings[HOUR_RING:]
    return hours[turn % len(hours)] if length == _HOUR else spans[turn % len(spans)]


def recorded_names(keys: NamespaceKeys) -> Command[set[str]]:
    """The groups of which anything was recorded."""
    return query(lambda flat: {text(n) for n in flat[::2] if b"/" in n}, "HGETALL", keys.series)


def _unpacked(blob: bytes, turn: int) -> Iterable[tuple[int, ...]]:
    """The records of a turn of the ring; none of an earlier one."""
    whole = (len(blob) - _HEAD) // _RECORD.size * _RECORD.size
    if int.from_bytes(blob[:_HEAD]) == turn and whole > 0:
        for bucket, a, b, c, d, e, f in _RECORD.iter_unpack(blob[_HEAD : _HEAD + whole]):
            yield bucket, a << 16 | b, c << 16 | d, e << 16 | f


def _seconds(widths: Mapping[int, int]) -> dict[int, float]:
    """How long each stretch was, behind the one before."""
    seconds: dict[int, float] = {}
    before: int | None = None
    for start, width in widths.items():
        seconds[start] = (start + width - (start if before is None else before)) * 60.0
        before = start + width
    return seconds


def _recorded(reply: list[Any]) -> Recorded:
    minute, now_ms, succeeded, failed = reply
    shown = text(minute) if isinstance(minute, bytes) else str(minute)
    return Recorded(shown, int(now_ms), int(succeeded), int(failed))
