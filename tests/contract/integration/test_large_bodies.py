"""Bodies over 64 KiB, which their consumers read beside the script that leases them."""

import os
from typing import Any

import pytest

from rqretry import Message
from rqretry.consumer import simple_operations
from rqretry.protocol.command import Operation
from rqretry.protocol.lease import Leased, with_large
from tests.contract.integration.harness import NAMESPACE, Lab, Seen, counted

MIB = 1024 * 1024


async def test_workers_and_simple_consumers_get_bodies_of_4_mib_beside_small_ones(
    lab: Lab,
) -> None:
    app, client, seen = lab.app(), lab.client(), Seen()
    bodies = [b"small", os.urandom(4 * MIB), os.urandom(70_000), b"small, too", os.urandom(2 * MIB)]

    @app.consumer("t", group="g", concurrency=8)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    client.admin.create_topic("t")
    client.simple_consumer("t", group="simple", create_group=True)
    async with lab.working(app):
        for body in (bodies[1], *bodies):  # alone, behind a wait, and several at once
            await app.publish("t", body)
        await app.publish_many("t", bodies)
        await counted(lab, "g", succeed=11, fail=0)
    assert sorted(seen.bodies) == sorted([bodies[1], *bodies, *bodies])
    with client.simple_consumer("t", group="simple") as consumer:
        received: list[Any] = []
        while messages := consumer.receive(max_messages=32, wait=0):
            received += [message.body for message in messages]
            for message in messages:
                consumer.ack(message)
    assert sorted(received) == sorted([bodies[1], *bodies, *bodies])


async def test_a_large_message_that_is_gone_before_it_is_read_is_not_delivered(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = lab.client()
    client.admin.create_topic("t")
    consumer = client.simple_consumer("t", group="g", create_group=True)
    client.publish("t", os.urandom(70_000))
    kept = client.publish("t", b"small")

    def purged(keys: Any, leased: Leased) -> Operation[Leased]:
        lab.redis.delete(f"rqretry:{NAMESPACE}:{{t:0}}:bodies")
        return with_large(keys, leased)

    monkeypatch.setattr(simple_operations, "with_large", purged)
    assert [message.id for message in consumer.receive(max_messages=9, wait=0)] == [kept]
    lab.redis.flushall()
