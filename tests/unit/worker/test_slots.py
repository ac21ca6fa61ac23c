"""The buffer of a consumer and the tasks that run it."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from rqretry.worker.slots import Slots


class Work:
    """Items that wait for `go_on` if they are negative."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.go_on = asyncio.Event()
        self.waiting = 0
        self.slots = Slots(2, self.begin)

    def begin(self, item: int, *_: Any) -> Coroutine[Any, Any, None] | None:
        self.begun.append(item)
        return self.wait() if item < 0 else None

    async def wait(self) -> None:
        self.waiting += 1
        self.slots.one_waits()
        await self.go_on.wait()

    @asynccontextmanager
    async def started(self) -> AsyncIterator[Slots[int]]:
        self.slots.start("test")
        try:
            yield self.slots
        finally:
            self.slots.close()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_items_run_in_their_order_and_no_more_wait_than_there_are_slots() -> None:
    work = Work()
    async with work.started() as slots:
        slots.accept([1, -2, -3, 4, 5])
        await turns()
        assert work.begun == [1, -2, -3]
        assert work.waiting == 2
        work.go_on.set()
        await turns()
        assert work.begun == [1, -2, -3, 4, 5]


async def test_there_is_room_for_the_free_slots_until_the_buffer_is_half_full() -> None:
    slots = Slots(4, Work().begin)
    assert slots.room(running=0) == 4
    assert slots.room(running=3) == 1
    slots.accept([1])
    assert slots.room(running=0) == 3
    slots.accept([2])
    assert slots.room(running=0) == 0


async def test_fast_slots_get_what_they_finish_within_the_horizon() -> None:
    slots = Slots(4, Work().begin)
    slots._rate = 1000.0
    assert slots.room(running=0) == 54


async def test_what_has_not_begun_is_taken_back_from_the_front() -> None:
    slots = Slots(1, Work().begin)
    slots.accept([1, 2, 30, 4])
    assert slots.take_back(lambda item: item < 10) == [1, 2]
    assert slots.take_back() == [30, 4]
    assert slots.take_back() == []


async def test_closed_slots_begin_nothing_more() -> None:
    work = Work()
    async with work.started():
        await turns()
    work.slots.accept([1])
    await turns()
    assert work.begun == []
