"""Waiting: for messages on wake keys, for room in consumers, and for what maintenance has due.

A wake-up is a hint; the lease is the truth (docs/decisions/0013). A process that blocks on wake
keys stops doing so when a consumer with places that it does not wait for has room again.
"""

import asyncio
import logging
import random
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Protocol

from rqretry.core.errors import RqretryError
from rqretry.protocol.command import Argument, Command
from rqretry.transport.hiredis_channel import Connection
from rqretry.transport.node import BLOCK_MARGIN_SECONDS
from rqretry.transport.replies import TryAgain, block_seconds, is_error
from rqretry.transport.store import Store, jitter

log = logging.getLogger("rqretry")

_UNBLOCK_EVERY_S = 0.005
_AFTER_FAILURE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_MANY = 100
_IN_A_ROW = 3
"""Of many keys all that are set are asked for after so many waits that ended at once."""
_AT_ONCE_S, _PER_KEY_S = 0.005, 5e-6


class HasRoom(Protocol):
    """A consumer, as far as it is known here."""

    def room(self) -> int:
        """How many messages it takes now."""


class Rooms(Protocol):
    """Waits for room in consumers."""

    def room_in(self, consumer: HasRoom) -> None:
        """It may have room for more messages."""


async def wait_for(event: asyncio.Event, seconds: float | None) -> None:
    """Until an event is set, or for some seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class Alarm:
    """Wakes maintenance at the time that it chose, or before where something is due sooner."""

    def __init__(self) -> None:
        self._until = 0.0
        self._rung = asyncio.Event()

    def due(self, moment: float) -> None:
        """Something is due at a monotonic time."""
        if moment < self._until:
            self._rung.set()

    async def sleep(self, until: float, now: float) -> None:
        """Sleep until then; it is `now`."""
        self._rung.clear()
        self._until = until
        if until <= now:
            await asyncio.sleep(0)
            return
        await wait_for(self._rung, until - now)


class WakeUps:
    """Waits for all consumers of a process that lease, on one connection."""

    def __init__(self, store: Store) -> None:
        self.stopping = False
        self._store = store
        self._random = random.Random()
        self._room = asyncio.Event()
        self._connection: Connection | None = None
        self._connection_id = 0
        self._connection_keys: tuple[str, ...] = ()
        self._refusals = 0
        """Waits in a row that the server refused."""
        self._covered: Collection[HasRoom] | None = None
        """The consumers with all their places waited for; None while nothing blocks."""
        self._unblocking: asyncio.Task[None] | None = None
        self._apart = False
        """Waits for several servers stand, also while nobody asks."""
        self._watching: asyncio.Task[set[str]] | None = None
        self._at_once = 0
        """How many waits in a row ended at once."""

    # -- what ends a wait ------------------------------------------------------------------------

    def room_in(self, consumer: HasRoom) -> None:
        """A slot became free: is anybody waiting for that?"""
        if self._covered is None:
            if not self._room.is_set() and consumer.room() > 0:
                self._room.set()
        elif self._unblocking is None and consumer not in self._covered and consumer.room() > 0:
            self.unblock()

    def settled(self) -> None:
        """Results were settled: a consumer that had too many unsettled has room again."""
        if self._covered is None:
            self._room.set()

    def interrupt(self) -> None:
        """There is more to wait for than there was."""
        self._room.set()
        self.unblock()

    def stop(self) -> None:
        """Wait for nothing more."""
        self.stopping = True
        self.interrupt()

    def unblock(self) -> None:
        """End the wait for wake keys."""
        if self._watching is not None:
            self._watching.cancel()
        elif self._covered is not None and self._unblocking is None:
            self._unblocking = asyncio.get_running_loop().create_task(self._keep_unblocking())

    async def _keep_unblocking(self) -> None:
        """CLIENT UNBLOCK until it took: it may reach the server before the blocking command."""
        command: Command[int] = Command(
            "unblock",
            self._connection_keys,
            (),
            int,
            arguments=("CLIENT", "UNBLOCK", self._connection_id),
        )
        try:
            while self._covered is not None and not await self._store.run(command):  # noqa: ASYNC110
                await asyncio.sleep(_UNBLOCK_EVERY_S)
        except RqretryError:
            pass  # the connection that blocks is as broken as this one
        finally:
            self._unblocking = None

    # -- waiting ---------------------------------------------------------------------------------

    async def room(self, seconds: float | None = None) -> None:
        """Wait until a consumer has room, at most for `seconds`."""
        if self._apart:
            self._store.watch_nothing()
        self._room.clear()
        await wait_for(self._room, None if seconds is None else max(0.0, seconds))

    async def any_of(
        self, wakes: Sequence[str], seconds: float, covered: Collection[HasRoom]
    ) -> set[str] | None:
        """Block until wake keys are set. Returns which; None if any of them may be."""
        if self._store.spread and len(wakes) > 1:
            return await self._any_of_apart(wakes, seconds, covered)
        started = time.monotonic()
        replies = await self.block(wakes, seconds, covered)
        if replies is None or is_error(replies[0]):  # leasing shows which place refuses
            return None
        if not isinstance(replies[0], list):
            return set()
        most_s = _AT_ONCE_S + len(wakes) * _PER_KEY_S
        self._at_once = self._at_once + 1 if time.monotonic() - started < most_s else 0
        woken = {replies[0][0].decode()}
        if self._at_once < _IN_A_ROW or len(wakes) < _MANY:
            return woken
        self._at_once = 0
        return woken | await self._all_set(wakes)

    async def _all_set(self, wakes: Sequence[str]) -> set[str]:
        """All that are set by now: one after another takes a command with all keys for each."""
        asked = [
            Command("take_wake", (wake,), (), int, arguments=("ZREM", wake, "1")) for wake in wakes
        ]
        answers = await self._store.run_each(asked, self._store.patience)
        return {wake for wake, answer in zip(wakes, answers, strict=True) if answer != 0}

    async def _any_of_apart(
        self, wakes: Sequence[str], seconds: float, covered: Collection[HasRoom]
    ) -> set[str] | None:
        """The same on a cluster, where each partition is waited for separately."""
        watching = asyncio.get_running_loop().create_task(self._store.watch(wakes, seconds))
        self._covered, self._watching, self._apart = covered, watching, True
        try:
            if not self.stopping:
                await asyncio.wait([watching])
        finally:
            self._covered = self._watching = None
            watching.cancel()
        try:
            return await watching
        except asyncio.CancelledError:
            return set()
        except TryAgain as error:
            log.info("waiting for messages was cut off: %s", error)
            await self._pause()
            return None

    async def block(
        self,
        wakes: Sequence[str],
        seconds: float,
        covered: Collection[HasRoom],
        after: Sequence[tuple[Any, ...]] = (),
    ) -> list[Any] | None:
        """Block on wake keys, then run `after` on the same connection; None if it broke."""
        arguments: tuple[Argument, ...] = ("BZPOPMIN", *wakes, block_seconds(seconds))
        self._room.clear()
        if self._refusals:
            await asyncio.sleep(min(_LONGEST_PAUSE_S, _AFTER_FAILURE_S * 2**self._refusals))
        try:
            connection = await self._connected(wakes[0])
            if self.stopping or self._room.is_set():  # while that took, a consumer got room
                return None
            self._covered = covered
            replies = await self._store.exchange(
                connection, [arguments, *after], seconds + BLOCK_MARGIN_SECONDS
            )
        except TryAgain as error:
            log.info("waiting for messages was cut off: %s", error)
            self.close()
            await self._pause()
            return None
        finally:
            self._covered = None
        refused = is_error(replies[0])  # loading, failing over, or the key is damaged
        self._refusals = min(self._refusals + 1, 10) if refused else 0
        if refused:
            self.close()  # another server may have the keys by now
        return replies

    async def _connected(self, key: str) -> Connection:
        if self._connection is None:
            connection = await self._store.acquire(key)
            (self._connection_id,) = await self._store.exchange(connection, [("CLIENT", "ID")])
            self._connection, self._connection_keys = connection, (key,)
        return self._connection

    async def _pause(self) -> None:
        await asyncio.sleep(jitter(_AFTER_FAILURE_S, self._random))

    def close(self) -> None:
        """Give up the connection; the next wait opens another."""
        if self.stopping and self._apart:
            self._store.watch_nothing(leave=True)
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()
