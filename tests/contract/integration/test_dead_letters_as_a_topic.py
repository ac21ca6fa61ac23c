"""`%DLQ%<group>` as a topic: a group of its own looks at each dead letter once."""

import asyncio
from typing import Any

import pytest

from rqretry import (
    App,
    ConfigError,
    ConsumeResult,
    GroupNotFound,
    InvalidArgument,
    Message,
    RetryPolicy,
)
from rqretry.worker import leases
from tests.contract.integration.harness import Lab, Seen, counted, until


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "FEED_EVERY_S", 0.1)


def failing(lab: Lab, **options: Any) -> App:
    """An app whose group `claims` lets everything die at once that is not "good"."""
    app = lab.app()

    @app.consumer("flights", group="claims", max_retries=0, **options)
    async def settle(message: Message[Any]) -> None:
        if message.body != "good":
            raise ValueError(f"no contract: {message.body}")

    return app


async def test_a_group_gets_each_dead_letter_once_those_from_before_and_those_that_come(
    lab: Lab,
) -> None:
    app, seen = failing(lab), Seen()
    await app.admin.create_topic("flights", partitions=3)
    triage = lab.app()
    triage.consumer("%DLQ%claims", group="triage")(seen.add)
    async with lab.working(app):
        before = await app.publish_many("flights", [*range(20), "good"])
        await counted(lab, "claims", dead=20)
        async with lab.working(triage):
            await seen.count(20)
            after = await app.publish_many("flights", [*range(20, 30), "good"])
            await seen.count(30)
            await counted(lab, "triage", succeed=30, lease=30)
    assert {m.id for m in seen.messages} == {*before[:20], *after[:10]}
    assert {m.topic for m in seen.messages} == {"flights"}
    assert sorted(seen.bodies) == list(range(30))
    assert set(seen.attempts) == {1}
    errors = {str(m.last_error) for m in seen.messages}
    assert errors == {f"ValueError: no contract: {n}" for n in range(30)}
    # The letters are where they were, bodies and all.
    dead_letters = await app.admin.dead_letters("claims")
    assert sorted(dead_letter.body for dead_letter in dead_letters) == list(range(30))
    assert (await app.admin.redrive("claims", all=True)) == 30


async def test_what_is_published_is_no_business_of_a_group_that_consumes_dead_letters(
    lab: Lab,
) -> None:
    app, seen = failing(lab), Seen()
    app.consumer("%DLQ%claims", group="triage")(seen.add)
    async with lab.working(app):
        await app.publish_many("flights", ["good"] * 10)
        await counted(lab, "claims", succeed=10)
        await asyncio.sleep(0.3)
    assert seen.messages == []
    stats = lab.stats("triage")
    assert (stats.ready, stats.dead, stats.counters.get("publish", 0)) == (0, 0, 0)


async def test_its_own_retries_follow_its_own_policy_and_what_they_use_up_is_dropped(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    app, stated = failing(lab), []

    @app.consumer("%DLQ%claims", group="triage", policy=RetryPolicy.fixed("1ms", max_retries=2))
    async def look(message: Message[Any]) -> None:
        stated.append((message.attempt, str(message.last_error)))
        raise KeyError("again")

    async with lab.working(app):
        (id_,) = await app.publish_many("flights", ["bad"])
        await counted(lab, "triage", fail=3, dropped=1)
        await until(lambda: lab.stats("triage").inflight == 0)

    assert stated == [
        (1, "ValueError: no contract: bad"),
        (2, "KeyError: 'again'"),
        (3, "KeyError: 'again'"),
    ]
    assert "dropped: message" in caplog.text
    assert [dead_letter.id for dead_letter in await app.admin.dead_letters("claims")] == [id_]
    assert await app.admin.dead_letters("triage") == []
    assert (lab.stats("claims").dead, lab.stats("triage").dead) == (1, 0)
    events = await app.admin.timeline(id_)
    own = [event.event for event in events if event.group == "triage"]
    assert (own[0], own.count("lease"), own.count("fail")) == ("feed", 3, 3)


async def test_what_was_redriven_or_purged_meanwhile_goes_away(lab: Lab) -> None:
    app, seen, go = failing(lab), Seen(), asyncio.Event()

    @app.consumer("%DLQ%claims", group="triage", max_retries=5, policy=RetryPolicy.fixed("50ms"))
    async def look(message: Message[Any]) -> ConsumeResult:
        seen.add(message)
        await go.wait()
        return ConsumeResult.FAILURE

    async with lab.working(app):
        one, two = await app.publish_many("flights", ["one", "two"])
        await seen.count(2)
        assert await app.admin.purge("claims", ids=[one]) == 1
        other = lab.app()
        other.consumer("flights", group="claims", max_retries=0)(lambda _: None)
        await app.admin.pause("claims")
        assert await app.admin.redrive("claims", ids=[two]) == 1
        go.set()
        await counted(lab, "triage", fail=2)
        await until(lambda: lab.stats("triage").waiting_count == 0)
        await until(lambda: lab.stats("triage").retry == 0)
        assert len(seen.messages) == 2
        await app.admin.resume("claims")  # and it dies again, which is another death
        await seen.count(3)
    assert seen.messages[-1].id == two


async def test_a_simple_consumer_receives_dead_letters(lab: Lab) -> None:
    app = failing(lab)
    async with lab.working(app):
        await app.publish_many("flights", range(3))
        await counted(lab, "claims", dead=3)
    client = lab.client()
    with pytest.raises(GroupNotFound):
        client.simple_consumer("%DLQ%claims", group="triage")
    with client.simple_consumer("%DLQ%claims", group="triage", create_group=True) as consumer:
        messages = consumer.receive(wait=1)
        assert sorted(m.body for m in messages) == [0, 1, 2]
        assert {m.topic for m in messages} == {"flights"}
        assert messages[0].last_error is not None
        consumer.ack(messages)
        assert consumer.receive(wait=0) == []
    assert lab.stats("claims").dead == 3
    info = client.admin.group("triage")
    assert info.topics == ("%DLQ%claims",)


async def test_there_is_no_dead_letter_queue_of_a_dead_letter_queue(lab: Lab) -> None:
    client = lab.client()
    client.publish("flights", 1)
    client.simple_consumer("flights", group="claims", create_group=True)
    client.simple_consumer("%DLQ%claims", group="triage", create_group=True)
    refused = [
        ("second", "%DLQ%triage", "consumes the dead letters of 'claims'"),
        ("claims", "%DLQ%claims", "a group of their own"),
        ("both", ["%DLQ%claims", "flights"], "a group of their own"),
        ("claims", "%DLQ%triage", "has none itself"),
        ("triage", "flights", "cannot also consume 'flights'"),
    ]
    for group, topics, reason in refused:
        own = reason == "a group of their own"
        with pytest.raises(InvalidArgument if own else ConfigError, match=reason):
            client.simple_consumer(topics, group=group, create_group=True)
    with pytest.raises(GroupNotFound, match="'nobody'"):
        client.simple_consumer("%DLQ%nobody", group="triage2", create_group=True)
    with pytest.raises(InvalidArgument, match="group"):
        client.simple_consumer("%DLQ%a b", group="triage3", create_group=True)
    with pytest.raises(ConfigError, match="triage"):
        client.admin.purge("triage", all=True)
    with pytest.raises(ConfigError, match="triage"):
        client.admin.reset("triage", to="latest")
    with pytest.raises(ConfigError, match="triage"):
        client.admin.unsubscribe("triage", "flights")
    with pytest.raises(InvalidArgument, match="ordered"):
        client.simple_consumer("%DLQ%claims", group="row", create_group=True, ordered=True)


async def test_deleting_the_group_leaves_the_dead_letters_and_the_other_group(lab: Lab) -> None:
    app = failing(lab)
    async with lab.working(app):
        await app.publish_many("flights", range(3))
        await counted(lab, "claims", dead=3)
    client = lab.client()
    with client.simple_consumer("%DLQ%claims", group="triage", create_group=True) as consumer:
        assert len(consumer.receive(2, wait=1)) == 2
    assert lab.client().admin.delete_group("triage") == 3
    assert lab.redis.keys("*group:triage:*") == []
    assert len(client.admin.dead_letters("claims")) == 3
    with client.simple_consumer("%DLQ%claims", group="triage", create_group=True) as consumer:
        assert len(consumer.receive(wait=1)) == 3


async def test_what_it_has_not_looked_at_counts_as_ready(lab: Lab) -> None:
    app = failing(lab)
    client = lab.client()
    async with lab.working(app):
        await app.publish("flights", 0)
        await counted(lab, "claims", dead=1)
        with client.simple_consumer("%DLQ%claims", group="triage", create_group=True) as consumer:
            consumer.ack(consumer.receive(wait=1))
        await app.publish_many("flights", range(4))
        await counted(lab, "claims", dead=5)
    stats = lab.stats("triage")
    assert (stats.ready, stats.dead) == (4, 0)


async def test_a_lease_of_a_dead_letter_that_expired_is_delivered_again(lab: Lab) -> None:
    app = failing(lab)
    async with lab.working(app):
        await app.publish("flights", 0)
        await counted(lab, "claims", dead=1)
    with lab.client().simple_consumer("%DLQ%claims", group="triage", create_group=True) as consumer:
        (first,) = consumer.receive(invisible_duration="20ms", wait=1)
        (again,) = consumer.receive(wait=5)
        assert (first.attempt, again.attempt) == (1, 2)
        assert again.last_error is not None and again.last_error.cause == "expired"
        consumer.ack(again)
    assert lab.stats("claims").dead == 1
