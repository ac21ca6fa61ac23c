"""The same as pool.py without asyncio, for threads.

Sending and receiving are apart, so that one thread can have requests under way at several servers.
"""

import os
import threading
from typing import Any

from redis.connection import AbstractConnection
from redis.exceptions import RedisError

from rqretry.core.errors import RqretryError
from rqretry.transport.connection import pack, sync_connection
from rqretry.transport.handshake import Greeting
from rqretry.transport.replies import ASK_SECONDS, SERVER_ERRORS, Requests, ServerClock, TryAgain
from rqretry.transport.topology import Node, Question, Topology


class SyncLine:
    """An open connection to a server; whoever holds it uses it alone.

    Attributes:
        node: The server.
        connection: The connection of redis-py.
        client_id: The server's number of it, once somebody asked; 0 before that.
    """

    __slots__ = ("client_id", "connection", "node")

    def __init__(self, node: "Node[SyncLine]", connection: AbstractConnection) -> None:
        self.node = node
        self.connection = connection
        self.client_id = 0

    def close(self) -> None:
        """Close it; what was sent on it is left to the server."""
        self.connection.disconnect()


class SyncPool:
    """Connections to the servers of a topology.

    Attributes:
        connect_seconds: How long connecting to a server takes at most.
        reply_seconds: How long one attempt waits for its reply.
    """

    def __init__(
        self, topology: Topology[SyncLine], connect_seconds: float, reply_seconds: float
    ) -> None:
        self.topology = topology
        self.connect_seconds = connect_seconds
        self.reply_seconds = reply_seconds
        self._lock = threading.Lock()
        self._locating = threading.Lock()
        self._pid = os.getpid()

    def locate(self) -> None:
        """Ask who holds what, where that is not known. Raises TryAgain, ConfigError."""
        self._notice()
        if not self.topology.stale:
            return
        with self._locating:
            if self.topology.stale:
                self._inquire()

    def acquire(self, node: Node[SyncLine], clock: ServerClock) -> SyncLine:
        """An open connection; the caller releases it, or closes it after any error.

        Raises:
            TryAgain: The server cannot be used now; nothing was sent.
            ConfigError, UnsafeServer: It cannot be used at all.
        """
        self._notice()
        with self._lock:
            if node.idle:
                return node.idle.pop()
        line = SyncLine(node, sync_connection(node.url, self.connect_seconds, self.reply_seconds))
        greeting = Greeting(self.topology, node, clock)
        try:
            line.connection.connect()
            if greeting.requests:
                greeting.read(self.exchange(line, greeting.requests))
        except BaseException as error:
            line.close()
            if isinstance(error, RqretryError):
                raise
            if isinstance(error, (TryAgain, RedisError, OSError, TimeoutError)):
                raise node.wire.refused(error) from error
            raise
        return line

    def open_line(self) -> SyncLine | None:
        """A connection that is open, where there is one server and nothing to find out first."""
        self._notice()
        topology = self.topology
        if topology.spread or topology.stale:
            return None
        with self._lock:
            for node in topology.nodes.values():
                return node.idle.pop() if node.idle else None
        return None

    def release(self, line: SyncLine) -> None:
        """Give a connection back."""
        with self._lock:
            if self.topology.nodes.get(line.node.url) is line.node:
                line.node.idle.append(line)
                return
        line.close()

    def send(self, line: SyncLine, requests: Requests) -> None:
        """Send requests."""
        try:
            line.connection.send_packed_command(pack(requests), check_health=False)
        except (RedisError, OSError, TimeoutError) as error:
            raise line.node.wire.broken(error, sent=True) from error

    def receive(self, line: SyncLine, count: int, seconds: float | None = None) -> list[Any]:
        """Read replies; errors of the server are values here."""
        try:
            return [_reply(line.connection, seconds) for _ in range(count)]
        except (RedisError, OSError, TimeoutError) as error:
            raise line.node.wire.broken(error, sent=True) from error

    def exchange(
        self, line: SyncLine, requests: Requests, seconds: float | None = None
    ) -> list[Any]:
        """Send requests and read as many replies."""
        self.send(line, requests)
        return self.receive(line, len(requests), seconds)

    def distrust(self, node: Node[SyncLine], again: TryAgain) -> None:
        """A call to a server failed: its idle connections are as broken as the call's own was."""
        node.trouble = str(again.error)
        node.wire.forget()
        self.topology.suspect(node)
        self._empty(node)

    def close(self) -> None:
        """Close the idle connections."""
        for node in list(self.topology.nodes.values()):
            self._empty(node)

    def _empty(self, node: Node[SyncLine]) -> None:
        with self._lock:
            idle, node.idle = node.idle, []
        for line in idle:
            line.close()

    def _notice(self) -> None:
        """After a fork the connections at hand are the parent's."""
        if self._pid == os.getpid():
            return
        self._lock, self._locating = threading.Lock(), threading.Lock()
        for node in self.topology.nodes.values():
            node.idle = []
        self._pid = os.getpid()

    def _inquire(self) -> None:
        inquiry = self.topology.inquire()
        try:
            question = next(inquiry)
            while True:
                question = inquiry.send(self._ask(question))
        except StopIteration:
            pass
        for node in self.topology.retired():
            self._empty(node)

    def _ask(self, question: Question) -> list[Any] | Exception:
        url, requests = question
        node: Node[SyncLine] = Node(url, self.topology.scripts)
        patience = min(self.connect_seconds, ASK_SECONDS)
        line = SyncLine(node, sync_connection(url, patience, ASK_SECONDS))
        try:
            line.connection.connect()
            return self.exchange(line, list(requests), ASK_SECONDS)
        except (TryAgain, RedisError, OSError, TimeoutError) as error:
            refused = node.wire.refused(error)
            if isinstance(refused, RqretryError):
                raise refused from None
            return refused
        finally:
            line.close()


def _reply(connection: AbstractConnection, seconds: float | None) -> Any:
    try:
        if seconds is None:  # the socket has reply_seconds; to set it again costs system calls
            return connection.read_response(disconnect_on_error=False)
        return connection.read_response(timeout=seconds, disconnect_on_error=False)
    except SERVER_ERRORS as error:
        return error
