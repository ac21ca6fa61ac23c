"""Who has which keys: the primary that Sentinels name, or the nodes of a cluster. No I/O.

What is not known is asked by an inquiry, a generator that yields whom to ask what, and receives the
replies. Nothing here repeats a command: an answer such as MOVED only changes what is known, and
the session decides what to send again.
"""

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import MovedError

from rqretry.core.durability import server_name
from rqretry.core.errors import ConfigError, StoreUnavailable, UnsafeServer, show
from rqretry.core.redis_url import RedisUrl
from rqretry.protocol.command import pairs, text
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.connection import read_info
from rqretry.transport.node import Ask, Inquiry, Node, Requests, Topology, dialect_of, supported
from rqretry.transport.replies import GREETING, TryAgain, is_error, meaning, no_redis


class SentinelTopology(Topology):
    """The primary that Sentinels name.

    A majority of the Sentinels is asked where it can be, and the answer of the newest
    configuration counts: a Sentinel that was cut off still names the old primary.
    """

    checks_role = True

    def __init__(self, url: RedisUrl, scripts: ScriptLibrary) -> None:
        super().__init__(url, scripts)
        self.stale = True
        self._seeds = list(url.seeds())

    def node(self, key: str | None) -> Node:
        """The primary."""
        if self.stale or not self.nodes:
            raise TryAgain(self._unknown("was not found yet"), sent=False)
        return super().node(key)

    def suspect(self, node: Node) -> None:
        """The primary may be another one."""
        if node.url in self.nodes:
            self.stale = True

    def inquire(self) -> Inquiry:
        """Ask the Sentinels."""
        service = self.url.service
        requests: Requests = [
            ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service),
            ("SENTINEL", "MASTER", service),
        ]
        votes: list[tuple[int, str, int]] = []
        answered = 0
        for seed in list(self._seeds):
            replies = yield Ask(seed, requests)
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
                    f"the Sentinels at {self.url.address} know no service {show(service)}: check"
                    " the name after the hosts in the Redis URL"
                )
            raise TryAgain(
                StoreUnavailable(f"no Sentinel at {self.url.address} can be reached"), sent=False
            )
        _, host, port = max(votes)
        self._keep([self.url.at(host, port)])
        self.stale = False

    def _unknown(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(f"the primary of {self.url.service} at {self.url.address} {why}")


class ClusterTopology(Topology):
    """The primaries of a cluster, and which slots each of them owns."""

    spread = True

    def __init__(self, url: RedisUrl, scripts: ScriptLibrary) -> None:
        super().__init__(url, scripts)
        self.stale = True
        self._slots: list[RedisUrl | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._replicas: list[RedisUrl] = []
        self._suspects: set[RedisUrl] = set()

    def node(self, key: str | None) -> Node:
        """The owner of the key's slot."""
        if key is None:
            for node in sorted(self.nodes.values(), key=lambda node: node.fault is not None):
                return node
            raise TryAgain(self._down("no node of it was found yet"), sent=False)
        slot = slot_of(key)
        url = self._slots[slot]
        if url is None:
            self.stale = True
            raise TryAgain(self._down(f"nobody serves slot {slot}"), sent=False)
        return self._node(url)

    def suspect(self, node: Node) -> None:
        """The owners may be others."""
        self._suspects.add(node.url)
        self.stale = True

    def inquire(self) -> Inquiry:
        """Ask one node after another for the slots; a suspect, which may be cut off, last."""
        known = [*self.nodes, *self._replicas, *self.url.seeds()]
        candidates = sorted(dict.fromkeys(known), key=lambda url: url in self._suspects)
        for url in candidates:
            replies = yield Ask(url, [("CLUSTER", "SLOTS")])
            if isinstance(replies, Exception):
                continue
            if isinstance(replies[0], Exception):
                if "cluster support disabled" in str(replies[0]):
                    raise ConfigError(
                        f"Redis at {url.address} is not a node of a cluster: begin the URL with"
                        f" {'rediss' if url.tls else 'redis'}://"
                    )
                continue
            if replies[0]:
                self._learn(replies[0], url)
                return
        raise TryAgain(self._down("none of its nodes can be reached"), sent=False)

    def redirected(self, node: Node, error: Any) -> Node | None:
        """MOVED names the new owner of a slot for good, ASK for one request."""
        host = str(error.host).strip("[]") or node.url.host  # empty: the host that answered
        url = self.url.at(host, int(error.port))
        if not isinstance(error, MovedError):
            return self._node(url)
        self._slots[int(error.slot_id)] = url
        self._node(url)
        self.stale = True  # where one slot moved, others may have
        return None

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
        return StoreUnavailable(f"the cluster at {self.url.address} cannot serve this: {why}")


def topology_of(url: RedisUrl, scripts: ScriptLibrary) -> Topology:
    """The topology that a URL names."""
    classes: dict[str, type[Topology]] = {
        "single": Topology,
        "sentinel": SentinelTopology,
        "cluster": ClusterTopology,
    }
    return classes[url.deployment](url, scripts)


class Handshake:
    """What a new connection is asked before it is used: is this a server we can work with?

    Attributes:
        requests: What to send; often nothing.
    """

    def __init__(
        self, topology: Topology, node: Node, on_time: Callable[[Node, int, float], None]
    ) -> None:
        self.requests: Requests = []
        if not node.greeted:
            self.requests += [("INFO", "server"), ("TIME",)]
        if topology.checks_role:
            self.requests.append(("INFO", "replication"))
        self._node = node
        self._checks_role = topology.checks_role
        self._on_time = on_time
        self._sent_at = time.monotonic()

    def read(self, replies: Sequence[Any]) -> None:
        """Learn from the replies.

        Raises:
            TryAgain: It is a replica (the Sentinels may not know yet), or cannot answer now.
            UnsafeServer: It is too old.
            ConfigError: It refuses to answer.
        """
        node, left = self._node, list(replies)
        for reply in left:
            if is_error(reply):
                raise meaning(node, GREETING, reply)
        if not node.greeted:
            greeting = left.pop(0)
            info = read_info(greeting) if isinstance(greeting, bytes) else {}
            version = info.get("redis_version", "")
            if not version or not isinstance(left[0], list):
                raise no_redis(node, text(greeting))
            if not supported(version):
                raise UnsafeServer(
                    f"Redis at {node.address} is version {version}; rqretry needs 6.2 or newer"
                )
            node.server, node.dialect = server_name(info), dialect_of(version)
            seconds, micros = left.pop(0)
            self._on_time(node, int(seconds) * 1000 + int(micros) // 1000, self._sent_at)
            node.greeted = True
        if self._checks_role and read_info(left.pop(0)).get("role") != "master":
            replica = f"Redis at {node.address} is a replica: a failover may be under way"
            raise TryAgain(StoreUnavailable(replica), sent=False)


@lru_cache(maxsize=65_536)
def slot_of(key: str) -> int:
    """The slot of a key."""
    return key_slot(key.encode())
