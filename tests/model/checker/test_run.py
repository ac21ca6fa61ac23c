"""A real run, checked: publishers, worker processes, handlers that fail, and one that is killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from rqretry import Client
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.model.checker.check import check
from tests.model.checker.history import HistoryWriter, read_effects
from tests.model.checker.recorded_shop import MAX_RETRIES
from tests.model.checker.recording import RecordedClient
from tests.model.checker.records import gather
from tests.model.checker.report import Verdict

HERE = Path(__file__).parent
PATIENCE_S = 60.0
EACH = 120
PUBLISHERS = 2

pytestmark = pytest.mark.chaos


@pytest.fixture
def client(checked_server: EmbeddedRedis) -> Iterator[Client]:
    with Client(checked_server.url, namespace="test") as client:
        yield client


@pytest.fixture
def workers(checked_server: EmbeddedRedis, tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A supervisor with two worker processes."""
    env = {
        **os.environ, "RQRETRY_REDIS_URL": checked_server.url, "RQRETRY_NAMESPACE": "test",
        "CHECKED_RUN": str(tmp_path), "PYTHONPATH": str(HERE.parent.parent),
    }  # fmt: skip
    command = [sys.executable, "-m", "rqretry", "worker", "recorded_shop:app", "--processes", "2"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--app-dir", str(HERE)], env=env, stdout=log, stderr=log
        )
    yield process
    if process.poll() is None:
        process.kill()
    process.wait()


def body(number: int, *, hangs: bool = False) -> dict[str, object]:
    if number % 40 == 7:
        return {"fails": MAX_RETRIES + 1}
    return {"fails": 2 if number % 10 == 3 else 0, "hangs": hangs}


def test_a_run_with_failures_and_a_killed_worker_loses_nothing(
    checked_server: EmbeddedRedis,
    client: Client,
    workers: "subprocess.Popen[bytes]",
    tmp_path: Path,
) -> None:
    writer = HistoryWriter(tmp_path)
    publisher = RecordedClient(client, writer)
    threads = [
        threading.Thread(target=publish_all, args=(publisher, number))
        for number in range(PUBLISHERS)
    ]
    for thread in threads:
        thread.start()
    until(lambda: hanging(tmp_path) != 0, tmp_path)
    victim = hanging(tmp_path)
    writer.fault("kill", pid=victim)
    os.kill(victim, signal.SIGKILL)
    for thread in threads:
        thread.join()
    until(lambda: ended(client) == PUBLISHERS * EACH + 1, tmp_path)
    workers.terminate()
    assert workers.wait(PATIENCE_S) == 0

    directory = checked_server.socket_path.parent
    with redis.Redis(unix_socket_path=str(checked_server.socket_path)) as raw:
        records = gather(tmp_path, raw, "test", aof=directory)
    report = check(records)

    assert report.verdict is Verdict.PASS, report.table()
    assert report.counts["accepted"] == PUBLISHERS * EACH + 1
    assert report.counts["dead at the end"] == PUBLISHERS * EACH // 40
    assert report.duplicates["D-b"] >= 1
    assert report.duplicates["D-e"] >= PUBLISHERS * (EACH // 10) * 2


def publish_all(publisher: RecordedClient, number: int) -> None:
    for n in range(EACH // 2):
        hangs = (number, n) == (0, EACH // 4)
        publisher.publish("t", body(n, hangs=hangs), id=f"{number}-{n}")
    publisher.publish_many("t", [body(n) for n in range(EACH // 2, EACH)])
    if number == 0:
        first = publisher.publish("t", {}, id="again")
        assert publisher.publish("t", {}, id="again") == first


def hanging(directory: Path) -> int:
    """The process of a handler that hangs; 0 for none yet."""
    for effect in read_effects(directory):
        if not effect.ended_ns and time.time_ns() - effect.began_ns > 200_000_000:
            return int(effect.proc)
    return 0


def ended(client: Client) -> int:
    """Messages that are committed or dead."""
    groups = client.admin.stats("t", group="g").groups
    return sum(group.counters.get("succeed", 0) + group.dead for group in groups)


def until(condition: Callable[[], bool], directory: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, (directory / "log").read_text()
        time.sleep(0.05)
