"""One port for TLS and plain text, as RocketMQ's own proxy has: the first byte tells which.

The gRPC server listens on a unix socket behind it. A plain HTTP request is a probe: GET
/readyz, /livez or /metrics.
"""

import asyncio
import resource
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from rqretry.gateway.metrics import Counted
from rqretry.observability.prometheus_text import CONTENT_TYPE

FIRST_BYTE_S = 10.0
"""How long a new connection may say nothing."""
_TLS_HANDSHAKE = b"\x16"
_HTTP_GET = b"G"
_FILES = 4
"""For each connection: its own, both sides of the relay, and one for Redis and all else."""
_MOST_FILES = 10_240
"""Where there is no limit."""
_MOST_HEAD = 8192
_REQUEST_S = 5.0


@dataclass(frozen=True, slots=True)
class Probes:
    """What plain HTTP requests are answered.

    Attributes:
        fault: Why the gateway cannot work; None if it can.
        metrics: As Prometheus reads it.
        counted: Bytes are added here.
    """

    fault: Callable[[], str | None]
    metrics: Callable[[], str]
    counted: Counted

    def answer(self, path: bytes) -> tuple[str, str]:
        """A status and a text."""
        if path == b"/metrics":
            return "200 OK", self.metrics().rstrip("\n")
        if path == b"/livez":
            return "200 OK", "live"
        if path != b"/readyz":
            return "404 Not Found", "GET /readyz, /livez or /metrics, or gRPC"
        fault = self.fault()
        return ("200 OK", "ready") if fault is None else ("503 Unavailable", fault)


class _Half(asyncio.Protocol):
    """One side of a relayed connection: what comes here goes to the other side."""

    def __init__(self, counted: Counted, other: "_Half | None" = None) -> None:
        self._counted = counted
        self._inward = other is None
        self.transport: asyncio.Transport | None = None
        self.other = other
        self._early: list[bytes] = []
        """What came before the other side was there; uvloop reads on though it was paused."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._counted.connections += self._inward
        if self.other is not None:
            self._join(self.other)

    def _join(self, other: "_Half") -> None:
        other.other = self
        assert self.transport is not None
        assert other.transport is not None
        self.transport.write(b"".join(other._early))  # noqa: SLF001 - of the same class
        if other.transport.is_closing():
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self._inward:
            self._counted.received += len(data)
        else:
            self._counted.sent += len(data)
        if self.other is None:
            self._early.append(data)
        elif self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        self._counted.connections -= self._inward
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class Front:
    """Accepts connections and relays them to the gRPC server.

    Args:
        listening: The socket that clients connect to; other processes may accept from it, too.
        backend: The unix socket of the gRPC server.
        tls: The certificate.
        probes: What GET answers.
    """

    def __init__(
        self, listening: socket.socket, backend: str, tls: ssl.SSLContext, probes: Probes
    ) -> None:
        listening.setblocking(False)  # noqa: FBT003 - of the standard library
        self._listening = listening
        self._backend = backend
        self._tls = tls
        self._probes = probes
        self._tasks: set[asyncio.Task[Any]] = set()
        self._most = most_connections()

    async def serve(self) -> None:
        """Accept, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._listening)
            except OSError:  # too many open files, or the client is gone already
                await asyncio.sleep(0.05)
                continue
            if len(self._tasks) + self._probes.counted.connections >= self._most:
                accepted.close()  # at once: behind the relay it would hang
                continue
            accepted.setblocking(False)  # noqa: FBT003 - as above
            task = loop.create_task(self._admit(accepted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _admit(self, accepted: socket.socket) -> None:
        try:
            async with asyncio.timeout(FIRST_BYTE_S):
                first = await _first_byte(accepted)
            if not first:
                accepted.close()
            elif first == _HTTP_GET:
                await self._probe(accepted)
            else:
                tls = self._tls if first == _TLS_HANDSHAKE else None
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await self._relay(accepted, tls)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            accepted.close()

    async def _relay(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        loop, counted = asyncio.get_running_loop(), self._probes.counted
        client = _Half(counted)
        transport, _ = await loop.connect_accepted_socket(lambda: client, accepted, ssl=tls)
        try:
            await loop.create_unix_connection(lambda: _Half(counted, client), self._backend)
        except OSError:
            transport.close()

    async def _probe(self, accepted: socket.socket) -> None:
        """Answer GET /readyz, /livez, /metrics."""
        reader, writer = await asyncio.open_connection(sock=accepted, limit=_MOST_HEAD)
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                line, text = self._probes.answer(b"".join(head.split(b" ", 2)[1:2]))
                body = f"{text}\n".encode()
                answer = (
                    f"HTTP/1.1 {line}\r\nContent-Type: {CONTENT_TYPE}\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close"
                )
                writer.write(answer.encode() + b"\r\n\r\n" + body)
                await writer.drain()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


def most_connections() -> int:
    """How many there can be, once this process may open as many files as it is allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(soft, _MOST_FILES) if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most // _FILES


async def _first_byte(accepted: socket.socket) -> bytes:
    """The first byte that comes, left where it is; b"" for none."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(accepted, readable.set)
    try:
        await readable.wait()
        return accepted.recv(1, socket.MSG_PEEK)
    finally:
        loop.remove_reader(accepted)
