"""The asyncio door to Redis: performs the procedures of the session on connections of its own.

Nothing here repeats a request. What breaks is TryAgain, with `sent` from the first byte on.
"""

import asyncio
import os
import random
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from redis.exceptions import RedisError

from rqretry.core.closing import AsyncClosing
from rqretry.core.errors import InvalidArgument, RqretryError
from rqretry.core.redis_url import RedisUrl
from rqretry.protocol.command import Argument, Block, Command, Operation
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.connection import async_connection
from rqretry.transport.hiredis_channel import Connection
from rqretry.transport.node import (
    ASK_SECONDS,
    CONNECT_SECONDS,
    REPLY_SECONDS,
    Acquire,
    Ask,
    Close,
    Drop,
    Locate,
    Node,
    Notify,
    Procedure,
    RareEffect,
    Receive,
    Release,
    Requests,
    RoundTrip,
    Send,
    Sleep,
    Together,
    Topology,
    Watch,
    key_of,
)
from rqretry.transport.replies import TryAgain, broken, refused
from rqretry.transport.session import REPEAT_SECONDS, ServerClock, Session, spell
from rqretry.transport.topology import Handshake, topology_of
from rqretry.transport.wakeup import KeyWatch, watch_once

T = TypeVar("T")

MAX_IDLE = 8
"""Connections to a server kept open for later; what more a burst of calls needed is closed."""
MAX_IDLE_SPREAD = 64  # on a cluster, where each key is waited for on a connection of its own
_PATIENCE_S = 0.2
_TWO_LOOPS = (
    "this App (or AsyncClient) is in use in another event loop, which still runs: make one for "
    "each loop, or use app.client in other threads"
)
"""On a cluster: what one server has not answered by then is put off, and the others go on."""


class Store(AsyncClosing):
    """Connections to one server, to the primary that Sentinels name, or to a cluster.

    Attributes:
        url: Where they are.
        session: What is done on them.
        connect_seconds: How long connecting to a server takes at most.
        reply_seconds: How long one attempt waits for its reply.
    """

    def __init__(
        self,
        url: RedisUrl,
        library: ScriptLibrary | None = None,
        *,
        repeat_seconds: float = REPEAT_SECONDS,
        reply_seconds: float = REPLY_SECONDS,
        notify: Notify = None,
    ) -> None:
        """Connect to nothing yet; `notify` is called when calls begin to fail or succeed again."""
        self.url = url
        topology = topology_of(url, library or ScriptLibrary())
        self.session = Session(topology, repeat_seconds, notify)
        self.connect_seconds = url.option("socket_connect_timeout", CONNECT_SECONDS)
        self.reply_seconds = url.option("socket_timeout", reply_seconds)
        self._locating = asyncio.Lock()
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._key_watch = KeyWatch(self.topology, self.drive)
        self._leaving: set[asyncio.Task[None]] = set()
        """Ends of waits that will not be repeated."""

    # -- what is known ---------------------------------------------------------------------------

    @property
    def topology(self) -> Topology:
        """Which server holds what."""
        return self.session.topology

    @property
    def clock(self) -> ServerClock:
        """The server's time as this client estimates it; of a cluster, roughly."""
        return self.session.clock

    @property
    def spread(self) -> bool:
        """Whether two partitions may be on two servers."""
        return self.session.topology.spread

    @property
    def repeat_seconds(self) -> float:
        """How long a call is repeated before its error is raised."""
        return self.session.repeat_seconds

    @repeat_seconds.setter
    def repeat_seconds(self, seconds: float) -> None:
        self.session.repeat_seconds = seconds

    @property
    def proved_at(self) -> float:
        """Monotonic time of the last call that the server answered."""
        return self.session.proved_at

    @property
    def fault(self) -> str | None:
        """Why calls fail at the moment; None while they succeed."""
        return self.session.faults.now

    @property
    def patience(self) -> float:
        """Seconds for which a call is repeated that calls to other servers wait for."""
        return _PATIENCE_S if self.spread else self.repeat_seconds

    def request_for(self, command: Command[Any]) -> tuple[Argument, ...]:
        """A command as a request for the server that it goes to."""
        topology, node = self.topology, self.session.at_hand()
        try:
            node = node or topology.node(key_of(command))
        except TryAgain:
            known = iter(topology.nodes.values())
            node = next(known, None) or Node(self.url, topology.scripts)
        return spell(node, command)

    def clock_of(self, key: str) -> ServerClock:
        """The time of the server that has a key."""
        if not self.spread:
            return self.clock
        try:
            return self.session.clocks[self.topology.node(key)]
        except TryAgain:
            return self.clock

    # -- calls -----------------------------------------------------------------------------------

    def perform(self, operation: Operation[T]) -> Coroutine[Any, Any, T]:
        """Perform an operation to its end; its errors are raised inside it, then here."""
        return self.drive(self.session.perform(operation))

    def run(self, command: Command[T], seconds: float | None = None) -> Coroutine[Any, Any, T]:
        """Run one command; see Session.run."""
        return self.drive(self.session.run(command, seconds))

    def run_all(self, commands: Sequence[Command[Any]]) -> Coroutine[Any, Any, list[Any]]:
        """Run commands; see Session.run_all."""
        return self.drive(self.session.run_all(commands))

    def run_each(
        self, commands: Sequence[Command[Any]], seconds: float
    ) -> Coroutine[Any, Any, list[Any]]:
        """Run commands, with errors as values; see Session.run_each."""
        return self.drive(self.session.run_each(commands, seconds))

    def block(self, step: Block) -> Coroutine[Any, Any, str | None]:
        """Wait for a wake key; see Session.block."""
        return self.drive(self.session.block(step))

    async def watch(self, keys: Sequence[str], seconds: float) -> set[str]:
        """Wait for wake keys of several servers, each with a connection of its own.

        The connections stay blocked for the next wait, until `watch_nothing` leaves them.

        Returns:
            Those that are set, and those whose servers could not be asked.
        """
        await self.drive(self.session.locate())
        return await self._key_watch.wait(keys, seconds)

    def watch_nothing(self, *, leave: bool = False) -> None:
        """Nobody has room for messages now; the waits stand unless it is to `leave` them."""
        if leave:
            self._key_watch.leave()
        else:
            self._key_watch.want(())

    async def prove(self, command: Command[T], seconds: float) -> T | None:
        """Run a command that writes, at once or not at all: can this process work now?

        If it cannot, `fault` says why. Nothing is repeated but what an old connection broke.
        """
        try:
            async with asyncio.timeout(seconds):
                return await self.run(command, 0.0)
        except RqretryError as error:
            self.session.faults.lose(str(error))
        except TimeoutError as error:
            node = Node(self.url, self.topology.scripts)
            self.session.faults.lose(str(broken(node, error, sent=True).error))
            await self.aclose()
        return None

    async def look(self, seconds: float) -> str | None:
        """What is wrong with the settings of a server by now; None for nothing, or not known."""
        with suppress(TryAgain, RqretryError, TimeoutError):
            async with asyncio.timeout(seconds):
                await self.drive(self.session.eviction.look(used=True))
        return self.session.eviction.fault

    async def connect(self) -> None:
        """Make sure that the server can be reached, is new enough, and reported its time."""
        if not self.session.greeted:
            await self.drive(self.session.connect())

    async def aclose(self) -> None:
        """Close all connections that are not in use."""
        await self._key_watch.aclose()
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(task for task in self._leaving if task.get_loop() is loop))
        for node in list(self.topology.nodes.values()):
            self._drop(node)

    # -- connections that somebody holds ---------------------------------------------------------

    async def acquire(self, key: str) -> Connection:
        """A connection to the server that has a key, to be released or closed.

        Raises:
            TryAgain: It cannot be reached now.
            ConfigError, UnsafeServer: It cannot be used.
        """
        await self.drive(self.session.locate())
        return await self.connection_to(self.topology.node(key))

    async def connection_to(self, node: Node) -> Connection:
        """The same, to a server."""
        return self._idle(node) or await self._open(node)

    async def exchange(
        self, connection: Connection, requests: Requests, seconds: float | None = None
    ) -> list[Any]:
        """Send requests and read as many replies; errors of the server are values. TryAgain."""
        try:
            return await connection.exchange(requests, seconds or self.reply_seconds)
        except TryAgain as again:
            self.session.faults.note(connection.node, str(again.error))
            raise

    def release(self, connection: Connection) -> None:
        """Give a connection back."""
        node = connection.node
        node.used = True
        most = MAX_IDLE_SPREAD if self.spread else MAX_IDLE
        if len(node.idle) < most and not node.retired:
            node.idle.append(connection)
        else:
            connection.close()

    # -- the driver ------------------------------------------------------------------------------

    async def drive(self, procedure: Procedure[T]) -> T:
        """Perform a procedure of the session to its end."""
        outcome: Any = None
        error: BaseException | None = None
        while True:
            try:
                effect = procedure.send(outcome) if error is None else procedure.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            error = None
            try:
                if isinstance(effect, RoundTrip):
                    outcome = await self._round_trip(effect)
                else:
                    outcome = await self._do(effect)
            except BaseException as caught:  # noqa: BLE001 - thrown into the procedure, which ends then
                error = caught

    async def _do(self, effect: RareEffect) -> Any:  # noqa: C901, PLR0911, PLR0912 - one arm for each
        match effect:
            case Together(trips):
                if len(trips) == 1:
                    return [await self._answers(*trips[0])]
                return await asyncio.gather(*(self._answers(*trip) for trip in trips))
            case Acquire(node):
                return await self.connection_to(node)
            case Send(connection, requests):
                return await connection.send(requests, self.reply_seconds)
            case Receive(connection, most, patience):
                return await connection.receive(most, patience or self.reply_seconds)
            case Release(connection):
                return self.release(connection)
            case Close(connection):
                return connection.close()
            case Drop(node):
                return self._drop(node)
            case Sleep(seconds):
                return await asyncio.sleep(seconds)
            case Locate():
                return await self._locate()
            case Ask(url, requests):
                return await self._ask(url, requests)
            case Watch(keys, seconds):
                return await watch_once(self.topology, self.drive, keys, seconds, self._leaving)

    async def _round_trip(self, trip: RoundTrip) -> list[Any]:
        node, requests, seconds = trip
        connection = self._idle(node) or await self._open(node)
        try:
            replies = await connection.exchange(requests, seconds or self.reply_seconds)
        except BaseException:
            connection.close()
            raise
        self.release(connection)
        return replies

    async def _answers(self, node: Node, requests: Any) -> list[Any] | Exception:
        try:
            connection = await self.connection_to(node)
            try:
                replies = await connection.exchange(requests(), self.reply_seconds)
            except BaseException:
                connection.close()
                raise
        except (TryAgain, RqretryError) as error:
            return error
        self.release(connection)
        return replies

    async def _locate(self) -> None:
        self.check_owner()
        async with self._locating:
            if self.topology.stale:
                await self.drive(self.session.inquire())

    async def _ask(self, url: RedisUrl, requests: Requests) -> list[Any] | Exception:
        node = Node(url, self.topology.scripts)
        raw = async_connection(url, min(self.connect_seconds, ASK_SECONDS))
        connection = Connection(node, raw)
        try:
            await connection.open(ASK_SECONDS)
            return await connection.exchange(requests, ASK_SECONDS)
        except (TryAgain, RedisError, OSError, TimeoutError) as error:
            found = refused(node, error)
            if isinstance(found, RqretryError):
                raise found from None
            return found
        finally:
            connection.close()

    def _idle(self, node: Node) -> Connection | None:
        self.check_owner()
        while node.idle:
            connection: Connection = node.idle.pop()
            if connection.is_open:
                return connection
        return None

    async def _open(self, node: Node) -> Connection:
        """A new connection. Raises TryAgain (nothing was sent), ConfigError, UnsafeServer."""
        connection = Connection(node, async_connection(node.url, self.connect_seconds))
        handshake = Handshake(self.topology, node, self.session.note_time)
        try:
            await connection.open(self.reply_seconds)
            if handshake.requests:
                handshake.read(await connection.exchange(handshake.requests, self.reply_seconds))
        except BaseException as error:
            connection.close()
            if isinstance(error, (TryAgain, RedisError, OSError, TimeoutError)):
                raise refused(node, error) from error
            raise
        return connection

    def _drop(self, node: Node) -> None:
        idle, node.idle = node.idle, []
        for connection in idle:
            connection.close()

    def check_owner(self) -> None:
        """After a fork, or in another asyncio.run(), the connections at hand are not ours.

        Raises:
            InvalidArgument: The loop that they belong to still runs.
        """
        loop = asyncio.get_running_loop()
        if self._loop is loop and self._pid == os.getpid():
            return
        before = self._loop if self._pid == os.getpid() else None
        if before is not None and before.is_running():
            raise InvalidArgument(_TWO_LOOPS)
        for node in self.topology.nodes.values():
            idle, node.idle = node.idle, []
            if before is not None:
                for connection in idle:
                    connection.abandon(before)
        self._pid, self._loop, self._locating = os.getpid(), loop, asyncio.Lock()


def jitter(seconds: float, source: random.Random) -> float:
    """Up to a tenth less, so that many waiting clients do not look at once."""
    return seconds * (1 - 0.1 * source.random())
