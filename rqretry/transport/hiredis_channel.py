"""A connection of the asyncio store: requests and replies, without redis-py's streams.

redis-py connects and logs in; then its transport is taken over. Bytes go from the socket to the
parser, and replies to whoever waits for them, in one step of the event loop. That needs hiredis;
without it redis-py carries the same.
"""

import asyncio
from typing import Any, Self, cast

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as BrokenError
from redis.exceptions import RedisError

from rqretry.transport.connection import INCOMPLETE, abandon, pack_one, reply_reader
from rqretry.transport.node import Node, Requests
from rqretry.transport.replies import SERVER_ERRORS, broken


class Channel(asyncio.Protocol):
    """Requests, and their replies in their order; one waits for replies at a time."""

    def __init__(self, transport: asyncio.WriteTransport, reader: Any) -> None:
        self._transport = transport
        self._reader = reader
        self._waiter: asyncio.Future[list[Any]] | None = None
        self._replies: list[Any] = []
        self._count = 0
        self._lost: Exception | None = None
        self._until = 0.0
        """When whoever waits gives up, by the loop's clock."""
        self._timer: asyncio.TimerHandle | None = None
        """What looks at `_until`; one for many waits, since nearly all of them are short."""

    @classmethod
    def take_over(cls, connection: AbstractConnection) -> Self | None:
        """The channel of an open connection; None where hiredis is not installed."""
        reader = reply_reader()
        if reader is None:
            return None
        stream: Any = connection._reader  # noqa: SLF001 - redis-py has no name for them
        transport = cast("asyncio.Transport", connection._writer.transport)  # type: ignore[union-attr] # noqa: SLF001
        channel = cls(transport, reader)
        transport.set_protocol(channel)
        # A server with too many clients sends an error without a request, and hangs up.
        reader.feed(bytes(stream._buffer))  # noqa: SLF001 - it cannot be read without waiting
        stream._buffer.clear()  # noqa: SLF001
        if stream.at_eof() or transport.is_closing():
            channel.connection_lost(stream.exception())
            transport.close()
        return channel

    def send(self, data: bytes) -> None:
        """Send requests, packed; of a connection that is lost `receive` says so."""
        if self._lost is None:
            self._transport.write(data)

    async def receive(self, count: int, seconds: float) -> list[Any]:
        """Wait for the next replies to what was sent; errors of the server are values.

        Args:
            count: How many.
            seconds: How long to wait.

        Raises:
            OSError, RedisError, TimeoutError: The connection is of no use any more.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[list[Any]] = loop.create_future()
        self._waiter = waiter
        self._replies, self._count = [], count
        self._read(waiter)  # what was sent unasked comes first
        if self._lost is not None and not waiter.done():
            waiter.set_exception(self._lost)
        self._until = until = loop.time() + seconds
        if self._timer is None or self._timer.when() > until:
            self._set_timer(loop)
        try:
            return await waiter
        finally:
            self._waiter = None

    def data_received(self, data: bytes) -> None:
        """Bytes have come (asyncio.Protocol)."""
        self._reader.feed(data)
        if self._waiter is not None:
            self._read(self._waiter)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more will come (asyncio.Protocol)."""
        self._lost = exc or ConnectionResetError("the connection was closed")
        if self._timer is not None:
            self._timer.cancel()
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
                if reply is INCOMPLETE:
                    return
                if isinstance(reply, BrokenError) and not isinstance(reply, SERVER_ERRORS):
                    raise reply
                replies.append(reply)
        except RedisError as error:  # its last words, or no Redis at all
            waiter.set_exception(error)
        else:
            waiter.set_result(replies)

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._until, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give up if it is time to; if somebody waits for longer, look again then."""
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if loop.time() < self._until:
            self._set_timer(loop)
        else:
            self._waiter.set_exception(TimeoutError())


class Connection:
    """An open connection to a server; whoever holds it uses it alone.

    Attributes:
        node: The server.
        raw: The connection of redis-py.
        channel: What carries requests and replies on it; None where redis-py does that itself.
        client_id: The server's number of it, once somebody asked; 0 before that.
    """

    __slots__ = ("channel", "client_id", "node", "raw")

    def __init__(self, node: Node, raw: AbstractConnection) -> None:
        self.node = node
        self.raw = raw
        self.channel: Channel | None = None
        self.client_id = 0

    async def open(self, seconds: float) -> None:
        """Connect. Raises RedisError, OSError, TimeoutError."""
        async with asyncio.timeout(seconds):
            await self.raw.connect()
        self.channel = Channel.take_over(self.raw)

    @property
    def is_open(self) -> bool:
        """Whether it was opened and not closed."""
        connected: bool = self.raw.is_connected
        return connected

    def close(self) -> None:
        """Close it; what was sent on it is left to the server."""
        self.raw._close()  # noqa: SLF001 - redis-py's own disconnect has to be awaited

    def abandon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close a connection of another event loop, where nothing can be awaited any more."""
        abandon(self.raw, loop)

    async def exchange(self, requests: Requests, seconds: float) -> list[Any]:
        """Send requests and read their replies; a server's errors are values. Raises TryAgain."""
        try:
            if self.channel is not None:
                self.channel.send(b"".join(map(pack_one, requests)))
                return await self.channel.receive(len(requests), seconds)
            async with asyncio.timeout(seconds):
                await self._write(requests)
                return [await self._read() for _ in requests]
        except (RedisError, OSError, TimeoutError) as error:
            raise broken(self.node, error, sent=True) from error

    async def send(self, requests: Requests, seconds: float) -> None:
        """Send requests, whose replies are received later. TryAgain."""
        try:
            if self.channel is not None:
                self.channel.send(b"".join(map(pack_one, requests)))
                return
            async with asyncio.timeout(seconds):
                await self._write(requests)
        except (RedisError, OSError, TimeoutError) as error:
            raise broken(self.node, error, sent=True) from error

    async def receive(self, count: int, seconds: float) -> list[Any]:
        """Read replies to what was sent; errors of the server are values. TryAgain."""
        try:
            if self.channel is not None:
                return await self.channel.receive(count, seconds)
            async with asyncio.timeout(seconds):
                return [await self._read() for _ in range(count)]
        except (RedisError, OSError, TimeoutError) as error:
            raise broken(self.node, error, sent=True) from error

    async def _write(self, requests: Requests) -> None:
        await self.raw.send_packed_command(list(map(pack_one, requests)), check_health=False)

    async def _read(self) -> Any:
        try:
            return await self.raw.read_response(disconnect_on_error=False)
        except SERVER_ERRORS as error:
            return error
