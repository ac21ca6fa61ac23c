"""Waiting for wake keys on a cluster without asyncio: one blocked connection per key, one thread.

See wakeup.py. Here the others are unblocked before the caller goes on, because nothing runs
behind its back.
"""

import selectors
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from rqretry.core.errors import RqretryError
from rqretry.transport.node import BLOCK_MARGIN_SECONDS, Node, Topology
from rqretry.transport.replies import TryAgain, is_error

BROKEN_S = 0.25
_UNBLOCK_EVERY_S = 0.005
_LAST_S = 1.0


class Connections(Protocol):
    """The blocking store, as far as it is needed here."""

    @property
    def topology(self) -> Topology:
        """Which server holds what."""
        ...

    def connection_to(self, node: Node) -> Any:
        """A connection to a server. Raises TryAgain."""
        ...

    def release(self, connection: Any) -> None:
        """Give a connection back."""
        ...


def wait_apart(store: Connections, keys: Sequence[str], seconds: float) -> set[str]:
    """The first key that is set; none if none was, or a server could not be asked.

    Raises:
        ConfigError, UnsafeServer: A server cannot be used.
    """
    waiting: dict[Any, str] = {}
    try:
        for key in keys:
            connection = store.connection_to(store.topology.node(key))
            waiting[connection] = key
            if not connection.client_id:
                (connection.client_id,) = connection.exchange([("CLIENT", "ID")])
            connection.send([("BZPOPMIN", key, max(0.001, round(seconds, 3)))])
        found = _first(store, waiting, time.monotonic() + seconds + BLOCK_MARGIN_SECONDS)
    except BaseException as error:
        for connection in waiting:
            connection.close()
        if isinstance(error, TryAgain):
            time.sleep(BROKEN_S)
            return set()
        raise
    with suppress(TryAgain, RqretryError):
        _unblock(store, waiting)
    for connection in waiting:  # those that could not be unblocked
        connection.close()
    return found


def _first(store: Connections, waiting: dict[Any, str], end: float) -> set[str]:
    """Read the first reply that comes; its connection is given back."""
    with selectors.DefaultSelector() as selector:
        for connection in waiting:
            selector.register(_socket(connection), selectors.EVENT_READ, connection)
        while (left := end - time.monotonic()) > 0:
            for ready, _ in selector.select(left):
                connection = ready.data
                if connection.raw.can_read(0):  # TLS has bytes that are no reply
                    key = waiting[connection]
                    (reply,) = connection.receive(1)
                    del waiting[connection]
                    store.release(connection)
                    if is_error(reply):
                        time.sleep(BROKEN_S)
                    return {key} if isinstance(reply, list) else set()
    return set()


def _unblock(store: Connections, waiting: dict[Any, str]) -> None:
    """Make the others answer; a wake-up that one of them got is put back."""
    end = time.monotonic() + _LAST_S
    while waiting and time.monotonic() < end:
        for connection in list(waiting):
            _beside(store, connection, ("CLIENT", "UNBLOCK", connection.client_id))
        for connection, key in list(waiting.items()):
            if connection.raw.can_read(_UNBLOCK_EVERY_S):
                (reply,) = connection.receive(1)
                del waiting[connection]
                store.release(connection)
                if isinstance(reply, list):
                    _beside(store, connection, ("ZADD", key, 0, "1"))


def _beside(store: Connections, blocked: Any, request: tuple[Any, ...]) -> None:
    """Send a request to the server of a connection that is blocked."""
    connection = store.connection_to(blocked.node)
    try:
        connection.exchange([request])
    except BaseException:
        connection.close()
        raise
    store.release(connection)


def _socket(connection: Any) -> Any:
    return connection.raw._sock  # noqa: SLF001 - redis-py has no name for it
