"""The settler where a server is in trouble: its results wait, and none is forgotten."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, cast

from rqretry.command import Command
from rqretry.commands.consuming import OK
from rqretry.errors import StoreUnavailable
from rqretry.hooks import Announcer, Hooks
from rqretry.keys import partition_keys
from rqretry.runtime.delivery import Delivery, Source
from rqretry.runtime.settling import Settler
from rqretry.store import Store


class Line:
    """A store whose round trips the test answers, one after another."""

    patience = 0.0

    def __init__(self) -> None:
        self.calls: asyncio.Queue[asyncio.Future[list[Any]]] = asyncio.Queue()

    async def run_each(self, commands: Sequence[Command[Any]], seconds: float) -> list[Any]:
        """As Store.run_each."""
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.calls.put_nowait(answer)
        return await answer


async def test_what_ends_while_a_server_gets_well_is_told_too() -> None:
    line, source = Line(), Source("t", 0, partition_keys("n", "t", 0).group("g", 18), 30.0)
    settler = Settler(cast(Store, line), Announcer(Hooks()), "w")
    now = time.monotonic()
    early, late = (Delivery(source, id_, b"", (1, 1), now) for id_ in ("early", "late"))
    source.leases = {"early": early, "late": late}
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        running = group.create_task(settler.run())
        settler.succeed(early)
        (await line.calls.get()).set_result([StoreUnavailable("away")])
        again = await line.calls.get()
        settler.succeed(late)
        await asyncio.sleep(0)  # the settler sees it, and leaves it to what is under way
        again.set_result([[OK]])
        (await line.calls.get()).set_result([[OK]])
        await settler.finish(time.monotonic() + 10)
        running.cancel()
    assert source.leases == {}
