"""When a batch starts, and how much is leased for it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rqretry.protocol.keys import partition_keys
from rqretry.worker.batch_slots import BatchSlots
from rqretry.worker.leases import Delivery, LeasedPlace

LONG_S = 3600.0
PLACE = LeasedPlace("t", 0, partition_keys("n", "t", 0).group("g", 18), 30.0)


class Bench:
    """Batches that run until they are released."""

    def __init__(self, wait_s: float = LONG_S) -> None:
        self.begun: list[list[str]] = []
        self.broken: list[list[str]] = []
        self.room_at_end = 0
        self.release = asyncio.Event()
        self.slots = BatchSlots(2, 3, wait_s, self.run, self.ended)
        self.slots.start("g")

    async def run(self, batch: list[Delivery]) -> None:
        self.begun.append([delivery.id for delivery in batch])
        await self.release.wait()
        if batch[0].id == "broken":
            raise RuntimeError("ours")

    def ended(self, batch: list[Delivery], error: BaseException | None) -> None:
        self.room_at_end = self.slots.room(0)
        if error is not None:
            self.broken.append([delivery.id for delivery in batch])

    async def accept(self, *ids: str) -> None:
        now = time.monotonic()
        self.slots.accept([Delivery(PLACE, id_, b"", (1, 1), now) for id_ in ids])
        await turns()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def bench(wait_s: float = LONG_S) -> AsyncIterator[Bench]:
    made = Bench(wait_s)
    try:
        yield made
    finally:
        made.slots.close()
        await turns()


async def test_full_batches_start_at_once_and_what_is_left_waits() -> None:
    async with bench() as one:
        await one.accept("a", "b")
        assert one.begun == []
        await one.accept("c", "d")
        assert one.begun == [["a", "b", "c"]]
        await one.accept("e", "f", "g", "h", "i")
        assert one.begun[1:] == [["d", "e", "f"]]  # both slots are taken
        one.release.set()
        await turns()
        assert one.begun[2:] == [["g", "h", "i"]]


async def test_a_batch_that_is_not_full_starts_when_its_time_is_up() -> None:
    async with bench(wait_s=0.0) as one:
        await one.accept("a")
        assert one.begun == [["a"]]


async def test_what_waited_while_no_slot_was_free_may_still_be_joined_by_others() -> None:
    async with bench() as one:
        await one.accept("a", "b", "c", "d", "e", "f", "g")
        one.slots._wait_s = 0.01
        one.release.set()
        await turns()
        assert len(one.begun) == 2  # the time of the slot counts, not the age of the message
        await one.accept("h", "i")
        assert one.begun[2:] == [["g", "h", "i"]]


async def test_room_is_for_whole_batches_and_a_batch_can_always_be_filled() -> None:
    async with bench() as one:
        assert one.slots.room(0) == 6
        await one.accept("a", "b")
        assert one.slots.room(0) == 4
        await one.accept("c")
        assert one.slots.room(3) == 3
        await one.accept("d", "e", "f")
        assert one.slots.room(6) == 0
        one.slots._rate = 130.0  # 6.5 messages within the horizon
        assert one.slots.room(6) == 6


async def test_there_is_room_again_when_the_end_of_a_batch_is_reported() -> None:
    async with bench() as one:
        await one.accept("a", "b", "c", "d", "e", "f")
        assert one.slots.room(0) == 0
        one.release.set()
        await turns()
        assert one.room_at_end == 6


async def test_messages_with_the_same_id_are_in_different_batches() -> None:
    async with bench(wait_s=0.0) as one:
        await one.accept("a", "a", "b")
        assert one.begun == [["a"], ["a", "b"]]


async def test_a_batch_that_breaks_off_is_named_and_the_next_one_starts() -> None:
    async with bench() as one:
        one.release.set()
        await one.accept("broken", "b", "c", "d", "e", "f")
        assert one.broken == [["broken", "b", "c"]]
        assert one.begun[1:] == [["d", "e", "f"]]
