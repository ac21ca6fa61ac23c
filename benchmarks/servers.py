"""A private Redis server for one measurement, and what it says about itself."""

import contextlib
import socket
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import redis

from rqretry.testing.embedded_redis import EmbeddedRedis

MICROSECONDS = 1_000_000
_HIGHEST_PORT = 55_535
"""Of a node of a cluster, whose bus listens 10,000 above it."""
_SENT = ("cmdstat_evalsha", "cmdstat_script", "cmdstat_bzpopmin", "cmdstat_client", "cmdstat_ping")


class Server:
    """One private server on a loopback port, without persistence unless asked for.

    Args:
        fsync: "everysec" or "always" for an append-only file; "" for none.
        extra: More arguments for the server.
    """

    def __init__(self, fsync: str = "", extra: Sequence[str] = ()) -> None:
        self.port = free_port()
        self._embedded = EmbeddedRedis(
            appendonly=bool(fsync), appendfsync=fsync or "no", port=self.port, extra=extra
        )
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._client: Any = None

    def __enter__(self) -> Self:
        self._embedded.start()
        self._client = redis.Redis(port=self.port)  # noqa: TID251 - it measures, from outside
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()
        self._embedded.stop()

    @property
    def version(self) -> str:
        """The server's version."""
        return self._embedded.version

    @property
    def client(self) -> Any:
        """A plain redis-py client, for looking from outside."""
        return self._client

    def cpu_s(self) -> float:
        """CPU seconds that the server has used."""
        info = self._client.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def requests(self) -> int:
        """How many scripts and other commands clients sent; what scripts call is not counted."""
        stats = self._client.info("commandstats")
        names = [name for name in stats if name.startswith(_SENT)]
        return sum(int(stats[name]["calls"]) for name in names)

    def executed(self) -> int:
        """How many commands it has executed, also those that scripts call."""
        return int(self._client.info("stats")["total_commands_processed"])

    def connections(self) -> int:
        """How many connections it has accepted."""
        return int(self._client.info("stats")["total_connections_received"])

    def memory(self) -> int:
        """Bytes of data in memory."""
        return int(self._client.info("memory")["used_memory"])

    def forget_slow(self) -> None:
        """Start a new slow log, of everything over a millisecond."""
        self._client.config_set("slowlog-log-slower-than", 1000)
        self._client.config_set("slowlog-max-len", 10_000)
        self._client.slowlog_reset()

    def slowest_ms(self) -> float:
        """The longest command since `forget_slow`; 1 where none took longer."""
        entries = self._client.slowlog_get(10_000)
        return max((entry["duration"] for entry in entries), default=1000) / 1000


def sent_within(servers: Sequence[Server], seconds: float) -> int:
    """How many commands clients send to servers in this time; one connection to each watches."""
    with contextlib.ExitStack() as watching:
        sockets = [socket.create_connection(("127.0.0.1", server.port)) for server in servers]
        for each in sockets:
            watching.enter_context(each)
            each.sendall(b"MONITOR\r\n")
        time.sleep(seconds)
        for each in sockets:
            each.shutdown(socket.SHUT_WR)  # the server sends what it has, and hangs up
        lines = [line for each in sockets for line in each.makefile("rb")]
    return sum(b" lua] " not in line for line in lines) - len(servers)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on, with one for a cluster's bus."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port <= _HIGHEST_PORT:
            return port
