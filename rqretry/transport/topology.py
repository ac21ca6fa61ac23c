"""Which server to send a command to. No I/O.

The one there is, the primary that Sentinels name, or the node of a cluster that owns the slot of
the command's keys.

What is not known is asked by an inquiry, a generator that yields whom to ask what, and gets the
replies; the pools perform it. Nothing here repeats a command: an answer such as MOVED only changes
what is known, and the stores decide what to send again (reliability.md R8, R19).
"""

from collections.abc import Generator, Iterable, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import AskError, MovedError

from rqretry.core.errors import ConfigError, StoreUnavailable, show
from rqretry.core.redis_url import RedisUrl
from rqretry.protocol.command import Argument, Command, pairs, text
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.replies import ServerClock, TryAgain, Wire

L = TypeVar("L")

Question = tuple[RedisUrl, tuple[tuple[Argument, ...], ...]]
"""Which server to ask, and the requests."""
Inquiry = Generator[Question, list[Any] | Exception, None]
"""Yields questions; gets the replies (errors of the server among them), or why there are none."""

_KEYLESS = frozenset(
    {"PING", "INFO", "TIME", "SCAN", "KEYS", "ACL", "COMMAND", "CLIENT", "SCRIPT", "CLUSTER"}
)
_KEY_AT = {"EVAL": 3, "MEMORY": 2}


class Node(Generic[L]):
    """One server: what was learnt about it, and its idle connections.

    Attributes:
        url: Where it is, with user, password and options.
        wire: Spells commands for it; knows which scripts it has.
        clock: Its time.
        idle: Open connections that nobody uses.
        greeted: Whether it told its version and time.
        version: What it told, such as "7.0.15"; "" before that.
        trouble: Why calls to it fail at the moment; None while they succeed.
    """

    def __init__(self, url: RedisUrl, library: ScriptLibrary) -> None:
        self.url = url
        self.wire = Wire(library, url.place)
        if url.tls:  # a server without TLS says nothing to a handshake
            self.wire.hint = "; if it has no TLS, begin the URL with redis://"
        self.clock = ServerClock()
        self.idle: list[L] = []
        self.greeted = False
        self.version = ""
        self.trouble: str | None = None


class Topology(Generic[L]):
    """One server, always the same; the base of the others.

    Attributes:
        spread: Whether two keys may be on two servers.
        stale: Whether an inquiry is needed before the next call.
        checks_role: Whether each new connection must be to a primary.
        nodes: The servers in use.
    """

    spread = False
    checks_role = False

    def __init__(self, url: RedisUrl, library: ScriptLibrary) -> None:
        self.url = url
        self.scripts = library
        self.nodes: dict[RedisUrl, Node[L]] = {}
        self.stale = False
        if url.kind == "single":
            self._node(url)

    def node(self, key: str | None) -> Node[L]:
        """The server that has a key; for None, any that works. Raises TryAgain."""
        del key
        return next(iter(self.nodes.values()))

    def inquire(self) -> Inquiry:
        """Find out what `node` needs to know. Raises TryAgain, ConfigError."""
        self.stale = False
        yield from ()

    def suspect(self, node: Node[L]) -> None:
        """A call to this server failed: what is known may be outdated."""

    def redirected(self, node: Node[L], said: AskError) -> Node[L] | None:
        """Learn from MOVED or ASK. The server to ask just this once, or None: ask `node` again."""
        del node, said
        return None

    def retired(self) -> list[Node[L]]:
        """Servers that are not in use any more; their connections are to be closed."""
        return []

    def _node(self, url: RedisUrl) -> Node[L]:
        if url not in self.nodes:
            self.nodes[url] = Node(url, self.scripts)
        return self.nodes[url]

    def _keep(self, urls: Iterable[RedisUrl]) -> None:
        """Use exactly these servers from now on."""
        wanted = list(urls)
        self._gone = [node for url, node in self.nodes.items() if url not in wanted]
        self.nodes = {url: self._node(url) for url in wanted}


class SentinelTopology(Topology[L]):
    """The primary that Sentinels name.

    A majority of the Sentinels is asked where it can be, and the answer of the newest
    configuration counts: a Sentinel that was cut off still names the old primary.
    """

    checks_role = True

    def __init__(self, url: RedisUrl, library: ScriptLibrary) -> None:
        super().__init__(url, library)
        self.stale = True
        self._gone: list[Node[L]] = []
        self._seeds = list(url.seeds())

    def node(self, key: str | None) -> Node[L]:
        """The primary."""
        if self.stale or not self.nodes:
            raise TryAgain(self._unknown("was not found yet"), sent=False)
        return super().node(key)

    def suspect(self, node: Node[L]) -> None:
        """The primary may be another one."""
        if node.url in self.nodes:
            self.stale = True

    def inquire(self) -> Inquiry:
        """Ask the Sentinels."""
        service = self.url.service
        requests = (
            ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service),
            ("SENTINEL", "MASTER", service),
        )
        votes: list[tuple[int, str, int]] = []
        answered = 0
        for seed in list(self._seeds):
            replies = yield seed, requests
            if isinstance(replies, Exception):
                self._seeds.append(self._seeds.pop(self._seeds.index(seed)))  # the last to ask
                continue
            answered += 1
            if isinstance(replies[0], list) and isinstance(replies[1], list):
                epoch = int(pairs(replies[1]).get("config-epoch", "0"))
                votes.append((epoch, text(replies[0][0]), int(replies[0][1])))
            if len(votes) > len(self._seeds) // 2:
                break
        if not votes:
            if answered:
                raise ConfigError(
                    f"the Sentinels at {self.url.place} know no service {show(service)}: check the"
                    " name after the hosts in the Redis URL"
                )
            raise TryAgain(
                StoreUnavailable(f"no Sentinel at {self.url.place} can be reached"), sent=False
            )
        _, host, port = max(votes)
        self._keep([self.url.at(host, port)])
        self.stale = False

    def retired(self) -> list[Node[L]]:
        """The primary before this one."""
        gone, self._gone = self._gone, []
        return gone

    def _unknown(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(f"the primary of {self.url.service} at {self.url.place} {why}")


class ClusterTopology(Topology[L]):
    """The primaries of a cluster, and which slots each of them owns."""

    spread = True

    def __init__(self, url: RedisUrl, library: ScriptLibrary) -> None:
        super().__init__(url, library)
        self.stale = True
        self._gone: list[Node[L]] = []
        self._slots: list[RedisUrl | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._replicas: list[RedisUrl] = []
        self._suspects: set[RedisUrl] = set()

    def node(self, key: str | None) -> Node[L]:
        """The owner of the key's slot."""
        if key is None:
            for node in sorted(self.nodes.values(), key=lambda node: node.trouble is not None):
                return node
            raise TryAgain(self._down("no node of it was found yet"), sent=False)
        slot = slot_of(key)
        url = self._slots[slot]
        if url is None:
            self.stale = True
            raise TryAgain(self._down(f"nobody serves slot {slot}"), sent=False)
        return self._node(url)

    def suspect(self, node: Node[L]) -> None:
        """The owners may be others."""
        self._suspects.add(node.url)
        self.stale = True

    def inquire(self) -> Inquiry:
        """Ask one node after another for the slots; a suspect, which may be cut off, last."""
        known = [*self.nodes, *self._replicas, *self.url.seeds()]
        candidates = sorted(dict.fromkeys(known), key=lambda url: url in self._suspects)
        for url in candidates:
            replies = yield url, (("CLUSTER", "SLOTS"),)
            if isinstance(replies, Exception):
                continue
            if isinstance(replies[0], Exception):
                if "cluster support disabled" in str(replies[0]):
                    raise ConfigError(
                        f"Redis at {url.place} is no node of a cluster: begin the URL with"
                        f" {'rediss' if url.tls else 'redis'}://"
                    )
                continue
            if replies[0]:
                self._learn(replies[0], url)
                return
        raise TryAgain(self._down("none of its nodes can be reached"), sent=False)

    def redirected(self, node: Node[L], said: AskError) -> Node[L] | None:
        """MOVED names the new owner of a slot for good, ASK for one request."""
        host = str(said.host).strip("[]") or node.url.host  # empty: the host that answered
        url = self.url.at(host, int(said.port))
        if not isinstance(said, MovedError):
            return self._node(url)
        self._slots[int(said.slot_id)] = url
        self._node(url)
        self.stale = True  # where one slot moved, others may have
        return None

    def retired(self) -> list[Node[L]]:
        """Nodes that own no slot any more."""
        gone, self._gone = self._gone, []
        return gone

    def _learn(self, ranges: Sequence[Any], asked: RedisUrl) -> None:
        slots: list[RedisUrl | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        replicas: list[RedisUrl] = []
        for first, last, primary, *others in ranges:
            url = self._at(primary, asked)
            slots[first : last + 1] = [url] * (last + 1 - first)
            replicas += [self._at(other, asked) for other in others]
        self._slots, self._replicas = slots, list(dict.fromkeys(replicas))
        self._suspects.clear()
        self._keep(dict.fromkeys(url for url in slots if url is not None))
        self.stale = False

    def _at(self, described: Sequence[Any], asked: RedisUrl) -> RedisUrl:
        # A node that does not know its own address answers none: it is where we asked.
        host = text(described[0]) if described[0] not in (None, b"", b"?") else asked.host
        return self.url.at(host, int(described[1]))

    def _down(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(f"the cluster at {self.url.place} cannot serve this: {why}")


def topology_of(url: RedisUrl, library: ScriptLibrary) -> Topology[Any]:
    """The topology that a URL names."""
    kinds: dict[str, type[Topology[Any]]] = {
        "single": Topology,
        "sentinel": SentinelTopology,
        "cluster": ClusterTopology,
    }
    return kinds[url.kind](url, library)


def key_of(command: Command[Any]) -> str | None:
    """A key of the command, all of which are in one slot; None where it has none."""
    if command.keys:
        return command.keys[0]
    name = (
        text(command.arguments[0])
        if isinstance(command.arguments[0], bytes)
        else str(command.arguments[0])
    )
    if name in _KEYLESS:
        return None
    key = command.arguments[_KEY_AT.get(name, 1)]
    return text(key) if isinstance(key, bytes) else str(key)


@lru_cache(maxsize=65_536)
def slot_of(key: str) -> int:
    """The slot of a key."""
    return key_slot(key.encode())
