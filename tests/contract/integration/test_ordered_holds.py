"""An ordered group holds up a message group: for ever by default, and while a handler runs."""

import asyncio
import threading
from typing import Any

import pytest

from rqretry import ConsumeResult, Message, RetryPolicy, RqretryError
from rqretry.core.limits import DEFAULT_MAX_RETRIES
from rqretry.worker import attempt
from tests.contract.integration.harness import PATIENCE_S, Lab, Seen, counted, until

PARTITIONS = pytest.mark.parametrize("partitions", [1, 4])


@PARTITIONS
async def test_an_ordered_group_that_names_no_limit_retries_for_ever(
    lab: Lab, partitions: int
) -> None:
    app, seen = lab.app(), Seen()
    await app.admin.create_topic("orders", partitions=partitions)

    @app.consumer("orders", group="g", ordered=True, policy=RetryPolicy.fixed("10ms"))
    async def handle(message: Message[Any]) -> bool:
        seen.add(message)
        return message.attempt > 2 * DEFAULT_MAX_RETRIES

    async with lab.working(app):
        for body in ("first", "second"):
            await app.publish("orders", body, message_group="x")
        await seen.count(2 * (2 * DEFAULT_MAX_RETRIES + 1))
        await counted(lab, "g", succeed=2, dead=0)

    assert {message.max_retries for message in seen.messages} == {None}
    assert seen.bodies == sorted(seen.bodies)
    group = await app.admin.group("g")
    assert (group.max_retries, group.ladder) == (None, "unlimited retries, every 10 ms")


@PARTITIONS
async def test_a_limit_in_the_metadata_of_an_ordered_group_holds(lab: Lab, partitions: int) -> None:
    app, seen = lab.app(), Seen()
    await app.admin.create_topic("orders", partitions=partitions)
    policy = RetryPolicy.fixed("10ms")
    client = lab.client()
    client.simple_consumer("orders", group="s", create_group=True, ordered=True)
    assert client.admin.group("s").max_retries is None
    assert client.admin.set_group("s", max_retries=3).max_retries == 3
    client.simple_consumer("orders", group="s", ordered=True)  # which names nothing
    assert client.admin.group("s").max_retries == 3

    @app.consumer("orders", group="g", ordered=True, policy=policy, max_retries=2)
    async def handle(message: Message[Any]) -> ConsumeResult:
        seen.add(message)
        return ConsumeResult.FAILURE

    async with lab.working(app):
        await app.publish("orders", 1, message_group="x")
        await counted(lab, "g", dead=1, fail=3)


class Handler:
    """A plain function that goes on after its consume_timeout until the test lets it."""

    def __init__(self, lab: Lab, *, partitions: int = 1, **options: Any) -> None:
        self.lab, self.app, self.seen = lab, lab.app(), Seen()
        self.called_off, self.go_on = threading.Event(), threading.Event()
        self.ended = False
        lab.client().admin.create_topic("t", partitions=partitions)
        given = {"consume_timeout": 0.3, "visibility": 0.6, "concurrency": 4, "max_retries": 0}
        self.app.consumer("t", group="g", ordered=True, **given | options)(self.handle)

    def handle(self, message: Message[Any]) -> None:
        """Goes on with "slow" until it may end."""
        self.seen.add(message)
        if message.body == "slow":
            while not message.cancelled:
                self.go_on.wait(0.01)
            self.called_off.set()
            self.go_on.wait(20)
            self.ended = True

    def deadlines(self) -> list[float]:
        """Of what is in flight in any partition."""
        keys = sorted(self.lab.redis.scan_iter("rqretry:test:{t:*}:group:g:inflight"))
        return [at for key in keys for _, at in self.lab.redis.zrange(key, 0, -1, withscores=True)]

    async def renewed(self) -> None:
        """Until the lease of what is in flight was renewed."""
        (before,) = self.deadlines()
        await until(lambda: self.deadlines() > [before])


@PARTITIONS
async def test_a_message_group_is_held_until_the_timed_out_thread_has_ended(
    lab: Lab, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "HELD", 1000)
    handler = Handler(lab, partitions=partitions)
    app, seen = handler.app, handler.seen
    async with lab.working(app), lab.working(app):  # neither of them
        try:
            await app.publish("t", "slow", message_group="x")
            await seen.count(1)
            await app.publish("t", "next", message_group="x")
            await asyncio.to_thread(handler.called_off.wait)
            await handler.renewed()
            await handler.renewed()
            await app.publish("t", "other", message_group="y")
            await counted(lab, "g", succeed=1)
            assert seen.bodies == ["slow", "other"]
            assert lab.stats("g").counters.get("fail", 0) == 0
        finally:
            handler.go_on.set()
        await seen.count(3)
        assert handler.ended
        await counted(lab, "g", succeed=2, fail=1, dead=1, expire=0)
    (found,) = await app.admin.dead_letters("g")
    assert (found.cause, found.attempt) == ("timeout", 1)


async def test_a_coroutine_that_goes_on_when_it_is_cancelled_holds_its_message_group(
    lab: Lab,
) -> None:
    app, seen, go_on, called_off = lab.app(), Seen(), asyncio.Event(), asyncio.Event()

    @app.consumer("t", group="g", ordered=True, consume_timeout=0.2, max_retries=0)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        if message.body == "slow":
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                called_off.set()
                await go_on.wait()

    async with lab.working(app):
        await app.publish("t", "slow", message_group="x")
        await app.publish("t", "next", message_group="x")
        await called_off.wait()
        await app.publish("t", "other", message_group="y")
        await counted(lab, "g", succeed=1, fail=0)
        assert seen.bodies == ["slow", "other"]
        go_on.set()
        await counted(lab, "g", succeed=2, fail=1, dead=1)


async def test_a_thread_that_goes_on_is_ended_with_its_process_and_then_the_next_one_comes(
    lab: Lab,
) -> None:
    handler = Handler(lab)
    app, seen = handler.app, handler.seen
    try:
        await app.publish("t", "slow", message_group="x")
        await app.publish("t", "next", message_group="x")
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(RqretryError, match="only the end of this process ends them"):
                await app.run(grace=0.2, signals=False)
        assert seen.bodies == ["slow"]
        assert len(handler.deadlines()) == 1  # held until the process, which has to end, has ended
        assert "fail" not in lab.stats("g").counters
        async with lab.working(app):
            await seen.count(2)
            await counted(lab, "g", succeed=1, expire=1, dead=1)
    finally:
        handler.go_on.set()
