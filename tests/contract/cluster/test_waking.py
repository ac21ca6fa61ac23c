"""Waiting costs one blocked connection per partition, and ends within milliseconds of a publish."""

import asyncio
import threading
import time
from typing import Any

from rqretry import Message
from rqretry.core.message_id import partition_of
from rqretry.core.parts import parts_of
from tests.contract.cluster.conftest import ClusterLab
from tests.contract.integration.harness import Seen, until

PARTITIONS = 6
WAKING_S = 0.5
"""On a busy machine; the median of a quiet one is in docs/scaling.md."""


def blocked(lab: ClusterLab) -> int:
    """How many connections of the cluster are blocked."""
    return sum(int(server.info("clients")["blocked_clients"]) for server in lab.cluster.primaries)


def keys_for_each(partitions: int) -> dict[int, str]:
    """For each partition an id that goes there."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < partitions:
        found.setdefault(partition_of(f"id-{number}", partitions), f"id-{number}")
        number += 1
    return found


async def test_an_idle_worker_has_one_blocked_connection_for_each_partition(
    lab: ClusterLab,
) -> None:
    app = lab.app()
    app.topic("t", partitions=PARTITIONS)

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    seen = Seen()
    async with lab.working(app, declared=parts_of(app).topics):
        await until(lambda: blocked(lab) == PARTITIONS)
    await until(lambda: blocked(lab) == 0)


async def test_a_publish_into_any_partition_wakes_an_idle_worker(lab: ClusterLab) -> None:
    app = lab.app()
    app.topic("t", partitions=PARTITIONS)
    seen = Seen()

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    waits: list[float] = []
    async with lab.working(app, declared=parts_of(app).topics):
        for number, id_ in keys_for_each(PARTITIONS).items():
            await until(lambda: blocked(lab) == PARTITIONS)
            sent_at = time.monotonic()
            await app.publish("t", number, id=id_)
            await seen.count(len(waits) + 1)
            waits.append(seen.at[-1] - sent_at)
    assert sorted(seen.bodies) == list(range(PARTITIONS))
    assert max(waits) < WAKING_S, waits


def test_a_publish_into_any_partition_wakes_a_simple_consumer(lab: ClusterLab) -> None:
    client = lab.client()
    client.admin.create_topic("t", partitions=PARTITIONS)
    consumer = client.simple_consumer("t", group="g", create_group=True)
    waits = []
    for number, id_ in keys_for_each(PARTITIONS).items():
        got: list[tuple[float, list[Message[Any]]]] = []

        def wait(into: list[tuple[float, list[Message[Any]]]] = got) -> None:
            into.append((consumer.receive(wait=20), time.monotonic())[::-1])

        thread = threading.Thread(target=wait)
        thread.start()
        end = time.monotonic() + 10
        while blocked(lab) < PARTITIONS and time.monotonic() < end:
            time.sleep(0.005)
        sent_at = time.monotonic()
        client.publish("t", number, id=id_)
        thread.join(20)
        ((at, (message,)),) = got
        assert message.body == number
        consumer.ack(message)
        waits.append(at - sent_at)
    assert blocked(lab) == 0
    assert max(waits) < WAKING_S, waits


async def test_an_asyncio_receive_is_woken_and_leaves_nothing_blocked(lab: ClusterLab) -> None:
    app = lab.app()
    client = app.async_client
    await client.admin.create_topic("t", partitions=PARTITIONS)
    consumer = client.simple_consumer("t", group="g", create_group=True)
    await consumer.join()
    waiting = asyncio.ensure_future(consumer.receive(wait=20))
    await until(lambda: blocked(lab) == PARTITIONS)
    await client.publish("t", "wake up")
    (message,) = await waiting
    await consumer.ack(message)
    await until(lambda: blocked(lab) == 0)

    cancelled = asyncio.ensure_future(consumer.receive(wait=20))
    await until(lambda: blocked(lab) == PARTITIONS)
    cancelled.cancel()
    await until(lambda: blocked(lab) == 0)
