"""`rqretry worker` as it runs in production, on a private server that can be taken away."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
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
from tests.support.servers import free_port, python_path
from tests.support.soundness import assert_sound

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
NAMESPACE = "test"
PATIENCE_S = 60.0


def until(condition: Callable[[], bool], seconds: float = PATIENCE_S, say: Any = "") -> float:
    """Wait for something that other processes do; the seconds it took."""
    start = time.monotonic()
    while not condition():
        stated = say() if callable(say) else say
        assert time.monotonic() - start < seconds, f"not within {seconds} s: {stated}"
        time.sleep(0.01)
    return time.monotonic() - start


def _without_nohup() -> None:
    """A worker goes on ignoring SIGHUP where the tests were started so."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Service:
    """One `rqretry worker`: its process, its log and its health port."""

    def __init__(self, request_parts: list[str], env: dict[str, str], log: Path) -> None:
        self.log_path = log
        self.port = free_port()
        options = ["--health-port", str(self.port), *request_parts]
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rqretry", "worker", *options],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,
                preexec_fn=_without_nohup,  # noqa: PLW1509 - it only sets a signal
                text=True,
            )

    def get(self, path: str, method: str = "GET") -> tuple[int, Any]:
        """Status and JSON of the health port; status 0 while nobody listens."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=5) as reply:
                return reply.status, json.loads(reply.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")
        except OSError:
            return 0, None

    def becomes(self, status: int, path: str = "/readyz", seconds: float = PATIENCE_S) -> float:
        """Wait for an answer of the health port; the seconds it took."""
        return until(lambda: self.get(path)[0] == status, seconds, self.diagnosis)

    def diagnosis(self) -> str:
        """What the worker reports, for a test that fails."""
        return f"{self.get('/readyz')}\n{self.log_path.read_text()}"

    def records(self) -> list[dict[str, Any]]:
        """The log, which is JSON to its last line."""
        return [json.loads(line) for line in self.log_path.read_text().splitlines()]

    def says(self, text: str, seconds: float = PATIENCE_S) -> None:
        """Wait for a log line."""
        until(lambda: text in self.log_path.read_text(), seconds, self.diagnosis)

    def pids(self) -> set[int]:
        """The worker processes."""
        return set(self.get("/livez")[1]["processes"])

    def stop(self, seconds: float = 15.0) -> int:
        """SIGTERM; the exit status."""
        self.process.terminate()
        return self.process.wait(seconds)

    def close(self) -> None:
        """End the supervisor and all its processes, which are a group of their own."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


class Site:
    """An empty server and the services on it."""

    def __init__(self, server: EmbeddedRedis, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.client = Client(server.url, namespace=NAMESPACE)
        self.redis = redis.Redis(unix_socket_path=str(server.socket_path))
        self._services: list[Service] = []

    def start(
        self, *request_parts: str, app: str = "shop:app", folder: Path = HERE, **env: str
    ) -> Service:
        """Start a worker; returns at once."""
        log = self.directory / f"log-{len(self._services)}"
        known = {
            "RQRETRY_REDIS_URL": self.server.url,
            "RQRETRY_NAMESPACE": NAMESPACE,
            "PYTHONPATH": python_path(),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        request_parts = (app, "--app-dir", str(folder), *request_parts)
        service = Service(list(request_parts), {**os.environ, **known, **env}, log)
        self._services.append(service)
        return service

    def ready(self, *request_parts: str, **options: Any) -> Service:
        """Start a worker; returns when it is ready."""
        service = self.start(*request_parts, **options)
        service.becomes(200)
        return service

    def ledger(self, what: str = "start") -> list[dict[str, Any]]:
        """What the handlers wrote, in order."""
        lines = [json.loads(line) for line in self.redis.lrange("ledger", 0, -1)]
        return [line for line in lines if line["what"] == what]

    def stats(self, group: str = "g") -> GroupStats:
        """The numbers of a group."""
        (found,) = self.client.admin.stats(group=group).groups
        return found

    def committed(self, count: int) -> None:
        """Wait until so many messages of group g are committed."""
        until(lambda: self.stats().counters.get("succeed", 0) >= count, say=self.stats)

    def live_workers(self) -> int:
        """How many workers the roster knows."""
        return len(
            parts_of(self.client).store.perform(live_workers(parts_of(self.client).catalog.keys))
        )

    def close(self) -> None:
        """End everything."""
        for service in self._services:
            service.close()
        self.client.close()
        self.redis.close()


@pytest.fixture(scope="session")
def durable_server() -> Iterator[EmbeddedRedis]:
    """A server that keeps an append-only file, synced at every write."""
    with EmbeddedRedis(appendonly=True) as server:
        yield server


@pytest.fixture
def site(durable_server: EmbeddedRedis, tmp_path: Path) -> Iterator[Site]:
    """An empty server; everything on it agrees with itself at the end."""
    site = Site(durable_server, tmp_path)
    site.redis.flushall()
    yield site
    site.close()
    with Client(durable_server.url, namespace=NAMESPACE) as client:
        assert_sound(parts_of(client).store, NAMESPACE)
