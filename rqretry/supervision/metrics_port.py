"""/metrics for Prometheus: a small server, and what a supervisor's processes have counted."""

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from typing import Any, ClassVar, Self

from rqretry.errors import ConfigError, RqretryError, show
from rqretry.exposition import CONTENT_TYPE, Family, Sample, expose, expose_histogram
from rqretry.supervision.health import Board
from rqretry.tallying import BUCKETS_S, Figures

PATH = "/metrics"
_REQUEST_S = 5.0
_POLL_S = 0.2


class MetricsPort:
    """Answers GET /metrics with what a board knows; a context manager.

    Raises:
        ConfigError: The port cannot be opened.
    """

    def __init__(self, board: Board, host: str, port: int) -> None:
        self._server = open_server(host, port, lambda: render(board), "--metrics-port")
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="rqretry-metrics", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def render(board: Board) -> str:
    """The metrics of all processes of this supervisor, also of those that have ended."""
    figures = board.figures()
    return expose(_families(board, figures)) + expose_histogram(
        "rqretry_worker_attempt_seconds",
        "How long attempts took.",
        BUCKETS_S,
        (
            ({"topic": topic, "group": group}, buckets[:-1], buckets[-1])
            for (topic, group), buckets in sorted(figures.seconds.items())
        ),
    )


def _families(board: Board, figures: Figures) -> Iterator[Family]:
    text = "Attempts that ended, by outcome; stale: the result came after the lease was over."
    rows: list[Sample] = [
        ({"topic": topic, "group": group, "outcome": outcome}, count)
        for (topic, group, outcome), count in sorted(figures.attempts.items())
    ]
    yield "rqretry_worker_attempts_total", "counter", text, rows
    rows = [
        ({"topic": topic, "result": result}, count)
        for (topic, result), count in sorted(figures.published.items())
    ]
    text = "Messages that handlers published."
    yield "rqretry_worker_published_total", "counter", text, rows
    states = board.states()
    text = "Processes of this worker, by state."
    rows = [({"state": state}, float(count)) for state, count in states.items()]
    yield "rqretry_worker_processes", "gauge", text, rows
    text = "1 while this worker can lease, as /readyz says."
    yield "rqretry_worker_ready", "gauge", text, [({}, float(board.ready()[0]))]
    text = "1 while this worker runs and replaces its processes, as /livez says."
    yield "rqretry_worker_live", "gauge", text, [({}, float(board.live()[0]))]


def open_server(host: str, port: int, tell: Callable[[], str], option: str) -> "MetricsServer":
    """A server that is not serving yet. Raises ConfigError where the port cannot be opened."""
    try:
        return MetricsServer(host, port, tell)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"{option} {port} cannot be opened on {show(host)} ({reason}): choose another"
        ) from error


class MetricsServer(ThreadingHTTPServer):
    """Answers one path with a text. Raises OSError where the port cannot be opened."""

    daemon_threads = True

    def __init__(self, host: str, port: int, tell: Callable[[], str]) -> None:
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self.tell = tell
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
            self.send(200, self.server.tell())
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
