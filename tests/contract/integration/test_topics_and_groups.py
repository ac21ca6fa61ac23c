"""Topics, groups, partitions and namespaces, worked on by workers in this process."""

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from rqretry import App, ConfigError, GroupNotFound, Message, RetryPolicy, TopicNotFound
from rqretry.protocol.keys import NamespaceKeys, partition_keys
from tests.contract.integration.harness import NAMESPACE, Lab, Seen, counted, until


async def test_every_group_gets_every_message_and_a_later_one_only_what_comes_after(
    lab: Lab,
) -> None:
    app, one, two = lab.app(), Seen(), Seen()
    app.consumer("orders", group="one")(one.add)
    app.consumer("orders", group="two")(two.add)
    late_app, late = lab.app(), Seen()
    late_app.consumer("orders", group="late")(late.add)

    async with lab.working(app):
        await app.publish("orders", "before")
        await one.count(1)
        await two.count(1)
        async with lab.working(late_app):
            await app.publish("orders", "after")
            await late.count(1)
            await one.count(2)
            await two.count(2)
        await counted(lab, "one", succeed=2)
        await counted(lab, "two", succeed=2)

    assert sorted(one.bodies) == sorted(two.bodies) == ["after", "before"]
    assert late.bodies == ["after"]


async def test_a_later_group_gets_what_is_still_stored_where_it_asks_for_it(lab: Lab) -> None:
    app, other, late = lab.app(), lab.app(), Seen()
    stuck, seen = asyncio.Event(), Seen()

    @app.consumer("orders", group="one", concurrency=4)
    async def one(message: Message[Any]) -> None:
        seen.add(message)
        await stuck.wait()

    other.consumer("orders", group="late", start="earliest")(late.add)
    async with lab.working(app):
        await app.publish_many("orders", range(30))
        await seen.count(4)
        async with lab.working(other):
            await late.count(30)
            await app.publish("orders", 30)
            await late.count(31)
            stuck.set()
            await counted(lab, "one", succeed=31)
            await counted(lab, "late", succeed=31)

    assert sorted(late.bodies) == list(range(31))
    assert {message.attempt for message in late.messages} == {1}
    (topic,) = (await app.admin.stats("orders")).topics
    assert topic.stored == 0


async def test_one_group_works_on_several_topics(lab: Lab) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer(["orders", "returns"], group="warehouse")
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    async with lab.working(app):
        await app.publish("orders", 1)
        await app.publish("returns", 2)
        await seen.count(2)

    assert {(message.topic, message.body) for message in seen.messages} == {
        ("orders", 1),
        ("returns", 2),
    }


async def test_four_partitions_and_three_groups_are_all_worked_through(lab: Lab) -> None:
    app, third = lab.app(), lab.app()
    await app.admin.create_topic("flights", partitions=4)
    done: dict[str, Counter[int]] = {name: Counter() for name in ("a", "b", "c")}
    seen = {name: Seen() for name in done}

    def consume(group: str, app: App) -> None:
        @app.consumer("flights", group=group, concurrency=8)
        async def handle(message: Message[Any]) -> None:
            done[group][message.body] += 1
            seen[group].add(message)

    consume("a", app)
    consume("b", app)
    consume("c", third)
    async with lab.working(app), lab.working(app):
        await app.publish_many("flights", range(300))
        async with lab.working(third):
            await app.publish_many("flights", range(300, 600))
            await seen["a"].count(600)
            await seen["b"].count(600)
            await seen["c"].count(300)
            await counted(lab, "a", succeed=600)
            await counted(lab, "b", succeed=600)
            await counted(lab, "c", succeed=300)

    assert done["a"] == done["b"] == Counter(range(600))
    assert done["c"] == Counter(range(300, 600))
    (topic,) = (await app.admin.stats("flights")).topics
    assert (topic.partitions, topic.stored) == (4, 0)
    used = [lab.redis.hget(f"rqretry:test:{{flights:{n}}}:counters", "publish:a") for n in range(4)]
    assert all(int(count or 0) > 50 for count in used)


async def test_sync_handlers_run_in_threads_and_async_ones_in_the_loop(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    together = asyncio.Barrier(8)

    @app.consumer("t", group="async", concurrency=8)
    async def handle_async(message: Message[Any]) -> None:
        await together.wait()  # all eight are inside at once, or nobody gets on
        seen.add(message)

    threads = threading.Barrier(4)

    @app.consumer("t", group="threads", concurrency=4)
    def handle_sync(message: Message[Any]) -> None:
        threads.wait(timeout=10)
        seen.add(message)

    async with lab.working(app):
        await app.publish_many("t", range(8))
        await seen.count(16)
        await counted(lab, "threads", succeed=8)
        await counted(lab, "async", succeed=8)


async def test_namespaces_do_not_see_each_other(lab: Lab) -> None:
    here, there, seen = lab.app(), lab.app(namespace="elsewhere"), Seen()
    here.consumer("t", group="g")(seen.add)

    async with lab.working(here):
        await there.publish("t", "not for us")
        await here.publish("t", "for us")
        await seen.count(1)
        await counted(lab, "g", succeed=1)

    assert seen.bodies == ["for us"]
    assert (await there.admin.stats("t")).backlog == 1
    assert await there.admin.groups() == []


async def test_a_group_is_push_or_simple_and_the_error_names_both(lab: Lab) -> None:
    app, client = lab.app(), lab.client()
    client.admin.create_topic("t")
    client.simple_consumer("t", group="by-hand", create_group=True)
    app.consumer("t", group="by-hand")(Seen().add)

    with pytest.raises(ConfigError, match=r"'by-hand'.*simple consumer.*push"):
        async with lab.working(app):
            pass

    other = lab.app()
    other.consumer("t", group="workers")(Seen().add)
    async with lab.working(other):
        pass
    with pytest.raises(ConfigError, match=r"'workers'.*push consumer.*simple"):
        client.simple_consumer("t", group="workers")


async def test_a_misspelt_group_or_topic_is_an_error_and_creates_nothing(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("t")
    before = sorted(lab.redis.keys("*"))

    with pytest.raises(GroupNotFound, match="'nobody'"):
        client.simple_consumer("t", group="nobody")
    with pytest.raises(TopicNotFound, match="'nothing'"):
        client.simple_consumer("nothing", group="g", create_group=True)
    with pytest.raises(TopicNotFound):
        client.admin.stats("nothing")
    with pytest.raises(GroupNotFound):
        client.admin.set_group("nobody", max_retries=1)
    with pytest.raises(GroupNotFound):
        client.admin.dead_letters("nobody")

    assert sorted(lab.redis.keys("*")) == before
    assert client.admin.groups() == []


async def test_a_level_table_that_differs_names_both_tables(lab: Lab) -> None:
    lab.client(delay_levels="1s 2s 3s").admin.create_topic("t")

    lab.client(delay_levels="1s 2s 3s").admin.topics()
    lab.client().admin.topics()
    with pytest.raises(ConfigError, match=r"'1s 5s'.*'1s 2s 3s'"):
        lab.client(delay_levels="1s 5s").admin.topics()


async def test_group_settings_take_effect_at_once(lab: Lab) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g", policy=RetryPolicy.fixed("10ms"), max_retries=1000)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        raise ValueError

    async with lab.working(app):
        await app.publish("t", 1)
        await seen.count(3)
        await app.admin.set_group("g", max_retries=0)
        stats = await counted(lab, "g", dead=1)
        (dead_letter,) = await app.admin.dead_letters("g")

    assert dead_letter.attempt == len(seen.messages) >= 3
    assert stats.dead == 1
    assert (await app.admin.group("g")).max_retries == 0


@pytest.mark.parametrize("explicit", [True, False], ids=["alone", "supervised"])
async def test_a_worker_whose_server_lost_everything_joins_again_as_it_was_declared(
    lab: Lab, explicit: bool
) -> None:
    app, seen = lab.app(), Seen()
    policy = RetryPolicy.ladder("1s 5s", max_retries=7)
    declared = app.consumer("t", group="g", visibility=1, policy=policy, tags="new")
    declared(seen.add)
    async with lab.working(app, explicit=explicit):
        await app.publish("t", "before", tag="new")
        await seen.count(1)
        await counted(lab, "g", succeed=1)
        lab.redis.flushall()
        other = lab.app()
        await until(lambda: lab.redis.exists(NamespaceKeys(NAMESPACE).groups))
        await other.publish("t", "not for it", tag="old")
        await other.publish("t", "after", tag="new")
        await seen.count(2)

    assert seen.bodies == ["before", "after"]
    group = await app.admin.group("g")
    assert (group.max_retries, group.policy, group.tags) == (7, "ladder:1s 5s", {"t": "new"})


async def test_a_worker_that_joins_again_leaves_a_group_that_is_there_as_operators_have_set_it(
    lab: Lab,
) -> None:
    app, seen = lab.app(), Seen()
    app.consumer("t", group="g", visibility=1, max_retries=7)(seen.add)
    async with lab.working(app):
        await app.publish("t", "before")
        await counted(lab, "g", succeed=1)
        await app.admin.set_group("g", max_retries=3)
        lab.redis.delete(partition_keys(NAMESPACE, "t", 0).group("g", 18).config)  # a copy is lost
        await app.publish("t", "after")
        await seen.count(2)

    assert (await app.admin.group("g")).max_retries == 3


def test_what_a_client_knows_of_a_topic_that_was_lost_is_not_taken_for_the_new_one(
    lab: Lab,
) -> None:
    old, new = lab.client(), lab.client()
    old.admin.create_topic("t")
    for group in ("h", "g"):
        old.simple_consumer("t", group=group, create_group=True).receive(wait=0)
    old.publish("t", "before")
    lab.redis.flushall()
    new.admin.create_topic("t")
    consumer = new.simple_consumer("t", group="g", create_group=True)
    consumer.receive(wait=0)
    new.admin.set_topic("t", max_messages=100)  # as many changes as there were before

    old.publish("t", "after")

    (got,) = consumer.receive(wait=5)
    assert got.body == "after"
    consumer.ack(got)
    assert lab.redis.keys("*group:h*") == []
    assert not lab.redis.exists(partition_keys(NAMESPACE, "t", 0).bodies)
