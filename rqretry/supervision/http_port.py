"""What the HTTP ports of a worker share: opening, answering in threads, closing."""

import contextlib
import logging
import socketserver
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6, SHUT_RDWR
from typing import Any, ClassVar, Self

from rqretry.core.errors import ConfigError, show

log = logging.getLogger("rqretry")

_REQUEST_S = 5.0
_POLL_S = 0.2


class SmallServer(ThreadingHTTPServer):
    """A server of a thread for each request, not serving yet.

    Args:
        host: An address or name of this machine; "" for all addresses.
        port: The TCP port.
        option: The option that names the port, for the error.
        handler: Answers the requests.
        source: Where the handler finds the answers.

    Raises:
        ConfigError: The port cannot be opened.
    """

    daemon_threads = True

    def __init__(
        self, host: str, port: int, option: str, handler: type["SmallHandler"], source: Any
    ) -> None:
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self.source = source
        try:
            super().__init__((host, port), handler)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"{option} {port} cannot be opened on {show(host)} ({reason}): choose another"
            ) from error

    def server_bind(self) -> None:
        """Without looking up the name of this machine, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that disconnects is not an error."""
        del request
        log.debug("a request to port %s broke off: %s", self.server_port, client_address)


class SmallHandler(BaseHTTPRequestHandler):
    """Answers requests; derived classes define how."""

    server_version = "rqretry"
    sys_version = ""
    timeout: ClassVar[float | None] = _REQUEST_S

    def setup(self) -> None:
        """Begin to read a request, which has its time, however many bytes come meanwhile."""
        super().setup()
        self._timer = threading.Timer(_REQUEST_S, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def parse_request(self) -> bool:
        """Read the rest of the head."""
        good = super().parse_request()
        self._timer.cancel()
        return good

    def finish(self) -> None:
        """The request has ended."""
        self._timer.cancel()
        super().finish()

    def _cut(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(SHUT_RDWR)

    def send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        """One response; without its body for HEAD."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(OSError):
                self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Probes and scrapes come every few seconds: debug only."""
        log.debug("request: " + format, *args)  # noqa: G003


class Port:
    """A server that answers in a thread; a context manager."""

    def __init__(self, server: SmallServer, name: str) -> None:
        self._server = server
        self._thread = threading.Thread(
            target=server.serve_forever, args=(_POLL_S,), name=name, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
