"""The same door as store.py for code without asyncio: sync handlers, Django, Flask, the CLI.

Thread-safe (each call has a connection of its own) and fork-safe (a child opens its own).
"""

import os
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import tenacity
from redis.connection import AbstractConnection
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from rqretry.command import Block, Command, Operation, Pause
from rqretry.connecting import pack, read_info, sync_connection
from rqretry.errors import AmbiguousResult, ConfigError, UnsafeServer
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


class SyncStore:
    """A pool of connections to one server, for threads."""

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
        self._idle: list[AbstractConnection] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, command: Command[T]) -> T:
        """Run one command. Raises StoreUnavailable, AmbiguousResult, ConfigError, ScriptError."""
        result: T = self.run_all((command,))[0]
        return result

    def run_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Run commands in one round trip; an error of one is raised after all have run."""
        try:
            return self._attempt(commands)
        except TryAgain as first:
            return self._repeat(commands, first)

    def perform(self, operation: Operation[T]) -> T:
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
                step = self._step(step)
            except Exception as caught:  # noqa: BLE001 - handed to the operation, which may handle it
                error = caught
            except BaseException:  # interrupted: the operation learns that now
                operation.close()
                raise

    def connect(self) -> None:
        """Make sure that the server can be reached, is new enough, and told its time."""
        if not self.clock.known:
            self.run(Command("ping", (), (), bytes, words=("PING",)))

    def close(self) -> None:
        """Close all idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.disconnect()

    def block(self, step: Block) -> str | None:
        """Wait for a wake key; a connection that breaks while waiting counts as a wake-up."""
        words = ("BZPOPMIN", *step.keys, max(0.001, round(step.seconds, 3)))
        try:
            connection = self._acquire()
            try:
                (reply,) = self._exchange(connection, [words], step.seconds + BLOCK_MARGIN_SECONDS)
            except BaseException:
                connection.disconnect()
                raise
        except TryAgain:
            time.sleep(0.05)
            return None
        self._release(connection)
        return reply[0].decode() if isinstance(reply, list) else None

    def _step(self, step: Any) -> Any:
        if isinstance(step, Command):
            return self.run(step)
        if isinstance(step, Block):
            return self.block(step)
        if isinstance(step, Pause):
            return time.sleep(step.seconds)
        return self.run_all(step)

    def _repeat(self, commands: Sequence[Command[Any]], first: TryAgain) -> list[Any]:
        sent = first.sent
        try:
            for attempt in tenacity.Retrying(
                retry=tenacity.retry_if_exception_type(TryAgain),
                wait=tenacity.wait_random_exponential(multiplier=0.02, max=1.0),
                stop=tenacity.stop_after_delay(self.repeat_seconds),
                reraise=True,
            ):
                with attempt:
                    try:
                        return self._attempt(commands)
                    except TryAgain as again:
                        sent = sent or again.sent
                        raise
        except TryAgain as last:
            ids = [id_ for command in commands for id_ in command.ids]
            if sent and ids:
                raise AmbiguousResult(commands[0].verb, ids, str(last.error)) from last
            raise last.error from last
        raise AssertionError("tenacity stops by raising")

    def _attempt(self, commands: Sequence[Command[Any]]) -> list[Any]:
        connection = self._acquire()
        try:
            loads = self.wire.loads(commands)
            requests = [*loads, *(self.wire.words(c) for c in commands)]
            replies = (self._exchange(connection, requests))[len(loads) :]
            unknown = self.wire.unknown(commands, replies)
            if unknown:
                missing = [commands[i] for i in unknown]
                words = [w for c in missing for w in (self.wire.load(c), self.wire.words(c))]
                again = self._exchange(connection, words)
                for place, reply in zip(unknown, again[1::2], strict=True):
                    replies[place] = reply
        except BaseException:
            connection.disconnect()
            raise
        self._release(connection)
        return [self.wire.result(c, reply) for c, reply in zip(commands, replies, strict=True)]

    def _exchange(
        self,
        connection: AbstractConnection,
        requests: list[tuple[Any, ...]],
        seconds: float | None = None,
    ) -> list[Any]:
        try:
            connection.send_packed_command(pack(requests), check_health=False)
            return [_reply(connection, seconds or self.reply_seconds) for _ in requests]
        except (RedisError, OSError, TimeoutError) as error:
            raise self.wire.broken(error, sent=True) from error

    def _acquire(self) -> AbstractConnection:
        with self._lock:
            if self._pid != os.getpid():  # forked: the parent's sockets are not ours
                self._idle, self._pid = [], os.getpid()
            if self._idle:
                return self._idle.pop()
        connection = sync_connection(self.url)
        try:
            connection.connect()
            self._greet(connection)
        except BaseException as error:
            connection.disconnect()
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

    def _release(self, connection: AbstractConnection) -> None:
        with self._lock:
            self._idle.append(connection)

    def _greet(self, connection: AbstractConnection) -> None:
        if self.clock.known:
            return
        sent_at = time.monotonic()
        info, now = self._exchange(connection, [("INFO", "server"), ("TIME",)])
        if isinstance(info, Exception):
            raise self.wire.meaning(Command("INFO", (), (), bytes, words=("INFO",)), info)
        version = read_info(info).get("redis_version", "")
        if not supported(version):
            raise UnsafeServer(
                f"Redis at {self.url.place} is version {version}; rqretry needs 6.2 or newer"
            )
        self.wire.dialect = dialect_of(version)
        self.clock.note(int(now[0]) * 1000 + int(now[1]) // 1000, sent_at)


def _reply(connection: AbstractConnection, seconds: float) -> Any:
    try:
        return connection.read_response(timeout=seconds, disconnect_on_error=False)
    except ResponseError as error:
        return error
