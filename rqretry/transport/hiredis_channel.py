"""Requests and replies on a connection that redis-py has opened, without its streams.

redis-py connects and logs in; then its transport is taken over. Bytes go from the socket to the
parser, and replies to whoever waits for them, in one step of the event loop. Needs hiredis.
"""

import asyncio
from typing import Any, Self, cast

from redis._parsers.base import BaseParser
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as BrokenError
from redis.exceptions import InvalidResponse, RedisError

from rqretry.transport.connection import make_reader
from rqretry.transport.replies import SERVER_ERRORS

_INCOMPLETE = object()


class Channel(asyncio.Protocol):
    """Requests, and their replies in their order; one waits for replies at a time."""

    def __init__(self, transport: asyncio.WriteTransport, reader: Any) -> None:
        self._transport = transport
        self._reader = reader
        self._waiter: asyncio.Future[list[Any]] | None = None
        self._replies: list[Any] = []
        self._count = 0
        self._lost: Exception | None = None

    @classmethod
    def take_over(cls, connection: AbstractConnection) -> Self | None:
        """The channel of an open connection; None where hiredis is not installed."""
        if make_reader is None:
            return None
        reader = make_reader(
            protocolError=InvalidResponse,
            replyError=BaseParser.parse_error,
            notEnoughData=_INCOMPLETE,
        )
        stream: Any = connection._reader  # noqa: SLF001 - redis-py has no name for them
        transport = cast("asyncio.Transport", connection._writer.transport)  # type: ignore[union-attr] # noqa: SLF001
        channel = cls(transport, reader)
        transport.set_protocol(channel)
        # A server that is full says so unasked, and hangs up.
        reader.feed(bytes(stream._buffer))  # noqa: SLF001 - it cannot be read without waiting
        stream._buffer.clear()  # noqa: SLF001
        if stream.at_eof() or transport.is_closing():
            channel.connection_lost(stream.exception())
            transport.close()
        return channel

    async def exchange(self, data: bytes, count: int, seconds: float) -> list[Any]:
        """Send requests, and wait for as many replies; errors of the server are values.

        Args:
            data: The requests, packed.
            count: How many they are.
            seconds: How long to wait.

        Raises:
            OSError, RedisError, TimeoutError: The connection is of no use any more.
        """
        self.send(data)
        return await self.receive(count, seconds)

    def send(self, data: bytes) -> None:
        """Send requests, packed; of a connection that is lost `receive` says so."""
        if self._lost is None:
            self._transport.write(data)

    async def receive(self, count: int, seconds: float) -> list[Any]:
        """Wait for the next replies to what was sent; see `exchange`."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[list[Any]] = loop.create_future()
        self._waiter = waiter
        self._replies, self._count = [], count
        self._read(waiter)  # what was said unasked comes first
        if self._lost is not None and not waiter.done():
            waiter.set_exception(self._lost)
        timer = loop.call_later(seconds, self._give_up, waiter)
        try:
            return await waiter
        finally:
            timer.cancel()
            self._waiter = None

    def data_received(self, data: bytes) -> None:
        """Bytes have come (asyncio.Protocol)."""
        self._reader.feed(data)
        if self._waiter is not None:
            self._read(self._waiter)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more will come (asyncio.Protocol)."""
        self._lost = exc or ConnectionResetError("the connection was closed")
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(self._lost)

    def _read(self, waiter: asyncio.Future[list[Any]]) -> None:
        """Take the replies that are complete."""
        if waiter.done():
            return
        replies, next_one = self._replies, self._reader.gets
        try:
            while len(replies) < self._count:
                reply = next_one()
                if reply is _INCOMPLETE:
                    return
                if isinstance(reply, BrokenError) and not isinstance(reply, SERVER_ERRORS):
                    raise reply
                replies.append(reply)
        except RedisError as error:  # its last words, or no Redis at all
            waiter.set_exception(error)
        else:
            waiter.set_result(replies)

    def _give_up(self, waiter: asyncio.Future[list[Any]]) -> None:
        if not waiter.done():
            waiter.set_exception(TimeoutError())
