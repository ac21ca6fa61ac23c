"""last_error, max_inflight and rate_limit: what a group is told, and what holds it back."""

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from rqretry import ConfigError, ConsumeResult, InvalidArgument, Message, RetryPolicy
from tests.contract.integration.harness import Lab, Seen, counted, until


async def test_a_retry_is_reported_why_the_attempt_before_failed(lab: Lab) -> None:
    app, stated = lab.app(), []

    @app.consumer("t", group="g", policy=RetryPolicy.fixed("1ms", max_retries=3))
    async def handle(message: Message[Any]) -> ConsumeResult:
        stated.append(message.last_error)
        if message.attempt == 1:
            raise ValueError("no seat")
        if message.attempt == 2:
            return ConsumeResult.failure("no crew")
        return ConsumeResult.SUCCESS

    async with lab.working(app):
        await app.publish("t", 1)
        await counted(lab, "g", succeed=1, fail=2)

    first, second, third = stated
    assert first is None
    assert second is not None and third is not None
    assert (second.type, second.message, second.attempt) == ("ValueError", "no seat", 1)
    assert (third.type, third.message, third.attempt) == ("", "no crew", 2)
    assert (str(second), str(third)) == ("ValueError: no seat", "no crew")


async def test_a_simple_consumer_is_reported_that_its_lease_expired(lab: Lab) -> None:
    client = lab.client()
    client.publish("t", 1)
    with client.simple_consumer("t", group="s", create_group=True) as consumer:
        (message,) = consumer.receive(invisible_duration="20ms", wait=0)
        assert message.last_error is None
        (message,) = consumer.receive(wait=5)
        assert message.last_error is not None
        assert (message.attempt, message.last_error.cause) == (2, "expired")
        consumer.ack(message)


# -- max_inflight ------------------------------------------------------------------------------


async def test_max_inflight_holds_over_all_workers_and_costs_no_attempt(lab: Lab) -> None:
    app, seen, running, most = lab.app(), Seen(), set(), []

    @app.consumer("t", group="g", max_inflight=3)
    async def handle(message: Message[Any]) -> None:
        running.add(message.id)
        most.append(len(running))
        await asyncio.sleep(0.005)
        running.discard(message.id)
        seen.add(message)

    async with lab.working(app), lab.working(app, explicit=False):
        await app.publish_many("t", range(60))
        await seen.count(60)
        group = await counted(lab, "g", succeed=60, lease=60)

    assert max(most) == 3
    assert set(seen.attempts) == {1}
    assert group.max_inflight == 3


async def test_max_inflight_is_split_over_the_partitions_and_all_are_worked_through(
    lab: Lab,
) -> None:
    app, seen, running, most = lab.app(), Seen(), set(), []
    await app.admin.create_topic("t", partitions=3)

    @app.consumer("t", group="g", max_inflight=4)
    async def handle(message: Message[Any]) -> None:
        running.add(message.id)
        most.append(len(running))
        await asyncio.sleep(0.002)
        running.discard(message.id)
        seen.add(message)

    async with lab.working(app):
        await app.publish_many("t", range(90))
        await seen.count(90)
        await counted(lab, "g", succeed=90, lease=90)
    assert max(most) <= 4


async def test_max_inflight_below_the_number_of_partitions_is_refused(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("t", partitions=4)
    client.simple_consumer("t", group="s", create_group=True)
    with pytest.raises(ConfigError, match=r"max_inflight 3 of group 's'.*which are 4"):
        client.admin.set_group("s", max_inflight=3)
    assert client.admin.set_group("s", max_inflight=4).max_inflight == 4
    client.admin.create_topic("u")
    with pytest.raises(ConfigError, match=r"max_inflight 4 of group 's'.*which are 5"):
        client.simple_consumer(["t", "u"], group="s")
    assert client.admin.group("s").topics == ("t",)


async def test_a_raised_max_inflight_holds_at_once(lab: Lab) -> None:
    app, seen, go = lab.app(), Seen(), asyncio.Event()

    @app.consumer("t", group="g", max_inflight=1)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        await go.wait()

    async with lab.working(app):
        ids = await app.publish_many("t", range(5))
        await seen.count(1)
        (waiting, *_) = set(ids) - {m.id for m in seen.messages}
        stated = await app.admin.explain(waiting)
        assert stated == {
            "g": "ready, but the group is at its max_inflight:"
            " it has 1 in flight in this partition, of at most 1"
        }
        before = time.monotonic()
        await app.admin.set_group("g", max_inflight=3)
        await seen.count(3)
        await app.admin.set_group("g", max_inflight=None)
        await seen.count(5)
        assert time.monotonic() - before < 4.0  # nobody waited for the next look
        go.set()
        await counted(lab, "g", succeed=5)


async def test_a_group_at_its_max_inflight_is_not_polled(lab: Lab) -> None:
    app, seen, go = lab.app(), Seen(), asyncio.Event()

    @app.consumer("t", group="g", max_inflight=1)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        await go.wait()

    async with lab.working(app), lab.working(app, explicit=False):
        await app.publish_many("t", range(100))
        await seen.count(1)
        await asyncio.sleep(0.1)
        before = scripts_run(lab)
        await asyncio.sleep(1.0)
        assert scripts_run(lab) - before <= 4
        go.set()
        await counted(lab, "g", succeed=100, lease=100)


# -- rate_limit --------------------------------------------------------------------------------


async def test_a_rate_holds_over_all_workers_and_costs_no_attempt(lab: Lab) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g", rate_limit="100/s")
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    async with AsyncExitStack() as stack:
        for number in range(4):
            await stack.enter_async_context(lab.working(app, explicit=number == 0))
        await app.publish_many("t", range(200))
        before = scripts_run(lab)
        await seen.count(200)
        assert scripts_run(lab) - before < 1000
        group = await counted(lab, "g", succeed=200, lease=200, fail=0, release=0, expire=0)

    burst = 1 + 25
    for first, at in enumerate(seen.at):
        for last in range(first, 200):
            assert last - first + 1 <= (seen.at[last] - at + 0.05) * 100 + 2 * burst
    assert seen.at[-1] - seen.at[0] >= (200 - burst) / 100 - 0.1
    assert set(seen.attempts) == {1}
    assert group.rate_limit == "100/s"


async def test_a_changed_rate_holds_at_once_for_workers_that_wait_for_tokens(lab: Lab) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g", rate_limit="1/h")
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    async with lab.working(app):
        ids = await app.publish_many("t", range(20))
        await seen.count(1)
        (waiting, *_) = set(ids) - {m.id for m in seen.messages}
        stated = (await app.admin.explain(waiting))["g"]
        assert stated.endswith("; the group takes 1/h (rate_limit)")
        before = time.monotonic()
        await app.admin.set_group("g", rate_limit=1000)
        await seen.count(20)
        assert time.monotonic() - before < 4.0
        assert (await app.admin.group("g")).rate_limit == "1000/s"
        await app.admin.set_group("g", rate_limit="none")
        await app.publish_many("t", range(500))
        await seen.count(520)
        await counted(lab, "g", succeed=520, lease=520)


async def test_a_rate_that_is_set_while_workers_run_holds_for_them(lab: Lab) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    async with lab.working(app):
        await app.publish("t", 0)
        await seen.count(1)
        await app.admin.set_group("g", rate_limit="50/s")
        await app.publish_many("t", range(100))
        await seen.count(101)
        await counted(lab, "g", succeed=101)
    assert seen.at[-1] - seen.at[1] >= (100 - 13) / 50 - 0.1


async def test_a_simple_consumer_receives_no_faster_than_its_group_may(lab: Lab) -> None:
    client = lab.client()
    client.publish_many("t", range(60))
    client.simple_consumer("t", group="s", create_group=True)
    client.admin.set_group("s", rate_limit="50/s", max_inflight=10)
    received, start = 0, time.monotonic()
    with client.simple_consumer("t", group="s") as consumer:
        while received < 60:
            messages = consumer.receive(32, wait=5)
            assert 0 < len(messages) <= 10
            received += len(messages)
            consumer.ack(messages)
    assert time.monotonic() - start >= (60 - 14) / 50 - 0.1
    assert lab.stats("s").counters["lease"] == 60


async def test_another_group_of_the_process_is_not_held_back_by_a_rate(lab: Lab) -> None:
    app, slow, fast = lab.app(), Seen(), Seen()
    app.consumer("t", group="slow", rate_limit="2/s")(slow.add)
    app.consumer("t", group="fast")(fast.add)
    async with lab.working(app):
        await app.publish_many("t", range(100))
        await fast.count(100)
        assert len(slow.messages) < 20
        latencies = []
        for number in range(10):
            await asyncio.sleep(0.01)
            start = time.monotonic()
            await app.publish("t", number)
            await fast.count(101 + number)
            latencies.append(fast.at[-1] - start)
        assert sorted(latencies)[5] < 0.1
        await app.admin.set_group("slow", rate_limit=None)
        await slow.count(110)
        await counted(lab, "slow", succeed=110)


@pytest.mark.parametrize("rate", ["100", "0/s", "100/d", -1, 0, float("nan"), True, "x/s"])
async def test_a_rate_that_is_none_is_refused(lab: Lab, rate: Any) -> None:
    app = lab.app()
    with pytest.raises(InvalidArgument, match="rate_limit"):
        app.consumer("t", group="g", rate_limit=rate)(lambda _: None)


@pytest.mark.parametrize("most", [0, -1, 1.5, "3", True])
async def test_a_max_inflight_that_is_none_is_refused(lab: Lab, most: Any) -> None:
    app = lab.app()
    with pytest.raises(InvalidArgument, match="max_inflight"):
        app.consumer("t", group="g", max_inflight=most)(lambda _: None)


async def test_limits_are_pinned_like_the_other_settings(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    app = lab.app()
    app.consumer("t", group="g", max_inflight=5, rate_limit="10/s")(lambda _: None)
    async with lab.working(app):
        info = await app.admin.group("g")
    assert (info.max_inflight, info.rate_limit) == (5, "10/s")
    info = await app.admin.set_group("g", max_inflight=7, rate_limit="20/m", pin=True)
    assert info.pinned == ("max_inflight", "rate_limit")
    with caplog.at_level(logging.WARNING):
        async with lab.working(app):
            info = await app.admin.group("g")
    assert (info.max_inflight, info.rate_limit) == (7, "20/m")
    assert "max_inflight is pinned to 7, not 5 and rate_limit is pinned to 20/m" in caplog.text


async def test_deleting_a_group_deletes_its_tokens(lab: Lab) -> None:
    client = lab.client()
    client.publish("t", 1)
    client.simple_consumer("t", group="s", create_group=True)
    client.admin.set_group("s", rate_limit=5)
    assert lab.redis.exists("rqretry:test:{test/s}:bucket")
    client.admin.delete_group("s")
    await until(lambda: not lab.redis.exists("rqretry:test:{test/s}:bucket"))


def scripts_run(lab: Lab) -> int:
    """How often a script was called."""
    return int(lab.redis.info("commandstats")["cmdstat_evalsha"]["calls"])
