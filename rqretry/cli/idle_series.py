"""Which groups a scrape leaves out: those that have no messages and do nothing (decision 0100)."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from rqretry.admin.views import GroupStats, Stats

QUIET_S = 600.0
"""So long after its last change a group is still exported."""
HELD_S = 60.0
"""So long its counters stay as they were when a group comes back: until every Prometheus that
scrapes this exporter has seen them, and so sees how they grow."""


@dataclass(slots=True)
class _Known:
    counters: dict[str, int]
    changed_s: float
    held: dict[str, int]
    held_until_s: float
    shown: bool


class IdleGroups:
    """What earlier scrapes saw of each group."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[tuple[str, str], _Known] | None = None

    def left_out(self, stats: Stats) -> tuple[Stats, int]:
        """The numbers without idle groups and topics, and how many groups that are."""
        now_s, before = self._clock(), self._known
        self._known, topics, idle = {}, [], 0
        for topic in stats.topics:
            groups = []
            for group in topic.groups:
                name = (topic.topic, group.group)
                known = self._known[name] = _seen(
                    group, before.get(name) if before is not None else None, now_s,
                    is_first=before is None,
                )  # fmt: skip
                if known.shown:
                    counters = known.held if now_s < known.held_until_s else group.counters
                    groups.append(replace(group, counters=counters))
            idle += len(topic.groups) - len(groups)
            if groups or topic.stored or not topic.groups:
                topics.append(replace(topic, groups=tuple(groups)))
        return replace(stats, topics=tuple(topics)), idle


def _seen(group: GroupStats, known: _Known | None, now_s: float, *, is_first: bool) -> _Known:
    counters = group.counters
    if known is None:  # of a new group everything is an increase
        long_ago = now_s - QUIET_S
        known = _Known(counters if is_first else {}, long_ago, {}, now_s, shown=is_first)
    changed_s = known.changed_s if counters == known.counters else now_s
    shown = _is_busy(group) or now_s - changed_s < QUIET_S
    held, until_s = known.held, known.held_until_s
    if shown and not known.shown:
        held, until_s = known.counters, now_s + HELD_S
    return _Known(counters, changed_s, held, until_s, shown=shown)


def _is_busy(group: GroupStats) -> bool:
    held = group.ready + group.retry + group.inflight + group.waiting_count + group.dead
    return bool(held) or group.paused
