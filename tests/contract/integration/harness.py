"""What integration tests share: apps on a private server, workers in this process, waiting."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import redis

from rqretry import App, Client
from rqretry.admin.views import GroupStats
from rqretry.core.message import Message
from rqretry.core.parts import parts_of
from rqretry.protocol.maintain import expire
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.testing.embedded_redis import EmbeddedRedis
from rqretry.transport.store_sync import SyncStore
from rqretry.worker.worker import Worker
from tests.support.soundness import assert_sound

NAMESPACE = "test"
PATIENCE_S = 10.0
"""How long a test waits for what must happen; on a good day it takes milliseconds."""


class Lab:
    """An empty server, clients and workers on it; everything is closed at the end of the test."""

    library: ScriptLibrary | None = None
    """The scripts of who counts, for tests on virtual time."""

    def __init__(self, server: EmbeddedRedis) -> None:
        self.server = server
        self.url = server.url
        self.redis: Any = redis.Redis(unix_socket_path=str(server.socket_path), protocol=2)
        self._apps: list[App] = []
        self._clients: list[Client] = []

    def app(self, **options: Any) -> App:
        """A new App in the test's namespace."""
        app = App(self.url, **{"namespace": NAMESPACE, **options})
        self._apps.append(app)
        return app

    def client(self, *, library: ScriptLibrary | None = None, **options: Any) -> Client:
        """A new sync client in the test's namespace."""
        client = Client(self.url, **{"namespace": NAMESPACE, **options})
        self._clients.append(client)
        if library is not None:
            parts = parts_of(client)
            parts.use(SyncStore(parts.settings.url, library))
        return client

    @asynccontextmanager
    async def working(self, app: App, **options: Any) -> AsyncIterator[Worker]:
        """A worker of the app in this process, stopped at the end."""
        given = {"grace": 2.0, "checkers": parts_of(app).checkers, **options}
        worker = Worker(parts_of(app).settings, parts_of(app).consumers, **given)
        worker.schedules = parts_of(app).schedules
        task = asyncio.get_running_loop().create_task(worker.run())
        await _first(worker.started.wait(), task)
        try:
            yield worker
        finally:
            worker.stop()
            async with asyncio.timeout(PATIENCE_S):
                await task

    def stats(self, group: str, topic: str | None = None) -> GroupStats:
        """The numbers of a group of one topic; whoever reads them moves what is due."""
        with self.client(library=self.library) as client:
            (found,) = client.admin.stats(topic, group=group).groups
        return found

    def expire(self, topic: str, group: str, partition: int = 0) -> int:
        """Expire what is overdue, as any process may; answers how many."""
        with Client(self.url, namespace=NAMESPACE) as client:
            parts_of(client).store.perform(parts_of(client).catalog.topics.get(topic))
            keys = parts_of(client).catalog.group_keys(topic, partition, group)
            command = expire(keys, worker="anybody", hold_ms=0, random=0.5)
            return parts_of(client).store.run(command).moved

    def audit(self) -> None:
        """Everything in the test's namespace agrees with itself."""
        with Client(self.url, namespace=NAMESPACE) as client:
            assert_sound(parts_of(client).store, NAMESPACE)

    async def aclose(self) -> None:
        """Close everything."""
        for app in self._apps:
            await app.aclose()
        for client in self._clients:
            client.close()
        self.redis.close()


class Seen:
    """Collects what handlers see; tests await what they need of it."""

    def __init__(self) -> None:
        self.messages: list[Message[Any]] = []
        self.at: list[float] = []
        self._loop = asyncio.get_running_loop()
        self._more = asyncio.Event()

    def add(self, message: Message[Any]) -> None:
        """Note a delivery; from any thread."""
        self.messages.append(message)
        self.at.append(time.monotonic())
        self._loop.call_soon_threadsafe(self._more.set)

    async def count(self, wanted: int, seconds: float = PATIENCE_S) -> list[Message[Any]]:
        """Wait until there were so many deliveries."""
        async with asyncio.timeout(seconds):
            while len(self.messages) < wanted:
                self._more.clear()
                await self._more.wait()
        return self.messages

    @property
    def bodies(self) -> list[Any]:
        """The bodies, in the order of delivery."""
        return [message.body for message in self.messages]

    @property
    def attempts(self) -> list[int]:
        """The attempts, in the order of delivery."""
        return [message.attempt for message in self.messages]


async def until(condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    """Wait for something on the server, of which nothing tells us."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        await asyncio.sleep(0.005)


async def counted(lab: Lab, group: str, **wanted: int) -> GroupStats:
    """Wait until these counters of a group (succeed=3, dead=1, ...) are exactly so."""
    found: list[GroupStats] = []

    def reached() -> bool:
        found[:] = [lab.stats(group)]
        counters = found[0].counters
        return all(counters.get(name, 0) >= number for name, number in wanted.items())

    await until(reached)
    assert {name: found[0].counters.get(name, 0) for name in wanted} == wanted
    return found[0]


async def _first(started: Any, task: asyncio.Task[None]) -> None:
    waiting = asyncio.ensure_future(started)
    await asyncio.wait([waiting, task], timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        task.result()
    assert task.done() or waiting.done() or waiting.cancelled()
