"""The settler where a server fails: its results wait, and none is forgotten."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, cast

import pytest

from rqretry.core.errors import StoreUnavailable
from rqretry.core.message import Message
from rqretry.core.middleware import Announcer, Hooks
from rqretry.observability import observer
from rqretry.observability.counters import Figures, Tally
from rqretry.protocol.command import Command
from rqretry.protocol.keys import partition_keys
from rqretry.protocol.lease import OK
from rqretry.transport.session import ServerClock
from rqretry.transport.store import Store
from rqretry.worker.leases import Delivery, Doubt, LeasedPlace
from rqretry.worker.settle import Settler
from rqretry.worker.settle_recovery import Recovered
from rqretry.worker.wakeups import WakeUps


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


def settler_of(line: Line) -> Settler:
    """A settler that reports to it."""
    store = cast(Store, line)
    return Settler(store, Announcer(Hooks()), "w", WakeUps(store))


async def test_what_ends_while_a_server_recovers_is_reported_too() -> None:
    line, place = Line(), LeasedPlace("t", 0, partition_keys("n", "t", 0).group("g", 18), 30.0)
    settler = settler_of(line)
    now = time.monotonic()
    early, late = (Delivery(place, id_, b"", (1, 1), now) for id_ in ("early", "late"))
    place.leases.add([early, late])
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
    assert len(place.leases) == 0


class Away(Line):
    """A server that answers nothing."""

    def __init__(self, *, hangs: bool) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self._hangs = hangs

    def clock_of(self, key: str) -> ServerClock:
        """As Store.clock_of."""
        return ServerClock()

    async def run_each(self, commands: Sequence[Command[Any]], seconds: float) -> list[Any]:
        """As Store.run_each."""
        return [StoreUnavailable("away")] * len(commands)

    async def perform(self, operation: Any) -> Any:
        """As Store.perform."""
        self.asked.set()
        if self._hangs:
            await asyncio.Event().wait()
        raise StoreUnavailable("away")


@pytest.mark.parametrize("hangs", [True, False])
async def test_at_the_end_a_result_that_nobody_knows_of_is_rejected(*, hangs: bool) -> None:
    line, place = (
        Away(hangs=hangs),
        LeasedPlace("t", 0, partition_keys("n", "t", 0).group("g", 18), 0.0),
    )
    settler = settler_of(line)
    delivery = Delivery(place, "a", b"", (1, 1), time.monotonic())  # its lease is over
    tally = Tally()
    message: Any = Message(("t", 0, "g", 1, "a"), (1, None, (), {}, None, 0, None), 1, 16, 0.0)
    delivery.watch = tally.attempting("n", message, "w")
    async with asyncio.timeout(20):
        running = asyncio.create_task(settler.run())
        settler.succeed(delivery)
        await line.asked.wait()
        await settler.finish(time.monotonic())
        running.cancel()
        await asyncio.wait([running])
    assert Figures.read(tally.snapshot()).attempts == {("t", "g", observer.STALE): 1}


class Slow(Away):
    """A server that settles at once, and says only late what became of the first result."""

    def __init__(self) -> None:
        super().__init__(hangs=False)
        self.questions = 0
        self.answered = asyncio.Event()

    async def run_each(self, commands: Sequence[Command[Any]], seconds: float) -> list[Any]:
        """As Store.run_each."""
        return [[OK]] * len(commands)

    async def perform(self, operation: Any) -> Any:
        """As Store.perform."""
        self.questions += 1
        if self.questions == 1:
            self.asked.set()
            await self.answered.wait()
        return Recovered({}, whole=True)


async def test_what_another_round_has_asked_about_meanwhile_is_not_asked_about_again() -> None:
    line, now = Slow(), time.monotonic()
    settler = settler_of(line)
    places = [
        LeasedPlace("t", number, partition_keys("n", "t", number).group("g", 18), 30.0)
        for number in (0, 1)
    ]
    for place in places:
        ids = [Delivery(place, id_, b"", (1, 1), now) for id_ in ("in doubt", "early")]
        place.leases.add(ids)
        place.outbox.doubts.append(Doubt(ids[0], None, now, gone=False))
        settler.succeed(ids[1])
    late = Delivery(places[1], "late", b"", (1, 1), now)
    places[1].leases.add([late])
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(settler.flush())
        await line.asked.wait()  # about the first place
        settler.succeed(late)
        await settler.flush()
        line.answered.set()
    assert line.questions == 2


class Served(Away):
    """A server that settles, and answers what comes behind that; or fails."""

    def __init__(self) -> None:
        super().__init__(hangs=False)
        self.fails = False
        self.writes: list[list[str]] = []

    async def run_each(self, commands: Sequence[Command[Any]], seconds: float) -> list[Any]:
        """As Store.run_each."""
        self.writes.append([command.verb for command in commands])
        if self.fails:
            return [StoreUnavailable("away")] * len(commands)
        return [[OK] if command.verb == "succeed" else "leased" for command in commands]


async def test_calls_go_behind_the_results_of_their_places_in_one_write() -> None:
    place = LeasedPlace("t", 0, partition_keys("n", "t", 0).group("g", 18), 30.0)
    line = Served()
    settler, calls = settler_of(line), [Command("lease", (), (), str)]
    settler.succeed(Delivery(place, "a", b"", (1, 1), time.monotonic()))
    assert settler.has_results(place)
    assert await settler.settle_and([place], calls) == ["leased"]
    assert not settler.has_results(place)
    assert await settler.settle_and([place], calls) == ["leased"]
    assert line.writes == [["succeed", "lease"], ["lease"]]
    assert (settler.done["t", "g"], len(place.outbox)) == (1, 0)


async def test_results_that_failed_wait_for_their_own_turn_and_no_call_repeats_them() -> None:
    place = LeasedPlace("t", 0, partition_keys("n", "t", 0).group("g", 18), 30.0)
    line = Served()
    settler, calls = settler_of(line), [Command("lease", (), (), str)]
    settler.succeed(Delivery(place, "a", b"", (1, 1), time.monotonic()))
    line.fails = True
    (answer,) = await settler.settle_and([place], calls)
    assert isinstance(answer, StoreUnavailable)
    assert (settler.has_results(place), len(place.outbox)) == (False, 1)
    line.fails = False
    assert await settler.settle_and([place], calls) == ["leased"]
    await settler.flush()
    assert line.writes == [["succeed", "lease"], ["lease"], ["succeed"]]
    assert settler.done["t", "g"] == 1
