"""rqretry exporter: the numbers of status for Prometheus, once per system."""

import socketserver
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from typing import Any, ClassVar

import click

from rqretry.client import Client
from rqretry.edge.cli.metrics import CONTENT_TYPE, render
from rqretry.edge.cli.options import server_options
from rqretry.edge.cli.session import connected
from rqretry.errors import ConfigError, RqretryError, show
from rqretry.reaching import FIRST_REPEAT_SECONDS
from rqretry.runtime.stopping import Stoppable, StoppedEarly

CACHED_S = 1.0
PATH = "/metrics"
_REQUEST_S = 5.0
_POLL_S = 0.2


@click.command(epilog="Example: rqretry exporter --port 9464")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=9464,
    show_default=True,
    metavar="PORT",
    help="The TCP port.",
)
@click.option(
    "--host", metavar="HOST", default="127.0.0.1", show_default=True, help="Where it listens."
)
@server_options
@click.pass_context
def exporter(context: click.Context, *, port: int, host: str) -> None:
    """Answer GET /metrics with the depth of every state, lag, dead letters and workers.

    One for each namespace is enough. The numbers are as of the scrape, at most a second old; while
    Redis is away a scrape is answered with 503.
    """
    with suppress(StoppedEarly), Stoppable(), connected(context) as client:
        client.store.repeat_seconds = FIRST_REPEAT_SECONDS
        try:
            server = MetricsServer(host, port, Metrics(client))
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"--port {port} cannot be opened on {show(host)} ({reason}): choose another"
            ) from error
        with server:
            place = f"[{host}]" if ":" in host else host
            click.echo(f"metrics of namespace {client.settings.namespace} at ", nl=False)
            click.echo(f"http://{place}:{port}{PATH}")
            server.serve_forever(_POLL_S)


class Metrics:
    """The text of a scrape, asked for once a second at most."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._text = ""
        self._until = 0.0

    def text(self) -> str:
        """Raises RqretryError where the server does not answer."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._text = render(self._client.admin.stats())
                self._until = time.monotonic() + CACHED_S
            return self._text


class MetricsServer(ThreadingHTTPServer):
    """Answers one path. Raises OSError where the port cannot be opened."""

    daemon_threads = True

    def __init__(self, host: str, port: int, metrics: Metrics) -> None:
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self.metrics = metrics
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Without looking up the name of this machine, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nobody's error."""


class _Handler(BaseHTTPRequestHandler):
    server_version = "rqretry"
    sys_version = ""
    timeout: ClassVar[float | None] = _REQUEST_S
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s\n"

    def do_GET(self) -> None:
        """Answer with the numbers."""
        assert isinstance(self.server, MetricsServer)
        if self.path.partition("?")[0] != PATH:
            self.send(404, f"only {PATH} is here\n")
            return
        try:
            self.send(200, self.server.metrics.text())
        except RqretryError as error:
            self.send(503, f"{error}\n")

    do_HEAD = do_GET  # noqa: N815 - a name of http.server

    def send(self, status: int, text: str) -> None:
        """One answer as text."""
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            with suppress(OSError):
                self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """A scrape every few seconds is not worth a line each."""
