"""Ordered groups through the public API: order, one at a time, retries that block, limits."""

import asyncio
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from rqretry import (
    App,
    ConfigError,
    ConsumeResult,
    InvalidArgument,
    Message,
    OutgoingMessage,
    RetryPolicy,
)
from rqretry.core.parts import parts_of
from tests.contract.integration.harness import Lab, Seen, counted


async def test_message_groups_are_handled_in_order_and_one_message_at_a_time(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    running: dict[str | None, int] = defaultdict(int)
    together = of_one_group = 0

    @app.consumer("orders", group="g", ordered=True)
    async def handle(message: Message[Any]) -> None:
        nonlocal together, of_one_group
        running[message.message_group] += 1
        of_one_group = max(of_one_group, running[message.message_group])
        together = max(together, sum(running.values()))
        await asyncio.sleep(0.01 if message.body % 4 == 0 else 0)  # those behind would overtake
        running[message.message_group] -= 1
        seen.add(message)

    await app.admin.create_topic("orders", partitions=3)
    names = [f"order-{n}" for n in range(8)]
    messages = [OutgoingMessage(body=k, message_group=name) for k in range(20) for name in names]
    async with lab.working(app, concurrency=4), lab.working(app, concurrency=4):
        await app.publish_many("orders", messages)
        await seen.count(160, 30)
        await counted(lab, "g", succeed=160)

    bodies: dict[str | None, list[int]] = defaultdict(list)
    for message in seen.messages:
        bodies[message.message_group].append(message.body)
    assert bodies == {name: list(range(20)) for name in names}
    assert (of_one_group, together > 1) == (1, True)


async def test_a_failure_blocks_its_message_group_alone_and_is_tried_again_after_the_interval(
    lab: Lab,
) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("orders", group="g", ordered=True, policy=RetryPolicy.fixed("50ms"))
    async def handle(message: Message[Any]) -> ConsumeResult:
        seen.add(message)
        failing = message.body == "bad" and message.attempt < 3
        return ConsumeResult.FAILURE if failing else ConsumeResult.SUCCESS

    async with lab.working(app):
        for body, name in (("bad", "x"), ("behind", "x"), ("other", "y"), ("free", None)):
            await app.publish("orders", body, message_group=name)
        await seen.count(6)
        await counted(lab, "g", succeed=4, fail=2)

    of_x = [(m.body, m.attempt) for m in seen.messages if m.message_group == "x"]
    assert of_x == [("bad", 1), ("bad", 2), ("bad", 3), ("behind", 1)]
    starts = [at for at, body in zip(seen.at, seen.bodies, strict=True) if body == "bad"]
    assert all(b - a >= 0.045 for a, b in pairwise(starts))
    assert seen.bodies.index("other") < seen.bodies.index("behind")


async def test_a_dead_letter_lets_the_next_one_go_and_goes_to_the_end_when_it_is_sent_back(
    lab: Lab,
) -> None:
    app, seen = lab.app(), Seen()
    let = asyncio.Event()

    @app.consumer("orders", group="g", ordered=True, max_retries=0)
    async def handle(message: Message[Any]) -> bool:
        seen.add(message)
        if message.body == "last":
            await let.wait()
        return message.body != "bad" or len(seen.messages) > 2

    async with lab.working(app):
        for body in ("bad", "last"):
            await app.publish("orders", body, message_group="x")
        await seen.count(2)
        assert lab.stats("g").dead == 1
        assert await app.admin.redrive("g", all=True) == 1
        stats = lab.stats("g")
        assert (stats.ready, stats.blocked, stats.inflight) == (1, 1, 1)
        let.set()
        await counted(lab, "g", succeed=2)

    assert [(m.body, m.attempt) for m in seen.messages] == [("bad", 1), ("last", 1), ("bad", 1)]


async def test_unlimited_retries_block_until_success(lab: Lab) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer(
        "orders",
        group="g",
        ordered=True,
        max_retries="unlimited",
        policy=RetryPolicy.fixed("10ms"),
    )
    async def handle(message: Message[Any]) -> bool:
        seen.add(message)
        return message.attempt > 20

    async with lab.working(app):
        await app.publish("orders", 1, message_group="x")
        await app.publish("orders", 2, message_group="x")
        await seen.count(42)

    assert seen.bodies == [1] * 21 + [2] * 21


async def test_the_first_ordered_group_gets_what_was_published_before_it_in_order(
    lab: Lab,
) -> None:
    app, seen = lab.app(), Seen()
    messages = [OutgoingMessage(body=n, message_group=f"x{n % 3}") for n in range(1200)]
    await app.publish_many("orders", messages)

    app.consumer("orders", group="g", ordered=True)(seen.add)
    async with lab.working(app):
        await seen.count(1200, 30)
        await counted(lab, "g", succeed=1200)

    for rest in range(3):
        of_one = [body for body in seen.bodies if body % 3 == rest]
        assert of_one == list(range(rest, 1200, 3))


async def test_a_message_says_behind_whom_it_waits(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("orders", partitions=4)
    consumer = client.simple_consumer("orders", group="g", create_group=True, ordered=True)
    head, second, third = (client.publish("orders", n, message_group="x") for n in range(3))

    (state,) = client.admin.message(third).states
    assert state.state == "ready"
    wanted = f"behind {head} in its message group, 2 messages are ahead of it"
    assert state.explain == wanted
    assert client.admin.message(second).states[0].explain.startswith(f"behind {head}")
    received = consumer.receive(wait=1)
    assert [message.id for message in received] == [head]
    consumer.ack(received)
    assert client.admin.explain(second)["g"].startswith("ready")
    assert [event.event for event in client.admin.timeline(head)] == ["publish", "lease", "succeed"]


async def test_a_simple_consumer_of_an_ordered_group_gets_one_of_each_message_group(
    lab: Lab,
) -> None:
    client = lab.client()
    client.admin.create_topic("orders")
    consumer = client.simple_consumer("orders", group="g", create_group=True, ordered=True)
    for n in range(3):
        client.publish("orders", n, message_group="x")
        client.publish("orders", n, message_group="y")

    for n in range(3):
        received = consumer.receive(wait=1)
        assert sorted((m.message_group, m.body) for m in received) == [("x", n), ("y", n)]
        assert consumer.receive(wait=0) == []
        consumer.ack(received)


async def test_purge_reset_and_delete_free_what_is_blocked(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("orders")
    consumer = client.simple_consumer("orders", group="g", create_group=True, ordered=True)
    ids = [client.publish("orders", n, message_group="x") for n in range(600)]
    consumer.receive(wait=1)

    assert client.admin.purge("g", ids=[ids[7]], state="ready", dry_run=True) == 1
    assert client.admin.purge("g", ids=[ids[7]], state="ready") == 1
    assert client.admin.reset("g", dry_run=True) == 598
    assert client.admin.reset("g") == 598
    stats = lab.stats("g")
    assert (stats.ready, stats.blocked, stats.inflight) == (0, 0, 1)
    client.publish("orders", "more", message_group="x")
    assert client.admin.delete_group("g", dry_run=True) == 2
    assert client.admin.delete_group("g") == 2
    (topic,) = client.admin.stats("orders").topics
    assert topic.stored == 0


async def test_an_ordered_group_and_one_that_is_not_are_not_mixed(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("orders")
    client.simple_consumer("orders", group="o", create_group=True, ordered=True)
    client.simple_consumer("orders", group="u", create_group=True)

    client.simple_consumer("orders", group="o")  # as the group is
    with pytest.raises(ConfigError, match="group 'o' is ordered and this consumer of it is not"):
        client.simple_consumer("orders", group="o", ordered=False)
    with pytest.raises(ConfigError, match="'u' is not ordered and this consumer of it is ordered"):
        client.simple_consumer("orders", group="u", ordered=True)
    with pytest.raises(InvalidArgument, match="policy 'rocketmq' is not for an ordered group"):
        client.admin.set_group("o", policy="rocketmq")
    assert client.admin.set_group("o", policy="fixed:30s").policy == "fixed:30s"
    assert client.admin.group("o").ordered


@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy.rocketmq(),
        RetryPolicy.ladder("1s"),
        RetryPolicy.fixed("9ms"),
        RetryPolicy.fixed("30001ms"),
    ],
)
async def test_an_ordered_consumer_with_another_policy_is_refused(policy: RetryPolicy) -> None:
    app = App("redis://localhost")
    with pytest.raises(InvalidArgument, match="give a fixed one of 10ms to 30s"):
        app.consumer("orders", group="g", ordered=True, policy=policy)(print)


@pytest.mark.parametrize(
    ("options", "recorded"),
    [
        ({"message_group": "x" * 64}, "64 characters"),
        ({"message_group": "é" * 32}, "takes 64 bytes"),
        ({"message_group": "a b"}, "without blanks"),
        ({"message_group": "a\x00"}, "without blanks or control"),
        ({"message_group": ""}, "0 characters"),
        ({"message_group": 5}, "not str"),
        ({"message_group": "x", "delay": 1}, "cannot be given with a delay"),
        ({"message_group": "x", "delay_level": 1}, "cannot be given with a delay"),
    ],
)
async def test_a_message_group_that_cannot_be_is_refused_and_nothing_is_written(
    lab: Lab, options: dict[str, Any], recorded: str
) -> None:
    client = lab.client()
    with pytest.raises(InvalidArgument, match=recorded):
        client.publish("orders", 1, **options)
    assert client.admin.topics() == []


async def test_the_catalog_reports_unfinished_ordered_messages(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("orders", partitions=2)

    def unfinished() -> int:
        record = parts_of(client).store.perform(parts_of(client).catalog.store.topic("orders"))
        return parts_of(client).store.perform(
            parts_of(client).catalog.growth.unfinished_ordered(record)
        )

    client.publish("orders", 0, message_group="x")
    client.publish("orders", 1)
    assert unfinished() == 1
    consumer = client.simple_consumer("orders", group="g", create_group=True, ordered=True)
    client.publish("orders", 2, message_group="y")
    assert unfinished() == 2
    received = consumer.receive(wait=1)
    assert sorted(message.body for message in received) == [0, 1, 2]
    consumer.ack(received)
    assert unfinished() == 0


async def test_messages_of_a_transaction_keep_their_order_behind_what_was_there(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    app.consumer("orders", group="g", ordered=True)(seen.add)

    async with lab.working(app):
        await app.publish("orders", 0, message_group="x")
        async with app.transaction("orders") as tx:
            for n in range(1, 6):
                await tx.publish({"n": n}, message_group="x")
        await seen.count(6)
        await counted(lab, "g", succeed=6)

    assert seen.bodies == [0, *({"n": n} for n in range(1, 6))]


@pytest.mark.parametrize("partitions", [1, 4])
async def test_results_go_with_the_lease_of_what_they_let_go(lab: Lab, partitions: int) -> None:
    app, seen = lab.app(), Seen()
    await app.admin.create_topic("orders", partitions=partitions)

    @app.consumer("orders", group="g", ordered=True)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    async with lab.working(app):
        await app.publish("orders", 0, message_group="x")
        await counted(lab, "g", succeed=1)
        lab.redis.config_resetstat()
        messages = [OutgoingMessage(body=n, message_group="x") for n in range(1, 101)]
        await app.publish_many("orders", messages)
        await counted(lab, "g", succeed=101)
        counted_waits = lab.redis.info("commandstats").get("cmdstat_bzpopmin", {"calls": 0})

    assert seen.bodies == list(range(101))
    assert counted_waits["calls"] <= 20  # else one for each message
