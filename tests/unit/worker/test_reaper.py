"""When upkeep looks again."""

import asyncio
import time
from types import SimpleNamespace
from typing import cast

import pytest

from rqretry.catalog.catalog import Catalog
from rqretry.protocol.keys import partition_keys
from rqretry.protocol.lease import Polled
from rqretry.transport.store import Store
from rqretry.worker.leases import LeasedPlace
from rqretry.worker.reaper import Reaper
from rqretry.worker.wakeups import Alarm


@pytest.mark.parametrize(("in_s", "woken"), [(0.5, True), (1000.0, False)])
async def test_only_what_is_due_before_the_next_look_wakes_it(in_s: float, *, woken: bool) -> None:
    place = LeasedPlace("t", 0, partition_keys("n", "t", 0).group("g", 18), 30.0)
    seen = Polled(now_ms=0, next_due_ms=None, next_deadline_ms=None, next_scheduled_ms=None)
    place.schedule.note(seen, time.monotonic())
    nothing, alarm = cast(Store, SimpleNamespace(spread=False)), Alarm()
    reaper = Reaper(nothing, Catalog("n"), [place], "w", alarm)
    reaper._sweeps.next_at = time.monotonic() + 1000
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        sleeping = group.create_task(reaper._sleep())
        await asyncio.sleep(0)
        soon = seen._replace(next_due_ms=round(in_s * 1000))
        place.schedule.note(soon, time.monotonic())
        alarm.due(place.schedule.soonest())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sleeping.done() is woken
        sleeping.cancel()
