"""How soon and how often: wake-ups, retries to the millisecond, and silence when idle."""

import asyncio
import itertools
import statistics
import time
from typing import Any

import pytest

from rqretry import ConsumeResult, Message, RetryPolicy
from rqretry.admin.timeline import timing
from rqretry.transport.connection import pack_slowly
from rqretry.transport.store import Store
from rqretry.worker.slots import Slots
from tests.contract.integration.harness import Lab, Seen, counted

LADDER = "1ms 5ms 10ms 30ms 60ms 120ms 180ms 240ms 300ms 360ms 420ms 480ms 540ms 600ms 1200ms"
LADDER += " 1800ms 3600ms 7200ms"
"""RocketMQ's table at a thousandth of its times."""
WAITS_MS = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]


async def test_a_publish_wakes_an_idle_worker_within_milliseconds(lab: Lab) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    latencies = []
    async with lab.working(app):
        for number in range(30):
            await app.publish("t", "warm")
            await seen.count(2 * number + 1)
            await asyncio.sleep(0.005)  # the worker is idle again
            start = time.monotonic()
            await app.publish("t", number)
            await seen.count(2 * number + 2)
            latencies.append(seen.at[-1] - start)

    assert statistics.median(latencies) < 0.010


@pytest.mark.parametrize("topics", ["t", ["t", "u"]], ids=["one source", "two sources"])
async def test_an_idle_worker_starts_the_handler_before_it_sends_its_next_wait(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, topics: Any
) -> None:
    app, stated, send = lab.app(), asyncio.Queue[Any](), Store.exchange

    async def watched(store: Store, line: Any, requests: Any, seconds: float | None = None) -> Any:
        stated.put_nowait(requests[0][0])
        return await send(store, line, requests, seconds)

    monkeypatch.setattr(Store, "exchange", watched)

    @app.consumer(topics, group="g")
    async def handle(message: Message[Any]) -> None:
        stated.put_nowait(message.body)

    async with asyncio.timeout(60), lab.working(app):
        await app.publish("t", "warm")
        while await stated.get() != "warm":
            pass
        for number in range(5):
            while await stated.get() != "BZPOPMIN":
                pass
            while not stated.empty():
                stated.get_nowait()
            await app.publish("t", number)
            assert await stated.get() == number


async def test_without_hiredis_a_worker_does_the_same(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rqretry.transport.hiredis_channel.reply_reader", lambda: None)
    monkeypatch.setattr("rqretry.transport.hiredis_channel.pack_one", pack_slowly)
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    async with lab.working(app):
        await app.publish_many("t", range(20))
        await seen.count(20)
        await app.publish("t", "after a wait")
        await seen.count(21)
        await counted(lab, "g", succeed=21)


async def test_several_sources_are_woken_as_soon_as_one(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    await app.admin.create_topic("t", partitions=4)

    @app.consumer(["t", "u"], group="g")
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    latencies = []
    async with lab.working(app):
        await app.publish("u", 0)
        await seen.count(1)
        for number in range(40):
            await asyncio.sleep(0.005)
            start = time.monotonic()
            await app.publish("t" if number % 2 else "u", number)
            await seen.count(number + 2)
            latencies.append(seen.at[-1] - start)

    assert statistics.median(latencies) < 0.015
    assert max(latencies) < 1.0  # nobody waited for the next look


async def test_the_first_retry_is_delivered_within_50_ms_of_its_due_time_by_an_idle_worker(
    lab: Lab,
) -> None:
    app, seen = lab.app(delay_levels=LADDER), Seen()
    failed_at: dict[str, float] = {}
    late: list[float] = []

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> ConsumeResult:
        if message.attempt == 1:
            failed_at[message.id] = time.monotonic()
            return ConsumeResult.FAILURE
        late.append(time.monotonic() - failed_at[message.id] - 0.010)
        seen.add(message)
        return ConsumeResult.SUCCESS

    async with lab.working(app):
        for number in range(15):
            await app.publish("t", number)
            await seen.count(number + 1)

    assert min(late) >= 0  # never before its time
    assert statistics.median(late) <= 0.050


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("redis_server", ["redis-7"], indirect=True)
async def test_the_whole_ladder_at_a_thousandth_keeps_each_wait_within_50_ms(lab: Lab) -> None:
    app, seen = lab.app(delay_levels=LADDER), Seen()

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> ConsumeResult:
        seen.add(message)
        return ConsumeResult.failure("never")

    async with lab.working(app):
        await app.publish_many("t", range(5))
        await seen.count(5 * 17, seconds=40)
        await counted(lab, "g", dead=5, fail=85)

    late: list[list[float]] = [[] for _ in WAITS_MS]
    for body in range(5):
        at = [when for when, m in zip(seen.at, seen.messages, strict=True) if m.body == body]
        assert len(at) == 17
        for step, (before, after) in enumerate(itertools.pairwise(at)):
            late[step].append(after - before - WAITS_MS[step] / 1000)
    assert min(map(min, late)) >= 0
    assert [
        round(statistics.median(step), 3) for step in late if statistics.median(step) > 0.050
    ] == []
    assert sum(WAITS_MS) == 17_140


@pytest.mark.slow
async def test_an_idle_worker_sends_at_most_one_command_a_second(lab: Lab) -> None:
    app = lab.app()
    app.consumer("t", group="g")(lambda _: None)
    app.consumer("u", group="h")(lambda _: None)
    async with lab.working(app):
        await app.publish("t", 1)
        await counted(lab, "g", succeed=1)
        await asyncio.sleep(0.3)
        before, start = calls(lab), time.monotonic()
        await asyncio.sleep(8)
        sent, seconds = calls(lab) - before, time.monotonic() - start

    assert sent / seconds <= 1.0


def calls(lab: Lab) -> int:
    """Commands that clients sent; what scripts call inside does not count, nor does INFO."""
    before = int(lab.redis.info("stats")["total_commands_processed"])
    inside = sum(
        figures["calls"]
        for name, figures in lab.redis.info("commandstats").items()
        if name.removeprefix("cmdstat_") in {"bzpopmin", "evalsha", "script|load", "client|unblock"}
    )
    assert before >= inside
    return int(inside)


async def test_a_busy_group_does_not_starve_due_retries_nor_the_other_way_round(lab: Lab) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g", concurrency=4, policy=RetryPolicy.fixed("1ms"))
    async def handle(message: Message[Any]) -> ConsumeResult:
        seen.add(message)
        await asyncio.sleep(0.001)
        return ConsumeResult.FAILURE if message.attempt == 1 else ConsumeResult.SUCCESS

    async with lab.working(app):
        await app.publish_many("t", range(600))
        await seen.count(400)
        early = seen.attempts[:400]
        await counted(lab, "g", succeed=600)

    assert early.count(1) > 100
    assert early.count(2) > 100


async def test_queue_buffer_and_handler_are_told_apart(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Slots, "room", lambda _, running: 2 - running)
    app, gate, ran = lab.app(), asyncio.Event(), list[float]()

    @app.consumer("t", group="g", concurrency=1, max_retries=0)
    async def handle(message: Message[Any]) -> ConsumeResult:
        started = time.monotonic()
        if message.body == "first":
            await gate.wait()
        ran.append(time.monotonic() - started)
        return ConsumeResult.SUCCESS if message.body == "first" else ConsumeResult.FAILURE

    begun = time.monotonic()
    async with lab.working(app):
        ids = [await app.publish("t", body) for body in ("first", "second")]
        await counted(lab, "g", lease=2)  # the second waits in the buffer
        leased = time.monotonic()
        await asyncio.sleep(0.02)
        waited = time.monotonic() - leased
        gate.set()
        await counted(lab, "g", succeed=1, dead=1)
    took = time.monotonic() - begun
    for id_, verb, handled in zip(ids, ("succeed", "fail"), ran, strict=True):
        events = {event.event: event for event in lab.client().admin.timeline(id_)}
        queue_s = events["lease"].queue_seconds
        buffer_s, handler_s = events[verb].buffer_seconds, events[verb].handler_seconds
        assert queue_s is not None and buffer_s is not None and handler_s is not None
        assert handler_s >= 0.999 * handled
        assert queue_s + buffer_s + handler_s <= took
        assert (handler_s if verb == "succeed" else buffer_s) >= 0.999 * waited
        assert "in the handler" in timing(events[verb])
    (error,) = lab.client().admin.dead_letters("g")[0].errors
    assert error.seconds < took - waited  # of its handler, without its time in the buffer
