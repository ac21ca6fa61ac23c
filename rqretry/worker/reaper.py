"""When a worker moves what is due: to the millisecond, in the partitions that it works on.

There is no leader. Every process does this at the times that its leases reported; two at once are
harmless (docs/decisions/0014). Nothing here blocks: the server's own time-outs are only as fine as
its timer, so the moment is waited for here.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from rqretry.catalog.catalog import Catalog
from rqretry.core.catalog_records import SIMPLE
from rqretry.core.errors import RqretryError
from rqretry.maintenance.due import Due, Maintenance, Moved
from rqretry.maintenance.retention import Sweeps
from rqretry.protocol.command import MAX_BATCH, Command, Operation
from rqretry.protocol.keys import GroupKeys
from rqretry.transport.store import Store
from rqretry.worker.leases import LOOK_EVERY_S, LeasedPlace
from rqretry.worker.wakeups import Alarm

log = logging.getLogger("rqretry")

T = TypeVar("T")


@dataclass(eq=False)
class Reaper:
    """Moves what is due in the partitions of a process."""

    _store: Store
    _catalog: Catalog
    _places: Sequence[LeasedPlace]
    _worker: str
    _alarm: Alarm
    _put_off: dict[LeasedPlace, float] = field(default_factory=dict, init=False)
    """Partitions whose server did not answer, and when to look at them again."""

    def __post_init__(self) -> None:
        self._maintenance = Maintenance(self._catalog.topics, self._worker)
        self._sweeps = Sweeps(self._catalog.topics, self._catalog.group_keys)
        self._others_at = time.monotonic() + LOOK_EVERY_S

    async def run(self) -> None:
        """Move what is due, for ever."""
        while True:
            now = time.monotonic()
            try:
                for place in list(self._places):
                    if now >= self._put_off.get(place, 0.0):
                        await self._tick(place, now)
                await self._look_after_others(now)
                await self._sweep(now)
            except RqretryError as error:
                log.warning("maintenance failed, trying again: %s", error)
                await asyncio.sleep(0.5)
            await self._sleep()

    async def _sleep(self) -> None:
        moments = [self._next(place) for place in self._places]
        await self._alarm.sleep(
            min([*moments, self._others_at, self._sweeps.next_at]), time.monotonic()
        )

    def _next(self, place: LeasedPlace) -> float:
        return max(place.schedule.soonest(), self._put_off.get(place, 0.0))

    async def _tick(self, place: LeasedPlace, now: float) -> None:
        schedule = place.schedule
        look, scheduled = now >= schedule.look_at, _due(schedule.scheduled_at, now)
        if place.broadcast:
            schedule.look_later(now if look else 0)
        else:
            due = self._due(place, now, look=look, scheduled=scheduled)
            if (due.promote or due.expire) and not await self._move(place, due):
                return
        if look or scheduled:
            deliver = self._maintenance.deliver([place.keys.partition])
            (delivered,) = await self._store.perform(deliver)
            schedule.delivered(delivered.next_ms, time.monotonic())

    def _due(self, place: LeasedPlace, now: float, *, look: bool, scheduled: bool) -> Due:
        seen_ms, seen_at = place.schedule.seen or (None, now)
        return Due(
            place.keys,
            # On a cluster it also finds out whether the server of the partition can be reached.
            promote=look or _due(place.schedule.due_at, now) or (self._store.spread and scheduled),
            expire=look or _due(place.schedule.deadline_at, now),
            hold_ms=round(place.visibility_s * 1000 / 3),
            seen_ms=seen_ms,
            elapsed_ms=round((now - seen_at) * 1000),
        )

    async def _move(self, place: LeasedPlace, due: Due) -> bool:
        """Whether the server of this partition answered; else it is left alone for a while."""
        (moved,) = await self._perform(self._maintenance.move([due]))
        if moved.error is None:
            self._put_off.pop(place, None)
            self._note(place, due, moved)
            return True
        log.warning("maintenance of partition %d of %s failed, trying again: %s",
                    place.partition, place.topic, moved.error)  # fmt: skip
        self._put_off[place] = time.monotonic() + LOOK_EVERY_S
        return False

    async def _perform(self, operation: Operation[T]) -> T:
        """Perform an operation; on a cluster, what fails in its first step is an answer there.

        So a server that is away does not hold up what the others have.
        """
        if not self._store.spread:
            return await self._store.perform(operation)
        calls = cast(Sequence[Command[Any]], next(operation))
        answers = await self._store.run_each(calls, self._store.patience)
        return await self._store.drive(self._store.session.perform(operation, answers))

    def _note(self, place: LeasedPlace, due: Due, moved: Moved) -> None:
        schedule, now = place.schedule, time.monotonic()
        schedule.maintained(moved.now_ms, now)
        if due.promote:
            schedule.promoted(moved.next_due_ms, now)
        if moved.held_ms is not None:
            log.warning("the server's clock jumped; leases expire in %d ms", moved.held_ms)
            schedule.expired(moved.held_ms, now)
        elif due.expire:
            # More may be overdue than one batch; else the next lease reports the next deadline.
            schedule.expired(0 if moved.expired >= MAX_BATCH else None, now)
        if moved.promoted or moved.expired or moved.held_ms:
            place.may_hold_more()

    async def _look_after_others(self, now: float) -> None:
        """Expire the leases of simple groups: their own consumers may all have stopped."""
        if now < self._others_at:
            return
        self._others_at = now + LOOK_EVERY_S
        others = self._simple_groups() - {place.keys for place in self._places}
        if others:
            await self._perform(
                self._maintenance.move([Due(keys, promote=False) for keys in others])
            )

    def _simple_groups(self) -> set[GroupKeys]:
        partitions = {(place.topic, place.partition) for place in self._places}
        return {
            self._catalog.group_keys(topic, partition, group.name)
            for topic, partition in partitions
            for group in self._catalog.topics.route(topic, partition).groups
            if group.kind == SIMPLE
        }

    async def _sweep(self, now: float) -> None:
        if now < self._sweeps.next_at:
            return
        partitions = {place.keys.partition for place in self._places}
        gone = await self._store.perform(self._sweeps.round(partitions))
        if gone:
            log.info("%d dead letters were older than their groups keep them", gone)


def _due(moment: float | None, now: float) -> bool:
    return moment is not None and moment <= now
