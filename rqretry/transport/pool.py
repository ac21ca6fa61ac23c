"""Open connections of the asyncio store, and what is sent on them.

Nothing here repeats a request. What breaks is TryAgain, with `sent` from the first byte on.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from rqretry.core.errors import RqretryError
from rqretry.transport.connection import abandon, async_connection, pack
from rqretry.transport.handshake import Greeting
from rqretry.transport.hiredis_channel import Channel
from rqretry.transport.replies import ASK_SECONDS, SERVER_ERRORS, Requests, ServerClock, TryAgain
from rqretry.transport.topology import Node, Question, Topology

MAX_IDLE = 8
"""Connections to a server kept open for later; what more a burst of calls needed is closed."""


class Line:
    """An open connection to a server; whoever holds it uses it alone.

    Attributes:
        node: The server.
        connection: The connection of redis-py.
        channel: What carries requests and replies on it; None where redis-py does that itself.
        client_id: The server's number of it, once somebody asked; 0 before that.
    """

    __slots__ = ("channel", "client_id", "connection", "node")

    def __init__(self, node: "Node[Line]", connection: AbstractConnection) -> None:
        self.node = node
        self.connection = connection
        self.channel: Channel | None = None
        self.client_id = 0

    async def open(self, seconds: float) -> None:
        """Connect. Raises RedisError, OSError, TimeoutError."""
        async with asyncio.timeout(seconds):
            await self.connection.connect()
        self.channel = Channel.take_over(self.connection)

    async def close(self) -> None:
        """Close it; what was sent on it is left to the server."""
        await self.connection.disconnect(nowait=True)


class Pool:
    """Connections to the servers of a topology.

    Attributes:
        connect_seconds: How long connecting to a server takes at most.
        reply_seconds: How long one attempt waits for its reply.
        on_change: Called when calls begin to fail, or succeed again.
    """

    def __init__(
        self, topology: Topology[Line], connect_seconds: float, reply_seconds: float
    ) -> None:
        self.topology = topology
        self.connect_seconds = connect_seconds
        self.reply_seconds = reply_seconds
        self.on_change: Callable[[], None] = lambda: None
        self._lost: str | None = None
        self._locating = asyncio.Lock()
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def locate(self) -> None:
        """Ask who holds what, where that is not known. Raises TryAgain, ConfigError."""
        self._notice()
        if not self.topology.stale:
            return
        async with self._locating:
            if self.topology.stale:
                await self._inquire()

    async def acquire(self, node: Node[Line], clock: ServerClock) -> Line:
        """An open connection; the caller releases it, or closes it after any error.

        Raises:
            TryAgain: The server cannot be used now; nothing was sent.
            ConfigError, UnsafeServer: It cannot be used at all.
        """
        self._notice()
        while node.idle:
            line = node.idle.pop()
            if line.connection.is_connected:
                return line
        line = Line(node, async_connection(node.url, self.connect_seconds))
        greeting = Greeting(self.topology, node, clock)
        try:
            await line.open(self.reply_seconds)
            if greeting.requests:
                greeting.read(await self.exchange(line, greeting.requests))
        except BaseException as error:
            await line.close()
            if isinstance(error, (RqretryError, TryAgain, RedisError, OSError, TimeoutError)):
                raise _told(node, error) from error
            raise
        return line

    def open_line(self) -> Line | None:
        """A connection that is open, where there is one server and nothing to find out first."""
        self._notice()
        topology = self.topology
        if topology.spread or topology.stale:
            return None
        for node in topology.nodes.values():
            while node.idle:
                line = node.idle.pop()
                if line.connection.is_connected:
                    return line
        return None

    async def release(self, line: Line) -> None:
        """Give a connection back."""
        if len(line.node.idle) < MAX_IDLE and self.topology.nodes.get(line.node.url) is line.node:
            line.node.idle.append(line)
        else:
            await line.close()

    async def exchange(
        self, line: Line, requests: Requests, seconds: float | None = None
    ) -> list[Any]:
        """Send requests and read as many replies; errors of the server are values here."""
        patience, packed = seconds or self.reply_seconds, pack(requests)
        try:
            if line.channel is not None:
                return await line.channel.exchange(_joined(packed), len(requests), patience)
            async with asyncio.timeout(patience):
                await line.connection.send_packed_command(packed, check_health=False)
                return [await _reply(line.connection) for _ in requests]
        except (RedisError, OSError, TimeoutError) as error:
            raise self._broken(line, error) from error

    async def send(self, line: Line, requests: Requests) -> None:
        """Send requests, whose replies are received later; nothing else may come in between."""
        packed = pack(requests)
        try:
            if line.channel is not None:
                line.channel.send(_joined(packed))
                return
            async with asyncio.timeout(self.reply_seconds):
                await line.connection.send_packed_command(packed, check_health=False)
        except (RedisError, OSError, TimeoutError) as error:
            raise self._broken(line, error) from error

    async def receive(self, line: Line, count: int) -> list[Any]:
        """Read replies to what was sent; errors of the server are values here."""
        try:
            if line.channel is not None:
                return await line.channel.receive(count, self.reply_seconds)
            async with asyncio.timeout(self.reply_seconds):
                return [await _reply(line.connection) for _ in range(count)]
        except (RedisError, OSError, TimeoutError) as error:
            raise self._broken(line, error) from error

    async def distrust(self, node: Node[Line], again: TryAgain) -> None:
        """A call to a server failed: its idle connections are as broken as the call's own was."""
        self.note(node, str(again.error))
        node.wire.forget()
        self.topology.suspect(node)
        await self._empty(node)

    @property
    def trouble(self) -> str | None:
        """Why calls fail at the moment; None while they succeed."""
        troubles = (node.trouble for node in self.topology.nodes.values() if node.trouble)
        return next(troubles, self._lost)

    def note(self, node: Node[Line], trouble: str | None) -> None:
        """Why calls to a server fail; None: they do not."""
        if trouble == node.trouble:
            return
        before, node.trouble = self.trouble, trouble
        if self.trouble != before:
            self.on_change()

    def lose(self, trouble: str | None) -> None:
        """Why no server can be used at all; None: one can."""
        if trouble == self._lost:
            return
        before, self._lost = self.trouble, trouble
        if self.trouble != before:
            self.on_change()

    async def aclose(self) -> None:
        """Close the idle connections."""
        for node in list(self.topology.nodes.values()):
            await self._empty(node)

    def _broken(self, line: Line, error: BaseException) -> TryAgain:
        broken = line.node.wire.broken(error, sent=True)
        self.note(line.node, str(broken.error))
        return broken

    async def _empty(self, node: Node[Line]) -> None:
        idle, node.idle = node.idle, []
        for line in idle:
            await line.close()

    def _notice(self) -> None:
        """After a fork, or in another asyncio.run(), the connections at hand are not ours."""
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid() or self._loop is not loop:
            for node in self.topology.nodes.values():
                idle, node.idle = node.idle, []
                if self._pid == os.getpid() and self._loop is not None:
                    for line in idle:
                        abandon(line.connection, self._loop)
            self._pid, self._loop, self._locating = os.getpid(), loop, asyncio.Lock()

    async def _inquire(self) -> None:
        inquiry = self.topology.inquire()
        try:
            question = next(inquiry)
            while True:
                question = inquiry.send(await self._ask(question))
        except StopIteration:
            pass
        for node in self.topology.retired():
            await self._empty(node)

    async def _ask(self, question: Question) -> list[Any] | Exception:
        url, requests = question
        node: Node[Line] = Node(url, self.topology.scripts)
        line = Line(node, async_connection(url, min(self.connect_seconds, ASK_SECONDS)))
        try:
            await line.open(ASK_SECONDS)
            return await self.exchange(line, list(requests), ASK_SECONDS)
        except (TryAgain, RedisError, OSError, TimeoutError) as error:
            refused = node.wire.refused(error)
            if isinstance(refused, RqretryError):
                raise refused from None
            return refused
        finally:
            await line.close()


def _told(node: Node[Line], error: Exception) -> Exception:
    return error if isinstance(error, RqretryError) else node.wire.refused(error)


def _joined(packed: list[bytes]) -> bytes:
    return packed[0] if len(packed) == 1 else b"".join(packed)


async def _reply(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response(disconnect_on_error=False)
    except SERVER_ERRORS as error:
        return error
