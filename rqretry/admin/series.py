"""The history of the numbers: who records it, and what is read of it (docs/decisions/0114)."""

import logging
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from rqretry.admin.context import AdminContext
from rqretry.admin.incidents import moment
from rqretry.admin.queries import stats as read_stats
from rqretry.admin.views import Stats
from rqretry.core.errors import RqretryError
from rqretry.protocol.command import Each, Operation, batches
from rqretry.protocol.keys import NamespaceKeys
from rqretry.protocol.series import (
    ALL,
    WEEK,
    Point,
    Recorded,
    Row,
    forget,
    name_of,
    read_series,
    record_series,
    recorded_names,
)

MOST_GROUPS = 5000
BATCH = 250
"""Groups in a call."""
_MINUTE_MS, _MINUTE_S, _HOUR = 60_000, 60.0, 60

log = logging.getLogger("rqretry")


class SeriesWriter:
    """Records once a minute what statistics say, unless somebody else does."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_at = float("-inf")

    def round(self, context: AdminContext, stats: Stats | None = None) -> Operation[bool]:
        """Record the minute, if it has begun and nobody has; `stats`: the numbers, if read.

        What this user may not is left out.
        """
        if self._clock() < self._next_at:
            return False
        keys = context.catalog.keys
        taken = yield from _tried(record_series(keys))
        wait_s = (_MINUTE_MS - taken.now_ms % _MINUTE_MS) / 1000 if taken else _MINUTE_S
        self._next_at = self._clock() + wait_s
        if taken is None or not taken.minute:
            return False
        now = stats or (yield from read_stats(context))
        if int(taken.minute) % _HOUR == 0:  # of what was recorded while it left
            known: set[str] = yield recorded_names(keys)
            if gone := sorted(known - {row.name for row in _rows(now)}):
                yield [*forget(keys, gone)]
        return (yield from _record(keys, taken.minute, list(islice(_rows(now), MOST_GROUPS))))


def series(
    context: AdminContext,
    groups: Iterable[tuple[str, str]] = (),
    *,
    minutes: int = WEEK,
    all_points: bool = True,
) -> Operation[dict[tuple[str, str] | None, list[Point]]]:
    """What each of these groups (topic and group) has done, and None: all together.

    `all_points`: those in which a group did nothing, too.
    """
    pairs = list(groups)
    names = [name_of(*pair) for pair in pairs]
    found = yield from read_series(context.catalog.keys, names, minutes, all_points=all_points)
    return {None: found[ALL]} | {pair: found[name_of(*pair)] for pair in pairs}


def _record(keys: NamespaceKeys, minute: str, rows: list[Row]) -> Operation[bool]:
    due, succeeded, failed = sum(row.due for row in rows), 0, 0
    known = [row for row in rows if row.due or row.succeeded or row.failed]
    for some in batches(known, BATCH):
        answer = yield from _tried(record_series(keys, minute, some))
        if answer is None or not answer.minute:
            return False
        succeeded, failed = succeeded + answer.succeeded, failed + answer.failed
    answer = yield from _tried(record_series(keys, minute, [Row(ALL, due, succeeded, failed)]))
    return answer is not None and bool(answer.minute)


def _rows(stats: Stats) -> Iterable[Row]:
    for topic in stats.topics:
        for group in topic.groups:
            yield Row(name_of(topic.topic, group.group), *moment(group)[:3])


def _tried(command: Any) -> Operation[Recorded | None]:
    [answer] = yield Each([command])
    if isinstance(answer, RqretryError):
        log.debug("the numbers of this minute are not recorded: %s", answer)
        return None
    return answer  # type: ignore[no-any-return]
