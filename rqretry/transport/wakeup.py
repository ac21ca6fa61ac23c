"""Waiting for wake keys on a cluster: one blocked connection per key.

Keys of two partitions are in two slots, and one blocking call for both is refused. So each key is
waited for on a connection of its own. When one is set, the others are unblocked behind the back
of the caller; a wake-up that one of them got meanwhile is put back for whoever waits for it next.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from rqretry.core.errors import RqretryError
from rqretry.transport.node import BLOCK_MARGIN_SECONDS, Node, Requests, Topology
from rqretry.transport.replies import TryAgain, is_error

BROKEN_S = 0.25
"""How long after a failure a server is looked at again."""
_UNBLOCK_EVERY_S = 0.005
_LAST_S = 1.0


class Connections(Protocol):
    """The asyncio store, as far as it is needed here."""

    @property
    def topology(self) -> Topology:
        """Which server holds what."""
        ...

    async def connection_to(self, node: Node) -> Any:
        """A connection to a server. Raises TryAgain."""
        ...

    async def exchange(
        self, connection: Any, requests: Requests, seconds: float | None = None
    ) -> list[Any]:
        """Send requests and read as many replies. Raises TryAgain."""
        ...

    def release(self, connection: Any) -> None:
        """Give a connection back."""
        ...


class _Wait:
    """One key, one connection."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.connection: Any = None
        self.task: asyncio.Task[bool | None] | None = None


class Wakeups:
    """Waits for keys of several servers."""

    def __init__(self, store: Connections) -> None:
        self._store = store
        self._cleaning: set[asyncio.Task[None]] = set()

    async def wait(self, keys: Sequence[str], seconds: float) -> set[str]:
        """The keys that were set, or whose servers could not be asked; none after `seconds`."""
        loop = asyncio.get_running_loop()
        waits = [_Wait(key) for key in keys]
        for wait in waits:
            wait.task = loop.create_task(self._wait_for(wait, seconds))
        tasks = [wait.task for wait in waits if wait.task is not None]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            rest = [wait for wait in waits if wait.task is not None and not wait.task.done()]
            if rest:
                cleaning = loop.create_task(self._unblock(rest))
                self._cleaning.add(cleaning)
                cleaning.add_done_callback(self._cleaning.discard)
        return {w.key for w in waits if w.task and w.task.done() and w.task.result() is not False}

    async def aclose(self) -> None:
        """End what still waits."""
        loop = asyncio.get_running_loop()
        mine = {task for task in self._cleaning if task.get_loop() is loop}
        self._cleaning.clear()
        if mine:
            _, late = await asyncio.wait(mine, timeout=_LAST_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _wait_for(self, wait: _Wait, seconds: float) -> bool | None:
        """Whether it was set; None if the server could not be asked."""
        words = ("BZPOPMIN", wait.key, max(0.001, round(seconds, 3)))
        try:
            store = self._store
            connection = await store.connection_to(store.topology.node(wait.key))
            try:
                if not connection.client_id:
                    (connection.client_id,) = await store.exchange(connection, [("CLIENT", "ID")])
                wait.connection = connection
                patience = seconds + BLOCK_MARGIN_SECONDS
                (reply,) = await store.exchange(connection, [words], patience)
            except BaseException:
                connection.close()
                raise
        except (TryAgain, RqretryError):
            await asyncio.sleep(BROKEN_S)
            return None
        store.release(connection)
        if is_error(reply):  # moved, failing over
            await asyncio.sleep(BROKEN_S)
            return None
        return isinstance(reply, list)

    async def _unblock(self, waits: list[_Wait]) -> None:
        tasks = [wait.task for wait in waits if wait.task is not None]
        try:
            while not all(task.done() for task in tasks):
                await asyncio.gather(*(self._unblock_one(wait) for wait in waits))
                await asyncio.wait(tasks, timeout=_UNBLOCK_EVERY_S)
        except (TryAgain, RqretryError):
            pass  # the connections that block are as broken as this one
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for wait in waits:
            if wait.task is not None and not wait.task.cancelled() and wait.task.result():
                await self._put_back(wait)

    async def _unblock_one(self, wait: _Wait) -> None:
        """CLIENT UNBLOCK; repeated, for it may reach the server before the blocking command."""
        if wait.connection is None or wait.task is None or wait.task.done():
            return
        await self._beside(wait.connection, ("CLIENT", "UNBLOCK", wait.connection.client_id))

    async def _put_back(self, wait: _Wait) -> None:
        """The wake-up was for somebody who does not wait any more."""
        if wait.connection is not None:
            # At worst a hint is lost; whoever looks without one finds the messages.
            with suppress(TryAgain, RqretryError):
                await self._beside(wait.connection, ("ZADD", wait.key, 0, "1"))

    async def _beside(self, blocked: Any, request: tuple[Any, ...]) -> None:
        """Send a request to the server of a connection that is blocked."""
        connection = await self._store.connection_to(blocked.node)
        try:
            await self._store.exchange(connection, [request])
        except BaseException:
            connection.close()
            raise
        self._store.release(connection)
