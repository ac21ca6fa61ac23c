"""A proxy before one Redis server that breaks what its rules say, and counts what passes.

It runs in a thread of its own, so that tests with and without asyncio use it alike. It listens on a
loopback port (where a reset is a real RST) or on a unix socket.
"""

import asyncio
import logging
import socket
import struct
import tempfile
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.support.faults.resp import ReplyReader, Request, RequestReader
from tests.support.faults.rules import Fault, Rule, random_rules, verb_of

log = logging.getLogger("faults")

CHUNK = 1 << 16
_LINGER_0 = struct.pack("ii", 1, 0)
_PATIENCE_S = 10.0
_WITHOUT_REPLY = frozenset({Fault.DROP_REQUEST, Fault.RESET, Fault.CUT_REQUEST, Fault.BLACK_HOLE})


@dataclass(slots=True)
class _Armed:
    """A rule, and how many requests it has looked at."""

    rule: Rule
    count: int = 0


class FaultProxy:
    """Passes requests and replies on, but for what `rules` say. A context manager.

    Attributes:
        rules: What strikes; may be replaced at any time, and each rule counts from then on.
        seed: What random rules were made from; 0 for none.
        passed: How many requests of each verb reached the server.
        seen: How many requests of each verb came in.
        bytes_up: Bytes that reached the server.
        bytes_down: Bytes that came back from it.
        struck: What happened: (verb, fault), in order.
    """

    def __init__(
        self, server: EmbeddedRedis, rules: Sequence[Rule] = (), *, seed: int = 0, tcp: bool = False
    ) -> None:
        self.seed = seed
        self.seen: Counter[str] = Counter()
        self.passed: Counter[str] = Counter()
        self.bytes_up = 0
        self.bytes_down = 0
        self.struck: list[tuple[str, Fault]] = []
        self.connections: set[_Connection] = set()
        self.flowing = asyncio.Event()
        self._server = server
        self._tcp = tcp
        self._port = 0
        self._folder = tempfile.TemporaryDirectory(prefix="rqretry-proxy-")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy")
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._armed: list[_Armed] = []
        self.rules = [*rules, *(random_rules(seed) if seed else ())]
        if seed:
            log.info("faults of seed %d: %s", seed, self.rules)

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"redis://127.0.0.1:{self._port}/0" if self._tcp else f"unix://{self._path}?db=0"

    @property
    def rules(self) -> list[Rule]:
        """What strikes."""
        return [armed.rule for armed in self._armed]

    @rules.setter
    def rules(self, rules: Sequence[Rule]) -> None:
        self._armed = [_Armed(rule) for rule in rules]

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        self._loop.call_soon_threadsafe(self.flowing.set)
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._folder.cleanup()

    def heal(self) -> None:
        """No more faults, and no connection that still suffers from one."""
        self.rules = []
        self.cut()

    def cut(self) -> None:
        """Reset every connection."""
        self._call(self._cut())

    def refuse(self) -> None:
        """Reset every connection and accept no more, until `accept`."""
        self._call(self._refuse())

    def accept(self) -> None:
        """Accept connections again."""
        self._call(self._listen())

    # -- what follows runs in the thread of the loop ------------------------------------------

    def strike(self, request: Request) -> tuple[str, Rule | None]:
        """Count a request; what happens to it, if anything."""
        verb = verb_of(request.request_parts)
        self.seen[verb] += 1
        found: Rule | None = None
        for armed in self._armed:
            if armed.rule.verb in ("", verb):
                armed.count += 1
                if found is None and armed.rule.strikes(armed.count):
                    found = armed.rule
        if found is not None:
            self.struck.append((verb, found.fault))
        return verb, found

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside everything else."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stall(self, seconds: float) -> None:
        """Nothing passes for a while."""
        self.flowing.clear()
        await asyncio.sleep(seconds)
        self.flowing.set()

    async def refuse_for(self, seconds: float) -> None:
        """Nobody can connect for a while."""
        await self._refuse()
        await asyncio.sleep(seconds)
        await self._listen()

    async def open_server(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the server."""
        return await asyncio.open_unix_connection(str(self._server.socket_path), limit=CHUNK)

    @property
    def _path(self) -> Path:
        return Path(self._folder.name) / "proxy.sock"

    async def _listen(self) -> None:
        if self._listener is not None:
            return
        if self._tcp:
            self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
            self._port = self._listener.sockets[0].getsockname()[1]
        else:
            self._path.unlink(missing_ok=True)
            self._listener = await asyncio.start_unix_server(self._serve, str(self._path))

    async def _refuse(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self._cut()

    async def _cut(self) -> None:
        for connection in list(self.connections):
            connection.abort()

    async def _close(self) -> None:
        await self._refuse()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports close in the next round

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inside = await self.open_server()
        except OSError:  # the server is down
            _abort(writer)
            return
        connection = _Connection(self, (reader, writer), inside)
        self.connections.add(connection)
        self.spawn(connection.run())

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)


@asynccontextmanager
async def proxied(server: EmbeddedRedis) -> AsyncIterator[FaultProxy]:
    """A proxy on a unix socket, without rules yet, as one of several things in an `async with`."""
    with FaultProxy(server) as proxy:
        yield proxy


Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Connection:
    """One client's connection, and the one to the server that belongs to it."""

    def __init__(self, proxy: FaultProxy, outside: Line, inside: Line) -> None:
        self._proxy = proxy
        self._from_client, self._to_client = outside
        self._from_server, self._to_server = inside
        self._expected: deque[tuple[Rule | None, Request]] = deque()
        """What happens to the replies that are still to come."""
        self._swallow_up = self._swallow_down = False
        self._rate = 0

    async def run(self) -> None:
        """Pass everything on until one side ends."""
        ways = [asyncio.ensure_future(self._up()), asyncio.ensure_future(self._down())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._proxy.connections.discard(self)
            self._to_client.close()
            self._to_server.close()

    def abort(self) -> None:
        """Reset both sides."""
        _abort(self._to_client)
        _abort(self._to_server)

    async def _up(self) -> None:
        requests = RequestReader()
        with suppress(OSError):
            while data := await self._from_client.read(CHUNK):
                for request in requests.feed(data):
                    if not await self._pass_request(request):
                        return

    async def _down(self) -> None:
        replies = ReplyReader()
        with suppress(OSError):
            while data := await self._from_server.read(CHUNK):
                self._proxy.bytes_down += len(data)
                for reply in replies.feed(data):
                    rule, request = (None, None)
                    if not reply.push and self._expected:
                        rule, request = self._expected.popleft()
                    if not await self._pass_reply(reply.raw, rule, request):
                        return

    async def _pass_request(self, request: Request) -> bool:
        """Do to a request what is to be done; False when the connection is over."""
        if self._swallow_up:
            return True
        verb, rule = self._proxy.strike(request)
        fault = rule.fault if rule else None
        amount = rule.amount if rule else 0
        if fault == Fault.DELAY_REQUEST:
            await asyncio.sleep(amount / 1000)
        elif fault == Fault.THROTTLE:
            self._rate = max(amount, 1)
        elif fault == Fault.STALL:
            self._proxy.spawn(self._proxy.stall(amount / 1000))
            await asyncio.sleep(0)
        elif fault == Fault.REFUSE:
            self._proxy.spawn(self._proxy.refuse_for(amount / 1000))
            return False
        elif fault in _WITHOUT_REPLY:
            return await self._lose(request, fault, amount)
        elif fault == Fault.ONE_WAY:
            self._swallow_down = True
        self._expected.append((rule, request))
        self._proxy.passed[verb] += 1
        await self._write(self._to_server, request.raw, up=True)
        if fault == Fault.HALF_CLOSE:
            self._swallow_down = True
            self._to_client.write_eof()
        elif fault == Fault.HALF_CLOSE_SERVER:
            self._to_server.write_eof()
        return True

    async def _lose(self, request: Request, fault: Fault | None, amount: int) -> bool:
        """Faults after which the server has not got the whole request."""
        if fault == Fault.BLACK_HOLE:
            self._swallow_up = True
            return True
        if fault == Fault.CUT_REQUEST:
            part = request.raw[: min(amount, len(request.raw) - 1)]
            await self._write(self._to_server, part, up=True)
        if fault != Fault.DROP_REQUEST:
            self.abort()
        return False

    async def _pass_reply(self, raw: bytes, rule: Rule | None, request: Request | None) -> bool:
        fault = rule.fault if rule else None
        amount = rule.amount if rule else 0
        if fault == Fault.DROP_REPLY:
            return False
        if fault == Fault.CUT_REPLY:
            await self._write(self._to_client, raw[: min(amount, len(raw) - 1)], up=False)
            self.abort()
            return False
        if fault == Fault.DELAY_REPLY:
            await asyncio.sleep(amount / 1000)
        if fault == Fault.REPLAY and request is not None:
            self._proxy.spawn(self._replay(request))
        if not self._swallow_down:
            await self._write(self._to_client, raw, up=False)
        return True

    async def _replay(self, request: Request) -> None:
        """Send a request again on a fresh connection, as a network that kept it would."""
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await self._proxy.open_server()
            try:
                writer.write(request.raw)
                self._proxy.bytes_up += len(request.raw)
                replies = ReplyReader()
                while (data := await reader.read(CHUNK)) and not replies.feed(data):
                    pass
            finally:
                writer.close()

    async def _write(self, to: asyncio.StreamWriter, data: bytes, *, up: bool) -> None:
        await self._proxy.flowing.wait()
        if self._rate:
            for at in range(0, len(data), 256):
                part = data[at : at + 256]
                await asyncio.sleep(len(part) / self._rate)
                to.write(part)
        else:
            to.write(data)
        if up:
            self._proxy.bytes_up += len(data)
        await to.drain()


def _abort(writer: asyncio.StreamWriter) -> None:
    """Reset a connection: with SO_LINGER 0 the kernel sends RST and drops what is unsent."""
    line: Any = writer.get_extra_info("socket")
    if line is not None and line.family != socket.AF_UNIX:
        with suppress(OSError):
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)
    writer.transport.abort()
