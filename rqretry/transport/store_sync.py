"""The same door as store.py for code without asyncio: sync handlers, Django, Flask, the CLI.

Thread-safe (each call has a connection of its own) and fork-safe (a child opens its own).
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from redis.exceptions import RedisError

from rqretry.core.closing import Closing
from rqretry.core.errors import RqretryError
from rqretry.core.redis_url import RedisUrl
from rqretry.protocol.command import Block, Command, Operation
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.connection import sync_connection
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
)
from rqretry.transport.replies import TryAgain, refused
from rqretry.transport.session import REPEAT_SECONDS, ServerClock, Session
from rqretry.transport.sync_connection import SyncConnection
from rqretry.transport.topology import Handshake, topology_of
from rqretry.transport.wakeup import wait_apart

T = TypeVar("T")

log = logging.getLogger("rqretry")

_running_loop = asyncio._get_running_loop  # noqa: SLF001 - get_running_loop raises where none runs

FIRST_CONNECT_SECONDS = 1.2
"""How long one attempt to connect takes at most; with its repetition, a user waits 3 s."""
FIRST_REPEAT_SECONDS = 0.8
FIRST_REPLY_SECONDS = 5.0


class SyncStore(Closing):
    """Connections to one server, to the primary that Sentinels name, or to a cluster; for threads.

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
    ) -> None:
        self.url = url
        self.session = Session(topology_of(url, library or ScriptLibrary()), repeat_seconds)
        self.connect_seconds = url.option("socket_connect_timeout", CONNECT_SECONDS)
        self.reply_seconds = url.option("socket_timeout", reply_seconds)
        self._lock = threading.Lock()
        self._locating = threading.Lock()
        self._pid = os.getpid()
        self.may_hold_up_a_loop = False
        """Whether it is used where an event loop runs, and that is known."""

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

    def servers(self) -> list[RedisUrl]:
        """The servers in use, each as a URL of its own: the primaries of a cluster.

        Raises:
            StoreUnavailable: They cannot be asked.
        """
        self.connect()
        return [node.url for node in self.topology.nodes.values()]

    # -- calls -----------------------------------------------------------------------------------

    def perform(self, operation: Operation[T]) -> T:
        """Perform an operation to its end; its errors are raised inside it, then here."""
        return self.drive(self.session.perform(operation))

    def run(self, command: Command[T]) -> T:
        """Run one command; see Session.run."""
        return self.drive(self.session.run(command))

    def run_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Run commands; see Session.run_all."""
        return self.drive(self.session.run_all(commands))

    def run_each(self, commands: Sequence[Command[Any]], seconds: float) -> list[Any]:
        """Run commands, with errors as values; see Session.run_each."""
        return self.drive(self.session.run_each(commands, seconds))

    def block(self, step: Block) -> str | None:
        """Wait for a wake key; see Session.block."""
        return self.drive(self.session.block(step))

    def look(self) -> str | None:
        """What is wrong with the settings of a server by now; None for nothing, or not known."""
        with suppress(TryAgain, RqretryError):
            self.drive(self.session.eviction.look())
        return self.session.eviction.fault

    def connect(self) -> None:
        """Make sure that the server can be reached, is new enough, and reported its time."""
        if not self.session.greeted:
            self.drive(self.session.connect())

    def close(self) -> None:
        """Close all connections that are not in use."""
        for node in list(self.topology.nodes.values()):
            self._drop(node)

    # -- the driver ------------------------------------------------------------------------------

    def drive(self, procedure: Procedure[T]) -> T:
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
                    outcome = self._round_trip(effect)
                else:
                    outcome = self._do(effect)
            except BaseException as caught:  # noqa: BLE001 - thrown into the procedure, which ends then
                error = caught

    def _do(self, effect: RareEffect) -> Any:  # noqa: C901, PLR0911, PLR0912 - one arm for each
        match effect:
            case Together(trips):
                return self._together(trips)
            case Acquire(node):
                return self.connection_to(node)
            case Send(connection, requests):
                return connection.send(requests)
            case Receive(connection, most, patience):
                return connection.receive(most, patience)
            case Release(connection):
                return self.release(connection)
            case Close(connection):
                return connection.close()
            case Drop(node):
                return self._drop(node)
            case Sleep(seconds):
                return time.sleep(seconds)
            case Locate():
                return self._locate()
            case Ask(url, requests):
                return self._ask(url, requests)
            case Watch(keys, seconds):
                return wait_apart(self.topology, self.drive, keys, seconds)

    def _round_trip(self, trip: RoundTrip) -> list[Any]:
        node, requests, seconds = trip
        if not self.may_hold_up_a_loop and _running_loop() is not None:
            self._warn_of_loop()
        connection = self.connection_to(node)
        try:
            replies = connection.exchange(requests, seconds)
        except BaseException:
            connection.close()
            raise
        self.release(connection)
        return replies

    def _warn_of_loop(self) -> None:
        self.may_hold_up_a_loop = True
        log.warning(
            "a client without asyncio is used where an event loop runs, which stands still until"
            " the server answers: await what App or AsyncClient has there, or call it in a thread"
        )

    def _together(self, trips: Iterable[tuple[Node, Any]]) -> list[list[Any] | Exception]:
        # All requests are sent before the first reply is read: the servers work at once.
        flights = [self._begin(node, requests) for node, requests in trips]
        return [f if isinstance(f, Exception) else self._end(*f) for f in flights]

    def _begin(self, node: Node, requests: Any) -> tuple[SyncConnection, int] | Exception:
        try:
            connection = self.connection_to(node)
            try:
                sent = requests()
                connection.send(sent)
            except BaseException:
                connection.close()
                raise
        except (TryAgain, RqretryError) as error:
            return error
        return connection, len(sent)

    def _end(self, connection: SyncConnection, count: int) -> list[Any] | Exception:
        try:
            replies = connection.receive(count)
        except BaseException as error:
            connection.close()
            if isinstance(error, TryAgain):
                return error
            raise
        self.release(connection)
        return replies

    def connection_to(self, node: Node) -> SyncConnection:
        """A connection to a server, to be released or closed.

        Raises:
            TryAgain: It cannot be reached now; nothing was sent.
            ConfigError, UnsafeServer: It cannot be used.
        """
        self._check_owner()
        with self._lock:
            if node.idle:
                idle: SyncConnection = node.idle.pop()
                return idle
        raw = sync_connection(node.url, self.connect_seconds, self.reply_seconds)
        connection = SyncConnection(node, raw)
        handshake = Handshake(self.topology, node, self.session.note_time)
        try:
            connection.open()
            if handshake.requests:
                handshake.read(connection.exchange(handshake.requests))
        except BaseException as error:
            connection.close()
            if isinstance(error, (TryAgain, RedisError, OSError, TimeoutError)):
                raise refused(node, error) from error
            raise
        return connection

    def release(self, connection: SyncConnection) -> None:
        """Give a connection back."""
        node = connection.node
        with self._lock:
            if not node.retired:
                node.idle.append(connection)
                return
        connection.close()

    def _locate(self) -> None:
        self._check_owner()
        with self._locating:
            if self.topology.stale:
                self.drive(self.session.inquire())

    def _ask(self, url: RedisUrl, requests: Requests) -> list[Any] | Exception:
        node = Node(url, self.topology.scripts)
        raw = sync_connection(url, min(self.connect_seconds, ASK_SECONDS), ASK_SECONDS)
        connection = SyncConnection(node, raw)
        try:
            connection.open()
            return connection.exchange(requests, ASK_SECONDS)
        except (TryAgain, RedisError, OSError, TimeoutError) as error:
            found = refused(node, error)
            if isinstance(found, RqretryError):
                raise found from None
            return found
        finally:
            connection.close()

    def _drop(self, node: Node) -> None:
        with self._lock:
            idle, node.idle = node.idle, []
        for connection in idle:
            connection.close()

    def _check_owner(self) -> None:
        """After a fork the connections at hand are the parent's."""
        if self._pid == os.getpid():
            return
        self._lock, self._locating = threading.Lock(), threading.Lock()
        for node in self.topology.nodes.values():
            node.idle = []
        self._pid = os.getpid()


def reach(store: SyncStore) -> None:
    """Connect for the first time, where a user waits. Raises StoreUnavailable within 3 s."""
    store.connect_seconds = min(store.connect_seconds, FIRST_CONNECT_SECONDS)
    store.reply_seconds = min(store.reply_seconds, FIRST_REPLY_SECONDS)
    store.repeat_seconds = FIRST_REPEAT_SECONDS
    store.connect()
    store.repeat_seconds = REPEAT_SECONDS
