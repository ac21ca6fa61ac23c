"""arq."""

import asyncio
from typing import Any

import peer
import uvloop
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Retry, Worker, func

settings = RedisSettings(port=peer.PORT)


async def work(_context: dict[str, Any], message: dict[str, Any]) -> None:
    """The handler; nothing but Retry is retried."""
    try:
        await peer.saw_async(message)
    except peer.FirstAttemptError as error:
        raise Retry(defer=0) from error


async def connect() -> peer.Ways:
    """The two ways to publish."""
    pool = await create_pool(settings)

    async def one(number: int) -> None:
        await pool.enqueue_job("work", peer.body(number))

    async def bulk(numbers: range) -> None:
        await asyncio.gather(*(one(number) for number in numbers))

    return one, bulk


def run() -> None:
    """One worker."""
    uvloop.install()
    asyncio.set_event_loop(uvloop.new_event_loop())
    Worker(
        functions=[func(work, name="work", keep_result=0, timeout=10)],
        redis_settings=settings,
        max_jobs=100,
        poll_delay=0.01,
        keep_result=0,
    ).run()


def main() -> None:
    """Publish, or work."""
    peer.serve_async(connect, run)
