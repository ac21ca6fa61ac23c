"""The servers that a run happens on, and how they are struck: one server, or a Sentinel trio."""

import contextlib
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis
from redis.crc import key_slot

from rqretry.protocol.keys import partition_keys
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.chaos.campaigns.actors import NAMESPACE, TOPIC
from tests.chaos.campaigns.plan import Kind, Plan, Strike, What
from tests.model.checker.aof import CHECKED_SERVER
from tests.support.faults.power import PoweredRedis
from tests.support.faults.proxy import FaultProxy
from tests.support.faults.rules import random_rules
from tests.support.fleets import Cluster, SentinelFleet, until

REPLY_SECONDS = 1.0
"""What clients behind a proxy wait for a reply, so that a black hole costs seconds."""

DENIED = (
    "hset",
    "hdel",
    "zadd",
    "zrem",
    "rpush",
    "lpush",
    "ltrim",
    "set",
    "hincrby",
    "xadd",
    "evalsha",
)
"""Commands that a user may lack; a script that calls one of them stops there."""

NOTICED_S = 15.0
"""How long it may take until no publisher sends anything to a server that evicts."""

BETWEEN_KEYS_S = 0.02
"""While a slot moves, so that calls find some of its keys here and some there."""

BETWEEN_FAILOVERS_MS = 1500
"""Half of what Sentinels wait between two failovers."""


_FLUSHES = {What.FLUSH: ("FLUSHALL",), What.FLUSH_SCRIPTS: ("SCRIPT", "FLUSH")}


class SingleStage:
    """One server with an append-only file, maybe behind a proxy, maybe with a power switch."""

    def __init__(self, plan: Plan, folder: Path, binary: Path | None) -> None:
        self._powered: PoweredRedis | None = None
        self._proxy: FaultProxy | None = None
        self._around = contextlib.ExitStack()
        self._chance = random.Random(plan.seed)
        data = folder / "data"
        self._data, self._partitions = data, plan.partitions
        self.data: Path | None = None if plan.kind is Kind.EMPTY else data
        if plan.kind in (Kind.POWER, Kind.EVERYSEC):
            how = "always" if plan.kind is Kind.POWER else "everysec"
            machine = PoweredRedis(how, *CHECKED_SERVER, binary=binary, data=data)
            self._powered = self._around.enter_context(machine)
            self._server = machine.embedded
            if plan.kind is Kind.EVERYSEC:
                # What everysec loses, the journal loses too, and handlers have seen it.
                self.data = None
        else:
            data.mkdir()
            server = EmbeddedRedis(binary, appendonly=True, directory=data, extra=CHECKED_SERVER)
            self._server = self._around.enter_context(server)
        if plan.proxied:
            self._proxy = self._around.enter_context(FaultProxy(self._server, tcp=True))

    @property
    def url(self) -> str:
        """Where workers and publishers connect to."""
        if self._proxy is None:
            return self._server.url
        return f"{self._proxy.url}?socket_timeout={REPLY_SECONDS}"

    @property
    def admin_url(self) -> str:
        """Where the driver looks, past the proxy."""
        return self._server.url

    def raw(self) -> "redis.Redis":
        """A plain client of the server; close it."""
        return redis.Redis(unix_socket_path=str(self._server.socket_path))

    def strike(self, strike: Strike) -> None:
        """Do what is to be done to the server or the lines to it; returns when it is over."""
        match strike.what:
            case What.KILL_REDIS:
                self._server.kill()
                time.sleep(strike.for_s)
                self._server.start()
            case What.POWER_LOSS:
                assert self._powered is not None
                self._powered.lose_power(self._chance)
                self._powered.repair()
                time.sleep(strike.for_s)
                self._server.start()
            case What.DENY:
                denied = DENIED[strike.which % len(DENIED)]
                self._call("ACL", "SETUSER", "default", f"-{denied}")
                time.sleep(strike.for_s)
                self._call("ACL", "SETUSER", "default", f"+{denied}")
            case What.FLUSH | What.FLUSH_SCRIPTS:
                self._call(*_FLUSHES[strike.what])
            case What.LOSE_DATA:
                self._server.kill()
                for left in [*self._data.glob("*.aof"), *self._data.glob("*.rdb")]:
                    left.unlink()
                shutil.rmtree(self._data / "appendonlydir", ignore_errors=True)
                time.sleep(strike.for_s)
                self._server.start()
            case What.EVICT:
                self._evict(strike.for_s)
            case What.PAUSE_WRITES:
                self._call("CLIENT", "PAUSE", int(strike.for_s * 1000), "WRITE")
                time.sleep(strike.for_s)
            case What.NEW_RULES:
                assert self._proxy is not None
                self._proxy.rules = random_rules(strike.which)
                time.sleep(strike.for_s)
            case _:
                raise AssertionError(f"one server cannot {strike.what}")

    def _evict(self, for_s: float) -> None:
        """With room, so that nothing is lost before it is noticed; then nothing is accepted."""
        self._call("CONFIG", "SET", "maxmemory", "8gb")
        self._call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        time.sleep(NOTICED_S)
        before = self._published()
        time.sleep(for_s)
        assert self._published() == before, "messages are accepted by a server that evicts"
        self._call("CONFIG", "SET", "maxmemory-policy", "noeviction")

    def _published(self) -> list[Any]:
        keys = [partition_keys(NAMESPACE, TOPIC, number) for number in range(self._partitions)]
        with self.raw() as client:
            return [client.hget(each.counters, "publish:g0") for each in keys]

    def heal(self) -> None:
        """No more faults."""
        if self._proxy is not None:
            self._proxy.heal()

    def notes(self) -> dict[str, Any]:
        """What the proxy did."""
        if self._proxy is None:
            return {}
        return {"struck": [f"{fault} on {verb}" for verb, fault in self._proxy.struck][:200]}

    def close(self) -> None:
        """End the server."""
        self._around.close()

    def _call(self, *request_parts: Any) -> None:
        with self.raw() as client:
            client.execute_command(*request_parts)


class ClusterStage:
    """Three primaries, whose slots move."""

    data = None  # a journal each, in which the keys of a slot come and go

    def __init__(self, plan: Plan, binary: Path | None) -> None:
        self._cluster = Cluster(3, binary=binary)
        self._partitions = plan.partitions

    @property
    def url(self) -> str:
        """Where everybody connects to."""
        return self._cluster.url

    admin_url = url

    @contextlib.contextmanager
    def raw(self) -> Iterator[list[Any]]:
        """A plain client of each primary."""
        with contextlib.ExitStack() as around:
            clients = [contextlib.closing(server.client()) for server in self._cluster.primaries]
            yield [around.enter_context(client) for client in clients]

    def strike(self, strike: Strike) -> None:
        """Move a partition to another primary, a key at a time; returns when it is there."""
        key = partition_keys(NAMESPACE, TOPIC, strike.which % self._partitions).meta
        source = self._cluster.server_of(key)
        others = [server for server in self._cluster.primaries if server is not source]
        target = others[strike.which // self._partitions % len(others)]
        self._cluster.move(key_slot(key.encode()), target, lambda: time.sleep(BETWEEN_KEYS_S))

    def heal(self) -> None:
        """Nothing is left to heal."""

    def notes(self) -> dict[str, Any]:
        """Nothing to add."""
        return {}

    def close(self) -> None:
        """End all servers."""
        self._cluster.__exit__()


class FleetStage:
    """A primary, a replica and three Sentinels."""

    data = None

    def __init__(self, binary: Path | None) -> None:
        self._fleet = SentinelFleet(binary=binary, between_ms=BETWEEN_FAILOVERS_MS)
        self._fleet.settled()

    @property
    def url(self) -> str:
        """Where everybody connects to."""
        return self._fleet.url

    admin_url = url

    def raw(self) -> "redis.Redis":
        """A plain client of the primary; close it."""
        return redis.Redis(port=self._fleet.primary.port)

    def strike(self, strike: Strike) -> None:
        """A failover; returns when the other server is the primary and is followed again."""
        fleet, old = self._fleet, self._fleet.primary
        if strike.what is What.KILL_PRIMARY:
            old.embedded.kill()
            until(lambda: fleet.primary is not old, 60)
            until(lambda: fleet.primary.info("replication")["role"] == "master", 60)
            old.embedded.start()
            # As its operator does: the Sentinels take ten seconds to tell it.
            old.call("REPLICAOF", "127.0.0.1", fleet.primary.port)
        elif strike.what is What.HAND_OVER:
            fleet.fail_over()
        else:
            raise AssertionError(f"a fleet cannot {strike.what}")
        self.heal()

    def heal(self) -> None:
        """Wait until one server follows the other and all Sentinels agree."""
        fleet = self._fleet
        until(lambda: fleet.linked() == 1, 60)
        fleet.settled()

    def notes(self) -> dict[str, Any]:
        """Nothing to add."""
        return {}

    def close(self) -> None:
        """End all servers."""
        self._fleet.__exit__()


Stage = SingleStage | ClusterStage | FleetStage


def stage_for(plan: Plan, folder: Path, binary: Path | None = None) -> Stage:
    """The servers that a plan needs, started."""
    if plan.kind is Kind.FAILOVER:
        return FleetStage(binary)
    if plan.kind is Kind.SLOTS:
        return ClusterStage(plan, binary)
    return SingleStage(plan, folder, binary)
