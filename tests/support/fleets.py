"""Several real servers that belong together: a Redis Cluster, and Sentinels with their servers."""

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import redis
from redis.crc import key_slot

from rqretry.testing.embedded_redis import EmbeddedRedis, find_server
from tests.support.servers import free_port

PATIENCE_S = 20.0
NODE_TIMEOUT_MS = 1000
SERVICE = "mymaster"
SLOTS = 16384


class Server:
    """One server of a fleet."""

    def __init__(self, *extra: str, binary: Path | None = None, appendonly: bool = False) -> None:
        self.port = free_port()
        self.embedded = EmbeddedRedis(binary, port=self.port, appendonly=appendonly, extra=extra)
        self.embedded.start()

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    def client(self, **options: Any) -> Any:
        """A client of this server alone; close it."""
        path = str(self.embedded.socket_path)
        return redis.Redis(unix_socket_path=path, protocol=2, **options)

    def call(self, *request_parts: Any, **options: Any) -> Any:
        """One command."""
        with contextlib.closing(self.client(**options)) as client:
            client.response_callbacks.clear()
            return client.execute_command(*request_parts)

    def info(self, section: str) -> dict[str, str]:
        """The fields of an INFO section."""
        lines = self.call("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)


class Fleet:
    """Servers that are started together and end together."""

    def __init__(self) -> None:
        self.servers: list[Server] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.embedded.stop()


class Cluster(Fleet):
    """Primaries with the slots divided evenly, and as many replicas of the first ones as told."""

    def __init__(
        self, primaries: int = 3, replicas: int = 0, *, binary: Path | None = None
    ) -> None:
        super().__init__()
        extra = (
            "--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS),
            "--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0",
            "--repl-diskless-sync-delay", "0",
        )  # fmt: skip
        try:
            self.servers = [Server(*extra, binary=binary) for _ in range(primaries + replicas)]
            self.primaries = self.servers[:primaries]
            self._form(primaries)
        except BaseException:
            self.__exit__()
            raise

    @property
    def url(self) -> str:
        """The URL of it, naming three nodes at most."""
        return "redis+cluster://" + ",".join(s.address for s in self.servers[:3])

    def server_of(self, key: str) -> Server:
        """The primary that has a key."""
        slot, server = key_slot(key.encode()), self.servers[0]
        for first, last, (_, port, *_), *_ in server.call("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(s for s in self.servers if s.port == port)
        raise AssertionError(f"nobody has slot {slot}")

    def move(self, slot: int, target: Server, between: Callable[[], None] = lambda: None) -> int:
        """Move a slot as redis-cli does, key by key; `between` is called after each key."""
        source = next(s for s in self.servers if self._owns(s, slot))
        source_id, target_id = (s.call("CLUSTER", "MYID").decode() for s in (source, target))
        target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        moved = 0
        while keys := source.call("CLUSTER", "GETKEYSINSLOT", slot, 1):
            source.call("MIGRATE", "127.0.0.1", target.port, keys[0], 0, 5000)
            moved += 1
            between()
        for server in (target, source, *self.servers):
            with contextlib.suppress(redis.ResponseError):  # a replica has no say
                server.call("CLUSTER", "SETSLOT", slot, "NODE", target_id)
        return moved

    def flush(self) -> None:
        """Forget all data."""
        for server in self.servers:
            if server.info("replication")["role"] == "master":
                server.call("FLUSHALL")

    def _owns(self, server: Server, slot: int) -> bool:
        my_id = server.call("CLUSTER", "MYID")
        for first, last, primary, *_ in server.call("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return bool(primary[2] == my_id)
        return False

    def _form(self, primaries: int) -> None:
        per = -(-SLOTS // primaries)
        for number, server in enumerate(self.primaries):
            slots = range(number * per, min(SLOTS, (number + 1) * per))
            server.call("CLUSTER", "ADDSLOTS", *slots)
            server.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server in self.servers[1:]:
            server.call("CLUSTER", "MEET", "127.0.0.1", self.servers[0].port)
        count = len(self.servers)
        until(lambda: all(self._knows(s, count) for s in self.servers))
        for number, replica in enumerate(self.servers[primaries:]):
            replica.call("CLUSTER", "REPLICATE", self.servers[number].call("CLUSTER", "MYID"))
        until(lambda: all(b"cluster_state:ok" in s.call("CLUSTER", "INFO") for s in self.servers))
        until(lambda: all(map(_follows, self.servers[primaries:])))

    def _knows(self, server: Server, count: int) -> bool:
        lines = server.call("CLUSTER", "NODES").decode().splitlines()
        return len(lines) == count and all("handshake" not in line for line in lines)


class SentinelFleet(Fleet):
    """A primary, a replica of it, and three Sentinels that watch them.

    Args:
        password, sentinel_password: Of the servers and of the Sentinels; "" for none.
        quick: Milliseconds of silence after which a Sentinel takes a server for gone.
        between_ms: Their failover-timeout: after a failover they begin no other one for twice that.
        binary: What servers and Sentinels run; default the server of this machine.
    """

    def __init__(
        self,
        *,
        binary: Path | None = None,
        password: str = "",
        sentinel_password: str = "",
        quick: int = 500,
        between_ms: int = 5000,
    ) -> None:
        super().__init__()
        self.sentinels: list[subprocess.Popen[bytes]] = []
        self.sentinel_ports: list[int] = []
        self._directory = tempfile.TemporaryDirectory(prefix="rqretry-sentinel-")
        self._password, self._sentinel_password = password, sentinel_password
        self._between_ms = between_ms
        self._binary = binary or find_server()
        extra = ("--repl-diskless-sync-delay", "0")
        try:
            self.servers = [Server(*extra, binary=binary, appendonly=True) for _ in range(2)]
            for server in self.servers if password else ():  # not kept over a restart
                server.call("CONFIG", "SET", "masterauth", password)
                server.call("CONFIG", "SET", "requirepass", password)
            self._call(self.servers[1], "REPLICAOF", "127.0.0.1", self.servers[0].port)
            until(lambda: self.linked() == 1)
            for number in range(3):
                self._start_sentinel(number, quick)
            until(lambda: all(map(self._sees_all, self.sentinel_ports)))
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        for process in self.sentinels:
            process.kill()
            process.wait()
        super().__exit__()
        self._directory.cleanup()

    @property
    def url(self) -> str:
        """The URL of it."""
        user = f":{self._password}@" if self._password else ""
        option = f"?sentinel_password={self._sentinel_password}" if self._sentinel_password else ""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinel_ports)
        return f"redis+sentinel://{user}{hosts}/{SERVICE}/0{option}"

    @property
    def primary(self) -> Server:
        """The server that the first Sentinel names."""
        request_parts = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        port = int(self.ask(self.sentinel_ports[0], *request_parts)[1])
        return next(server for server in self.servers if server.port == port)

    @property
    def replica(self) -> Server:
        """The other one."""
        return next(server for server in self.servers if server is not self.primary)

    def ask(self, port: int, *request_parts: Any) -> Any:
        """One command to a Sentinel."""
        password = self._sentinel_password or None
        client: Any = redis.Redis(port=port, password=password, protocol=2)
        with contextlib.closing(client):
            client.response_callbacks.clear()
            return client.execute_command(*request_parts)

    def linked(self) -> int:
        """How many replicas follow."""
        return sum(self.info(server).get("master_link_status") == "up" for server in self.servers)

    def info(self, server: Server) -> dict[str, str]:
        """What a server says of its replication."""
        lines = self._call(server, "INFO", "replication").decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def fail_over(self) -> None:
        """Have the Sentinels promote the replica in an orderly way; returns when they have."""
        before = self.primary
        until(self._begins_failover)
        until(lambda: self.primary is not before)

    def _begins_failover(self) -> bool:
        """A Sentinel that has not heard of the replica lately refuses, for a moment."""
        try:
            self.ask(self.sentinel_ports[0], "SENTINEL", "FAILOVER", SERVICE)
        except redis.ResponseError as error:
            if not str(error).startswith("NOGOODSLAVE"):
                raise
            return False
        return True

    def settled(self) -> None:
        """Wait until one server follows the other, and all Sentinels agree."""
        until(lambda: self.linked() == 1 and all(map(self._sees_all, self.sentinel_ports)))

    def flush(self) -> None:
        """Forget all data."""
        self._call(self.primary, "FLUSHALL")

    def _call(self, server: Server, *request_parts: Any) -> Any:
        return server.call(*request_parts, password=self._password or None)

    def _sees_all(self, port: int) -> bool:
        flat = self.ask(port, "SENTINEL", "MASTER", SERVICE)
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        seen = (fields[b"num-slaves"], fields[b"num-other-sentinels"], fields[b"flags"])
        return seen == (b"1", b"2", b"master")

    def _start_sentinel(self, number: int, quick: int) -> None:
        port, folder = free_port(), Path(self._directory.name) / str(number)
        folder.mkdir()
        lines = [
            f"port {port}", "bind 127.0.0.1", f"dir {folder}",
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.servers[0].port} 2",
            f"sentinel down-after-milliseconds {SERVICE} {quick}",
            f"sentinel failover-timeout {SERVICE} {self._between_ms}",
        ]  # fmt: skip
        if self._password:
            lines.append(f"sentinel auth-pass {SERVICE} {self._password}")
        if self._sentinel_password:
            lines += [
                f"requirepass {self._sentinel_password}",
                f"sentinel sentinel-pass {self._sentinel_password}",
            ]
        config = folder / "sentinel.conf"
        config.write_text("\n".join(lines) + "\n")
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(self._binary), str(config), "--sentinel"], stdout=log, stderr=log
            )
        self.sentinels.append(process)
        self.sentinel_ports.append(port)


def until(condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait for something that servers do by themselves."""
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError, OSError):
            if condition():
                return
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)


def _follows(replica: Server) -> bool:
    return replica.info("replication").get("master_link_status") == "up"
