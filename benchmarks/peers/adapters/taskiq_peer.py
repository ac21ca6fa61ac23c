"""taskiq on Redis streams."""

import asyncio
from typing import Any

import peer
from taskiq import SimpleRetryMiddleware
from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker(
    peer.URL, consumer_id="0", idle_timeout=10_000, xread_count=1000, xread_block=1000
).with_middlewares(SimpleRetryMiddleware(default_retry_count=3, default_retry_label=True))


@broker.task
async def work(message: dict[str, Any]) -> None:
    """The handler."""
    await peer.saw_async(message)


async def connect() -> peer.Ways:
    """The two ways to publish."""
    await broker.startup()

    async def one(number: int) -> None:
        await work.kiq(peer.body(number))

    async def bulk(numbers: range) -> None:
        await asyncio.gather(*(one(number) for number in numbers))

    return one, bulk


def main() -> None:
    """Publish, or work."""
    peer.serve_async(connect)
