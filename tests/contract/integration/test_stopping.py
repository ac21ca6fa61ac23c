"""Stopping a worker: what has not started is given back, what runs may finish."""

import asyncio
import sys
import threading
import time
from typing import Any

import pytest

from rqretry import App, ConfigError, Message
from rqretry.core.parts import parts_of
from rqretry.worker.worker import Worker
from tests.contract.integration.harness import NAMESPACE, Lab, Seen, counted, until


async def test_messages_that_did_not_start_are_given_back_uncounted_and_running_ones_finish(
    lab: Lab,
) -> None:
    app, seen, go_on = lab.app(), Seen(), asyncio.Event()

    @app.consumer("t", group="g", concurrency=2)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        if isinstance(message.body, str):
            await go_on.wait()

    async with lab.working(app, grace=10) as worker:
        worker._consumers[0]._slots._rate = 1000.0  # it believes that it is fast, and leases ahead
        await app.publish_many("t", [*range(10), "slow", "slow", *range(100)])
        await until(lambda: seen.bodies.count("slow") == 2 and lab.stats("g").inflight > 20)
        worker.stop()
        await until(lambda: lab.stats("g").inflight == 2)
        started = len(seen.messages)
        go_on.set()
    stats = lab.stats("g")

    assert len(seen.messages) == started
    assert stats.counters["succeed"] == started
    assert stats.ready + stats.retry == 112 - started
    assert (stats.inflight, stats.counters.get("fail", 0)) == (0, 0)

    async with lab.working(app):
        await counted(lab, "g", succeed=112, expire=0)
    assert set(seen.attempts) == {1}


async def test_what_still_runs_after_the_grace_is_given_back_uncounted(lab: Lab) -> None:
    app, seen, cancelled = lab.app(), Seen(), asyncio.Event()

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        if len(seen.messages) > 2:
            return
        try:
            await asyncio.sleep(60)
        finally:
            assert message.cancelled
            cancelled.set()

    start = time.monotonic()
    async with lab.working(app, grace=0.2):
        await app.publish_many("t", [1, 2])
        await seen.count(2)
        start = time.monotonic()
    took = time.monotonic() - start
    stats = lab.stats("g")

    assert 0.2 <= took < 1.5
    assert cancelled.is_set()
    assert (stats.ready, stats.inflight, stats.counters["release"]) == (2, 0, 2)
    async with lab.working(app):
        await counted(lab, "g", succeed=2, fail=0, expire=0)
    assert seen.attempts == [1] * 4


async def test_a_thread_that_outlives_the_grace_is_given_back_too(lab: Lab) -> None:
    app, free, running = lab.app(), threading.Event(), threading.Event()

    @app.consumer("t", group="g")
    def handle(_message: Message[Any]) -> None:
        running.set()
        free.wait(10)

    async with lab.working(app, grace=0.1):
        await app.publish("t", 1)
        await until(running.is_set)
    free.set()
    stats = lab.stats("g")

    assert (stats.ready, stats.inflight, stats.counters["release"]) == (1, 0, 1)


async def test_a_second_stop_does_not_wait_for_the_grace(lab: Lab) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        await asyncio.sleep(60)

    async with lab.working(app, grace=60) as worker:
        await app.publish("t", 1)
        await seen.count(1)
        worker.stop()
        start = time.monotonic()
    assert time.monotonic() - start < 2
    assert lab.stats("g").ready == 1


async def test_an_idle_worker_stops_at_once_although_it_waits_in_redis(lab: Lab) -> None:
    app = lab.app()
    app.consumer(["t", "u"], group="g")(lambda _: None)
    app.consumer("t", group="h")(lambda _: None)
    await app.admin.create_topic("t", partitions=3)
    async with lab.working(app):
        await until(lambda: any(c["cmd"] == "bzpopmin" for c in lab.redis.client_list()))
        start = time.monotonic()
    assert time.monotonic() - start < 0.5


async def test_the_roster_knows_who_lives(lab: Lab) -> None:
    app = lab.app()
    app.consumer("t", group="g")(lambda _: None)
    async with lab.working(app), lab.working(app):
        await until(lambda: lab.stats("g").workers == 2)
    assert lab.stats("g").workers == 0


async def test_a_worker_waits_for_a_server_that_is_not_there_and_can_be_stopped(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("redis://127.0.0.1:1/0", namespace=NAMESPACE)
    app.consumer("t", group="g")(lambda _: None)
    worker = Worker(parts_of(app).settings, parts_of(app).consumers)
    worker._store.repeat_seconds = 0.05
    task = asyncio.ensure_future(worker.run())
    await until(lambda: "cannot start yet" in caplog.text)

    worker.stop()

    async with asyncio.timeout(3):
        await task
    assert "127.0.0.1:1" in caplog.text


async def test_a_worker_that_waits_for_its_server_stops_at_once(lab: Lab) -> None:
    app = App("redis://127.0.0.1:1/0", namespace=NAMESPACE)
    app.consumer("t", group="g")(lambda _: None)
    worker = Worker(parts_of(app).settings, parts_of(app).consumers)
    task = asyncio.ensure_future(worker.run())
    await asyncio.sleep(0.1)

    worker.stop()

    async with asyncio.timeout(3):
        await task


async def test_a_worker_without_consumers_is_an_error(lab: Lab) -> None:
    app = lab.app()
    with pytest.raises(ConfigError, match="no consumers"):
        Worker(parts_of(app).settings, parts_of(app).consumers)


HUNG = """
import asyncio, sys, threading
from rqretry import App

app, hung = App(sys.argv[1], namespace="test"), threading.Event()

@app.consumer("t", group="g")
def handle(message):
    hung.set()
    threading.Event().wait()

async def main():
    running = asyncio.create_task(app.run(grace=0.1, signals=False))
    await app.publish("t", 1)
    await asyncio.to_thread(hung.wait)
    running.cancel()
    await asyncio.wait([running])
    await app.aclose()

asyncio.run(main())
"""


async def test_a_plain_handler_that_hangs_keeps_no_process(lab: Lab) -> None:
    arguments = (sys.executable, "-c", HUNG, lab.url)
    process = await asyncio.create_subprocess_exec(*arguments)
    try:
        async with asyncio.timeout(60):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
