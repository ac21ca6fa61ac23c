"""A process that stood still: what is in its buffer may be somebody else's by now."""

import asyncio
import time

from rqretry.app import App
from rqretry.codec import encode
from rqretry.commands.consuming import Failure
from rqretry.hooks import Hooks
from rqretry.keys import partition_keys
from rqretry.message import Message
from rqretry.runtime.consumer import Consumer
from rqretry.runtime.delivery import Delivery, Source


class Told:
    """What a consumer says of its attempts."""

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


async def test_a_message_whose_lease_ended_in_the_buffer_is_not_begun() -> None:
    app, begun, seen = App("redis://localhost"), asyncio.Event(), []

    @app.consumer("t", group="g", visibility=30, concurrency=1)
    async def handle(message: Message[int]) -> None:
        seen.append(message.id)
        begun.set()

    told, keys = Told(), partition_keys("n", "t", 0).group("g", 18)
    consumer, source = Consumer(app.consumers[0], told, Hooks(), "w"), Source("t", 0, keys, 30.0)
    consumer.sources.append(source)
    now = time.monotonic()
    late = Delivery(source, "late", encode(1), (1, 1), now - 30)
    good = Delivery(source, "good", encode(2), (1, 1), now)
    source.leases = {"late": late, "good": good}
    consumer.start()
    consumer.accept([late, good])
    await begun.wait()
    consumer.close()
    assert seen == ["good"]
    assert told.ids == ["good"]
    assert late.lost
    assert "late" not in source.leases
