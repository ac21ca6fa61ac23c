"""Leases while handlers run: renewal, time-outs, and what happens when one is lost."""

import asyncio
import contextvars
import logging
import threading
import time
from typing import Any

import pytest

from rqretry import ConsumeResult, Message, RetryPolicy
from rqretry.core.parts import parts_of
from rqretry.worker.heartbeat import Heartbeat
from rqretry.worker.worker import Worker
from tests.contract.integration.harness import PATIENCE_S, Lab, Seen, counted, until

INFLIGHT = "rqretry:test:{t:0}:group:g:inflight"


def take_away(lab: Lab, message_id: str) -> None:
    """End a lease as an expiry does, at once: the deadline passes and anybody expires it."""
    lab.redis.zadd(INFLIGHT, {message_id: 1})
    assert lab.expire("t", "g") == 1


async def test_a_renewal_keeps_the_lease_of_a_long_handler(lab: Lab) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g", visibility=0.3)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        await asyncio.sleep(1.0)

    async with lab.working(app), lab.working(app):  # the other worker would expire it
        await app.publish("t", 1)
        await counted(lab, "g", succeed=1, expire=0, lease=1)

    assert seen.attempts == [1]


async def test_a_handler_that_blocks_the_event_loop_keeps_its_lease(lab: Lab) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g", visibility=0.4)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        time.sleep(1.2)  # noqa: ASYNC251 - the point: nothing else of the loop runs

    def expire_for_everybody() -> None:
        # A reaper in another thread, which the blocked loop cannot stop.
        end = time.monotonic() + 1.1
        while time.monotonic() < end:
            lab.expire("t", "g")
            time.sleep(0.02)

    reaper = threading.Thread(target=expire_for_everybody)
    async with lab.working(app):
        await app.publish("t", 1)
        reaper.start()
        await counted(lab, "g", succeed=1, expire=0)
        reaper.join()

    assert seen.attempts == [1]


async def test_a_blocked_event_loop_keeps_nothing_beyond_consume_timeout(lab: Lab) -> None:
    app, seen, blocked = lab.app(), Seen(), threading.Event()

    @app.consumer("t", group="g", visibility=0.3, consume_timeout=0.3, concurrency=2)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        if message.body == "blocks" and message.attempt == 1:
            blocked.wait(PATIENCE_S)

    def free() -> None:
        # A reaper in another thread, which the blocked loop cannot stop.
        end = time.monotonic() + PATIENCE_S / 2
        while lab.stats("g").counters.get("expire", 0) < 1 and time.monotonic() < end:
            lab.expire("t", "g")
            time.sleep(0.02)
        blocked.set()

    async with lab.working(app):
        reaper = threading.Thread(target=free)
        reaper.start()
        await app.publish_many("t", ["blocks", "waits"])
        await counted(lab, "g", expire=1, release=1, succeed=2, dead=0)
        reaper.join()
    assert sorted(seen.bodies) == ["blocks", "blocks", "waits"]
    assert [m.attempt for m in seen.messages if m.body == "waits"] == [1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(("error", "ends"), [(ValueError, False), (SystemExit, True)])
async def test_a_heartbeat_goes_on_after_an_error_and_its_end_is_the_workers(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], *, ends: bool
) -> None:
    app, beats = lab.app(), threading.Semaphore(0)

    def fail(_: Heartbeat) -> None:
        beats.release()
        raise error

    monkeypatch.setattr(Heartbeat, "_renew_all", fail)
    app.consumer("t", group="g", visibility=0.1)(Seen().add)
    worker = Worker(parts_of(app).settings, parts_of(app).consumers)
    running = asyncio.create_task(worker.run())
    try:
        for _ in range(1 if ends else 3):
            assert await asyncio.to_thread(beats.acquire, timeout=PATIENCE_S)
        if ends:
            with pytest.raises(RuntimeError, match="heartbeat ended"):
                await asyncio.wait_for(running, PATIENCE_S)
    finally:
        worker.stop()
        await asyncio.wait([running])
    assert ends or running.exception() is None


async def test_consume_timeout_cancels_an_async_handler_and_counts_a_failure(lab: Lab) -> None:
    app, seen, cancelled = lab.app(), Seen(), asyncio.Event()

    @app.consumer("t", group="g", consume_timeout=0.15, max_retries=0)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            assert message.cancelled
            cancelled.set()
            raise

    async with lab.working(app):
        await app.publish("t", 1)
        await counted(lab, "g", dead=1, fail=1, expire=0)
        (dead_letter,) = await app.admin.dead_letters("g")

    assert cancelled.is_set()
    assert dead_letter.cause == "timeout"
    assert "0.15 s" in dead_letter.error


async def test_a_result_after_the_timeout_is_refused_and_the_thread_was_reported(lab: Lab) -> None:
    app, seen, stated = lab.app(), Seen(), threading.Event()

    @app.consumer("t", group="g", consume_timeout=0.1, policy=RetryPolicy.fixed("1h"))
    def handle(message: Message[Any]) -> ConsumeResult:
        seen.add(message)
        while not message.cancelled:
            time.sleep(0.005)
        stated.set()
        return ConsumeResult.SUCCESS  # too late

    async with lab.working(app):
        sent = await app.publish("t", 1)
        await counted(lab, "g", fail=1)
        await until(stated.is_set)
    (state,) = (await app.admin.message(sent)).states

    assert (state.state, state.attempt) == ("waiting_retry", 2)
    assert [error.cause for error in state.errors] == ["timeout"]
    assert lab.stats("g").counters.get("succeed", 0) == 0


async def test_a_handler_that_swallows_its_cancellation_cannot_settle_and_its_slot_lives(
    lab: Lab,
) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g", consume_timeout=0.1, concurrency=1, max_retries=0)
    async def handle(message: Message[Any]) -> ConsumeResult:
        seen.add(message)
        try:
            if message.body == "slow":
                await asyncio.sleep(60)
        except asyncio.CancelledError:
            return ConsumeResult.SUCCESS
        async with asyncio.TaskGroup() as group:  # must not meet an old cancellation
            group.create_task(asyncio.sleep(0))
        task = asyncio.current_task()
        return ConsumeResult.FAILURE if task and task.cancelling() else ConsumeResult.SUCCESS

    async with lab.working(app):
        await app.publish("t", "slow")
        await counted(lab, "g", dead=1)
        await app.publish("t", "quick")
        await counted(lab, "g", dead=1, succeed=1)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_lost_lease_stops_the_handler_and_refuses_its_result(
    lab: Lab, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, seen, ended = lab.app(), Seen(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.consumer("t", group="g", visibility=0.6, concurrency=1)
    async def handle_async(message: Message[Any]) -> None:
        seen.add(message)
        if message.attempt > 1:
            return
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    other = lab.app()

    @other.consumer("t", group="g", visibility=0.6, concurrency=2)
    def handle_sync(message: Message[Any]) -> None:
        seen.add(message)
        while message.attempt == 1 and not message.cancelled:
            time.sleep(0.005)
        if message.attempt == 1:
            loop.call_soon_threadsafe(ended.set)

    async with lab.working(app if kind == "async" else other):
        await app.publish("t", 1)
        (first,) = await seen.count(1)
        take_away(lab, first.id)
        with caplog.at_level(logging.WARNING, "rqretry"):
            async with asyncio.timeout(10):
                await ended.wait()
            await counted(lab, "g", succeed=1, expire=1)

    assert first.cancelled
    assert seen.attempts == [1, 2]
    assert seen.messages[1].fencing_token > first.fencing_token
    assert any("lease lost" in record.message for record in caplog.records)


async def test_a_worker_that_cannot_renew_loses_the_message_to_whoever_comes_first(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g", visibility=1.0)
    def handle(message: Message[Any]) -> None:
        seen.add(message)
        while message.attempt == 1 and not message.cancelled:
            time.sleep(0.005)

    monkeypatch.setattr("rqretry.worker.heartbeat.Heartbeat._renew_all", lambda *_: None)
    async with lab.working(app), lab.working(app):
        await app.publish("t", 1)
        await seen.count(2)
    stats = lab.stats("g")

    assert {name: stats.counters[name] for name in ("lease", "expire", "succeed")} == {
        "lease": 2,
        "expire": 1,
        "succeed": 1,
    }

    assert seen.attempts == [1, 2]
    assert seen.at[1] - seen.at[0] >= 0.95


async def test_the_first_expiry_is_ready_at_once_and_the_second_waits_by_the_ladder(
    lab: Lab,
) -> None:
    app, seen = lab.app(), Seen()
    forever = asyncio.Event()

    @app.consumer("t", group="g", visibility=5, policy=RetryPolicy.fixed("1h"))
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        await forever.wait()

    async with lab.working(app):
        sent = await app.publish("t", 1)
        for deliveries in (1, 2):
            await seen.count(deliveries)
            take_away(lab, sent)
            await counted(lab, "g", expire=deliveries)
        (state,) = (await app.admin.message(sent)).states

    assert seen.attempts == [1, 2]
    assert (state.state, state.attempt) == ("waiting_retry", 3)
    assert [error.cause for error in state.errors] == ["expired", "expired"]


async def test_context_variables_do_not_leak_from_one_attempt_to_the_next(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    variable = contextvars.ContextVar("variable", default="clean")
    found: list[str] = []

    @app.consumer("t", group="g", concurrency=1)
    async def handle_async(message: Message[Any]) -> None:
        found.append(variable.get())
        variable.set("left behind")
        await asyncio.sleep(0)
        found.append(variable.get())
        seen.add(message)

    @app.consumer("t", group="threads", concurrency=1)
    def handle_sync(message: Message[Any]) -> None:
        found.append(variable.get())
        variable.set("left behind")
        found.append(variable.get())
        seen.add(message)

    async with lab.working(app):
        await app.publish_many("t", range(3))
        await seen.count(6)

    assert sorted(found) == ["clean"] * 6 + ["left behind"] * 6


async def test_what_waits_too_long_in_the_buffer_is_given_back_uncounted(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    free = asyncio.Event()

    @app.consumer("t", group="g", concurrency=1, visibility=0.6, consume_timeout=60)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        await (free.wait() if message.body == "slow" else asyncio.sleep(0.002))

    async with lab.working(app):
        # Quick ones first, and long enough for the worker to measure that it can lease ahead.
        await app.publish_many("t", [*range(200), "slow", *range(200, 260)])
        await until(lambda: "slow" in seen.bodies)
        await until(lambda: lab.stats("g").inflight == 1)  # the slow one; nothing else is held
        free.set()
        stats = await counted(lab, "g", succeed=261, fail=0, expire=0, dead=0)

    assert stats.counters["release"] > 0
    assert stats.counters["lease"] == 261 + stats.counters["release"]
    assert seen.attempts == [1] * 261


async def test_all_threads_stuck_asks_for_a_new_process(lab: Lab) -> None:
    app, release = lab.app(), threading.Event()

    @app.consumer("t", group="g", concurrency=2, consume_timeout=0.1)
    def handle(message: Message[Any]) -> None:
        release.wait(10)

    try:
        async with lab.working(app, grace=0.2) as worker:
            await app.publish_many("t", range(2))
            await counted(lab, "g", fail=2)
            await until(lambda: worker.needs_replacement)
    finally:
        release.set()
