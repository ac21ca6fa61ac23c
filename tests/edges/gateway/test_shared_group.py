"""A checkout in Java publishes orders; Python workers and a Go consumer share one group.

A tenth of the orders fail twice and one in 400 always. The run is judged by the checker.
"""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

from rqretry import Client
from rqretry.cli.main import cli
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.gateway.clients.toolchain import GO, HERE, JAVA, NotHereError
from tests.edges.gateway.conftest import launch, wait_until_ready
from tests.edges.gateway.order_shop import MAX_RETRIES
from tests.model.checker.aof import CHECKED_SERVER
from tests.model.checker.check import check
from tests.model.checker.history import Effect, read_effects
from tests.model.checker.records import gather
from tests.model.checker.report import Verdict
from tests.support.servers import python_path

log = logging.getLogger(__name__)

ORDERS = 10_000
_WAIT_S = 240.0
_NAMESPACE = "test"

pytestmark = pytest.mark.timeout(900)  # a new machine compiles the clients


@pytest.fixture(scope="module")
def commands() -> tuple[list[str], list[str]]:
    """The checkout and the consumer."""
    try:
        return JAVA.command(HERE / "java" / "Orders.java"), GO.command(GO.program)
    except NotHereError as error:
        pytest.skip(str(error))


@pytest.fixture
def server() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(appendonly=True, extra=CHECKED_SERVER) as server:
        yield server


@contextmanager
def running(command: list[str], folder: Path, **variables: str) -> Iterator[None]:
    """A program, for as long as it is needed."""
    environment = {**os.environ, "HOME": str(folder), "PYTHONPATH": python_path(), **variables}
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield
        assert process.poll() is None, (folder / "log").read_text()
    finally:
        process.terminate()
        process.wait(20)


def test_every_order_is_committed_once_or_dead_whoever_consumes_it(
    commands: tuple[list[str], list[str]],
    server: EmbeddedRedis,
    tmp_path: Path,
) -> None:
    publish, consume = commands
    shop = {"RQRETRY_REDIS_URL": server.url, "RQRETRY_NAMESPACE": _NAMESPACE}
    worker = [sys.executable, "-m", "rqretry", "worker", "tests.edges.gateway.order_shop:app"]
    with Client(server.url, namespace=_NAMESPACE) as client:
        client.admin.create_topic("orders", partitions=2)
        address, gateway = launch("--url", server.url, namespace=_NAMESPACE)
        try:
            wait_until_ready(address, gateway)
            with running(worker, tmp_path, CHECKED_RUN=str(tmp_path), **shop):
                until(lambda: bool(client.admin.workers()), tmp_path)
                effects = str(tmp_path / "effects.jsonl")
                bill = [*consume, address, "orders", "billing", effects]
                with running(bill, tmp_path, **{"rocketmq.client.logLevel": "error"}):
                    until(lambda: len(client.admin.workers()) > 1, tmp_path)
                    began = time.monotonic()
                    checkout = [*publish, address, "orders", str(ORDERS), str(tmp_path)]
                    java_home = f"-Duser.home={tmp_path}"
                    subprocess.run(
                        checkout, check=True, timeout=_WAIT_S, capture_output=True,
                        env={**os.environ, "JAVA_TOOL_OPTIONS": java_home},
                    )  # fmt: skip
                    published = time.monotonic() - began
                    until(lambda: ended(client) == ORDERS, tmp_path)
                    done = time.monotonic() - began
        finally:
            gateway.terminate()
            assert gateway.wait(20) == 0
        log.info("%d orders: published in %.1f s, done in %.1f s", ORDERS, published, done)
        judge(server, tmp_path)
        shared = attempted_by_both(read_effects(tmp_path))
        assert shared
        show(client, server, shared[0])


def judge(server: EmbeddedRedis, folder: Path) -> None:
    with redis.Redis(unix_socket_path=str(server.socket_path)) as raw:
        records = gather(folder, raw, _NAMESPACE, aof=server.socket_path.parent)
    report = check(records)
    assert report.verdict is Verdict.PASS, report.table()
    dead = sum(1 for number in range(1, ORDERS + 1) if number % 400 == 7)
    twice = sum(1 for n in range(1, ORDERS + 1) if n % 10 == 3 and n % 400 != 7)
    assert report.counts["accepted"] == ORDERS
    assert report.counts["dead at the end"] == dead
    assert report.duplicates["D-e"] == 2 * twice + MAX_RETRIES * dead


def attempted_by_both(effects: list[Effect]) -> list[str]:
    """Orders that Python failed and Go tried, or the other way round."""
    kinds: dict[str, set[bool]] = {}
    for effect in effects:
        kinds.setdefault(effect.id, set()).add(effect.proc.startswith("go-"))
    return [id_ for id_, kind in kinds.items() if len(kind) > 1]


def show(client: Client, server: EmbeddedRedis, id_: str) -> None:
    """Its timeline has attempts of a Python worker and of the Go client."""
    attempts = [event for event in client.admin.timeline(id_) if event.event == "lease"]
    names = {str(event.worker) for event in attempts}
    go = {name for name in names if name.count("@") == 3}
    assert go
    assert names - go
    where = ["--url", server.url, "--namespace", _NAMESPACE]
    shown = CliRunner().invoke(cli, ["message", id_, *where])
    assert all(name in shown.output for name in names), shown.output


def ended(client: Client) -> int:
    """Orders that are committed or dead."""
    groups = client.admin.stats("orders", group="billing").groups
    return sum(group.counters.get("succeed", 0) + group.dead for group in groups)


def until(condition: Callable[[], bool], folder: Path) -> None:
    end = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.1)
