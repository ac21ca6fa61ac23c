"""Bodies over 64 KiB, which their consumers read beside the script that leases them."""

import os
from typing import Any

import pytest

from rqretry import Client, Message, OutgoingMessage, QueueFull
from rqretry.consumer import simple_operations
from rqretry.protocol.command import Operation
from rqretry.protocol.lease import Leased, with_large
from tests.contract.integration.harness import NAMESPACE, Lab, Seen, counted
from tests.support.faults.proxy import FaultProxy
from tests.support.faults.rules import Fault, Rule

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


def test_every_way_to_publish_takes_large_bodies(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("t", partitions=2)
    consumer = client.simple_consumer("t", group="g", create_group=True)
    bodies = [os.urandom(100_000) for _ in range(30)]
    client.publish("t", bodies[0])
    client.publish("t", OutgoingMessage(body=bodies[1], id="own", tag="red", keys=["k"]))
    assert client.publish(
        "t", OutgoingMessage(body=bodies[1], id="own", tag="red", keys=["k"])
    ).duplicate
    client.publish("t", OutgoingMessage(body=bodies[2], delay=0.01))
    with client.transaction("t") as transaction:
        transaction.publish(bodies[3])
        transaction.publish(OutgoingMessage(body=bodies[4], id="half"))
    client.publish_many("t", [*bodies[5:], b"small"])
    with client.transaction("t") as transaction:
        transaction.publish(os.urandom(100_000))
        transaction.rollback()
    received: list[Any] = []
    while len(received) < 31:
        messages = consumer.receive(max_messages=32, wait=1)
        received += [message.body for message in messages]
        for message in messages:
            consumer.ack(message)
    assert sorted(received) == sorted([*bodies, b"small"])
    for partition in (0, 1):
        for name in ("bodies", "big", "incoming"):
            assert not lab.redis.exists(f"rqretry:{NAMESPACE}:{{t:{partition}}}:{name}")


@pytest.mark.parametrize("fault", [Fault.DROP_REQUEST, Fault.DROP_REPLY])
def test_a_large_body_is_published_once_whatever_is_lost(lab: Lab, fault: Fault) -> None:
    near = lab.client()
    near.admin.create_topic("t")
    consumer = near.simple_consumer("t", group="g", create_group=True)
    with (
        FaultProxy(lab.server) as proxy,
        Client(f"{proxy.url}&socket_timeout=0.3", namespace=NAMESPACE) as client,
    ):
        client.publish("t", b"small")
        proxy.rules = [Rule(fault, "publish_with_options", 1)]
        client.publish("t", b"x" * 100_000)
    messages = consumer.receive(max_messages=9, wait=0)
    assert [len(message.body) for message in messages] == [5, 100_000]
    for message in messages:
        consumer.ack(message)
    assert not lab.redis.exists(f"rqretry:{NAMESPACE}:{{t:0}}:incoming")


def test_a_large_body_at_maxmemory_is_refused_and_leaves_nothing(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("t")
    client.publish("t", b"small")
    key = f"rqretry:{NAMESPACE}:{{t:0}}:bodies"
    lab.redis.config_set("maxmemory", lab.redis.info("memory")["used_memory"] + 600_000)
    try:
        with pytest.raises(QueueFull, match="memory limit"):
            client.publish("t", b"x" * 3 * MIB)
    finally:
        lab.redis.config_set("maxmemory", 0)
    assert lab.redis.hlen(key) == 1
    assert not lab.redis.exists(f"rqretry:{NAMESPACE}:{{t:0}}:incoming")
    client.publish("t", b"x" * 3 * MIB)


def test_a_server_that_forgot_its_scripts_is_given_them_and_has_the_message_once(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("t")
    consumer = client.simple_consumer("t", group="g", create_group=True)
    client.publish("t", b"x" * 100_000)
    lab.redis.script_flush()
    client.publish("t", b"y" * 100_000)
    assert [m.body[:1] for m in consumer.receive(max_messages=9, wait=0)] == [b"x", b"y"]
    assert not lab.redis.exists(f"rqretry:{NAMESPACE}:{{t:0}}:incoming")
