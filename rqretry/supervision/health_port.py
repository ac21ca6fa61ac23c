"""/livez and /readyz of `rqretry worker --health-port`, for all processes of a supervisor."""

import asyncio
import contextlib
import json
import logging
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from typing import Any, ClassVar, Self

from rqretry.commands.upkeep import register
from rqretry.config import Settings
from rqretry.errors import ConfigError, show
from rqretry.identity import worker_name
from rqretry.keys import NamespaceKeys
from rqretry.store import Store
from rqretry.supervision.health import Answer, Board

log = logging.getLogger("rqretry")

ASK_EVERY_S = 1.0
ASK_AGAIN_S = 0.25
ANSWER_S = 0.8
_REQUEST_S = 5.0
_POLL_S = 0.2


class HealthPort:
    """Answers GET and HEAD of /livez and /readyz with JSON: 200, or 503 with the reason.

    A context manager; the port is open inside of it.

    Args:
        board: What there is to tell.
        host: An address or name of this machine; "" for all addresses.
        port: The TCP port.

    Raises:
        ConfigError: The port cannot be opened.
    """

    def __init__(self, board: Board, host: str, port: int) -> None:
        answers = {"/livez": board.live, "/readyz": board.ready}
        try:
            self._server = _Server(host, port, answers)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"--health-port {port} cannot be opened on {show(host)} ({reason}): choose another"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="rqretry-health", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class ServerCheck:
    """Once a second, in a thread: does the server take writes? A context manager.

    It writes with the script of the roster, taking leave under a name that is not in it: that needs
    everything a lease needs and changes nothing (reliability.md R18). The processes prove that they
    can lease every five seconds and at any trouble; this notices a server that hangs.
    """

    def __init__(self, board: Board, settings: Settings) -> None:
        self._board = board
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="rqretry-server-check", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(ANSWER_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._ask())

    async def _ask(self) -> None:
        keys = NamespaceKeys(self._settings.namespace)
        canary = register(keys, worker=worker_name(), about="", ttl_ms=0)
        async with Store(self._settings.url) as store:
            while not self._stopped.is_set():
                await store.prove(canary, ANSWER_S)
                self._board.asked_server(store.trouble, store.proved_at)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ASK_AGAIN_S if store.trouble else ASK_EVERY_S):
                        await self._stopped.wait()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, answers: dict[str, Callable[[], Answer]]) -> None:
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self.answers = answers
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Without looking up the name of this machine, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nobody's error."""
        del request
        log.debug("a request to the health port broke off: %s", client_address)


class _Handler(BaseHTTPRequestHandler):
    server_version = "rqretry"
    sys_version = ""
    timeout: ClassVar[float | None] = _REQUEST_S
    error_content_type = "application/json"
    error_message_format = '{"status": %(code)d}\n'

    def do_GET(self) -> None:
        """Answer with the body."""
        self.answer()

    def do_HEAD(self) -> None:
        """Answer without it."""
        self.answer()

    def do_POST(self) -> None:
        """Refuse: nothing can be changed here."""
        self.send(405, {"reason": "only GET and HEAD are allowed"})

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST  # noqa: N815 - names of http.server

    def answer(self) -> None:
        """The status and the reasons of one path."""
        assert isinstance(self.server, _Server)
        tell = self.server.answers.get(self.path.partition("?")[0])
        if tell is None:
            self.send(404, {"reason": "only /livez and /readyz are here"})
            return
        good, body = tell()
        self.send(200 if good else 503, body)

    def send(self, status: int, body: dict[str, Any]) -> None:
        """One JSON object."""
        data = json.dumps(body).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        if status == 405:  # noqa: PLR2004
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(OSError):
                self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Probes every second are not worth a line each."""
        log.debug("health port: " + format, *args)  # noqa: G003
