"""saq."""

import asyncio
from typing import Any

import peer
import uvloop
from saq import Job, Queue, Worker

queue = Queue.from_url(peer.URL)


async def work(_context: dict[str, Any], *, message: dict[str, Any]) -> None:
    """The handler."""
    await peer.saw_async(message)


async def connect() -> peer.Ways:
    """The two ways to publish."""
    await queue.connect()

    async def one(number: int) -> None:
        job = Job("work", kwargs={"message": peer.body(number)}, ttl=-1, retries=3, heartbeat=10)
        await queue.enqueue(job)

    async def bulk(numbers: range) -> None:
        await asyncio.gather(*(one(number) for number in numbers))

    return one, bulk


async def run() -> None:
    """One worker."""
    await queue.connect()
    worker = Worker(queue, functions=[("work", work)], concurrency=100, timers={"sweep": 5})
    await worker.start()


def main() -> None:
    """Publish, or work."""
    peer.serve_async(connect, lambda: uvloop.run(run()))
