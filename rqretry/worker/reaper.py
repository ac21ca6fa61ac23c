"""Upkeep for everybody: expire, promote and deliver what is due, to the millisecond.

There is no leader. Every process does this for the partitions it works on, at the times that its
leases told it; two at once are harmless. Nothing here blocks: the server's own time-outs are only
as fine as its timer, so the moment is waited for here.
"""

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from typing import Any

from rqretry.catalog.catalog import Catalog
from rqretry.core.catalog_records import SIMPLE
from rqretry.core.errors import RqretryError
from rqretry.maintenance.deliver import deliver_due
from rqretry.maintenance.dlq_retention import purge_expired
from rqretry.maintenance.expired_deaths import tell_buried
from rqretry.protocol.command import MAX_BATCH, Command
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.maintain import Expired, Promoted, expire, promote, sweep
from rqretry.transport.store import Store
from rqretry.worker.leases import Place

log = logging.getLogger("rqretry")

LOOK_EVERY_S = 5.0
SWEEP_EVERY_S = 60.0
HOLD_MS = 10_000
"""How long a jump of the server's clock holds up expiry for groups whose visibility is unknown."""


class Reaper:
    """Moves what is due in the partitions of a process."""

    def __init__(
        self, store: Store, catalog: Catalog, places: Sequence[Place], worker: str
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._places = places
        self._worker = worker
        self._random = random.Random()
        self._put_off: dict[Place, float] = {}
        """Partitions whose server did not answer, and when to look at them again."""
        self._changed = asyncio.Event()
        self._sleeps_until = 0.0
        self._sweep_at = time.monotonic() + SWEEP_EVERY_S
        self._others_at = time.monotonic() + LOOK_EVERY_S

    def changed(self, place: Place) -> None:
        """A lease told new times; what is due later than we look anyway can wait until then."""
        if self._next(place) < self._sleeps_until:
            self._changed.set()

    def look_at(self, place: Place) -> None:
        """Something was published for later, perhaps to be due before all else."""
        place.scheduled_at = time.monotonic()
        self._changed.set()

    async def run(self) -> None:
        """Tick for ever."""
        while True:
            now = time.monotonic()
            try:
                for place in list(self._places):
                    if now >= self._put_off.get(place, 0.0):
                        await self._tick(place, now)
                await self._look_after_others(now)
                await self._sweep(now)
            except RqretryError as error:
                log.warning("upkeep failed, trying again: %s", error)
                await asyncio.sleep(0.5)
            await self._sleep()

    async def _sleep(self) -> None:
        self._changed.clear()
        moments = [self._next(place) for place in self._places]
        self._sleeps_until = min([*moments, self._others_at])
        seconds = self._sleeps_until - time.monotonic()
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _next(self, place: Place) -> float:
        times = (place.due_at, place.deadline_at, place.scheduled_at, self._look_at(place))
        soonest = min(moment for moment in times if moment is not None)
        return max(soonest, self._put_off.get(place, 0.0))

    def _look_at(self, place: Place) -> float:
        # An idle process looks by leasing; a full one, which does not lease, looks here.
        return place.looked_at + 1.2 * min(LOOK_EVERY_S, place.visibility_s) + 0.5

    async def _tick(self, place: Place, now: float) -> None:
        look, scheduled = now >= self._look_at(place), _due(place.scheduled_at, now)
        commands: list[Command[Any]] = []
        if place.broadcast:
            place.looked_at = max(place.looked_at, now if look else 0)
        elif look or _due(place.due_at, now) or (self._store.spread and scheduled):
            commands.append(promote(place.keys, worker=self._worker))
        if not place.broadcast and (look or _due(place.deadline_at, now)):
            commands.append(self._expire(place, now))
        if commands:
            answers = await self._run(place, commands)
            if answers is None:
                return
            for answer in answers:
                self._note(place, answer)
                if isinstance(answer, Expired):
                    await self._store.perform(tell_buried(place.keys, answer, self._worker))
        if look or scheduled:
            deliver = deliver_due(self._catalog, place.topic, place.partition, self._worker)
            place.scheduled_at = _at(await self._store.perform(deliver))

    async def _run(self, place: Place, commands: Sequence[Command[Any]]) -> list[Any] | None:
        """Run commands; None where the server of this partition is to be left alone for a while."""
        if not self._store.spread:
            return await self._store.run_all(commands)
        answers = await self._store.run_each(commands, self._store.patience)
        errors = [answer for answer in answers if isinstance(answer, Exception)]
        if not errors:
            self._put_off.pop(place, None)
            return answers
        log.warning("upkeep of partition %d of %s failed, trying again: %s",
                    place.partition, place.topic, errors[0])  # fmt: skip
        self._put_off[place] = time.monotonic() + LOOK_EVERY_S
        return None

    def _expire(self, place: Place, now: float) -> Command[Expired]:
        seen_ms, seen_at = place.seen or (None, now)
        return expire(
            place.keys,
            worker=self._worker,
            hold_ms=round(place.visibility_s * 1000 / 3),
            random=self._random.random(),
            last_seen_ms=seen_ms,
            elapsed_ms=round((now - seen_at) * 1000),
        )

    def _note(self, place: Place, answer: Promoted | Expired) -> None:
        now = time.monotonic()
        place.looked_at = now
        place.seen = (answer.now_ms, now)
        if isinstance(answer, Promoted):
            place.due_at = _at(answer.next_due_ms)
        elif answer.held:
            log.warning("the server's clock jumped; leases expire in %d ms", answer.moved)
            place.deadline_at = now + answer.moved / 1000
        else:
            # More may be overdue than one batch; else the next lease tells the next deadline.
            place.deadline_at = now if answer.moved >= MAX_BATCH else None
        if answer.moved:
            place.empty = False

    async def _look_after_others(self, now: float) -> None:
        """Simple groups whose consumers may all be gone: what they leased expires by anybody."""
        if now < self._others_at:
            return
        self._others_at = now + LOOK_EVERY_S
        others = [*(self._simple_groups() - {place.keys for place in self._places})]
        answers = await self._everywhere(
            [
                expire(keys, worker=self._worker, hold_ms=HOLD_MS, random=self._random.random())
                for keys in others
            ]
        )
        for keys, answer in zip(others, answers, strict=True):
            if isinstance(answer, Expired):
                await self._store.perform(tell_buried(keys, answer, self._worker))

    async def _everywhere(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Run commands of many partitions; on a cluster, where they can be run."""
        if not commands:
            return []
        if self._store.spread:
            return await self._store.run_each(commands, self._store.patience)
        return await self._store.run_all(commands)

    def _simple_groups(self) -> set[GroupKeys]:
        partitions = {(place.topic, place.partition) for place in self._places}
        return {
            self._catalog.group_keys(topic, partition, group.name)
            for topic, partition in partitions
            for group in self._catalog.topics.route(topic, partition).groups
            if group.kind == SIMPLE
        }

    async def _sweep(self, now: float) -> None:
        if now < self._sweep_at:
            return
        self._sweep_at = now + SWEEP_EVERY_S
        partitions = {place.keys.partition for place in self._places}
        await self._everywhere([sweep(keys) for keys in partitions])
        keys = [place.keys for place in self._places]
        gone = await self._store.perform(purge_expired(self._catalog, keys))
        if gone:
            log.info("%d dead letters were older than their groups keep them", gone)


def _due(moment: float | None, now: float) -> bool:
    return moment is not None and moment <= now


def _at(in_ms: int | None) -> float | None:
    return None if in_ms is None else time.monotonic() + in_ms / 1000
