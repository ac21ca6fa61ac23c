"""What a new connection is asked before it is used: is this a server we can work with? No I/O."""

import time
from collections.abc import Sequence
from typing import Any

from rqretry.core.errors import StoreUnavailable, UnsafeServer
from rqretry.protocol.command import Command
from rqretry.transport.connection import read_info
from rqretry.transport.replies import (
    Requests,
    ServerClock,
    TryAgain,
    dialect_of,
    is_error,
    supported,
)
from rqretry.transport.topology import Node, Topology


class Greeting:
    """The greeting of one connection: `requests` to send, and what their replies mean."""

    def __init__(self, topology: Topology[Any], node: Node[Any], clock: ServerClock) -> None:
        self.requests: Requests = []
        if not node.greeted:
            self.requests += [("INFO", "server"), ("TIME",)]
        if topology.checks_role:
            self.requests.append(("INFO", "replication"))
        self._node = node
        self._clock = clock
        self._checks_role = topology.checks_role
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
                raise node.wire.meaning(Command("INFO", (), (), bytes, arguments=("INFO",)), reply)
        if not node.greeted:
            info, now = read_info(left.pop(0)), left.pop(0)
            version = info.get("redis_version", "")
            if not supported(version):
                raise UnsafeServer(
                    f"Redis at {node.url.place} is version {version}; rqretry needs 6.2 or newer"
                )
            node.version = version
            node.wire.dialect = dialect_of(version)
            for clock in (node.clock, self._clock):
                clock.note(int(now[0]) * 1000 + int(now[1]) // 1000, self._sent_at)
            node.greeted = True
        if self._checks_role and read_info(left.pop(0)).get("role") != "master":
            replica = f"Redis at {node.url.place} is a replica: a failover may be under way"
            raise TryAgain(StoreUnavailable(replica), sent=False)
