"""Between processes and the server: each request is sent, executed and answered, as three events.

Each can be lost, late, or happen twice (on a new connection, never in one stream), and the process
can be killed there.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from redis.exceptions import ResponseError

from rqretry.core.redis_url import RedisUrl
from rqretry.protocol.scripts import Dialect
from rqretry.testing.clock import START_MS
from rqretry.transport.node import Requests
from rqretry.transport.replies import broken
from rqretry.transport.store import Store
from tests.model.simulation.chance import Chance
from tests.model.simulation.loop import Process, VirtualLoop
from tests.model.simulation.server import Arguments, Server, verb_of

LATENCIES_MS = (0, 0, 0, 1, 1, 2, 5, 20)
_MOST_CUT = 24


@dataclass(frozen=True)
class Faults:
    """How often what goes wrong with one exchange; 0 for never."""

    refused: float = 0.0
    lost_request: float = 0.0
    lost_reply: float = 0.0
    late: float = 0.0
    repeated: float = 0.0
    cut_short: float = 0.0
    """The connection breaks after some requests of a batch."""
    killed: float = 0.0
    """The process is killed while the exchange is under way."""
    cut_script: float = 0.0
    """A script stops in its middle, as one does that is denied a command."""
    latest_s: float = 4.0


NO_FAULTS = Faults()


def with_bodies(requests: Requests, request_parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """A call of a script with the large bodies that were written in front of it."""
    written = [parts for parts in requests if parts[0] == "HSETNX"]
    if not written:
        return request_parts
    sums, bodies = written[::2], written[1::2]
    stored = {b"\0" + str(s[3]).encode(): b[3] for s, b in zip(sums, bodies, strict=True)}
    return tuple(stored.get(part, part) for part in request_parts)


class Line:
    """A connection of a process."""

    def __init__(self, number: int, network: "Network") -> None:
        self.number = number
        self.open = True
        self.broken = False
        self.last: Flight | None = None
        """What was sent on it last."""
        self._network = network

    def close(self) -> None:
        """Close it: what waits on it at the server waits no more."""
        self.open = False
        self._network.closed(self)


@dataclass(eq=False)
class _Blocked:
    line: Line
    process: Process
    keys: tuple[str, ...]
    woken: asyncio.Future[Any]


@dataclass(eq=False)
class Flight:
    """One exchange: its requests, and who waits for the replies."""

    name: str
    process: Process
    line: Line
    requests: Requests
    answer: asyncio.Future[list[Any]]
    executed: asyncio.Future[bool]
    """Whether all of it was; what was sent behind it on its line is executed then."""
    before: "Flight | None"
    done: list[Any] = field(default_factory=list)


class Network:
    """Carries the requests of all processes to the server.

    Attributes:
        faults: What goes wrong; may be changed at any time.
        events: One line for each event, if `traced`; else their checksum only.
        looks: Says what to ask the server right behind a request, to see what it did.
        executed: Told of each request that the server executed, its reply, and what was seen.
        kill: Called to kill a process.
    """

    def __init__(self, server: Server, loop: VirtualLoop, chance: Chance) -> None:
        self.server = server
        self.loop = loop
        self.chance = chance
        self.faults = NO_FAULTS
        self.traced = False
        self.events: list[str] = []
        self.digest = 0
        self.requests = 0
        self.down_until = 0.0
        self.executed: Callable[..., None]
        self.looks: Callable[[str, Arguments], Sequence[Arguments]]
        self.kill: Callable[[Process], object]
        self._lines = 0
        self._blocked: list[_Blocked] = []

    def note(self, event: str) -> None:
        """Something happened."""
        line = f"{self.loop.now:.3f} {event}"
        self.digest = crc32(line.encode(), self.digest)
        if self.traced:
            self.events.append(line)

    def connect(self) -> Line:
        """A new connection."""
        self._lines += 1
        return Line(self._lines, self)

    def closed(self, line: Line) -> None:
        """A connection is closed."""
        self._blocked = [blocked for blocked in self._blocked if blocked.line is not line]

    def left(self, process: Process) -> None:
        """A process is gone, and its connections with it."""
        self._blocked = [blocked for blocked in self._blocked if blocked.process is not process]

    # -- one exchange --------------------------------------------------------------------------

    def send(self, process: Process, line: Line, requests: Requests) -> asyncio.Future[list[Any]]:
        """Put requests on their way; the future is the replies, or how the connection broke."""
        answer: asyncio.Future[list[Any]] = self.loop.create_future()
        if not process.alive:  # killed in this very moment: nothing more leaves it
            return answer
        name = self.chance.numbered(f"{process.name}/call")
        executed = self.loop.create_future()
        flight = Flight(name, process, line, requests, answer, executed, line.last)
        line.last = flight
        self.loop.spawn(None, self._carry_in_turn(flight))
        return answer

    async def _carry_in_turn(self, flight: Flight) -> None:
        """A line is a stream: what is behind something that was lost is lost, too."""
        before, flight.before = flight.before, None
        try:
            if before is not None and not await before.executed:
                await self._break(flight)
            else:
                await self._carry(flight)
        finally:
            if not flight.executed.done():
                flight.executed.set_result(False)

    async def _carry(self, flight: Flight) -> None:
        if self._falls(flight, "killed at send", self.faults.killed / 3):
            self.kill(flight.process)
            if self.chance.share(f"{flight.name}/half") < 0.5:
                return
        await self._pass(f"{flight.name}/send")
        if self._falls(flight, "late", self.faults.late):
            await asyncio.sleep(self.faults.latest_s * self.chance.share(f"{flight.name}/by"))
        if self._down() or self._falls(flight, "lost request", self.faults.lost_request):
            await self._break(flight)
            return
        await self._execute_all(flight)
        flight.executed.set_result(len(flight.done) == len(flight.requests))
        again = self._falls(flight, "repeated", self.faults.repeated)
        if again:
            self.loop.spawn(None, self._repeat(flight))
        if self._falls(flight, "killed at execute", self.faults.killed / 3):
            self.kill(flight.process)
        await self._pass(f"{flight.name}/reply")
        if self._falls(flight, "late reply", self.faults.late / 2):
            await asyncio.sleep(self.faults.latest_s * self.chance.share(f"{flight.name}/late"))
        lost = self._falls(flight, "lost reply", self.faults.lost_reply) or flight.line.broken
        if lost or len(flight.done) < len(flight.requests):
            await self._break(flight)
            return
        if self._falls(flight, "killed at reply", self.faults.killed / 3):
            self.kill(flight.process)
        self._answer(flight)

    def _answer(self, flight: Flight) -> None:
        if not flight.answer.done():
            flight.answer.set_result(flight.done)

    async def _break(self, flight: Flight) -> None:
        """The client sees a broken connection, or nothing at all until it gives up."""
        flight.line.broken = True
        if self.chance.share(f"{flight.name}/silent") < 0.5:
            return
        await self._pass(f"{flight.name}/break")
        if not flight.answer.done():
            flight.answer.set_exception(ConnectionResetError("cut"))
            flight.answer.exception()  # noted: maybe nobody waits for it any more

    async def _execute_all(self, flight: Flight) -> None:
        several = len(flight.requests) > 1
        short = several and self._falls(flight, "cut short", self.faults.cut_short)
        most = len(flight.requests)
        if short:
            most = self.chance.whole(f"{flight.name}/most", 0, most - 1)
        queued: list[tuple[Any, ...]] | None = None
        for request_parts in flight.requests[:most]:
            if self._down():
                return
            if request_parts[0] == "MULTI":
                queued = []
                flight.done.append(b"OK")
            elif request_parts[0] == "EXEC":
                flight.done.append(self._execute_queued(flight, queued or []))
                queued = None
            elif queued is not None:
                queued.append(request_parts)
                flight.done.append(b"QUEUED")
            elif request_parts[0] == "BZPOPMIN":
                flight.done.append(await self._block(flight, request_parts))
            else:
                flight.done.append(self._execute(flight, request_parts))

    async def _repeat(self, flight: Flight) -> None:
        await asyncio.sleep(self.faults.latest_s * self.chance.share(f"{flight.name}/again"))
        for request_parts in flight.requests:
            if request_parts[0] in ("EVALSHA", "HSETNX") and not self._down():
                self._execute(flight, request_parts)

    def _execute_queued(self, flight: Flight, queued: list[tuple[Any, ...]]) -> Any:
        """A transaction: what is refused when it is queued keeps all of it from being executed."""
        replies: list[Any] = []
        for request_parts in queued:
            replies.append(self._execute(flight, request_parts))
            if request_parts[0] != "EVALSHA" and isinstance(replies[-1], ResponseError):
                return replies[-1]
        return replies

    def _execute(self, flight: Flight, request_parts: tuple[Any, ...]) -> Any:
        verb = verb_of(request_parts, self.server.verbs)
        special = self._special(flight, request_parts)
        if special is not None:
            return special
        name = self.chance.numbered(f"{flight.name}/{verb}")
        stops = request_parts[0] == "EVALSHA" and self.faults.cut_script > 0
        if stops and self._falls(flight, f"stopped {name}", self.faults.cut_script):
            call = self.chance.whole(f"{name}/at", 1, _MOST_CUT)
            reply, seen = self.server.cut(self.loop.now, request_parts, call), []
        else:
            look = self.looks(verb, request_parts)
            reply, *seen = self.server.at(self.loop.now, request_parts, *look)
        self.requests += 1
        # A server has the fields of a hash in an order of its own, new at each start, and what
        # it says of itself is not the same twice.
        stated = (
            sorted(reply)
            if request_parts[0] == "HGETALL"
            else reply
            if request_parts[0] != "INFO"
            else ""
        )
        # A worker registers what it has come across, in the words of its process.
        sent_sum = 0 if verb == "register" else self.server.sent_sum
        self.note(f"{flight.name} {verb} {crc32(repr(stated).encode(), sent_sum):08x}")
        cut = isinstance(reply, ResponseError) and ("cut" in str(reply) or self.server.denies)
        request_parts = with_bodies(flight.requests, request_parts)
        self.executed(verb, request_parts, reply, seen, cut=cut)
        self._wake(request_parts)
        return reply

    def _special(self, flight: Flight, request_parts: tuple[Any, ...]) -> Any:
        if request_parts[0] == "CLIENT" and request_parts[1] == "ID":
            return flight.line.number
        if request_parts[0] == "CLIENT" and request_parts[1] == "UNBLOCK":
            return self._unblock(request_parts[2])
        return None

    # -- clients that wait for a wake key ------------------------------------------------------

    async def _block(self, flight: Flight, request_parts: tuple[Any, ...]) -> Any:
        keys, seconds = request_parts[1:-1], float(request_parts[-1])
        found = self._pop(keys)
        if found:
            return found
        if not flight.line.open:
            return None
        blocked = _Blocked(flight.line, flight.process, keys, self.loop.create_future())
        self._blocked.append(blocked)
        try:
            async with asyncio.timeout(seconds):
                return await blocked.woken
        except TimeoutError:
            return None
        finally:
            if blocked in self._blocked:
                self._blocked.remove(blocked)

    def _pop(self, keys: Sequence[str]) -> list[Any] | None:
        """What BZPOPMIN answers at once: the first of the keys that has something."""
        (found,) = self.server.at(self.loop.now, ("ZMPOP", len(keys), *keys, "MIN"))
        return [found[0], *found[1][0]] if found else None

    def _wake(self, request_parts: tuple[Any, ...]) -> None:
        if not self._blocked or request_parts[0] != "EVALSHA":
            return
        touched = {key for key in request_parts[3 : 3 + request_parts[2]] if key.endswith(":wake")}
        for blocked in list(self._blocked):
            keys = [key for key in blocked.keys if key in touched]
            found = self._pop(keys) if keys else None
            if found:
                self._blocked.remove(blocked)
                blocked.woken.set_result(found)

    def _unblock(self, client_id: int) -> int:
        for blocked in self._blocked:
            if blocked.line.number == client_id:
                self._blocked.remove(blocked)
                blocked.woken.set_result(None)
                return 1
        return 0

    # -- chance --------------------------------------------------------------------------------

    def _falls(self, flight: Flight, what: str, rate: float) -> bool:
        if not self.chance.happens(f"{flight.name}/{what}", rate):
            return False
        self.note(f"{flight.name} {what}")
        return True

    async def _pass(self, name: str) -> None:
        ms = self.chance.one(name, LATENCIES_MS)
        if ms:
            await asyncio.sleep(ms / 1000)

    def _down(self) -> bool:
        return self.loop.now < self.down_until

    def restart(self, how: Callable[[], None], seconds: float) -> None:
        """The server goes away with all connections, and comes back."""
        how()
        self.down_until = self.loop.now + seconds
        for blocked in self._blocked:
            blocked.woken.set_result(None)
        self._blocked.clear()


class Connection:
    """What the store has of a line of the network."""

    def __init__(self, node: Any, line: Line, network: Network, process: Process) -> None:
        self.node = node
        self.client_id = 0
        self._line = line
        self._network = network
        self._process = process
        self._sent: deque[asyncio.Future[list[Any]]] = deque()

    async def exchange(self, requests: Requests, seconds: float) -> list[Any]:
        """Send requests and wait for as many replies. Raises TryAgain."""
        await self.send(requests, seconds)
        return await self.receive(len(requests), seconds)

    async def send(self, requests: Requests, _seconds: float) -> None:
        """Send requests, whose replies are received later."""
        self._sent.append(self._network.send(self._process, self._line, requests))

    async def receive(self, _count: int, seconds: float) -> list[Any]:
        """The replies to what was sent first. Raises TryAgain."""
        try:
            async with asyncio.timeout(seconds):
                return await self._sent.popleft()
        except (OSError, TimeoutError) as error:
            raise broken(self.node, error, sent=True) from error

    def close(self) -> None:
        """Close it."""
        self._line.close()


class SimulatedStore(Store):
    """The real store of a process, all of whose connections go through the network."""

    def __init__(self, network: Network, process: Process, url: RedisUrl, repeats_s: float) -> None:
        super().__init__(url, network.server.library, repeat_seconds=repeats_s)
        self.connect_seconds, self.reply_seconds = 1.0, 2.0
        self._network = network
        self._process = process
        self._name = f"{process.name}/connect"

    def _idle(self, node: Any) -> Any:
        down = self._network.loop.now < self._network.down_until
        return node.idle.pop() if node.idle and not down else None

    async def _open(self, node: Any) -> Any:
        network = self._network
        refused = network.chance.happens(
            network.chance.numbered(self._name), network.faults.refused
        )
        if refused or network.loop.now < network.down_until:
            await asyncio.sleep(0.001)
            raise broken(node, ConnectionRefusedError("refused"), sent=False)
        if not node.greeted:
            node.greeted, node.version, node.dialect = True, "7.0.15", Dialect.SHEBANG
        now_ms = START_MS + round(network.loop.now * 1000)
        self.clock.note(now_ms, network.loop.now)
        return Connection(node, network.connect(), network, self._process)


def store_of(network: Network, process: Process, url: RedisUrl, repeats_s: float) -> Store:
    """The real store of a process, on connections of the simulation."""
    return SimulatedStore(network, process, url, repeats_s)
