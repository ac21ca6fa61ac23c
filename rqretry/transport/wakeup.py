"""Waiting for wake keys on a cluster: one blocked connection per key.

Keys of two partitions are in two slots, and one blocking call for both is refused. So each key is
waited for on a connection of its own. When one is set, the others are unblocked; a wake-up that one
of them got meanwhile is put back for whoever waits for it next.

With asyncio a task waits for each key, and the rest is unblocked behind the back of the caller;
without it a thread does, and the rest is unblocked first.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_threads
from contextlib import suppress
from typing import Any

from rqretry.core.errors import RqretryError
from rqretry.transport.node import (
    BLOCK_MARGIN_SECONDS,
    Acquire,
    Close,
    Procedure,
    Receive,
    Release,
    RoundTrip,
    Send,
    Sleep,
    Topology,
)
from rqretry.transport.replies import TryAgain, is_error

BROKEN_S = 0.25
"""How long after a failure a server is looked at again."""
_UNBLOCK_EVERY_S = 0.005
_LAST_S = 1.0


class Wait:
    """One key, one connection.

    Attributes:
        key: The key.
        connection: The connection, once something can be sent on it.
        woken: Whether the key was set; None before that is known, and if it cannot be.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.connection: Any = None
        self.woken: bool | None = None

    def run(self, topology: Topology, seconds: float) -> Procedure[None]:
        """Wait for the key."""
        with suppress(TryAgain, RqretryError):
            connection = yield Acquire(topology.node(self.key))
            try:
                reply = yield from self._block(connection, seconds)
            except BaseException:
                yield Close(connection)
                raise
            yield Release(connection)
            if not is_error(reply):  # as where it moved, or fails over
                self.woken = isinstance(reply, list)
        if self.woken is None:
            yield Sleep(BROKEN_S)

    def _block(self, connection: Any, seconds: float) -> Procedure[Any]:
        if not connection.client_id:
            yield Send(connection, [("CLIENT", "ID")])
            (connection.client_id,) = yield Receive(connection, 1)
        self.connection = connection
        yield Send(connection, [("BZPOPMIN", self.key, max(0.001, round(seconds, 3)))])
        (reply,) = yield Receive(connection, 1, seconds + BLOCK_MARGIN_SECONDS)
        return reply

    def unblock(self) -> Procedure[None]:
        """CLIENT UNBLOCK; to be repeated, for it may come before the blocking command."""
        if self.connection is not None:
            client_id = self.connection.client_id
            yield RoundTrip(self.connection.node, [("CLIENT", "UNBLOCK", client_id)])

    def put_back(self) -> Procedure[None]:
        """The wake-up was for somebody who does not wait any more."""
        if self.woken:
            # At worst a hint is lost; whoever looks without one finds the messages.
            with suppress(TryAgain, RqretryError):
                yield RoundTrip(self.connection.node, [("ZADD", self.key, 0, "1")])


class KeyWatch:
    """Waits for keys of several servers, with asyncio."""

    def __init__(
        self, topology: Topology, drive: Callable[[Procedure[None]], Coroutine[Any, Any, None]]
    ) -> None:
        self._topology = topology
        self._drive = drive
        self._cleaning: set[asyncio.Task[None]] = set()

    async def wait(self, keys: Sequence[str], seconds: float) -> set[str]:
        """The keys that were set, or whose servers could not be asked; none after `seconds`."""
        loop = asyncio.get_running_loop()
        waits = {
            loop.create_task(self._drive(wait.run(self._topology, seconds))): wait
            for wait in map(Wait, keys)
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            rest = {task: wait for task, wait in waits.items() if not task.done()}
            if rest:
                cleaning = loop.create_task(self._unblock(rest))
                self._cleaning.add(cleaning)
                cleaning.add_done_callback(self._cleaning.discard)
        ended = [wait for task, wait in waits.items() if task.done() and task.result() is None]
        return {wait.key for wait in ended if wait.woken is not False}

    async def aclose(self) -> None:
        """End the waits that are left, and wait until they have ended."""
        loop = asyncio.get_running_loop()
        mine = {task for task in self._cleaning if task.get_loop() is loop}
        self._cleaning.clear()
        if mine:
            _, late = await asyncio.wait(mine, timeout=_LAST_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _unblock(self, waits: Mapping["asyncio.Task[None]", Wait]) -> None:
        try:
            while blocked := [wait for task, wait in waits.items() if not task.done()]:
                await asyncio.gather(*(self._drive(wait.unblock()) for wait in blocked))
                await asyncio.wait(waits, timeout=_UNBLOCK_EVERY_S)
        except (TryAgain, RqretryError):
            pass  # the connections that block are as broken as this one
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        for wait in waits.values():
            await self._drive(wait.put_back())


def wait_apart(
    topology: Topology,
    drive: Callable[[Procedure[None]], None],
    keys: Sequence[str],
    seconds: float,
) -> set[str]:
    """The same with threads, for code without asyncio."""
    with ThreadPoolExecutor(len(keys)) as threads:
        waits = {
            threads.submit(drive, wait.run(topology, seconds)): wait for wait in map(Wait, keys)
        }
        done: set[Future[None]] = set()
        try:
            done = wait_for_threads(waits, return_when=FIRST_COMPLETED).done
        finally:
            rest = {thread: wait for thread, wait in waits.items() if thread not in done}
            _unblock(rest, drive)
    for wait in rest.values():
        drive(wait.put_back())
    return {waits[thread].key for thread in done if waits[thread].woken is not False}


def _unblock(waits: Mapping[Future[None], Wait], drive: Callable[[Procedure[None]], None]) -> None:
    end = time.monotonic() + _LAST_S
    with suppress(TryAgain, RqretryError):
        while (blocked := [w for t, w in waits.items() if not t.done()]) and time.monotonic() < end:
            for wait in blocked:
                drive(wait.unblock())
            wait_for_threads(waits, _UNBLOCK_EVERY_S)
    for thread, wait in waits.items():
        if not thread.done() and wait.connection is not None:  # it could not be unblocked
            wait.connection.close()
