"""The table of groups: filtered, sorted, and cut into pages."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rqretry.admin.incidents import PAGE, Incident
from rqretry.admin.views import GroupStats
from rqretry.dashboard.sampler import Sampler

PAGE_ROWS = 50
SHOWS = ("problems", "paused", "dead", "waiting", "idle")


@dataclass(frozen=True, slots=True)
class Row:
    """One group of one topic."""

    topic: str
    group: GroupStats
    done: float | None
    failed: float | None
    incidents: tuple[Incident, ...]

    @property
    def level(self) -> int:
        """0 for fine; 1 to be looked at; 2 for now."""
        return max((1 + (one.severity == PAGE) for one in self.incidents), default=0)


SORTS: dict[str, Callable[[Row], Any]] = {
    "problem": lambda row: (row.level, row.group.ready + row.group.retry, row.group.dead),
    "topic": lambda row: row.topic,
    "group": lambda row: row.group.group,
    "ready": lambda row: row.group.ready + row.group.retry,
    "inflight": lambda row: row.group.inflight,
    "waiting": lambda row: row.group.waiting_count,
    "dead": lambda row: row.group.dead,
    "oldest": lambda row: row.group.oldest_age_s or 0.0,
    "done": lambda row: row.done or 0.0,
    "failed": lambda row: row.failed or 0.0,
    "workers": lambda row: row.group.workers,
}
UP = ("topic", "group")
"""Sorted upwards at first; the others, highest first."""
_SHOWN: dict[str, Callable[[Row], bool]] = {
    "problems": lambda row: row.level > 0,
    "paused": lambda row: row.group.paused,
    "dead": lambda row: row.group.dead > 0,
    "waiting": lambda row: row.group.waiting_count > 0,
    "idle": lambda row: row.group.workers == 0,
}


async def rows_of(sampler: Sampler) -> list[Row]:
    """All groups, as of the last sample."""
    stats = await sampler.latest()
    wrong: dict[tuple[str, str], list[Incident]] = {}
    for one in sampler.incidents:
        wrong.setdefault((one.topic, one.group), []).append(one)
    rates = sampler.rates_now()
    rows = []
    for topic in stats.topics:
        for group in topic.groups:
            pair = (topic.topic, group.group)
            done, failed = rates.get(pair, (None, None))
            rows.append(Row(topic.topic, group, done, failed, tuple(wrong.get(pair, ()))))
    return rows


def choose(rows: Iterable[Row], *, text: str, show: str, sort: str) -> list[Row]:
    """Those with the text in a name, and in this state; `sort` with a minus is turned round."""
    found = [row for row in rows if text in row.topic.lower() or text in row.group.group.lower()]
    if show in _SHOWN:
        found = [row for row in found if _SHOWN[show](row)]
    elif show:
        found = [row for row in found if any(one.name == show for one in row.incidents)]
    name = sort.removeprefix("-")
    found.sort(key=lambda row: (row.topic, row.group.group))
    found.sort(key=SORTS[name], reverse=(name in UP) == sort.startswith("-"))
    return found
