"""A process that stood still: what is in its buffer may be somebody else's by now."""

import asyncio
import time

from rqretry.app import App
from rqretry.core.envelope import encode
from rqretry.core.message import Message
from rqretry.core.middleware import Hooks
from rqretry.core.parts import parts_of
from rqretry.protocol.keys import partition_keys
from rqretry.protocol.lease import Failure
from rqretry.worker.consumer import Consumer, ConsumerContext
from rqretry.worker.leases import Delivery, LeasedPlace
from rqretry.worker.wakeups import HasRoom


class Results:
    """What a consumer reports of its attempts."""

    unsettled = ()

    def __init__(self) -> None:
        self.ids: list[str] = []

    def succeed(self, delivery: Delivery) -> None:
        self.ids.append(delivery.id)

    def fail(self, delivery: Delivery, failure: Failure) -> None:
        self.ids.append(delivery.id)

    def release(self, delivery: Delivery, delay_ms: int | str) -> None:
        self.ids.append(delivery.id)

    def postpone(self, delivery: Delivery, delay_ms: int, most: int, limit: Failure) -> None:
        self.ids.append(delivery.id)


class Bench:
    """A consumer of one slot, what its handler saw, and whether it said that it has room."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.begun = asyncio.Event()
        app = App("redis://localhost")

        @app.consumer("t", group="g", visibility=30, concurrency=1)
        async def handle(message: Message[int]) -> None:
            self.seen.append(message.id)
            self.begun.set()

        keys = partition_keys("n", "t", 0).group("g", 18)
        self.results, self.place = Results(), LeasedPlace("t", 0, keys, 30.0)
        self.room = asyncio.Event()
        context = ConsumerContext("w", Hooks(), self.results, rooms=self, events=self)
        self.consumer = Consumer(parts_of(app).consumers[0], context, 16)
        self.consumer.places.append(self.place)

    def room_in(self, consumer: HasRoom) -> None:
        self.room.set()

    def lease_lost(self, delivery: Delivery) -> None:
        pass

    def stuck(self) -> None:
        raise AssertionError


async def test_a_message_whose_lease_ended_in_the_buffer_is_not_begun() -> None:
    bench = Bench()
    consumer, place, now = bench.consumer, bench.place, time.monotonic()
    late = Delivery(place, "late", encode(1), (1, 1), now - 30)
    good = Delivery(place, "good", encode(2), (1, 1), now)
    place.leases.add([late, good])
    consumer.start()
    consumer.accept([late, good])
    await bench.begun.wait()
    consumer.close()
    assert bench.seen == ["good"]
    assert bench.results.ids == ["good"]
    assert late.lost
    assert late not in place.leases


async def test_messages_that_are_passed_over_make_room_for_others() -> None:
    bench = Bench()
    consumer, place = bench.consumer, bench.place
    lost = [Delivery(place, id_, encode(1), (1, 1), time.monotonic()) for id_ in "ab"]
    for delivery in lost:
        delivery.lost = True  # as the heartbeat says, when the server does not know the lease
    consumer.start()
    consumer.accept(lost)
    await bench.room.wait()
    assert consumer.room() == 1
    consumer.close()
    assert bench.seen == []
