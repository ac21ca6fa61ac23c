"""What groups did in the past, as it was recorded once a minute (docs/decisions/0114)."""

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any

from rqretry.admin.series import MOST_GROUPS, series
from rqretry.admin.views import Stats
from rqretry.cli.output import Part, table_of
from rqretry.client import Client
from rqretry.core.durations import spell
from rqretry.core.parts import parts_of
from rqretry.protocol.series import Point

MINUTE_S = 60
WEEK_S = 7 * 86_400.0

Past = dict[tuple[str, str] | None, list[Point]]


def read_past(client: Client, stats: Stats, since_s: float | None) -> Past:
    """What is known of these groups since then; nothing if that was not asked."""
    if since_s is None:
        return {}
    store, context = parts_of(client.admin)
    pairs = ((topic.topic, group.group) for topic in stats.topics for group in topic.groups)
    minutes = math.ceil(since_s / MINUTE_S)
    some = islice(pairs, MOST_GROUPS)
    return store.perform(series(context, some, minutes=minutes, all_points=False))


def past_fields(past: Past, topic: str, group: str) -> dict[str, Any]:
    """For --json: the points of a group, if they were asked."""
    points = past.get((topic, group))
    return {} if points is None else {"history": [point._asdict() for point in points]}


def past_page(past: Past) -> list[Part]:
    """For people: what each group did."""
    if not past:
        return []
    if not past[None]:
        return ["no numbers are recorded: rqretry exporter, reaper and dashboard do that"]
    seconds = past[None][-1].at_s - past[None][0].at_s + past[None][0].seconds
    rows = [_row(*pair, points) for pair, points in past.items() if pair is not None]
    shown = [row for row in rows if any(row[2:])]
    if not shown:
        return [f"no group has done anything in {spell(round(seconds))}"]
    columns = ["topic", "group", "#succeeded", "#failed", "#most due"]
    return [f"in {spell(round(seconds))} that are recorded:", table_of(columns, shown)]


def _row(topic: str, group: str, points: Sequence[Point]) -> tuple[str, str, int, int, int]:
    done, failed = sum(p.succeeded for p in points), sum(p.failed for p in points)
    return topic, group, done, failed, max((p.due for p in points), default=0)
