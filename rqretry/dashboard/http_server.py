"""The HTTP server of the dashboard: uvicorn, with an end to what a client may take its time for."""

import asyncio
import socket
from collections.abc import Callable

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rqretry.dashboard.access import Guard

REQUEST_S = 5.0
"""How long a client may take for a request, head and body."""
ANSWER_S = 30.0
"""How long it may then take until it has read the answer."""
_MOST_CONNECTIONS = 64
_KEEP_ALIVE_S = 3
_COMING = (h11.IDLE, h11.SEND_BODY)


class TimedProtocol(H11Protocol):
    """HTTP/1.1; a connection is cut when its time is over, however many bytes come meanwhile."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        """A client has connected."""
        super().connection_made(transport)
        self._limit(REQUEST_S)

    def data_received(self, data: bytes) -> None:
        """A part of a request has come."""
        coming = self.conn.their_state in _COMING
        super().data_received(data)
        if coming and self.conn.their_state not in _COMING:
            self._limit(ANSWER_S)

    def on_response_complete(self) -> None:
        """The next request may come, or the one behind it that is there already."""
        self._limit(REQUEST_S)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._limit(None)
        super().connection_lost(exc)

    def _limit(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        later = self.loop.call_later
        self._timer = None if seconds is None else later(seconds, self.transport.abort)


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, close: Callable[[], None], started: Callable[[], object]
    ) -> None:
        super().__init__(config)
        self._close = close
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """The site is ready, with its first numbers; then requests are taken."""
        await super().startup(sockets)
        if not self.should_exit:
            self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Streams end at once, so that nothing waits for them."""
        self._close()
        await super().shutdown(sockets)


def make_server(site: Guard, started: Callable[[], object] = lambda: None) -> uvicorn.Server:
    """A server for the pages; `serve(sockets=[...])` runs it, and calls `started` once it does."""
    config = uvicorn.Config(
        site,
        http=TimedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=2,
    )
    return _Server(config, site.close, started)
