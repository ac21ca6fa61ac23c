"""The numbers of the pages, sampled: many viewers cost Redis one `stats` every other second."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from rqretry.admin.incidents import Earlier, Incident, Moment, incidents, moment
from rqretry.admin.results import WorkerInfo
from rqretry.admin.views import Stats
from rqretry.core.errors import RqretryError
from rqretry.dashboard.past import Pair, Past

EVERY_S = 2.0
FRESH_S = 1.0
KEPT_S = 600.0
_SHARE = 4
"""So many times as long as a sample takes, it waits for the next one."""
_RATE_S = 30.0
_RECENT = round(_RATE_S / EVERY_S) + 2
MOST_SERIES = 5000

log = logging.getLogger("rqretry.dashboard")

Seen = tuple[Stats, Sequence[WorkerInfo], str | None]
"""Statistics, the live workers, and what is wrong with the server's settings."""
Read = Callable[[], Awaitable[Seen]]


@dataclass(frozen=True, slots=True)
class Sample:
    """The groups at one moment of the local monotonic clock, in seconds."""

    at: float
    groups: dict[Pair, Moment]
    """By topic and group."""
    total: Moment


class Sampler:
    """The last answers of `read`."""

    def __init__(self, read: Read, past: Past, *, fresh_s: float = FRESH_S) -> None:
        self._read = read
        self.past = past
        self._fresh_s = fresh_s
        self._lock = asyncio.Lock()
        self._stats: Stats | None = None
        self._at = self._took = 0.0
        self.tick = asyncio.Event()
        """Set at the next sample, taken or failed."""
        self.incidents: list[Incident] = []
        self.samples: deque[Sample] = deque()

    async def run(self) -> None:
        """Sample until cancelled; while Redis is unreachable the charts have a gap."""
        while True:
            try:
                async with self._lock:
                    await self._sample()
            except RqretryError as error:
                log.warning("the dashboard could not sample: %s", error)
            self.tick.set()
            self.tick = asyncio.Event()
            await asyncio.sleep(max(EVERY_S, _SHARE * self._took))

    async def latest(self) -> Stats:
        """Numbers that are about a second old, or as old as they can be had.

        Raises:
            RqretryError: No server answers.
        """
        if self._stats is not None and time.monotonic() - self._at < self._old_s():
            return self._stats
        async with self._lock:
            if self._stats is not None and time.monotonic() - self._at < self._old_s():
                return self._stats
            return await self._sample()

    def _old_s(self) -> float:
        return self._fresh_s and self._fresh_s + EVERY_S + (_SHARE + 2) * self._took

    async def _sample(self) -> Stats:
        began = time.monotonic()
        stats, workers, fault = await self._read()
        self._stats, self._at = stats, time.monotonic()
        self._took = self._at - began
        last = self.samples[-1].groups if self.samples else {}
        now = _moments(stats, last)
        total = Moment(*map(sum, zip(*now.values(), strict=True)))
        self.samples.append(Sample(self._at, now, total))
        while self._at - self.samples[0].at > KEPT_S:
            self.samples.popleft()
        first = self.samples[0]
        earlier = Earlier(self._at - first.at, first.groups)
        self.incidents = incidents(stats, evicts=fault, earlier=earlier, workers=workers)
        return stats

    def rates_now(self) -> dict[Pair, tuple[float, float]]:
        """Successes and failures in a second over the last half minute, after two samples."""
        recent = list(islice(reversed(self.samples), _RECENT))
        now = recent[0]
        first = next(one for one in reversed(recent) if now.at - one.at <= _RATE_S)
        seconds = now.at - first.at
        if not seconds:
            return {}
        pairs = [(pair, one, first.groups.get(pair, one)) for pair, one in now.groups.items()]
        return {
            pair: (
                max(0, one.succeed - was.succeed) / seconds,
                max(0, one.fail - was.fail) / seconds,
            )
            for pair, one, was in pairs
        }

    def lag(self, topic: str, group: str) -> list[tuple[float, float]]:
        """What was due and not started, by time."""
        pair = (topic, group)
        return [(one.at, float(one.groups[pair].due)) for one in self.samples if pair in one.groups]

    def rates(self, topic: str, group: str, verb: str) -> list[tuple[float, float]]:
        """How often in a second, by time."""
        pair = (topic, group)
        return _rates(
            [(one.at, one.groups[pair]) for one in self.samples if pair in one.groups], verb
        )

    def total_rates(self, verb: str) -> list[tuple[float, float]]:
        """The same of all groups."""
        return _rates([(one.at, one.total) for one in self.samples], verb)


def _moments(stats: Stats, last: dict[Pair, Moment]) -> dict[Pair, Moment]:
    """What has not changed is kept once."""
    pairs = ((topic.topic, group) for topic in stats.topics for group in topic.groups)
    found = {(topic, group.group): moment(group) for topic, group in islice(pairs, MOST_SERIES)}
    return {pair: last[pair] if last.get(pair) == now else now for pair, now in found.items()}


def _rates(moments: list[tuple[float, Moment]], verb: str) -> list[tuple[float, float]]:
    known = [(at, getattr(one, verb)) for at, one in moments]
    return [
        (at, max(0, count - before) / (at - earlier))
        for (earlier, before), (at, count) in pairwise(known)
        if at > earlier
    ]
