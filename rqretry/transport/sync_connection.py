"""A connection of the store for code without asyncio.

redis-py connects and logs in; with hiredis its socket is then read and written without it, as in
hiredis_channel.py. Without hiredis redis-py carries the same.
"""

import time
from typing import Any

from redis.connection import AbstractConnection
from redis.exceptions import ConnectionError as BrokenError
from redis.exceptions import RedisError

from rqretry.transport.connection import INCOMPLETE, pack_safely, reply_reader
from rqretry.transport.node import Node, Requests
from rqretry.transport.replies import SERVER_ERRORS, broken

_READ_BYTES = 65_536


class SyncConnection:
    """An open connection to a server; whoever holds it uses it alone.

    Attributes:
        node: The server.
        raw: The connection of redis-py.
        client_id: The server's number of it, once somebody asked; 0 before that.
    """

    __slots__ = ("_reader", "client_id", "node", "raw")

    def __init__(self, node: Node, raw: AbstractConnection) -> None:
        self.node = node
        self.raw = raw
        self.client_id = 0
        self._reader: Any = None

    def open(self) -> None:
        """Connect; with hiredis the socket is taken over. Raises RedisError, OSError."""
        self.raw.connect()  # type: ignore[no-untyped-call]
        self._reader = reply_reader()

    @property
    def _socket(self) -> Any:
        held: Any = self.raw._sock  # noqa: SLF001 - redis-py has no name for it, and closes it
        if held is None:  # another thread has closed it
            raise BrokenError("the connection was closed")
        return held

    def close(self) -> None:
        """Close it; what was sent on it is left to the server."""
        self.raw.disconnect()  # type: ignore[no-untyped-call]

    def send(self, requests: Requests) -> None:
        """Send requests. TryAgain."""
        try:
            # In one system call: redis-py makes one for each item of a list.
            packed = b"".join(map(pack_safely, requests))
            if self._reader is None:
                self.raw.send_packed_command([packed], check_health=False)  # type: ignore[no-untyped-call]
            else:
                self._socket.sendall(packed)
        except (RedisError, OSError, TimeoutError) as error:
            raise broken(self.node, error, sent=True) from error

    def receive(self, count: int, seconds: float | None = None) -> list[Any]:
        """Read replies; errors of the server are values. TryAgain."""
        patience: Any = self.raw.socket_timeout if seconds is None else seconds
        until = time.monotonic() + patience
        try:
            return [self._read(seconds, until) for _ in range(count)]
        except (RedisError, OSError, TimeoutError) as error:
            raise broken(self.node, error, sent=True) from error

    def exchange(self, requests: Requests, seconds: float | None = None) -> list[Any]:
        """Send requests and read as many replies. TryAgain."""
        self.send(requests)
        return self.receive(len(requests), seconds)

    def _read(self, seconds: float | None, until: float) -> Any:
        if self._reader is not None:
            return self._parsed(seconds, until)
        try:
            if seconds is None:  # the socket has reply_seconds; to set it again costs system calls
                return self.raw.read_response(disconnect_on_error=False)
            return self.raw.read_response(timeout=seconds, disconnect_on_error=False)
        except SERVER_ERRORS as error:
            return error

    def _parsed(self, seconds: float | None, until: float) -> Any:
        reader, server = self._reader, self._socket
        reply = reader.gets()
        if reply is INCOMPLETE and seconds is not None:
            server.settimeout(seconds)
        while reply is INCOMPLETE:
            data = server.recv(_READ_BYTES)
            if not data:
                raise BrokenError("the connection was closed")
            reader.feed(data)
            reply = reader.gets()
            if reply is INCOMPLETE:  # what comes in drips has no more time than what comes at once
                seconds = until - time.monotonic()
                if seconds <= 0:
                    raise TimeoutError
                server.settimeout(seconds)
        if seconds is not None:
            server.settimeout(self.raw.socket_timeout)
        if isinstance(reply, BrokenError) and not isinstance(reply, SERVER_ERRORS):
            raise reply
        return reply
