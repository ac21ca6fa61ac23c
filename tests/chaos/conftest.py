"""Worker processes on a private server; whatever is left of them at the end of a test is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from rqretry import Client
from rqretry.admin.views import GroupStats
from rqretry.core.parts import parts_of
from rqretry.protocol.maintain import live_workers
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.conftest import ServerOf
from tests.support.servers import SERVERS
from tests.support.soundness import assert_sound

HERE = Path(__file__).parent
PATIENCE_S = 20.0
MAIN = """
import sys
from functools import partial
from rqretry.supervision.app_loader import load_worker_app
from rqretry.supervision.supervisor import supervise
from rqretry.supervision.worker_process import WorkerConfig
if __name__ == "__main__":
    processes, grace, app = int(sys.argv[1]), float(sys.argv[2]), sys.argv[4]
    load = partial(load_worker_app, app, sys.argv[3], None, None)
    sys.exit(supervise(WorkerConfig(load, grace=grace), processes))
"""


class Zoo:
    """Supervisors with their worker processes, and what the workers wrote down."""

    def __init__(self, server: EmbeddedRedis, directory: Path) -> None:
        self.server = server
        self.client = Client(server.url, namespace="test")
        self.redis = redis.Redis(unix_socket_path=str(server.socket_path))
        self._main = directory / "main.py"
        self._main.write_text(MAIN)
        self._log = directory / "log"
        self._supervisors: list[subprocess.Popen[bytes]] = []
        self._pids: set[int] = set()

    def start(
        self, processes: int = 1, grace: float = 5.0, app: str = "victims:app"
    ) -> subprocess.Popen[bytes]:
        """Start a supervisor; returns when its processes have joined the group."""
        known = self.workers()
        env = {**os.environ, "RQRETRY_REDIS_URL": self.server.url, "RQRETRY_NAMESPACE": "test"}
        command = [sys.executable, str(self._main), str(processes), str(grace), str(HERE), app]
        with self._log.open("ab") as log:
            supervisor = subprocess.Popen(command, env=env, stderr=log, start_new_session=True)
        self._supervisors.append(supervisor)
        self.until(lambda: len(self.workers() - known) == processes)
        return supervisor

    def workers(self) -> set[int]:
        """The process ids of the workers that say that they live."""
        live = parts_of(self.client).store.perform(live_workers(parts_of(self.client).catalog.keys))
        pids = {int(json.loads(worker.about)["pid"]) for worker in live}
        self._pids |= pids
        return pids

    def children(self) -> set[int]:
        """The process ids of the workers that run."""
        return {pid for pid in self.workers() if self._is_ours(pid) and alive(pid)}

    def ledger(self, what: str = "start") -> list[dict[str, Any]]:
        """What the handlers wrote, in order."""
        lines = [json.loads(line) for line in self.redis.lrange("ledger", 0, -1)]
        return [line for line in lines if line["what"] == what]

    def wait_for(self, count: int, what: str = "start") -> list[dict[str, Any]]:
        """Wait for so many lines of the ledger."""
        self.until(lambda: len(self.ledger(what)) >= count)
        return self.ledger(what)

    def stats(self) -> GroupStats:
        """The numbers of the group."""
        (group,) = self.client.admin.stats("t", group="g").groups
        return group

    def committed(self, count: int) -> GroupStats:
        """Wait until so many messages are committed."""
        self.until(lambda: self.stats().counters.get("succeed", 0) >= count)
        return self.stats()

    def log(self) -> str:
        """What the supervisors and their workers have logged."""
        return self._log.read_text()

    def until(self, condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
        """Wait for something that other processes do."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} s\n{self._log.read_text()}"
            time.sleep(0.01)

    def close(self) -> None:
        """End everything that was started."""
        for supervisor in self._supervisors:
            if supervisor.poll() is None:
                supervisor.kill()
                supervisor.wait()
        for pid in self._pids:
            if self._is_ours(pid):
                os.kill(pid, signal.SIGKILL)
        self.client.close()
        self.redis.close()

    def _is_ours(self, pid: int) -> bool:
        try:
            return os.getsid(pid) in {supervisor.pid for supervisor in self._supervisors}
        except ProcessLookupError:
            return False


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@pytest.fixture(scope="session", params=list(SERVERS))
def durable_server(request: pytest.FixtureRequest, server_of: ServerOf) -> EmbeddedRedis:
    """Each server, with an append-only file, synced at every write."""
    return server_of(request.param, appendonly=True)


@pytest.fixture
def zoo(durable_server: EmbeddedRedis, tmp_path: Path) -> Iterator[Zoo]:
    """An empty server and nothing that works on it; everything agrees with itself at the end."""
    zoo = Zoo(durable_server, tmp_path)
    zoo.redis.flushall()
    zoo.client.admin.create_topic("t")
    yield zoo
    zoo.close()
    with Client(durable_server.url, namespace="test") as client:
        assert_sound(parts_of(client).store, "test")
