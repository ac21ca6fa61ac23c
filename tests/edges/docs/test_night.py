"""A whole bad night against a real Prometheus: what should fires and clears, and nothing else does.

The rules are those of deploy/alerts.yaml with their times divided, since nobody waits ten minutes.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rqretry import Client
from rqretry.core.errors import RqretryError
from tests.conftest import program
from tests.edges.cli.shell import CLEAN
from tests.support.servers import free_port, python_path

ROOT = Path(__file__).parents[3]
FASTER, SHORTEST_S = 200, 2.5
"""A process takes a second to start, however fast the rules are: no rule waits less than this."""
SCRAPE_S = 0.5
PUBLISH_EVERY_S = 0.05
PATIENCE_S = 45
HANDLERS = 20

SHOP = """
import asyncio
from pathlib import Path

from rqretry import App, DeadLetter, Message, RetryPolicy

app = App()
here = Path(__file__).parent


@app.consumer(
    "orders", group="billing", visibility=1, concurrency=20,
    policy=RetryPolicy.ladder("2s", max_retries=50),
)
async def bill(message: Message[int]) -> None:
    if here.joinpath("down").exists():
        raise ConnectionRefusedError("the bank is down")
    while here.joinpath("hangs").exists():
        await asyncio.sleep(0.05)
    if WRONG and message.body % 3 == 0:
        raise DeadLetter("no field 'amount'")
"""
ALERTS = {
    "the bank is down": "RqretryEverythingFails",
    "kill -9": "RqretryLeasesExpire",
    "Redis is down": "RqretryExporterDown",
    "a wrong deploy": "RqretryDeadLettersGrow",
}


def faster(rules: str) -> str:
    """The rules with times that a test can wait for."""

    def scaled(found: re.Match[str]) -> str:
        before, number, unit, behind = found.groups()
        seconds = int(number) * {"m": 60, "h": 3600}[unit] / FASTER
        shortest = SHORTEST_S if before.startswith("for") else 0
        return f"{before}{int(1000 * max(seconds, shortest))}ms{behind}"

    return re.sub(r"(\[|for: )(\d+)(m|h)(\]|\n)", scaled, rules)


class Night:
    """The processes, and which alerts were seen to fire."""

    def __init__(self, folder: Path, binary: str) -> None:
        self.folder, self.binary = folder, binary
        self.redis_port, self.exporter_port, self.port = free_port(), free_port(), free_port()
        self.running: list[subprocess.Popen[bytes]] = []
        self.seen: list[tuple[str, frozenset[str]]] = []
        self.now = "calm"
        self.over = threading.Event()
        self.firing: frozenset[str] = frozenset({"nothing is known"})

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.redis_port}/0"

    def run(self, *command: str) -> "subprocess.Popen[bytes]":
        known = {name: value for name, value in os.environ.items() if name not in CLEAN}
        env = {**known, "RQRETRY_REDIS_URL": self.url, "PYTHONPATH": python_path()}
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, env=env, stdout=log, stderr=subprocess.STDOUT
            )
        self.running.append(process)
        return process

    def rqretry(self, *words: str) -> "subprocess.Popen[bytes]":
        return self.run(sys.executable, "-m", "rqretry", *words)

    def redis(self) -> "subprocess.Popen[bytes]":
        options = ("--port", str(self.redis_port), "--dir", str(self.folder), "--save", "")
        return self.run(self.binary, *options, "--appendonly", "yes", "--bind", "127.0.0.1")

    def worker(self, *, wrong: bool) -> "subprocess.Popen[bytes]":
        """One process below a supervisor."""
        name = "wrong" if wrong else "right"
        (self.folder / f"{name}.py").write_text(SHOP.replace("WRONG", str(wrong)))
        return self.rqretry("worker", f"{name}:app", "--grace", "1s")

    def prometheus(self) -> None:
        (self.folder / "rules.yaml").write_text(faster((ROOT / "deploy/alerts.yaml").read_text()))
        targets = [f"127.0.0.1:{self.exporter_port}"]
        job = {"job_name": "rqretry", "static_configs": [{"targets": targets}]}
        times = {f"scrape_{name}": f"{1000 * SCRAPE_S:g}ms" for name in ("interval", "timeout")}
        config = {
            "global": {**times, "evaluation_interval": "250ms"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [job],
        }
        (self.folder / "prometheus.yml").write_text(json.dumps(config))
        self.run(
            shutil.which("prometheus") or "", "--config.file=prometheus.yml",
            f"--web.listen-address=127.0.0.1:{self.port}", "--storage.tsdb.path=tsdb",
        )  # fmt: skip

    def watch(self) -> None:
        """In a thread: what fires, from the first answer on."""
        while not self.over.wait(0.1):
            with suppress(OSError, ValueError):
                alerts = self.asked("alerts")["alerts"]
                up = self.asked("query?query=up")["result"]
                if up:
                    found = {a["labels"]["alertname"] for a in alerts if a["state"] == "firing"}
                    self.firing = frozenset(found)
                    # Rules are judged 5 s before the first scrape, and what they say stands until
                    # they are judged again: the night begins when nothing is missing any more.
                    if self.seen or not found:
                        self.seen.append((self.now, self.firing))

    def publish(self) -> None:
        """In a thread: orders, steadily; while Redis is away, none."""
        with Client(self.url) as client:
            number = 0
            while not self.over.wait(PUBLISH_EVERY_S):
                with suppress(RqretryError):
                    client.publish("orders", number := number + 1)

    def asked(self, what: str) -> Any:
        address = f"http://127.0.0.1:{self.port}/api/v1/{what}"
        with urllib.request.urlopen(address, timeout=5) as answer:
            return json.load(answer)["data"]

    def exports(self) -> bool:
        """Whether the exporter answers as fast as it has to."""
        address = f"http://127.0.0.1:{self.exporter_port}/metrics"
        with suppress(OSError), urllib.request.urlopen(address, timeout=SCRAPE_S) as answer:
            return b"rqretry_redis_evicts" in answer.read()
        return False

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, f"{self.now}: {self.firing} fires"
            time.sleep(0.05)

    def clears(self) -> None:
        self.until(lambda: not self.firing)

    def phase(self, name: str) -> None:
        """Wait until what belongs to it fires."""
        self.now = name
        self.until(lambda: ALERTS[name] in self.firing)


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    if not shutil.which("prometheus"):
        pytest.skip("needs prometheus (Debian: prometheus)")
    made = Night(tmp_path, str(program("redis-7").path))
    try:
        yield made
    finally:
        made.over.set()
        for process in reversed(made.running):
            process.terminate()
        for process in made.running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.mark.campaign  # times 200 times shorter flicker where other tests need the processors
def test_a_bad_night_fires_what_it_should_and_nothing_else(night: Night) -> None:
    redis = night.redis()
    worker = night.worker(wrong=False)
    # With --all, since the counters of a new group are held for a minute otherwise.
    night.rqretry("exporter", "--all", "--port", str(night.exporter_port))
    threads = [threading.Thread(target=night.publish), threading.Thread(target=night.watch)]
    for thread in threads:
        thread.start()
    down, hangs = night.folder / "down", night.folder / "hangs"
    with Client(night.url) as client:
        night.until(lambda: succeeded(client) > 0)
        night.until(night.exports)  # it has as long to start as it takes; no rule has begun
        night.prometheus()
        night.until(lambda: len(night.seen) > 20 and not night.firing)

        down.touch()
        night.phase("the bank is down")
        down.unlink()
        night.clears()

        hangs.touch()
        night.until(lambda: client.admin.stats().inflight >= HANDLERS)
        for child in children(worker.pid):
            os.kill(child, signal.SIGKILL)
        hangs.unlink()
        night.phase("kill -9")
        night.clears()

        redis.kill()
        redis.wait()
        night.phase("Redis is down")
        night.redis()
        night.clears()

        night.worker(wrong=True)
        night.phase("a wrong deploy")
        night.running[-1].terminate()
        night.clears()
    night.over.set()
    for thread in threads:
        thread.join()
    unexpected = [(name, fires - {ALERTS.get(name)}) for name, fires in night.seen]
    assert [pair for pair in unexpected if pair[1]] == []


def succeeded(client: Client) -> int:
    with suppress(RqretryError):
        return sum(group.counters.get("succeed", 0) for group in client.admin.stats().groups)
    return 0


def children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=True)
    return [int(line) for line in found.stdout.split()]
