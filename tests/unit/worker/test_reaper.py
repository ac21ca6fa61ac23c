"""When upkeep looks again."""

import asyncio
import time
from typing import cast

import pytest

from rqretry.catalog.catalog import Catalog
from rqretry.protocol.keys import partition_keys
from rqretry.transport.store import Store
from rqretry.worker.leases import Place
from rqretry.worker.reaper import Reaper


@pytest.mark.parametrize(("in_s", "woken"), [(0.5, True), (1000.0, False)])
async def test_only_what_is_due_before_the_next_look_wakes_it(in_s: float, *, woken: bool) -> None:
    place = Place("t", 0, partition_keys("n", "t", 0).group("g", 18), 30.0)
    place.looked_at = time.monotonic()
    nothing = cast(Store, None)
    reaper = Reaper(nothing, cast(Catalog, None), [place], "w")
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        sleeping = group.create_task(reaper._sleep())
        await asyncio.sleep(0)
        place.due_at = time.monotonic() + in_s
        reaper.changed(place)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sleeping.done() is woken
        sleeping.cancel()
