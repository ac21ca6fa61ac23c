"""repid on Redis streams."""

import asyncio
from typing import Any

import peer
import uvloop
from repid import RedisServer, Repid, Router

app = Repid(title="bench", version="1")
app.servers.register_server(
    "default",
    RedisServer(peer.URL, batch_size=100, claim_interval=5.0, min_idle_ms=10_000),
    is_default=True,
)
router = Router()


@router.actor(on_error="reject")
async def work(message: dict[str, Any]) -> None:
    """The handler."""
    await peer.saw_async(message)


app.include_router(router)


async def connect() -> peer.Ways:
    """The two ways to publish."""
    await app.servers.default.connect()

    async def one(number: int) -> None:
        await app.send_message_json(
            channel="default", payload={"message": peer.body(number)}, headers={"topic": "work"}
        )

    async def bulk(numbers: range) -> None:
        await asyncio.gather(*(one(number) for number in numbers))

    return one, bulk


async def run() -> None:
    """One worker."""
    async with app.servers.default.connection():
        await app.run_worker(tasks_limit=100)


def main() -> None:
    """Publish, or work."""
    peer.serve_async(connect, lambda: uvloop.run(run()))
