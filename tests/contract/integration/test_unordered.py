"""Messages without a message group in an ordered group: one at a time in the order of their
partition, unless the topic says that they are unordered; and how long message groups are blocked.
"""

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from rqretry import InvalidArgument, Message, OutgoingMessage, RetryPolicy
from rqretry.core.message_id import partition_of
from tests.contract.integration.harness import Lab, Seen, counted, until

PARTITIONS = pytest.mark.parametrize("partitions", [1, 4])


class Watched:
    """An ordered consumer that notes what runs at once in each partition."""

    def __init__(self, lab: Lab, partitions: int) -> None:
        self.app, self.seen = lab.app(), Seen()
        self._partitions = partitions
        self.most = 0
        self.order: dict[int, list[Any]] = defaultdict(list)
        self._running: dict[int, int] = defaultdict(int)
        self.app.consumer("t", group="g", ordered=True)(self.handle)

    async def handle(self, message: Message[Any]) -> None:
        """Takes longer for some, so that those behind would overtake."""
        partition = partition_of(message.id, self._partitions)
        self._running[partition] += 1
        self.most = max(self.most, self._running[partition])
        await asyncio.sleep(0.01 if message.body % 3 == 0 else 0)
        self._running[partition] -= 1
        self.order[partition].append(message.body)
        self.seen.add(message)


@PARTITIONS
@pytest.mark.parametrize("known", [False, True], ids=["backlog", "published"])
async def test_messages_without_a_message_group_are_in_the_order_of_their_partition(
    lab: Lab, partitions: int, known: bool
) -> None:
    watched = Watched(lab, partitions)
    app = watched.app
    await app.admin.create_topic("t", partitions=partitions)
    if known:  # the group is there before the messages
        lab.client().simple_consumer("t", group="h", create_group=True, ordered=True)
    await app.publish_many("t", range(20))
    async with lab.working(app, concurrency=8), lab.working(app, concurrency=8):
        await app.publish_many("t", [OutgoingMessage(body=n, id=f"own-{n}") for n in range(20, 40)])
        for n in range(40, 50):
            await app.publish("t", n)
        first = 20 if known else 0  # what was there before belongs to the first group
        await watched.seen.count(50 - first)
        await counted(lab, "g", succeed=50 - first, fail=0, expire=0)
    assert watched.most == 1
    assert all(bodies == sorted(bodies) for bodies in watched.order.values())
    assert sorted(watched.seen.bodies) == list(range(first, 50))


@PARTITIONS
async def test_where_the_topic_says_unordered_they_are_handled_in_parallel(
    lab: Lab, partitions: int
) -> None:
    app, seen, go_on = lab.app(), Seen(), asyncio.Event()

    @app.consumer("t", group="g", ordered=True)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        await go_on.wait()

    await app.admin.create_topic("t", partitions=partitions)
    changed = await app.admin.set_topic("t", unordered="parallel")
    assert changed.unordered == "parallel"
    async with lab.working(app):
        await app.publish_many("t", range(10))
        await seen.count(10)  # all of them at once
        assert lab.stats("g").unordered == "parallel"
        await app.admin.set_topic("t", unordered="queue")
        ids = await app.publish_many("t", range(10, 20))
        await seen.count(10 + len({partition_of(id_, partitions) for id_ in ids}))
        assert lab.stats("g").blocked > 0
        go_on.set()
        await counted(lab, "g", succeed=20)
    with pytest.raises(InvalidArgument, match='must be "queue" or "parallel"'):
        await app.admin.set_topic("t", unordered="no")


@PARTITIONS
async def test_what_is_delayed_or_in_a_transaction_is_in_order_too(
    lab: Lab, partitions: int
) -> None:
    watched = Watched(lab, partitions)
    app = watched.app
    await app.admin.create_topic("t", partitions=partitions)
    async with lab.working(app):
        for n in range(12):
            await app.publish("t", n, delay=0.3)
        async with app.transaction("t") as tx:
            for n in range(12, 24):
                await tx.publish(n)
        await watched.seen.count(24)
        await counted(lab, "g", succeed=24)
    assert watched.most == 1


async def test_a_topic_grows_while_messages_without_a_message_group_wait(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("t")
    consumer = client.simple_consumer("t", group="g", create_group=True, ordered=True)
    client.publish_many("t", range(3))
    assert [m.body for m in consumer.receive(wait=1)] == [0]
    assert client.admin.set_topic("t", partitions=2).partitions == 2


@PARTITIONS
async def test_how_long_each_message_group_is_blocked(lab: Lab, partitions: int) -> None:
    app = lab.app()

    @app.consumer("t", group="g", ordered=True, policy=RetryPolicy.fixed("20ms"))
    async def handle(message: Message[Any]) -> bool:
        return bool(message.body != "bad")

    await app.admin.create_topic("t", partitions=partitions)
    async with lab.working(app):
        first = await app.publish("t", "bad", message_group="x")
        await until(lambda: lab.stats("g").blocked_groups == 1)
        await app.publish("t", "behind", message_group="x")
        alone = await app.publish("t", "bad")
        await app.publish("t", "fine", message_group="y")
        await until(lambda: lab.stats("g").blocked_groups == 2)
        stats = lab.stats("g")
        long, short = stats.blockers
        assert (long.id, long.message_group, long.behind) == (first, "x", 1)
        assert (short.id, short.message_group, short.behind) == (alone, None, 0)
        assert stats.blocked_s == long.blocked_s >= short.blocked_s >= 0
        assert min(long.attempt, short.attempt) > 1
        await until(lambda: lab.stats("g").blocked_s > stats.blocked_s)
        assert (await app.admin.group("g")).max_retries is None
