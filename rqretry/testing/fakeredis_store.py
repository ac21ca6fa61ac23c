"""The same store on fakeredis, for tests without any server. Imported only when it is used."""

import threading
from typing import Any

import fakeredis
from redis.exceptions import ResponseError

from rqretry.core.redis_url import RedisUrl
from rqretry.protocol.scripts import Dialect, ScriptLibrary
from rqretry.testing.lab_stores import LabStore
from rqretry.transport.node import Node, Requests

_URL = "redis://fakeredis:6379/0"
"""Shown in errors; nothing is opened."""


class FakeStore(LabStore):
    """Calls that never leave the process."""

    def __init__(self, library: ScriptLibrary) -> None:
        server = fakeredis.FakeServer(version=(6, 2))
        self._fake: Any = fakeredis.FakeStrictRedis(server=server, protocol=2)
        self._fake.response_callbacks.clear()  # replies as the other stores get them
        self._one_at_a_time = threading.RLock()
        super().__init__(RedisUrl.parse(_URL), library)

    def shut(self) -> None:
        """Let fakeredis go."""
        self._fake.close()

    def _prepare(self) -> None:
        for node in self.topology.nodes.values():
            node.dialect, node.greeted = Dialect.LEGACY, True

    def connection_to(self, node: Node) -> Any:
        """What takes requests; there is nothing to connect to."""
        return _FakeConnection(node, self._fake, self._one_at_a_time)

    def release(self, connection: Any) -> None:
        """Nothing is kept."""


class _FakeConnection:
    """Requests that are answered at once."""

    def __init__(self, node: Node, fake: Any, lock: threading.RLock) -> None:
        self.node = node
        self._fake = fake
        self._lock = lock
        self._replies: list[Any] = []

    def send(self, requests: Requests) -> None:
        """Send requests."""
        with self._lock:
            self._replies += [self._answer(arguments) for arguments in requests]

    def receive(self, count: int) -> list[Any]:
        """The replies to them."""
        replies, self._replies = self._replies[:count], self._replies[count:]
        return replies

    def exchange(self, requests: Requests, seconds: float | None = None) -> list[Any]:
        """Both."""
        del seconds
        self.send(requests)
        return self.receive(len(requests))

    def close(self) -> None:
        """Nothing is open."""

    def _answer(self, arguments: tuple[Any, ...]) -> Any:
        try:
            return self._fake.execute_command(*arguments)
        except ResponseError as error:
            return error
