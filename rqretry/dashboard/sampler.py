"""The numbers of the pages, sampled: many viewers cost Redis one `stats` per second."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise

from rqretry.admin.views import GroupStats, Stats
from rqretry.core.errors import RqretryError

EVERY_S = 2.0
FRESH_S = 1.0
KEPT = 300
"""Samples: ten minutes."""
_RATE_S = 30.0
MOST_SERIES = 1000

log = logging.getLogger("rqretry.dashboard")

Pair = tuple[str, str]
Moment = tuple[int, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Sample:
    """The groups at one moment of the local monotonic clock, in seconds."""

    at: float
    groups: dict[Pair, Moment]
    """By topic and group: what is due, and the counters."""


class Sampler:
    """The last answers of `admin.stats`."""

    def __init__(self, read: Callable[[], Awaitable[Stats]], *, fresh_s: float = FRESH_S) -> None:
        self._read = read
        self._fresh_s = fresh_s
        self._lock = asyncio.Lock()
        self._stats: Stats | None = None
        self._at = 0.0
        self.samples: deque[Sample] = deque(maxlen=KEPT)

    async def run(self) -> None:
        """Sample until cancelled; while Redis is unreachable the charts have a gap."""
        while True:
            try:
                await self.latest()
            except RqretryError as error:
                log.warning("the dashboard could not sample: %s", error)
            await asyncio.sleep(EVERY_S)

    async def latest(self) -> Stats:
        """Numbers that are a second old at most. Raises RqretryError without a server."""
        async with self._lock:
            now = time.monotonic()
            if self._stats is None or now - self._at >= self._fresh_s:
                self._stats, self._at = await self._read(), now
                self.samples.append(Sample(now, _groups(self._stats)))
            return self._stats

    def rate(self, topic: str, group: str, verb: str) -> float | None:
        """How often in a second over the last half minute; None before the second sample."""
        recent = [one for one in self.samples if self.samples[-1].at - one.at <= _RATE_S]
        rates = _rates(recent[:1] + recent[-1:], (topic, group), verb) if len(recent) > 1 else []
        return rates[0][1] if rates else None

    def lag(self, topic: str, group: str) -> list[tuple[float, float]]:
        """What was due and not started, by time."""
        pair = (topic, group)
        return [(one.at, float(one.groups[pair][0])) for one in self.samples if pair in one.groups]

    def rates(self, topic: str, group: str, verb: str) -> list[tuple[float, float]]:
        """How often in a second, by time."""
        return _rates(list(self.samples), (topic, group), verb)


def _groups(stats: Stats) -> dict[Pair, Moment]:
    pairs = [(topic.topic, group) for topic in stats.topics for group in topic.groups]
    return {(topic, group.group): _moment(group) for topic, group in pairs[:MOST_SERIES]}


def _moment(group: GroupStats) -> Moment:
    return group.ready + group.retry, dict(group.counters)


def _rates(samples: list[Sample], pair: Pair, verb: str) -> list[tuple[float, float]]:
    known = [(one.at, one.groups[pair][1].get(verb, 0)) for one in samples if pair in one.groups]
    return [
        (at, max(0, count - before) / (at - earlier))
        for (earlier, before), (at, count) in pairwise(known)
        if at > earlier
    ]
