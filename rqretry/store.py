"""The asyncio door to Redis: runs commands and performs operations.

redis-py's own retries are off. A request is sent once per attempt; what failed in a way that is
worth repeating is repeated with back-off by tenacity until the deadline, on a fresh connection.
All verbs are safe to repeat, by fencing and lanes. What may have happened and was not confirmed
in the end is AmbiguousResult, what certainly did not happen is StoreUnavailable.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import tenacity
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from rqretry.command import Block, Command, Operation, Pause
from rqretry.connecting import async_connection, pack, read_info
from rqretry.errors import AmbiguousResult, ConfigError, RqretryError, UnsafeServer
from rqretry.scripts import ScriptLibrary
from rqretry.url import RedisUrl
from rqretry.wire import (
    BLOCK_MARGIN_SECONDS,
    REPEAT_SECONDS,
    REPLY_SECONDS,
    ServerClock,
    TryAgain,
    Wire,
    dialect_of,
    supported,
)

T = TypeVar("T")

MAX_IDLE = 8
"""Connections kept open for later; what more a burst of calls needed is closed after it."""


class Store:
    """A pool of connections to one server.

    Attributes:
        trouble: Why calls fail at the moment; None while they succeed.
        proved_at: Monotonic time of the last call that the server answered as it should.
        on_change: Called when trouble begins or ends.
    """

    def __init__(
        self,
        url: RedisUrl,
        library: ScriptLibrary | None = None,
        *,
        repeat_seconds: float = REPEAT_SECONDS,
        reply_seconds: float = REPLY_SECONDS,
    ) -> None:
        self.url = url
        self.clock = ServerClock()
        self.wire = Wire(library or ScriptLibrary(), url.place)
        self.repeat_seconds = repeat_seconds
        self.reply_seconds = reply_seconds
        self.trouble: str | None = None
        self.proved_at = 0.0
        self.on_change: Callable[[], None] = lambda: None
        self._idle: list[AbstractConnection] = []
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def run(self, command: Command[T]) -> T:
        """Run one command. Raises StoreUnavailable, AmbiguousResult, ConfigError, ScriptError."""
        result: T = (await self.run_all((command,)))[0]
        return result

    async def run_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Run commands in one round trip; an error of one is raised after all have run."""
        try:
            return await self._attempt(commands)
        except TryAgain as first:
            await self._distrust(first)
            return await self._repeat(commands, first)

    async def prove(self, command: Command[Any], seconds: float) -> None:
        """Run a command that writes, at once or not at all: can this process work now?

        The answer is in `trouble`. Nothing is repeated but what an old connection broke.
        """
        try:
            async with asyncio.timeout(seconds):
                try:
                    await self._attempt((command,))
                except TryAgain as again:
                    await self._distrust(again)
                    await self._attempt((command,))
        except TryAgain as again:
            await self._distrust(again)
        except TimeoutError as error:
            await self._distrust(self.wire.broken(error, sent=True))
        except RqretryError as error:
            self._note(str(error))

    async def perform(self, operation: Operation[T]) -> T:
        """Perform an operation to its end; its errors are raised inside it, then here."""
        step: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = operation.throw(error) if error else operation.send(step)
            except StopIteration as end:
                result: T = end.value
                return result
            error = None
            try:
                step = await self._step(step)
            except Exception as caught:  # noqa: BLE001 - handed to the operation, which may handle it
                error = caught
            except BaseException:  # cancelled: the operation learns that now, not when collected
                operation.close()
                raise

    async def connect(self) -> None:
        """Make sure that the server can be reached, is new enough, and told its time."""
        if not self.clock.known:
            await self.run(Command("ping", (), (), bytes, words=("PING",)))

    async def aclose(self) -> None:
        """Close all connections."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect(nowait=True)

    async def _step(self, step: Any) -> Any:
        if isinstance(step, Command):
            return await self.run(step)
        if isinstance(step, Block):
            return await self.block(step)
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        return await self.run_all(step)

    async def block(self, step: Block) -> str | None:
        """Wait for a wake key; a connection that breaks while waiting counts as a wake-up."""
        words = ("BZPOPMIN", *step.keys, max(0.001, round(step.seconds, 3)))
        seconds = step.seconds + BLOCK_MARGIN_SECONDS
        try:
            (reply,) = await self._exchange([words], seconds)
        except TryAgain:
            await asyncio.sleep(0.05)
            return None
        return reply[0].decode() if isinstance(reply, list) else None

    async def _repeat(self, commands: Sequence[Command[Any]], first: TryAgain) -> list[Any]:
        sent = first.sent
        try:
            async for attempt in tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception_type(TryAgain),
                wait=tenacity.wait_random_exponential(multiplier=0.02, max=1.0),
                stop=tenacity.stop_after_delay(self.repeat_seconds),
                reraise=True,
            ):
                with attempt:
                    try:
                        return await self._attempt(commands)
                    except TryAgain as again:
                        await self._distrust(again)
                        sent = sent or again.sent
                        raise
        except TryAgain as last:
            ids = [id_ for command in commands for id_ in command.ids]
            if sent and ids:
                raise AmbiguousResult(commands[0].verb, ids, str(last.error)) from last
            raise last.error from last
        raise AssertionError("tenacity stops by raising")

    async def _attempt(self, commands: Sequence[Command[Any]]) -> list[Any]:
        connection = await self.acquire()
        try:
            loads = self.wire.loads(commands)
            requests = [*loads, *(self.wire.words(c) for c in commands)]
            replies = (await self.exchange(connection, requests))[len(loads) :]
            unknown = self.wire.unknown(commands, replies)
            if unknown:
                missing = [commands[i] for i in unknown]
                words = [w for c in missing for w in (self.wire.load(c), self.wire.words(c))]
                again = await self.exchange(connection, words)
                for place, reply in zip(unknown, again[1::2], strict=True):
                    replies[place] = reply
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        await self.release(connection)
        results = [self.wire.result(c, reply) for c, reply in zip(commands, replies, strict=True)]
        self.proved_at = time.monotonic()
        if self.trouble is not None:
            self._note(None)
        return results

    async def _exchange(self, requests: list[tuple[Any, ...]], seconds: float) -> list[Any]:
        connection = await self.acquire()
        try:
            replies = await self.exchange(connection, requests, seconds)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        await self.release(connection)
        return replies

    async def exchange(
        self,
        connection: AbstractConnection,
        requests: list[tuple[Any, ...]],
        seconds: float | None = None,
    ) -> list[Any]:
        """Send requests and read as many replies; errors of the server are values here."""
        try:
            async with asyncio.timeout(seconds or self.reply_seconds):
                await connection.send_packed_command(pack(requests), check_health=False)
                return [await _reply(connection) for _ in requests]
        except (RedisError, OSError, TimeoutError) as error:
            broken = self.wire.broken(error, sent=True)
            self._note(str(broken.error))
            raise broken from error

    async def acquire(self) -> AbstractConnection:
        """An open connection; the caller releases it, or disconnects it after any error."""
        if self._pid != os.getpid():  # forked: the parent's sockets are not ours
            self._idle, self._pid = [], os.getpid()
        if self._loop is not asyncio.get_running_loop():  # another asyncio.run(): its loop is gone
            self._idle, self._loop = [], asyncio.get_running_loop()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_connected:
                return connection
        connection = async_connection(self.url)
        try:
            async with asyncio.timeout(self.reply_seconds):
                await connection.connect()
                await self._greet(connection)
        except BaseException as error:
            await connection.disconnect(nowait=True)
            if isinstance(error, AuthenticationError):
                raise ConfigError(
                    f"Redis at {self.url.place} refused the user name or password"
                ) from None
            if isinstance(error, RedisError | OSError | TimeoutError):
                raise self.wire.broken(error, sent=False) from error
            if isinstance(error, TryAgain):  # the greeting failed; the call itself was not sent
                raise TryAgain(error.error, sent=False) from error
            raise
        return connection

    async def release(self, connection: AbstractConnection) -> None:
        """Give a connection back."""
        if len(self._idle) < MAX_IDLE:
            self._idle.append(connection)
        else:
            await connection.disconnect(nowait=True)

    async def _distrust(self, again: TryAgain) -> None:
        """A call failed: the idle connections are as broken as its own was."""
        self._note(str(again.error))
        await self.aclose()

    def _note(self, trouble: str | None) -> None:
        changed, self.trouble = trouble != self.trouble, trouble
        if changed:
            self.on_change()

    async def _greet(self, connection: AbstractConnection) -> None:
        """On the first connection of all: which server is this, and what is its time?"""
        if self.clock.known:
            return
        sent_at = time.monotonic()
        info, now = await self.exchange(connection, [("INFO", "server"), ("TIME",)])
        if isinstance(info, Exception):
            raise self.wire.meaning(Command("INFO", (), (), bytes, words=("INFO",)), info)
        version = read_info(info).get("redis_version", "")
        if not supported(version):
            raise UnsafeServer(
                f"Redis at {self.url.place} is version {version}; rqretry needs 6.2 or newer"
            )
        self.wire.dialect = dialect_of(version)
        self.clock.note(int(now[0]) * 1000 + int(now[1]) // 1000, sent_at)


async def _reply(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response(disconnect_on_error=False)
    except ResponseError as error:
        return error


def jitter(seconds: float, source: random.Random) -> float:
    """Up to a tenth less, so that many waiting clients do not look at once."""
    return seconds * (1 - 0.1 * source.random())
