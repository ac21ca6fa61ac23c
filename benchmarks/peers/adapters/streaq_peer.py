"""streaq."""

from typing import Any

import peer
from streaq import StreaqRetry, Worker

worker = Worker(redis_url=peer.URL, concurrency=100, idle_timeout=10)


@worker.task(ttl=0)
async def work(message: dict[str, Any]) -> None:
    """The handler; nothing but StreaqRetry is retried."""
    try:
        await peer.saw_async(message)
    except peer.FirstAttemptError as error:
        raise StreaqRetry(delay=0) from error


async def connect() -> peer.Ways:
    """The two ways to publish."""
    await worker.__aenter__()

    async def one(number: int) -> None:
        await work.enqueue(peer.body(number))

    async def bulk(numbers: range) -> None:
        await worker.enqueue_many([work.enqueue(peer.body(number)) for number in numbers])

    return one, bulk


def main() -> None:
    """Publish, or work."""
    peer.serve_async(connect, worker.run_sync)
