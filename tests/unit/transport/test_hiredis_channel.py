"""Replies on a connection, however their bytes come, and how it ends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from redis.exceptions import RedisError, ResponseError

from rqretry.core.redis_url import RedisUrl
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.connection import async_connection
from rqretry.transport.hiredis_channel import Channel, Connection
from rqretry.transport.node import Node
from rqretry.transport.replies import is_error

Say = Callable[[bytes], Awaitable[None]]
PATIENCE_S = 30.0


class Server:
    """A server that sends what the test asks for."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()
        self.received = b""
        self.writers: list[asyncio.StreamWriter] = []
        self.first = b""
        """What it sends to everybody who connects."""
        self.hangs_up = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.writers.append(writer)
        writer.write(self.first)
        if self.hangs_up:
            writer.close()
        while data := await reader.read(65_536):
            self.received += data
            self.heard.set()
        writer.close()

    async def say(self, data: bytes) -> None:
        """Say something to all."""
        for writer in self.writers:
            writer.write(data)
            await writer.drain()

    def hang_up(self) -> None:
        """Close all connections."""
        for writer in self.writers:
            writer.close()


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Server, RedisUrl]]:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield server, RedisUrl.parse(f"redis://127.0.0.1:{port}/0")
    finally:
        server.hang_up()
        listening.close()
        await listening.wait_closed()


@asynccontextmanager
async def connected(url: RedisUrl) -> AsyncIterator[Channel]:
    connection = Connection(Node(url, ScriptLibrary()), async_connection(url, PATIENCE_S))
    await connection.open(PATIENCE_S)
    assert connection.channel is not None
    try:
        yield connection.channel
    finally:
        connection.close()


async def exchange(channel: Channel, data: bytes, count: int, seconds: float) -> list[object]:
    channel.send(data)
    return await channel.receive(count, seconds)


async def asked(channel: Channel, server: Server, count: int = 1) -> "asyncio.Task[list[object]]":
    """A request that has reached the server, which has not answered it."""
    server.heard.clear()
    task = asyncio.get_running_loop().create_task(exchange(channel, b"hello", count, PATIENCE_S))
    await server.heard.wait()
    return task


async def test_replies_that_come_in_pieces_are_put_together() -> None:
    async with served() as (server, url), connected(url) as channel:
        task = await asked(channel, server, 2)
        for piece in (b"*2\r\n$3\r\nab", b"c\r\n:7\r", b"\n+O", b"K\r\n"):
            assert not task.done()
            await server.say(piece)
            await asyncio.sleep(0)
        assert await task == [[b"abc", 7], b"OK"]
        assert server.received == b"hello"


async def test_one_exchange_follows_another() -> None:
    async with served() as (server, url), connected(url) as channel:
        for number in range(3):
            task = await asked(channel, server)
            await server.say(b":%d\r\n" % number)
            assert await task == [number]


async def test_errors_of_the_server_are_values() -> None:
    async with served() as (server, url), connected(url) as channel:
        task = await asked(channel, server, 3)
        await server.say(b"-NOSCRIPT none\r\n-LOADING wait\r\n-NOAUTH who\r\n")
        replies = await task
        assert all(is_error(reply) for reply in replies)
        assert isinstance(replies[0], ResponseError)


async def test_a_server_that_hangs_up_ends_what_waits_and_what_comes_later() -> None:
    async with served() as (server, url), connected(url) as channel:
        task = await asked(channel, server)
        server.hang_up()
        with pytest.raises(OSError, match="closed"):
            await task
        with pytest.raises(OSError, match="closed"):
            await exchange(channel, b"anybody?", 1, PATIENCE_S)


async def test_a_server_that_hung_up_between_two_exchanges_is_noticed() -> None:
    async with served() as (server, url), connected(url) as channel:
        task = await asked(channel, server)
        await server.say(b"+OK\r\n")
        await task
        server.hang_up()
        with pytest.raises(OSError):
            while True:
                await exchange(channel, b"anybody?", 1, PATIENCE_S)


@pytest.mark.parametrize("hangs_up", [True, False])
async def test_what_a_full_server_says_before_it_is_asked_is_heard(*, hangs_up: bool) -> None:
    async with served() as (server, url):
        server.first = b"-ERR max number of clients reached\r\n"
        server.hangs_up = hangs_up
        async with connected(url) as channel:
            with pytest.raises(RedisError, match="max number of clients"):
                await exchange(channel, b"hello", 1, PATIENCE_S)


async def test_what_does_not_come_is_not_waited_for_for_ever() -> None:
    async with served() as (_, url), connected(url) as channel:
        with pytest.raises(TimeoutError):
            await exchange(channel, b"hello", 1, 0.01)


async def test_each_wait_has_its_own_end_whatever_the_one_before_had() -> None:
    async with served() as (server, url), connected(url) as channel:
        task = await asked(channel, server)
        await server.say(b":1\r\n")
        assert await task == [1]
        with pytest.raises(TimeoutError):  # shorter than the one before
            await exchange(channel, b"hello", 1, 0.01)
    async with served() as (server, url), connected(url) as channel:
        task = asyncio.create_task(exchange(channel, b"hello", 1, 0.02))
        await server.heard.wait()
        await server.say(b":2\r\n")
        assert await task == [2]
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):  # longer
            await exchange(channel, b"hello", 1, 0.05)
        assert asyncio.get_running_loop().time() - began > 0.04


async def test_what_is_no_redis_at_all_is_refused() -> None:
    async with served() as (server, url), connected(url) as channel:
        task = await asked(channel, server)
        await server.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(RedisError):
            await task


async def test_without_hiredis_redis_py_carries_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rqretry.transport.hiredis_channel.reply_reader", lambda: None)
    async with served() as (_, url):
        connection = Connection(Node(url, ScriptLibrary()), async_connection(url, PATIENCE_S))
        await connection.open(PATIENCE_S)
        assert connection.channel is None
        connection.close()
