"""Raising the number of partitions of a topic while producers and workers go on."""

import asyncio
from typing import Any

import pytest

from rqretry import ConfigError, InvalidArgument, Message, TopicNotFound
from rqretry.core.catalog_records import TopicRecord
from rqretry.core.errors import RqretryError
from rqretry.core.parts import parts_of
from rqretry.worker import partition_watch
from tests.contract.integration.harness import Lab, Seen, counted


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_watch, "LOOK_EVERY_S", 0.1)


async def test_running_workers_and_clients_use_new_partitions_without_a_restart(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    app.consumer("t", group="g")(seen.add)
    async with lab.working(app) as worker:
        await app.publish_many("t", range(10))
        await seen.count(10)
        info = await lab.app().admin.set_topic("t", partitions=4)
        assert info.partitions == 4
        for number in range(10, 60):
            await app.publish("t", number)
        await app.publish_many("t", range(60, 100))
        await seen.count(100)
        await counted(lab, "g", succeed=100, lease=100)
        assert {place.partition for place in worker.places} == {0, 1, 2, 3}
    assert sorted(seen.bodies) == list(range(100))
    used = {lab.redis.hget(f"rqretry:test:{{t:{n}}}:counters", "publish:g") for n in range(4)}
    assert None not in used


async def test_a_simple_consumer_and_a_later_group_find_new_partitions(lab: Lab) -> None:
    client = lab.client()
    client.publish("t", "before")
    with client.simple_consumer("t", group="s", create_group=True) as consumer:
        consumer.ack(consumer.receive(wait=1))
        lab.client().admin.set_topic("t", partitions=8)
        client.publish_many("t", range(40))
        received: list[Message[Any]] = []
        while len(received) < 40:
            messages = consumer.receive(32, wait=10)
            assert messages
            consumer.ack(messages)
            received += messages
    assert client.admin.delete_topic("t", force=True) == 0


async def test_fewer_partitions_are_refused_and_as_many_change_nothing(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("t", 4)
    with pytest.raises(InvalidArgument, match=r"partitions 3 of topic 't': it has 4.*give 4 or"):
        client.admin.set_topic("t", partitions=3)
    assert client.admin.set_topic("t", partitions=4).partitions == 4
    with pytest.raises(InvalidArgument, match="partitions"):
        client.admin.set_topic("t", partitions=1025)
    with pytest.raises(TopicNotFound):
        client.admin.set_topic("nobody", partitions=2)
    client.admin.set_topic("t", max_messages=100)
    info = client.admin.set_topic("t", partitions=5)
    assert (info.partitions, info.max_messages) == (5, 100)


async def test_growth_is_refused_while_ordered_messages_are_unfinished(lab: Lab) -> None:
    client = lab.client()
    client.publish("t", 1, message_group="a")
    with client.simple_consumer("t", group="s", create_group=True, ordered=True) as consumer:
        with pytest.raises(ConfigError, match="1 unfinished ordered messages"):
            client.admin.set_topic("t", partitions=2)
        assert client.admin.topics()[0].partitions == 1
        consumer.ack(consumer.receive(wait=1))
        assert client.admin.set_topic("t", partitions=2).partitions == 2


def test_a_group_that_joins_while_its_topic_grows_is_limited_everywhere(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("t")
    catalog, perform = parts_of(client).catalog, parts_of(client).store.perform
    perform(catalog.join("g", "push", ["t"], max_inflight=1))
    perform(catalog.store.topics.change("t", lambda record: record.growing_to(3)))
    perform(catalog.growth.resume(["t"]))  # it was checked before the group came
    shares = [
        lab.redis.hget(f"rqretry:test:{{t:{n}}}:group:g:config", "max_inflight") for n in range(3)
    ]
    assert shares == [b"1", b"1", b"1"]
    assert client.admin.pause("g").paused is True
    assert client.admin.resume("g").paused is False


async def test_growth_splits_max_inflight_anew_and_never_below_one(lab: Lab) -> None:
    client = lab.client()
    client.publish("t", 1)
    client.simple_consumer("t", group="s", create_group=True)
    client.admin.set_group("s", max_inflight=3)
    with pytest.raises(ConfigError, match=r"max_inflight 3.*raise it to 4"):
        client.admin.set_topic("t", partitions=4)
    assert client.admin.topics()[0].partitions == 1
    client.admin.set_topic("t", partitions=2)
    shares = [
        lab.redis.hget(f"rqretry:test:{{t:{n}}}:group:s:config", "max_inflight") for n in (0, 1)
    ]
    assert shares == [b"2", b"1"]


async def test_growth_that_was_cut_off_is_completed_by_the_next_call_or_start(lab: Lab) -> None:
    for complete in ("call", "start"):
        topic = f"t-{complete}"
        client = lab.client()
        client.publish(topic, 1)
        client.simple_consumer(topic, group="s", create_group=True)
        run, step, writes = (
            parts_of(client).store.session.run,
            parts_of(client).store.session.step,
            0,
        )

        def count(commands: Any) -> None:
            nonlocal writes
            writes += any(
                command.verb in ("compare_and_set", "configure", "subscribe")
                for command in commands
            )
            if writes == 2:  # the record says that it grows, and no partition knows
                raise RqretryError("cut")

        def cut_run(command: Any, seconds: float | None = None, run: Any = run) -> Any:
            count([command])
            return run(command, seconds)

        def cut_step(commands: Any, step: Any = step) -> Any:
            count(commands if isinstance(commands, list) else [])
            return step(commands)

        parts_of(client).store.session.run = cut_run  # type: ignore[method-assign]
        parts_of(client).store.session.step = cut_step  # type: ignore[method-assign, assignment]
        with pytest.raises(RqretryError, match="cut"):
            client.admin.set_topic(topic, partitions=3)
        stored = lab.redis.hget("rqretry:test:{test}:topics", topic).decode()
        record = TopicRecord.decode(topic, stored)
        assert (record.partitions, record.growing) == (1, 3)
        other = lab.client()
        other.publish(topic, 2)  # still into the first partition
        if complete == "call":
            assert other.admin.set_topic(topic, partitions=3).partitions == 3
        else:
            other.simple_consumer(topic, group="s")
        (found,) = [info for info in other.admin.topics() if info.name == topic]
        assert found.partitions == 3
        assert all(lab.redis.hget(f"rqretry:test:{{{topic}:{n}}}:meta", "route") for n in range(3))


async def test_nothing_is_lost_while_a_topic_grows_under_load(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    app.consumer("t", group="g")(seen.add)
    async with lab.working(app), lab.working(app, explicit=False):

        async def publish(start: int) -> None:
            for number in range(start, start + 100):
                await app.publish("t", number)

        async with asyncio.TaskGroup() as tasks:
            for start in range(0, 400, 100):
                tasks.create_task(publish(start))
            for partitions in (2, 3, 5):
                await app.admin.set_topic("t", partitions=partitions)
        await seen.count(400)
        await counted(lab, "g", succeed=400, lease=400)
    assert sorted(seen.bodies) == list(range(400))


def test_a_topic_that_came_back_with_other_partitions_is_published_to(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two make it anew after all data are gone; the slower one takes what the other one made."""
    client, quicker = lab.client(), lab.client()
    client.admin.create_topic("t", 4)
    client.publish("t", 1)
    lab.redis.flushall()

    def too_early(name: str) -> Any:
        monkeypatch.undo()
        quicker.admin.create_topic("t", 2)
        raise TopicNotFound(name)

    monkeypatch.setattr(parts_of(client).catalog.store, "topic", too_early)
    client.publish("t", 2)

    assert lab.client().admin.stats("t").topics[0].stored == 1
