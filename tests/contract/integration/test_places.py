"""An error belongs to its place, a group in a partition: nothing else stops for it."""

import asyncio
from typing import Any

import pytest

from rqretry import App, Client, Message, RetryPolicy
from rqretry.core.parts import parts_of
from rqretry.maintenance.upkeep import Upkeep
from rqretry.worker import fetch
from rqretry.worker.worker import Worker
from tests.contract.integration.harness import NAMESPACE, Lab, Seen, counted, until

TOPICS = ("a", "b", "c")


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nothing wakes a worker for is seen within a second, not twenty."""
    monkeypatch.setattr(fetch, "LOOK_EVERY_S", 1.0)


def key(topic: str, name: str) -> str:
    """A key of the group of a topic."""
    return f"rqretry:{NAMESPACE}:{{{topic}:0}}:group:g{topic}:{name}"


def consuming(lab: Lab, seen: dict[str, Seen], **options: Any) -> App:
    """An app with one group for each topic."""
    app = lab.app()
    for topic in TOPICS:

        @app.consumer(topic, group=f"g{topic}", **options)
        async def handle(message: Message[Any], topic: str = topic) -> None:
            seen[topic].add(message)
            if message.body == "fails once" and message.attempt == 1:
                raise ValueError("once")

    return app


def refusal(worker: Worker) -> str:
    return worker.condition().fault or ""


async def until_shown(lab: Lab) -> tuple[str, ...]:
    """What `rqretry status` shows of a worker's refusals, as soon as it has registered them."""
    with Client(lab.url, namespace=NAMESPACE) as client:
        await until(lambda: any("cannot lease" in why for why in client.admin.stats().refused))
        return client.admin.stats().refused


@pytest.mark.parametrize("damaged", ["inflight", "ready", "wake"])
async def test_a_damaged_place_stops_no_other(lab: Lab, damaged: str) -> None:
    seen, place = {topic: Seen() for topic in TOPICS}, "group ga in partition 0 of a"
    app = consuming(lab, seen)
    async with lab.working(app) as worker:
        lab.redis.set(key("a", damaged), "damaged")
        for number in range(20):
            await asyncio.gather(*(app.publish(topic, number) for topic in ("b", "c")))
        for topic in ("b", "c"):
            await seen[topic].count(20)
            await counted(lab, f"g{topic}", lease=20, succeed=20, expire=0)
        if damaged == "inflight":
            await until(lambda: place in refusal(worker))
            shown = await until_shown(lab)
            assert any(f"cannot lease for {place}" in line for line in shown), shown
            assert any(f"{place} cannot be read" in line for line in shown), shown
        lab.redis.delete(key("a", damaged))
        await app.publish("a", "at last")
        assert await seen["a"].count(1)
        await until(lambda: not refusal(worker))


async def test_upkeep_that_fails_in_one_place_goes_on_in_the_others(lab: Lab) -> None:
    seen = {topic: Seen() for topic in TOPICS}
    app = consuming(lab, seen, policy=RetryPolicy.ladder("300ms", max_retries=3))
    async with lab.working(app) as worker:
        await app.publish("a", "fails once")
        (place,) = [place for place in worker.places if place.topic == "a"]
        await until(lambda: place.schedule.due_at is not None)
        lab.redis.rename(key("a", "due"), "aside")
        lab.redis.set(key("a", "due"), "damaged")
        for topic in ("b", "c"):
            await app.publish(topic, "fails once")
        for topic in ("b", "c"):
            await seen[topic].count(2)
        lab.redis.rename("aside", key("a", "due"))
        await seen["a"].count(2)


async def test_scheduled_messages_that_cannot_be_delivered_stop_no_retry(lab: Lab) -> None:
    seen = {topic: Seen() for topic in TOPICS}
    app = consuming(lab, seen, policy=RetryPolicy.ladder("10ms", max_retries=3))
    scheduled = f"rqretry:{NAMESPACE}:{{a:0}}:scheduled"
    async with lab.working(app):
        await app.publish("a", "later", delay=0.2)
        lab.redis.rename(scheduled, "aside")
        lab.redis.set(scheduled, "damaged")
        for topic in ("b", "c"):
            await app.publish(topic, "later", delay=0.4)
            await seen[topic].count(1)
            await app.publish(topic, "fails once")
            await seen[topic].count(3)
        lab.redis.rename("aside", scheduled)


async def test_a_reaper_goes_on_behind_a_damaged_group(lab: Lab, lab_url: str) -> None:
    with Client(lab_url, namespace=NAMESPACE) as client:
        for topic in TOPICS:
            client.publish(topic, 1)
            consumer = client.simple_consumer(topic, group=f"g{topic}", create_group=True)
            consumer.receive(wait=0, invisible_duration="10ms")
        lab.redis.set(key("a", "failures"), "damaged")
        upkeep, expired = Upkeep(parts_of(client).catalog, "reaper"), 0
        while expired < 2:
            expired += parts_of(client).store.perform(upkeep.round()).expired
        lab.redis.delete(key("a", "failures"))


async def test_a_group_that_cannot_be_joined_again_keeps_no_other_from_it(lab: Lab) -> None:
    seen = {topic: Seen() for topic in TOPICS}
    app = consuming(lab, seen)
    async with lab.working(app):
        lab.redis.flushall()  # the worker runs in this thread: it sees what follows as well
        with Client(lab.url, namespace=NAMESPACE) as client:
            client.admin.create_topic("a")
            client.simple_consumer("a", group="ga", create_group=True)
        for topic in ("b", "c"):
            await app.publish(topic, 1)
            await seen[topic].count(1)


async def test_a_simple_consumer_receives_beside_a_damaged_partition(lab: Lab) -> None:
    with Client(lab.url, namespace=NAMESPACE) as client:
        for topic in TOPICS:
            client.admin.create_topic(topic)
        consumer = client.simple_consumer(TOPICS, group="g", create_group=True)
        lab.redis.set(f"rqretry:{NAMESPACE}:{{a:0}}:group:g:inflight", "damaged")
        for topic in ("b", "c"):
            client.publish(topic, 1)
        got: list[Message[Any]] = []
        while len(got) < 2:
            got += consumer.receive(wait=5)
        assert sorted(message.topic for message in got) == ["b", "c"]
        consumer.ack(got)
        lab.redis.delete(f"rqretry:{NAMESPACE}:{{a:0}}:group:g:inflight")


async def test_a_group_with_a_damaged_partition_keeps_no_other_from_starting(lab: Lab) -> None:
    seen = {topic: Seen() for topic in TOPICS}
    app = consuming(lab, seen)
    with Client(lab.url, namespace=NAMESPACE) as client:
        client.admin.create_topic("a")
    lab.redis.set(key("a", "config"), "damaged")
    async with lab.working(app) as worker:
        for topic in ("b", "c"):
            await app.publish(topic, 1)
            await seen[topic].count(1)
        assert "group ga cannot be joined" in refusal(worker)
        lab.redis.delete(key("a", "config"))
        await app.publish("a", 1)
        await seen["a"].count(1)


async def test_broadcast_streams_are_read_beside_a_damaged_one(lab: Lab) -> None:
    seen = {topic: Seen() for topic in TOPICS}
    app = lab.app()

    @app.consumer(list(TOPICS), group="all", broadcast=True)
    async def handle(message: Message[Any]) -> None:
        seen[message.topic].add(message)

    async with lab.working(app):
        lab.redis.set(f"rqretry:{NAMESPACE}:{{a:0}}:broadcast", "damaged")
        for topic in ("b", "c"):
            await app.publish(topic, 1)
            await seen[topic].count(1)
        lab.redis.delete(f"rqretry:{NAMESPACE}:{{a:0}}:broadcast")


async def test_a_worker_names_the_right_that_it_lacks_and_burns_nothing(lab: Lab) -> None:
    lab.redis.execute_command("ACL", "SETUSER", "limited", "on", ">pw", "~*", "&*", "+@all")
    limited = App(f"unix://limited:pw@{lab.server.socket_path}", namespace=NAMESPACE)
    seen, app = Seen(), lab.app()

    @limited.consumer("t", group="g", visibility=0.2, max_retries=1)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    try:
        async with lab.working(limited) as worker:
            lab.redis.execute_command("ACL", "SETUSER", "limited", "-xadd")
            await app.publish_many("t", range(200))
            asked = not lab.redis.info()["redis_version"].startswith("6.")  # what it lacks
            await until(lambda: ("missing: XADD" if asked else "cannot lease") in refusal(worker))
            lab.redis.execute_command("ACL", "SETUSER", "limited", "+xadd")
            await seen.count(200)
            await counted(lab, "g", succeed=200, expire=0, dead=0)
    finally:
        lab.redis.acl_deluser("limited")
