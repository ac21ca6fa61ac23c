"""Slots move and primaries die while publishers and workers are at it; nothing is lost."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

from rqretry import App, AsyncClient, Client, ConsumeResult, Message, NotConfirmed, RetryPolicy
from rqretry.core.errors import AmbiguousResult, RqretryError, StoreUnavailable
from rqretry.core.parts import parts_of
from rqretry.protocol.keys import partition_keys
from tests.contract.cluster.conftest import ClusterLab
from tests.contract.integration.harness import NAMESPACE, counted, until
from tests.support.fleets import Cluster
from tests.support.soundness import assert_sound

pytestmark = pytest.mark.chaos

PARTITIONS = 6
FAST = RetryPolicy.ladder("10ms 30ms 60ms", max_retries=3)  # 1/1000 of the first steps


def slot_of_partition(number: int, topic: str = "t") -> int:
    """The slot of a partition's keys."""
    return key_slot(partition_keys(NAMESPACE, topic, number).meta.encode())


async def test_a_partition_moves_to_another_primary_while_it_is_in_use(lab: ClusterLab) -> None:
    """Retries, dead letters and commits go on; each acknowledged message ends exactly once."""
    app = lab.app()
    app.topic("t", partitions=PARTITIONS)

    @app.consumer("t", group="g", policy=FAST, visibility=5)
    async def handle(message: Message[int]) -> ConsumeResult:
        await asyncio.sleep(0.001)
        fails = message.body % 5
        return ConsumeResult.SUCCESS if message.attempt > fails else ConsumeResult.FAILURE

    accepted: list[str] = []
    stop = asyncio.Event()

    async def publish() -> None:
        number = 0
        while not stop.is_set():
            accepted.append(await app.publish("t", number))
            number += 1
            await asyncio.sleep(0.002)

    moved = 0
    async with lab.working(app, declared=parts_of(app).topics):
        publishing = asyncio.ensure_future(publish())
        for number in (0, 1, 0, 1):
            await asyncio.sleep(0.3)
            keys = partition_keys(NAMESPACE, "t", number)
            source = lab.cluster.server_of(keys.meta)
            target = next(s for s in lab.cluster.primaries if s is not source)
            slot = slot_of_partition(number)
            moved += await asyncio.to_thread(
                lab.cluster.move, slot, target, lambda: time.sleep(0.02)
            )
        stop.set()
        await publishing
        dead = len([n for n in range(len(accepted)) if n % 5 == 4])
        await counted(lab, "g", publish=len(accepted), dead=dead)
        stats = await counted(lab, "g", succeed=len(accepted) - dead)
    assert moved > 20
    assert len(accepted) == len(set(accepted)) > 40
    assert (stats.dead, stats.ready, stats.retry, stats.inflight) == (dead, 0, 0, 0)
    assert stats.counters.get("expire", 0) == 0


def test_dead_letters_of_all_nodes_are_listed_redriven_and_committed(lab: ClusterLab) -> None:
    client = lab.client()
    client.admin.create_topic("t", partitions=PARTITIONS)
    consumer = client.simple_consumer("t", group="g", create_group=True, max_retries=0)
    ids = set(client.publish_many("t", range(40)))
    left = 40
    while left:
        left -= len(consumer.receive(32, invisible_duration=0.01, wait=1))
    end = time.monotonic() + 20
    while len(client.admin.dead_letters("g")) < 40 and time.monotonic() < end:
        consumer.receive(wait=0)

    assert {dead_letter.id for dead_letter in client.admin.dead_letters("g")} == ids
    nodes = {lab.cluster.server_of(partition_keys(NAMESPACE, "t", n).meta).port for n in range(6)}
    assert len(nodes) == 3
    client.admin.redrive("g", all=True)
    listed = client.admin.messages("g", state="ready", error="redriven").messages
    assert {message.id for message in listed} == ids
    assert client.admin.reasons() == []
    got: list[Message[Any]] = []
    while len(got) < 40:
        received = consumer.receive(32, wait=5)
        consumer.ack(received)
        got += received
    assert {message.id for message in got} == ids
    assert {message.attempt for message in got} == {1}


WORKER = """
    from rqretry import App, ConsumeResult, RetryPolicy
    import time
    app = App()
    app.topic("t", partitions=6)

    @app.consumer("t", group="g", visibility=1, concurrency=4,
                  policy=RetryPolicy.fixed("50ms", max_retries=100))
    def handle(message):
        time.sleep(0.01)
        return ConsumeResult.SUCCESS
"""


@contextlib.contextmanager
def worker_process(url: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker by the command line, killed at the end."""
    (folder / "victim.py").write_text(textwrap.dedent(WORKER))
    request_parts = ("worker", "victim:app", "--app-dir", str(folder), "--url", url, "--namespace")
    process = subprocess.Popen(
        [sys.executable, "-m", "rqretry", *request_parts, NAMESPACE],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def test_a_killed_worker_loses_nothing_to_another(lab: ClusterLab, tmp_path: Path) -> None:
    client = lab.client()
    client.admin.create_topic("t", partitions=PARTITIONS)
    with worker_process(lab.url, tmp_path) as first:
        await until(lambda: len(client.admin.workers()) == 1, 20)
        ids = client.publish_many("t", range(300))
        await until(lambda: lab.stats("g").counters.get("succeed", 0) > 30, 20)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        with worker_process(lab.url, tmp_path):
            await until(lambda: lab.stats("g").counters.get("succeed", 0) == len(ids), 20)
    stats = lab.stats("g")
    assert (stats.dead, stats.ready, stats.retry, stats.inflight) == (0, 0, 0, 0)


@pytest.fixture
def fragile() -> Iterator[Cluster]:
    """A cluster whose primaries each have a replica."""
    with Cluster(3, replicas=3) as cluster:
        yield cluster


@pytest.mark.campaign
async def test_a_replica_is_promoted_under_load_and_the_workers_go_on(
    fragile: Cluster, record_property: Callable[[str, object], None]
) -> None:
    """A primary is killed. What `replica:1` confirmed survives; the rest is counted."""
    app = App(fragile.url, namespace=NAMESPACE)
    app.topic("t", partitions=PARTITIONS)
    done: Counter[str] = Counter()

    @app.consumer("t", group="g", policy=FAST, visibility=2)
    async def handle(message: Message[int]) -> None:
        done[message.id] += 1

    confirmed: list[str] = []
    unsure: list[str] = []
    stop = asyncio.Event()

    async def publish(client: AsyncClient) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                confirmed.append(await client.publish("t", number, durability="replica:1"))
            except (NotConfirmed, AmbiguousResult) as error:
                unsure.append(error.id)
            except StoreUnavailable:
                pass
            await asyncio.sleep(0.001)

    worker = parts_of(app).worker(grace=2)
    working = asyncio.ensure_future(worker.run())
    await worker.started.wait()
    async with AsyncClient(fragile.url, namespace=NAMESPACE) as client:
        publishing = [asyncio.ensure_future(publish(client)) for _ in range(4)]
        await asyncio.sleep(0.5)
        before = len(confirmed)
        victim = fragile.server_of(partition_keys(NAMESPACE, "t", 0).meta)
        victim.embedded.kill()
        killed_at = time.monotonic()
        await until(lambda: fragile_owner(fragile, victim) != victim.port, 20)
        promoted_after = time.monotonic() - killed_at
        await asyncio.sleep(1.0)
        stop.set()
        await asyncio.gather(*publishing)
        assert len(confirmed) > before > 0
        await until(lambda: not set(confirmed) - set(done), 20)
        (stats,) = (await client.admin.stats("t", group="g")).groups
    worker.stop()
    await working
    await app.aclose()
    assert (stats.ready, stats.retry, stats.dead) == (0, 0, 0)
    record_property("promoted_after_s", round(promoted_after, 2))
    record_property("confirmed", len(confirmed))
    record_property("unsure", len(unsure))
    record_property("unsure_and_lost", len(set(unsure) - set(done)))
    with Client(fragile.url, namespace=NAMESPACE) as sync:
        assert_sound(parts_of(sync).store, NAMESPACE)


def fragile_owner(cluster: Cluster, victim: Any) -> int:
    """The port of who has partition 0 now, as a survivor sees it."""
    slot = slot_of_partition(0)
    witness = next(s for s in cluster.servers if s is not victim)
    with contextlib.suppress(RqretryError, OSError):
        for first, last, (_, port, *_), *_ in witness.call("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return int(port)
    return int(victim.port)
