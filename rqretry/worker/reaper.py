"""When a worker moves what is due: to the millisecond, in the partitions that it works on.

There is no leader. Every process does this at the times that its leases reported; two at once are
harmless (docs/decisions/0014). Nothing here blocks: the server's own time-outs are only as fine as
its timer, so the moment is waited for here.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from rqretry.catalog.catalog import Catalog
from rqretry.core.back_off import BackOff
from rqretry.core.catalog_records import SIMPLE
from rqretry.core.errors import RqretryError, StoreUnavailable
from rqretry.maintenance.due import STUCK_MS, Due, Maintenance, Moved
from rqretry.maintenance.retention import Sweeps
from rqretry.protocol.command import MAX_BATCH
from rqretry.protocol.keys import GroupKeys, PartitionKeys
from rqretry.transport.store import Store
from rqretry.worker.leases import LeasedPlace, Schedule
from rqretry.worker.wakeups import Alarm

log = logging.getLogger("rqretry")

LOOK_EVERY_S = 5.0
"""How often it looks after groups of simple consumers, and where a server was away."""


@dataclass(eq=False)
class Reaper:
    """Moves what is due in the partitions of a process."""

    _store: Store
    _catalog: Catalog
    _places: Sequence[LeasedPlace]
    _worker: str
    _alarm: Alarm
    _put_off: dict[GroupKeys | PartitionKeys, BackOff] = field(
        default_factory=lambda: defaultdict(BackOff), init=False
    )
    """Where nothing could be delivered, and what others do not maintain and we could not."""

    def __post_init__(self) -> None:
        self._maintenance = Maintenance(self._catalog.topics, self._worker)
        self._sweeps = Sweeps(
            self._catalog.topics, self._catalog.group_keys, together=not self._store.spread
        )
        self._others_at = time.monotonic() + LOOK_EVERY_S

    async def run(self) -> None:
        """Move what is due, for ever."""
        while True:
            now = time.monotonic()
            try:
                for place in list(self._places):
                    if now >= place.upkeep.again_at:
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
        return max(place.schedule.soonest(), place.upkeep.again_at)

    async def _tick(self, place: LeasedPlace, now: float) -> None:
        schedule = place.schedule
        look, scheduled = now >= schedule.look_at, _due(schedule.scheduled_at, now)
        if place.broadcast:
            schedule.look_later(now if look else 0)
        else:
            due = self._due(place, now, look=look, scheduled=scheduled)
            if due.promote or due.expire:
                (moved,) = await self._store.perform(self._maintenance.move([due]))
                if self._failed(moved.error, place.upkeep, place.keys):
                    return
                self._note(place, due, moved)
        if look or scheduled:
            await self._deliver(place.keys, schedule)

    async def _deliver(self, keys: GroupKeys, schedule: Schedule) -> None:
        """Scheduled messages; an error of theirs puts off nothing else."""
        put_off, next_ms = self._put_off[keys.partition], None
        if time.monotonic() >= put_off.again_at:
            expected = {keys.partition: schedule.expected_ms(time.monotonic())}
            deliver = self._maintenance.deliver([keys.partition], expected)
            (delivered,) = await self._store.perform(deliver)
            self._failed(delivered.error, put_off, keys)
            next_ms = delivered.next_ms
        schedule.delivered(next_ms, time.monotonic())
        schedule.scheduled_at = max(schedule.scheduled_at or 0.0, put_off.again_at) or None

    def _due(self, place: LeasedPlace, now: float, *, look: bool, scheduled: bool) -> Due:
        return Due(
            place.keys,
            # On a cluster it also finds out whether the server of the partition can be reached.
            promote=look or _due(place.schedule.due_at, now) or (self._store.spread and scheduled),
            expire=look or _due(place.schedule.deadline_at, now),
            hold_ms=round(place.visibility_s * 1000 / 3),
            expected_ms=place.schedule.expected_ms(now),
        )

    def _failed(self, error: RqretryError | None, put_off: BackOff, keys: GroupKeys) -> bool:
        """An error puts off its place, and no other; unless the one server cannot be reached."""
        if error is None:
            if put_off.again_at:
                put_off.worked()
            return False
        away = isinstance(error, StoreUnavailable)
        if away and not self._store.spread:
            raise error
        log.warning("maintenance of %s failed, trying again: %s", keys, error)
        if away:
            put_off.pause(LOOK_EVERY_S, time.monotonic())
        else:
            put_off.failed(str(error), time.monotonic())
        return True

    def _note(self, place: LeasedPlace, due: Due, moved: Moved) -> None:
        schedule, now = place.schedule, time.monotonic()
        schedule.maintained(moved.now_ms, now, due.expected_ms)
        if due.promote:
            stuck = moved.next_due_ms == 0 and not moved.promoted
            schedule.promoted(STUCK_MS if stuck else moved.next_due_ms, now)
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
        ours = {place.keys for place in self._places}
        others = [
            keys
            for keys in self._simple_groups()
            if keys not in ours and now >= self._put_off[keys].again_at
        ]
        moves = self._maintenance.move([Due(keys, promote=False) for keys in others])
        for keys, moved in zip(others, await self._store.perform(moves), strict=True):
            self._failed(moved.error, self._put_off[keys], keys)

    def _simple_groups(self) -> list[GroupKeys]:
        partitions = dict.fromkeys((place.topic, place.partition) for place in self._places)
        return [
            self._catalog.group_keys(topic, partition, group.name)
            for topic, partition in partitions
            for group in self._catalog.topics.route(topic, partition).groups
            if group.kind == SIMPLE
        ]

    async def _sweep(self, now: float) -> None:
        if now < self._sweeps.next_at:
            return
        partitions = dict.fromkeys(place.keys.partition for place in self._places)
        gone = await self._store.perform(self._sweeps.round(partitions))
        if gone:
            log.info("%d dead letters were older than their groups keep them", gone)


def _due(moment: float | None, now: float) -> bool:
    return moment is not None and moment <= now
