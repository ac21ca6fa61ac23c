"""What waiting costs on a cluster: a message ends one wait, and the others stand."""

from typing import Any

import pytest
from redis.crc import key_slot

from rqretry import Message
from rqretry.core.parts import parts_of
from rqretry.protocol.keys import partition_keys
from rqretry.transport import store
from rqretry.transport.connection import async_connection
from tests.contract.cluster.conftest import ClusterLab
from tests.contract.cluster.test_waking import blocked
from tests.contract.integration.harness import NAMESPACE, Seen, until

PARTITIONS = 32


async def test_a_message_opens_no_connection_and_leaves_the_other_waits_alone(
    lab: ClusterLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, seen = lab.app(), Seen()
    opened: list[Any] = []

    def connecting(*args: Any) -> Any:
        opened.append(args)
        return async_connection(*args)

    monkeypatch.setattr(store, "async_connection", connecting)
    app.topic("t", partitions=PARTITIONS)

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    async with lab.working(app, declared=parts_of(app).topics):
        await until(lambda: blocked(lab) == PARTITIONS)
        for number in range(PARTITIONS):  # the publisher connects, and so does what settles
            await app.publish("t", number)
        await seen.count(PARTITIONS)
        await until(lambda: blocked(lab) == PARTITIONS)
        before = len(opened)

        for number in range(20):
            await app.publish("t", number)
            await seen.count(PARTITIONS + number + 1)
        await until(lambda: blocked(lab) == PARTITIONS)

        assert len(opened) - before <= 2  # what is due may be looked for at the same time


async def test_a_worker_of_one_place_follows_it_to_another_primary(lab: ClusterLab) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    keys = partition_keys(NAMESPACE, "t", 0)
    async with lab.working(app):
        await until(lambda: blocked(lab) == 1)
        source = lab.cluster.server_of(keys.meta)
        target = next(s for s in lab.cluster.primaries if s is not source)
        lab.cluster.move(key_slot(keys.meta.encode()), target)

        await app.publish("t", "there")
        await seen.count(1)
        await until(lambda: int(target.info("clients")["blocked_clients"]) == 1)

    assert seen.bodies == ["there"]
