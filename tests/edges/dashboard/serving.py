"""A dashboard that listens, in this process."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from rqretry import AsyncClient
from rqretry.dashboard import http_server
from rqretry.dashboard.access import Rights
from rqretry.dashboard.site import make_site


@asynccontextmanager
async def serving(url: str) -> AsyncIterator[tuple[int, uvicorn.Server]]:
    """The port of a dashboard with operator rights, and its server."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with AsyncClient(url) as client:
            server = http_server.make_server(make_site(client, Rights(operator=True)))
            running = asyncio.create_task(server.serve(sockets=[listening]))
            yield int(listening.getsockname()[1]), server
            server.should_exit = True
            await running


async def half(port: int, text: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which a part of a request was sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    await writer.drain()
    return reader, writer
