"""/livez and /readyz of `rqretry worker --health-port`, for all processes of a supervisor."""

import asyncio
import contextlib
import json
import logging
import threading
from typing import Any, Self

from rqretry.core.settings import Settings
from rqretry.core.worker_name import worker_name
from rqretry.protocol.keys import NamespaceKeys
from rqretry.protocol.maintain import register
from rqretry.supervision.health import Board
from rqretry.supervision.http_port import Port, SmallHandler, SmallServer
from rqretry.transport.store import Store

log = logging.getLogger("rqretry")

ASK_EVERY_S = 1.0
ASK_AGAIN_S = 0.25
ANSWER_S = 0.8


class HealthPort(Port):
    """Answers GET and HEAD of /livez and /readyz with JSON: 200, or 503 with the reason.

    A context manager; the port is open inside of it.

    Args:
        board: The state to report.
        host: An address or name of this machine; "" for all addresses.
        port: The TCP port.

    Raises:
        ConfigError: The port cannot be opened.
    """

    def __init__(self, board: Board, host: str, port: int) -> None:
        answers = {"/livez": board.live, "/readyz": board.ready}
        server = SmallServer(host, port, "--health-port", _Handler, answers)
        super().__init__(server, "rqretry-health")


class ServerCheck:
    """Checks once a second, in a thread, that the server accepts writes. A context manager.

    It runs the script that registers workers, to remove a name that is not registered: that needs
    everything a lease needs and changes nothing (docs/guarantees.md R18). The processes prove that
    they can lease every few seconds and after any fault; this notices a server that hangs.
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
                self._board.asked_server(store.fault, store.proved_at)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ASK_AGAIN_S if store.fault else ASK_EVERY_S):
                        await self._stopped.wait()


class _Handler(SmallHandler):
    error_content_type = "application/json"
    error_message_format = '{"status": %(code)d}\n'

    def do_GET(self) -> None:  # noqa: N802 - a name of http.server
        """The status and the reasons of one path."""
        assert isinstance(self.server, SmallServer)
        state = self.server.source.get(self.path.partition("?")[0])
        if state is None:
            self.send_json(404, {"reason": "only /livez and /readyz are here"})
            return
        good, body = state()
        self.send_json(200 if good else 503, body)

    do_HEAD = do_GET  # noqa: N815 - a name of http.server

    def do_POST(self) -> None:  # noqa: N802 - a name of http.server
        """Refuse: nothing can be changed here."""
        self.send_json(405, {"reason": "only GET and HEAD are allowed"}, Allow="GET, HEAD")

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST  # noqa: N815 - names of http.server

    def send_json(self, status: int, body: dict[str, Any], **more: str) -> None:
        """One JSON object."""
        headers = {"Content-Type": "application/json", "Cache-Control": "no-store", **more}
        self.send(status, json.dumps(body).encode() + b"\n", headers)
