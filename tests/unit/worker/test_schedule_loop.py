"""How long a worker waits before it looks at its schedules again."""

import asyncio
from typing import Any

import pytest

from rqretry.core.errors import StoreUnavailable
from rqretry.protocol.command import Operation
from rqretry.worker.schedule_loop import LOOK_EVERY_S, ScheduleLoop


class Fake:
    """A store, and periodic messages whose looks answer as they are told."""

    def __init__(self, *answers: tuple[int, int | None] | Exception) -> None:
        self.answers = list(answers)
        self.latest: list[int | None] = []

    async def perform(self, operation: Operation[Any]) -> Any:
        """Nothing is sent."""
        try:
            next(operation)
        except StopIteration as ended:
            return ended.value
        raise AssertionError

    def define(self) -> Operation[None]:
        """Nothing to define."""
        yield from ()

    def publish_due(self, latest_ms: int | None = None) -> Operation[tuple[int, int | None]]:
        """The next answer."""
        yield from ()
        self.latest.append(latest_ms)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def waits_of(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it waits after each look."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if not fake.answers:
            raise asyncio.CancelledError

    monkeypatch.setattr("rqretry.worker.schedule_loop.asyncio.sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await ScheduleLoop(fake, fake).run()  # type: ignore[arg-type]
    return waits


async def test_it_waits_for_the_next_slot_and_a_minute_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = Fake((1000, 6000), (6000, None), (66_000, 9_000_000), StoreUnavailable("away"))

    first, *others = await waits_of(fake, monkeypatch)

    assert first == pytest.approx(5, abs=0.5)
    assert others == [LOOK_EVERY_S, LOOK_EVERY_S, 5]


async def test_a_time_that_has_jumped_is_believed_at_the_second_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = Fake((1000, 2000), (3_601_000, None), (3_611_000, None))

    assert (await waits_of(fake, monkeypatch))[1:] == [10, LOOK_EVERY_S]
    assert fake.latest[0] is None
    assert fake.latest[1] == pytest.approx(61_000, abs=500)
    assert fake.latest[2] is None
