"""What ends a wait: room, a wake-up, something due."""

import asyncio
import time
from typing import Any, cast

import pytest

from rqretry.transport.store import Store
from rqretry.worker.wakeups import Alarm, WakeUps


class Consumer:
    """Has room for so many messages."""

    def __init__(self, room: int) -> None:
        self._room = room

    def room(self) -> int:
        return self._room


class BlockingServer:
    """A store whose blocking command ends when it is unblocked, at the second try."""

    spread = False

    def __init__(self) -> None:
        self.blocked = asyncio.Event()
        self._unblocked = asyncio.Event()
        self.tries = 0

    async def acquire(self, key: str) -> Any:
        return object()

    async def exchange(self, connection: Any, requests: Any, *_: Any) -> list[Any]:
        if requests[0][0] == "CLIENT":
            return [7]
        self.blocked.set()
        await self._unblocked.wait()
        return [None]

    async def run(self, command: Any) -> int:
        assert command.arguments == ("CLIENT", "UNBLOCK", 7)
        self.tries += 1
        if self.tries == 2:
            self._unblocked.set()
        return int(self.tries == 2)


async def ends(wait: "asyncio.Task[Any]") -> bool:
    """Whether it ends within a short time."""
    done, _ = await asyncio.wait([wait], timeout=0.1)
    return bool(done)


@pytest.mark.parametrize(("room", "ended"), [(1, True), (0, False)])
async def test_who_waits_for_room_goes_on_when_a_consumer_has_some(
    room: int, *, ended: bool
) -> None:
    wake_ups = WakeUps(cast(Store, None))
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(wake_ups.room())
        await asyncio.sleep(0)
        wake_ups.room_in(Consumer(room))
        assert await ends(waiting) is ended
        wake_ups.settled()


async def test_room_in_a_consumer_that_is_not_waited_for_ends_the_wait_for_messages() -> None:
    server = BlockingServer()
    wake_ups = WakeUps(cast(Store, server))
    covered, other = Consumer(1), Consumer(1)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        waiting = group.create_task(wake_ups.any_of(["wake"], 30.0, [covered]))
        await server.blocked.wait()
        wake_ups.room_in(covered)  # its messages would end the wait anyway
        wake_ups.room_in(Consumer(0))
        await asyncio.sleep(0.02)
        assert server.tries == 0
        wake_ups.room_in(other)
        assert await waiting == set()
    assert server.tries == 2


async def test_room_that_comes_while_the_connection_opens_is_not_forgotten() -> None:
    server, opening = BlockingServer(), asyncio.Event()
    wake_ups = WakeUps(cast(Store, server))

    async def acquire(key: str) -> Any:
        wake_ups.room_in(Consumer(1))
        opening.set()
        return object()

    server.acquire = acquire  # type: ignore[method-assign]
    async with asyncio.timeout(30):
        assert await wake_ups.any_of(["wake"], 30.0, [Consumer(1)]) is None
    assert opening.is_set()
    assert not server.blocked.is_set()


async def test_a_wait_that_was_stopped_asks_the_server_nothing() -> None:
    server = BlockingServer()
    wake_ups = WakeUps(cast(Store, server))
    wake_ups.stop()
    async with asyncio.timeout(30):
        assert await wake_ups.any_of(["wake"], 30.0, []) is None
    assert not server.blocked.is_set()


@pytest.mark.parametrize(("in_s", "rings"), [(1.0, True), (100.0, False)])
async def test_an_alarm_rings_for_what_is_due_before_its_time(in_s: float, *, rings: bool) -> None:
    alarm, now = Alarm(), time.monotonic()
    async with asyncio.TaskGroup() as group:
        sleeping = group.create_task(alarm.sleep(now + 50, now))
        await asyncio.sleep(0)
        alarm.due(now + in_s)
        assert await ends(sleeping) is rings
        alarm.due(now)
