"""What a process has leased and runs, as its supervisor reads it when that process is dead."""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from rqretry.core.receipt import Receipt
from rqretry.protocol.keys import partition_keys
from rqretry.protocol.lease import Leased
from rqretry.worker.batch_slots import BatchSlots
from rqretry.worker.lease_journal import Held, LeaseJournal, Region
from rqretry.worker.leases import Delivery, LeasedPlace
from rqretry.worker.slots import Buffer, Slots

PLACE = LeasedPlace("t", 3, partition_keys("n", "t", 3).group("g", 18, "of"), 30.0)


@pytest.fixture
def journal() -> Iterator[LeaseJournal]:
    made = LeaseJournal()
    yield made
    made.close()


def leased(ids: Sequence[str], lease_nos: Sequence[int]) -> list[Delivery]:
    numbers = [(lease_no, 1) for lease_no in lease_nos]
    return PLACE.leased(Leased("OK", None, None, None, 0, [*ids], [b"1"] * len(ids), numbers), 1.0)


def ids(held: Held) -> tuple[list[str], list[str]]:
    assert {message.keys for message in (*held.running, *held.others)} == {PLACE.keys}
    return [m.receipt.id for m in held.running], [m.receipt.id for m in held.others]


def noted(slots: Buffer[Delivery], region: Region, found: list[Delivery]) -> None:
    slots.running, slots.counts = region.firsts, region.counts
    region.leased(slots.accepted + 1, found)
    slots.accept(found)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_a_process_runs_is_told_apart_from_what_it_has_leased_beside_it(
    journal: LeaseJournal,
) -> None:
    go_on = asyncio.Event()

    async def wait() -> None:
        await go_on.wait()

    def begin(delivery: Delivery, *_: Any) -> Coroutine[Any, Any, None] | None:
        return wait() if delivery.id.startswith("waits") else None

    slots = Slots(2, begin)
    journal.region(7)  # of another consumer
    region = journal.region(2)
    slots.running, slots.counts = region.firsts, region.counts
    slots.start("test")
    noted(slots, region, leased(["done", "waits", "also"], [4, 4, 4]))
    await turns()
    assert ids(journal.read()) == (["waits"], ["done", "also"])
    slots.take_back()
    noted(slots, region, leased(["waits2", "back", "left"], [1, 2, 3]))
    await turns()
    slots.take_back(lambda delivery: delivery.id == "back")
    held = journal.read()
    assert ids(held) == (["waits", "waits2"], ["done", "also", "back", "left"])
    assert held.others[-1].receipt == Receipt("left", 3)
    go_on.set()
    await turns()
    assert not journal.read().busy
    slots.close()


async def test_a_batch_runs_as_one(journal: LeaseJournal) -> None:
    async def begin(_batch: list[Delivery]) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    slots = BatchSlots(1, 2, 0.0, begin, lambda _batch, _error: None)
    noted(slots, journal.region(1), leased(["a", "b", "c"], [1, 1, 1]))
    await turns()
    assert ids(journal.read()) == (["a", "b"], ["c"])
    slots.close()


def test_the_newest_lines_are_there_however_much_was_leased(journal: LeaseJournal) -> None:
    region, many = journal.region(1), [f"{number:0128}" for number in range(500)]
    for round_ in range(7):
        region.leased(1 + 500 * round_, leased(many, range(10**15, 10**15 + 500)))
    region.firsts[0] = 1 + 500 * 6 + 499
    running, others = ids(journal.read())
    assert running == [many[-1]]
    assert others[-499:] == many[:-1] or others[:499] == many[:-1]
