"""The servers in use, and what a session asks of its driver. No I/O.

A procedure of a session is a generator. It yields one of the effects below whenever something has
to be sent, waited for or closed; a driver, asyncio or blocking, does that and sends the outcome in.
"""

import re
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from rqretry.core.durability import evicts
from rqretry.core.errors import UnsafeServer
from rqretry.core.redis_url import RedisUrl
from rqretry.protocol.command import Argument, Command, text
from rqretry.protocol.scripts import Dialect, ScriptLibrary
from rqretry.transport.connection import read_info

T = TypeVar("T")

Requests = list[tuple[Argument, ...]]
"""Requests to send in one round trip, each as its arguments."""

CONNECT_SECONDS = 5.0
"""How long connecting to a server takes at most, where the URL does not say."""
REPLY_SECONDS = 10.0
"""How long one attempt waits for its reply."""
ASK_SECONDS = 2.0
"""How long one server has to say who holds what; then another one is asked."""
BLOCK_MARGIN_SECONDS = 5.0
"""How much later than its own time-out a blocking command may answer."""
LOOK_EVERY_S = 10.0
"""How often servers are asked whether they evict by now; so it is noticed within 15 s."""
LOOK_AGAIN_S = 1.0
"""The same while one of them does."""

GROWING = frozenset({"publish", "publish_with_options", "catch_up", "replay", "prepare", "enlist"})
"""Scripts that take new work; a full server refuses them, all others drain it."""
_KEYLESS = frozenset(
    {"PING", "INFO", "TIME", "SCAN", "KEYS", "ACL", "COMMAND", "CLIENT", "SCRIPT", "CLUSTER"}
)
_KEY_AT = {"EVAL": 3, "MEMORY": 2}


class Node:
    """One server: what was learnt about it, and its idle connections.

    Attributes:
        url: Where it is, with user, password and options.
        address: The same for errors, without them.
        scripts: The scripts that it runs.
        hint: What may be wrong where it cannot be connected to in time.
        dialect: How it learns about the flags of scripts.
        loaded: The scripts that it was sent.
        shas: By the name of a script, the dialect and the hash it is called by.
        idle: Open connections that nobody uses.
        greeted: Whether it has reported its version and time.
        used: Whether it was called since it was last asked whether it evicts.
        server: Such as "Redis 7.0.15" or "Valkey 8.0.1"; "" before that.
        fault: Why calls to it fail at the moment; None while they succeed.
        retired: Whether it is not in use any more.
    """

    def __init__(self, url: RedisUrl, scripts: ScriptLibrary) -> None:
        self.url = url
        self.address = url.address
        self.scripts = scripts
        # A server without TLS says nothing to a handshake.
        self.hint = "; if it has no TLS, begin the URL with redis://" if url.tls else ""
        self.dialect = Dialect.SHEBANG
        self.loaded: set[str] = set()
        self.shas: dict[str, tuple[Dialect, str]] = {}
        self.idle: list[Any] = []
        self.greeted = self.used = False
        self.server = ""
        self.fault: str | None = None
        self.retired = False


class Topology:
    """One server, always the same; the base of the others.

    Attributes:
        spread: Whether two keys may be on two servers.
        stale: Whether an inquiry is needed before the next call.
        checks_role: Whether each new connection must be to a primary.
        nodes: The servers in use.
    """

    spread = False
    checks_role = False

    def __init__(self, url: RedisUrl, scripts: ScriptLibrary) -> None:
        self.url = url
        self.scripts = scripts
        self.nodes: dict[RedisUrl, Node] = {}
        self.stale = False
        self._gone: list[Node] = []
        if url.deployment == "single":
            self._node(url)

    def node(self, key: str | None) -> Node:
        """The server that has a key; for None, any that works. Raises TryAgain."""
        del key
        return next(iter(self.nodes.values()))

    def inquire(self) -> "Inquiry":
        """Find out what `node` needs to know. Raises TryAgain, ConfigError."""
        self.stale = False
        yield from ()

    def suspect(self, node: Node) -> None:
        """A call to this server failed: what is known may be outdated."""

    def redirected(self, node: Node, error: Any) -> Node | None:
        """Learn from MOVED or ASK. The server to ask just this once, or None: ask `node` again."""
        del node, error
        return None

    def retired(self) -> list[Node]:
        """Servers that are not in use any more; their connections are to be closed."""
        gone, self._gone = self._gone, []
        return gone

    def _node(self, url: RedisUrl) -> Node:
        if url not in self.nodes:
            self.nodes[url] = Node(url, self.scripts)
        return self.nodes[url]

    def _keep(self, urls: Iterable[RedisUrl]) -> None:
        """Use exactly these servers from now on."""
        wanted = list(urls)
        self._gone = [node for url, node in self.nodes.items() if url not in wanted]
        for node in self._gone:
            node.retired = True
        self.nodes = {url: self._node(url) for url in wanted}


Notify = Callable[[], None] | None
"""What is called when calls begin to fail, or succeed again."""


class Faults:
    """Why calls fail at the moment.

    Attributes:
        everywhere: Why no server can be used at all; None: one can.
    """

    def __init__(self, topology: Topology, notify: Notify = None) -> None:
        self._topology = topology
        self.everywhere: str | None = None
        self._notify = notify or (lambda: None)

    @property
    def now(self) -> str | None:
        """Why calls fail; None while they succeed."""
        faults = (node.fault for node in self._topology.nodes.values() if node.fault)
        return next(faults, self.everywhere)

    def note(self, node: Node, fault: str | None) -> None:
        """Why calls to a server fail; None: they do not."""
        if fault != node.fault:
            before, node.fault = self.now, fault
            self._compare(before)

    def lose(self, fault: str | None) -> None:
        """Why no server can be used at all; None: one can."""
        if fault != self.everywhere:
            before, self.everywhere = self.now, fault
            self._compare(before)

    def _compare(self, before: str | None) -> None:
        if self.now != before:
            self._notify()


class RoundTrip(NamedTuple):
    """Send requests to a server, and read as many replies, on a connection from the pool.

    The outcome is the list of replies, errors of the server among them. Raises TryAgain,
    ConfigError and UnsafeServer, as do the others.
    """

    node: Node
    requests: Requests
    seconds: float | None = None
    """How long to wait for the replies, where that is not as long as for any other."""


class Together(NamedTuple):
    """Round trips to several servers at once; the outcome has what came of each, or its error.

    What to send is asked for when a connection is open: the server's version decides over it.
    """

    trips: Sequence[tuple[Node, Callable[[], Requests]]]


class Acquire(NamedTuple):
    """Take a connection, to be released or closed; the outcome is the connection."""

    node: Node


class Send(NamedTuple):
    """Send requests, whose replies are received later; nothing else may come in between."""

    connection: Any
    requests: Requests


class Receive(NamedTuple):
    """Read replies to what was sent; the outcome is their list."""

    connection: Any
    most: int
    seconds: float | None = None
    """How long to wait for them, where that is not as long as for any other."""


class Release(NamedTuple):
    """Give a connection back."""

    connection: Any


class Close(NamedTuple):
    """Close a connection; what was sent on it is left to the server."""

    connection: Any


class Drop(NamedTuple):
    """Close the idle connections to a server."""

    node: Node


class Sleep(NamedTuple):
    """Wait."""

    seconds: float


class Locate(NamedTuple):
    """Perform the session's inquiry, unless another caller has done so meanwhile."""


class Ask(NamedTuple):
    """Ask a server for what it knows, on a connection of its own.

    The outcome is the list of replies, or the TryAgain that says why there are none.
    """

    url: RedisUrl
    requests: Requests


class Watch(NamedTuple):
    """Wait for wake keys of several servers.

    The outcome is the set of keys that were set, or whose servers could not be asked.
    """

    keys: Sequence[str]
    seconds: float


RareEffect = (
    Together | Acquire | Send | Receive | Release | Close | Drop | Sleep | Locate | Ask | Watch
)
Effect = RoundTrip | RareEffect
Procedure = Generator[Effect, Any, T]
"""Yields effects, receives their outcomes, and returns a T."""
Inquiry = Generator[Ask, Any, None]


class EvictionWatch:
    """Whether a server throws messages away: who publishes or works on it asks for that.

    Its settings may change at any time (docs/decisions/0044).

    Attributes:
        fault: What was found the last time; None for nothing.
        ask_at: Until then nothing is wrong; monotonic time.
    """

    def __init__(self, topology: Topology, notify: Notify = None) -> None:
        self.fault: str | None = None
        self.ask_at = 0.0
        self._topology = topology
        self._notify = notify or (lambda: None)
        self._asked_at = -LOOK_EVERY_S

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong, and that was found lately."""
        return time.monotonic() < self.ask_at

    def look(self, *, used: bool = False) -> Procedure[None]:
        """Ask each server (`used`: that was called since), if that was not done lately.

        Raises TryAgain.
        """
        every, now = LOOK_AGAIN_S if self.fault else LOOK_EVERY_S, time.monotonic()
        if now < self._asked_at + every:
            return
        known = self._topology.nodes.values()
        nodes = [node for node in known if node.used or self.fault or not used]
        answers = yield Together([(node, lambda: [("INFO", "memory")]) for node in nodes])
        found = None
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, Exception):
                raise answer
            node.used = False
            found = _evicting(node, answer[0]) or found
        self._note(found, now, now + LOOK_EVERY_S if len(nodes) == len(known) else 0.0)

    def hear(self, memory: Any) -> None:
        """What the one server answered to INFO memory just now."""
        (node,), now = self._topology.nodes.values(), time.monotonic()
        self._note(_evicting(node, memory), now, now + LOOK_EVERY_S)

    def _note(self, found: str | None, now: float, sound_until: float) -> None:
        before, self.fault, self._asked_at = self.fault, found, now
        self.ask_at = 0.0 if found else sound_until
        if found != before:
            self._notify()

    def admit(self) -> Procedure[None]:
        """Before something is published. Raises UnsafeServer, TryAgain."""
        if not self.sound:
            yield from self.look()
            if self.fault is not None:
                raise UnsafeServer(f"{self.fault}; nothing was stored")

    def admit_all(self, calls: Iterable[Any]) -> Procedure[None]:
        """The same before calls of any kind: those that publish end with the error. TryAgain."""
        for call in calls:
            if call.open and call.command.verb in GROWING:
                try:
                    yield from self.admit()
                except UnsafeServer as error:
                    call.fail(error)


def _evicting(node: Node, memory: Any) -> str | None:
    fault = evicts(read_info(memory)) if isinstance(memory, bytes) else None
    return f"Redis at {node.address} {fault}: set it to noeviction" if fault else None


def key_of(command: Command[Any]) -> str | None:
    """A key of the command, all of which are in one slot; None if it has none."""
    if command.keys:
        return command.keys[0]
    name = text(command.arguments[0])
    return None if name in _KEYLESS else text(command.arguments[_KEY_AT.get(name, 1)])


def dialect_of(version: str) -> Dialect:
    """Redis 7.0 and Valkey know a script's flags."""
    return Dialect.SHEBANG if _parsed(version) >= (7, 0) else Dialect.LEGACY


def supported(version: str) -> bool:
    """Redis 6.2 is the oldest server with what the scripts use."""
    return _parsed(version) >= (6, 2)


def _parsed(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
