"""What ends a message of a batch early, and what ends the whole batch."""

import asyncio
import time
from typing import Any

from rqretry.app import App
from rqretry.core.envelope import encode
from rqretry.core.message import Message
from rqretry.core.middleware import Hooks
from rqretry.core.parts import parts_of
from rqretry.protocol.keys import partition_keys
from rqretry.protocol.lease import Failure
from rqretry.worker.consumer import BatchConsumer, ConsumerContext, consumer_for
from rqretry.worker.leases import Delivery, LeasedPlace
from rqretry.worker.wakeups import HasRoom


class Bench:
    """A batch consumer, and what it reports."""

    unsettled = ()

    def __init__(self, **options: Any) -> None:
        self.results: list[tuple[str, str]] = []
        self.cancelled: list[list[bool]] = []
        self.begun, self.go_on, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.messages: list[Message[int]] = []
        app = App("redis://localhost")

        @app.consumer("t", group="g", batch=3, concurrency=1, **options)
        async def handle(messages: list[Message[int]]) -> None:
            self.messages = messages
            self.begun.set()
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.cancelled.append([message.cancelled for message in messages])
                raise

        keys = partition_keys("n", "t", 0).group("g", 18)
        self.place = LeasedPlace("t", 0, keys, 30.0)
        context = ConsumerContext("w", Hooks(), self, rooms=self, events=self)
        (spec,) = parts_of(app).consumers
        self.consumer = consumer_for(spec)(spec, context, 16)
        assert isinstance(self.consumer, BatchConsumer)
        self.consumer.start()

    async def accept(self, *leased_ago: float) -> list[Delivery]:
        """Lease messages a, b, c and wait until their batch has begun."""
        now = time.monotonic()
        made = [
            Delivery(self.place, id_, encode(1), (1, 1), now - ago)
            for id_, ago in zip("abc", leased_ago, strict=True)
        ]
        self.place.leases.add(made)
        self.consumer.accept(made)
        await self.begun.wait()
        return made

    def succeed(self, delivery: Delivery) -> None:
        self.results.append((delivery.id, "success"))

    def fail(self, delivery: Delivery, failure: Failure) -> None:
        self.results.append((delivery.id, failure.cause))

    def release(self, delivery: Delivery, delay_ms: int | str) -> None:
        self.results.append((delivery.id, "released"))

    def postpone(self, delivery: Delivery, delay_ms: int, most: int, limit: Failure) -> None:
        self.results.append((delivery.id, "postponed"))

    def room_in(self, consumer: HasRoom) -> None:
        if not len(self.consumer.running):
            self.over.set()

    def lease_lost(self, delivery: Delivery) -> None:
        self.results.append((delivery.id, "lost"))

    def stuck(self) -> None:
        raise AssertionError


async def test_a_lease_that_is_lost_ends_its_message_and_the_batch_goes_on() -> None:
    bench = Bench()
    _, second, _ = await bench.accept(0, 0, 0)
    bench.consumer.running.lose(second)
    assert [message.cancelled for message in bench.messages] == [False, True, False]
    bench.go_on.set()
    await bench.over.wait()
    assert bench.results == [("b", "lost"), ("a", "success"), ("c", "success")]
    assert bench.cancelled == []
    bench.consumer.close()


async def test_a_batch_without_a_message_that_is_wanted_is_called_off() -> None:
    bench = Bench(consume_timeout="20s")
    first, *_ = await bench.accept(0, 21, 21)
    bench.consumer.running.check(time.monotonic())
    assert [message.cancelled for message in bench.messages] == [False, True, True]
    bench.consumer.running.lose(first)
    await bench.over.wait()
    assert sorted(bench.results) == [("a", "lost"), ("b", "timeout"), ("c", "timeout")]
    assert bench.cancelled == [[True] * 3]
    assert bench.consumer.room() == 3
    bench.consumer.close()


async def test_in_an_ordered_group_a_timeout_is_reported_when_the_handler_has_ended() -> None:
    bench = Bench(consume_timeout="20s", ordered=True)
    await bench.accept(21, 21, 0)
    bench.consumer.running.check(time.monotonic())
    assert bench.results == []
    bench.go_on.set()
    await bench.over.wait()
    assert sorted(bench.results) == [("a", "timeout"), ("b", "timeout"), ("c", "success")]
    bench.consumer.close()


async def test_a_lease_that_ended_in_the_buffer_is_not_begun() -> None:
    bench = Bench()
    await bench.accept(0, 31, 0)
    assert [message.id for message in bench.messages] == ["a", "c"]
    bench.consumer.close()
