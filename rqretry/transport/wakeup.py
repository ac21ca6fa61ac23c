"""Waiting for wake keys on a cluster: one blocked connection per key.

Keys of two partitions are in two slots, and one blocking call for both is refused. So each key is
waited for on a connection of its own. Where somebody waits again and again, the connections stay
blocked while messages come: a message ends one wait, however many there are. A wake-up for which
nobody has room any more is put back for whoever waits for it next.

With asyncio a task waits for each key. Without it a thread does, for one wait at a time; the rest
is unblocked then.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_threads
from contextlib import suppress
from functools import partial
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
from rqretry.transport.replies import TryAgain, block_seconds, is_error

STANDING_S = 30.0
"""How long a connection is blocked before it is blocked anew."""
BROKEN_S = 0.25
"""How long after a failure a server is looked at again."""
_UNBLOCK_EVERY_S = 0.005
_LAST_S = 1.0

Drive = Callable[[Procedure[None]], Coroutine[Any, Any, None]]


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

    def run(
        self, topology: Topology, seconds: float, again: Callable[[], bool] = lambda: False
    ) -> Procedure[None]:
        """Wait for the key, and after so many seconds for so many again, if so."""
        with suppress(TryAgain, RqretryError):
            connection = yield Acquire(topology.node(self.key))
            try:
                reply = yield from self._block(connection, seconds)
                while reply is None and again():
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
        yield Send(connection, [("BZPOPMIN", self.key, block_seconds(seconds))])
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
    """Waits for keys of several servers again and again, with asyncio; its waits stand."""

    def __init__(self, topology: Topology, drive: Drive) -> None:
        self._topology = topology
        self._drive = drive
        self._wanted: set[str] = set()
        self._standing: dict[str, tuple[Wait, asyncio.Task[None]]] = {}
        self._woken: dict[str, Wait] = {}
        """Those that nobody asked for yet."""
        self._news = asyncio.Event()
        self._cleaning: set[asyncio.Task[None]] = set()

    async def wait(self, keys: Sequence[str], seconds: float) -> set[str]:
        """The keys that were set, or whose servers could not be asked; none after `seconds`."""
        self.want(keys)
        for key in self._wanted.difference(self._standing, self._woken):
            self._stand(key)
        self._news.clear()
        if self._woken.keys().isdisjoint(self._wanted):
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()
        return {key for key in keys if self._woken.pop(key, None)}

    def want(self, keys: Collection[str]) -> None:
        """Only these are wanted from now on, until the next wait; put back what others got."""
        self._wanted = set(keys)
        for key in self._woken.keys() - self._wanted:
            self._clean(self._drive(self._woken.pop(key).put_back()))

    def leave(self) -> None:
        """Wait for nothing any more: unblock the connections, in the background."""
        self.want(())
        if self._standing:
            self._clean(self._unblock())

    async def aclose(self) -> None:
        """The same, and wait until it is done."""
        loop = asyncio.get_running_loop()
        self._cleaning = {task for task in self._cleaning if task.get_loop() is loop}
        self._standing = {k: s for k, s in self._standing.items() if s[1].get_loop() is loop}
        self.leave()
        if self._cleaning:
            _, late = await asyncio.wait(self._cleaning, timeout=_LAST_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _stand(self, key: str) -> None:
        wait = Wait(key)
        waiting = wait.run(self._topology, STANDING_S, lambda: key in self._wanted)
        task = asyncio.get_running_loop().create_task(self._drive(waiting))
        self._standing[key] = wait, task
        task.add_done_callback(partial(self._ended, wait))

    def _ended(self, wait: Wait, task: asyncio.Task[None]) -> None:
        self._standing.pop(wait.key, None)
        if task.cancelled() or task.exception() is not None:
            return
        if wait.woken is not False and wait.key in self._wanted:
            self._woken[wait.key] = wait
            self._news.set()
        elif wait.woken:
            self._clean(self._drive(wait.put_back()))
        elif wait.key in self._wanted:
            self._stand(wait.key)

    def _clean(self, cleaning: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(cleaning)
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)

    async def _unblock(self) -> None:
        waits = {task: wait for wait, task in self._standing.values()}
        end = time.monotonic() + _LAST_S
        try:
            while (rest := [w for t, w in waits.items() if not t.done()]) and (
                time.monotonic() < end
            ):
                await asyncio.gather(*(self._drive(wait.unblock()) for wait in rest))
                await asyncio.wait(waits, timeout=_UNBLOCK_EVERY_S)
        except (TryAgain, RqretryError):
            pass  # the connections that block are as broken as this one
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


async def watch_once(
    topology: Topology, drive: Drive, keys: Sequence[str], seconds: float, ends: set[Any]
) -> set[str]:
    """One wait that is not repeated; its end goes on in the background, noted in `ends`."""
    watch = KeyWatch(topology, drive)
    try:
        return await watch.wait(keys, seconds)
    finally:
        task = asyncio.get_running_loop().create_task(watch.aclose())
        ends.add(task)
        task.add_done_callback(ends.discard)


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
