"""A primary that is gone holds up nobody: what is on the others is leased, renewed and settled."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from rqretry import App, Client, Message
from rqretry.core.message import ReceiptHandle
from rqretry.core.parts import parts_of
from rqretry.protocol.inspect import read_records
from rqretry.protocol.keys import partition_keys
from tests.contract.integration.harness import NAMESPACE, Seen
from tests.support.fleets import Cluster

pytestmark = [pytest.mark.campaign, pytest.mark.chaos]

PARTITIONS = 12
EACH = 10


async def test_a_primary_that_is_gone_holds_up_nobody_else() -> None:
    with Cluster(3) as cluster:
        with Client(cluster.url, namespace=NAMESPACE) as client:
            client.admin.create_topic("t", partitions=PARTITIONS)
            catalog = cluster.server_of(parts_of(client).catalog.keys.topics)
        servers = {n: cluster.server_of(partition_keys(NAMESPACE, "t", n).meta)
                   for n in range(PARTITIONS)}  # fmt: skip
        victim = next(server for server in servers.values() if server is not catalog)
        alive = [n for n, server in servers.items() if server is not victim]
        assert 0 < len(alive) < PARTITIONS
        seen, release = Seen(), asyncio.Event()
        app = App(cluster.url, namespace=NAMESPACE)

        @app.consumer("t", group="g", visibility=3, concurrency=256)
        async def handle(message: Message[Any]) -> None:
            seen.add(message)
            await release.wait()

        worker = parts_of(app).worker(grace=1)
        running = asyncio.ensure_future(worker.run())
        await worker.started.wait()
        ids = await app.publish_many("t", range(PARTITIONS * EACH))
        await seen.count(len(ids), seconds=60)
        where = {m.id: ReceiptHandle.parse(m.receipt_handle).partition for m in seen.messages}
        victim.embedded.kill()
        await asyncio.sleep(6)  # two visibilities: every lease had to be renewed meanwhile
        release.set()
        wanted = [id_ for id_ in ids if where[id_] in alive]
        with Client(cluster.url, namespace=NAMESPACE) as client:
            async with asyncio.timeout(60):
                while committed(client, alive) < len(wanted):  # noqa: ASYNC110 - on the server
                    await asyncio.sleep(0.1)
        starts = Counter(message.id for message in seen.messages)
        assert {starts[id_] for id_ in wanted} == {1}, "no lease of another primary was lost"
        worker.stop()
        worker.stop()
        await asyncio.wait([running], timeout=60)
        await app.aclose()


def committed(client: Client, partitions: list[int]) -> int:
    """How many were committed in these partitions."""
    total = 0
    for number in partitions:
        keys = partition_keys(NAMESPACE, "t", number)
        counters = parts_of(client).store.run(read_records(keys.counters))
        total += int(counters.get("succeed:g", 0))
    return total
