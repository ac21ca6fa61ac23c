"""Batch handlers in a worker on a real server: when they start, and what ends them."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rqretry import Message, RetryPolicy
from tests.contract.integration.batch_handlers import judge, listed
from tests.contract.integration.harness import NAMESPACE, Lab, Seen, counted, until

Messages = list[Message[Any]]
ONCE = RetryPolicy.fixed("1ms", max_retries=0)
_VICTIM = Path(__file__).with_name("batch_victim.py")


class Calls:
    """What a batch handler was called with."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.sizes: list[int] = []

    def add(self, messages: Messages) -> None:
        self.sizes.append(len(messages))
        for message in messages:
            self.seen.add(message)


async def test_a_backlog_comes_in_full_batches_and_the_rest_after_batch_wait(lab: Lab) -> None:
    app, calls = lab.app(), Calls()

    @app.consumer("t", group="g", batch=50, batch_wait="200ms", concurrency=2)
    async def handle(messages: Messages) -> None:
        calls.add(messages)
        await asyncio.sleep(0.001)

    app.topic("t", partitions=3)
    await app.publish_many("t", range(520))
    async with lab.working(app):
        await counted(lab, "g", succeed=520, fail=0)
    assert sorted(calls.sizes)[-10:] == [50] * 10
    assert sum(calls.sizes) == 520
    lab.audit()


async def test_the_lease_of_a_long_batch_is_renewed_and_a_timeout_fails_each_of_it(
    lab: Lab,
) -> None:
    app, calls, cancelled = lab.app(), Calls(), []

    @app.consumer("t", group="long", batch=3, visibility="200ms", concurrency=1)
    async def handle(messages: Messages) -> None:
        calls.add(messages)
        await asyncio.sleep(0.5)

    @app.consumer("u", group="late", batch=3, consume_timeout="200ms", policy=ONCE)
    async def late(messages: Messages) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.append([message.cancelled for message in messages])

    for topic in ("t", "u"):
        await app.publish_many(topic, [1, 2, 3])
    async with lab.working(app):
        await counted(lab, "long", succeed=3, expire=0)
        await counted(lab, "late", dead=3, succeed=0)
        await until(lambda: bool(cancelled))
    assert calls.sizes == [3]
    assert cancelled == [[True] * 3]
    dead = await app.admin.dead_letters("late")
    assert [letter.cause for letter in dead] == ["timeout"] * 3


@pytest.mark.parametrize("process", [False, True], ids=["threads", "processes"])
async def test_plain_batch_handlers_run_in_threads_and_in_processes(
    lab: Lab, process: bool
) -> None:
    app = lab.app()
    app.consumer("t", group="g", batch=6, policy=ONCE, process=process)(judge)
    app.consumer("u", group="list", batch=2, policy=ONCE, process=process)(listed)  # type: ignore[type-var]
    await app.publish_many("t", ["good", "none", "raised", "dead", "generator", "missing"])
    await app.publish_many("u", [1, 2])
    async with lab.working(app):
        await counted(lab, "g", succeed=1, dead=5)
        await counted(lab, "list", succeed=0, dead=2)
    dead = await app.admin.dead_letters("g")
    assert {letter.body: letter.error.partition(" that")[0] for letter in dead} == {
        "none": "handler returned None where it promised a result",
        "raised": "Unlike: no way",
        "dead": "no use",
        "generator": "handler returned generator",
        "missing": "the handler's mapping has no outcome for this message",
    }


async def test_what_waits_for_a_fuller_batch_is_given_back_at_once_where_a_worker_stops(
    lab: Lab,
) -> None:
    app, calls = lab.app(), Calls()

    @app.consumer("t", group="g", batch=10, batch_wait="7s")
    async def handle(messages: Messages) -> None:
        calls.add(messages)

    await app.publish_many("t", [1, 2, 3])
    async with lab.working(app) as worker:
        await until(lambda: lab.stats("g").inflight == 3)
        began = time.monotonic()
        worker.stop()
        await until(lambda: lab.stats("g").ready + lab.stats("g").retry == 3)
    assert time.monotonic() - began < 5
    assert calls.sizes == []
    await counted(lab, "g", lease=3, fail=0, expire=0)


async def test_a_batch_that_outlives_the_grace_is_given_back_uncounted(lab: Lab) -> None:
    app, calls = lab.app(), Calls()

    @app.consumer("t", group="g", batch=2)
    async def handle(messages: Messages) -> None:
        calls.add(messages)
        if len(calls.sizes) == 1:
            await asyncio.sleep(60)

    await app.publish_many("t", [1, 2])
    async with lab.working(app, grace=0.05):
        await calls.seen.count(2)
    async with lab.working(app):
        await counted(lab, "g", succeed=2, fail=0, expire=0)
    assert calls.seen.attempts == [1, 1, 1, 1]


async def test_every_consumer_of_a_broadcast_group_gets_batches(lab: Lab) -> None:
    app, calls = lab.app(), Calls()

    @app.consumer("t", group="g", batch=3, broadcast=True)
    async def handle(messages: Messages) -> dict[str, bool]:
        calls.add(messages)
        return {message.id: message.body != 2 for message in messages}

    async with lab.working(app):
        await app.publish_many("t", [1, 2, 3])
        await calls.seen.count(3)
        await until(lambda: lab.stats("g").counters.get("fail") == 1)
    assert calls.sizes == [3]
    await counted(lab, "g", succeed=2, fail=1)


def test_a_worker_killed_in_a_batch_has_used_one_attempt_of_each_message(lab: Lab) -> None:
    client = lab.client()
    ids = [str(id_) for id_ in client.publish_many("t", range(20))]
    environment = {**os.environ, "RQRETRY_REDIS_URL": lab.url, "RQRETRY_NAMESPACE": NAMESPACE}
    victim = [sys.executable, str(_VICTIM)]
    with subprocess.Popen([*victim, "hangs"], env=environment, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        first.stdout.readline()  # it is in the midst of a batch
        first.kill()
    with subprocess.Popen([*victim, "works"], env=environment, stdout=subprocess.PIPE) as second:
        assert second.stdout is not None
        seen = dict(second.stdout.readline().decode().split() for _ in ids)
        asyncio.run(counted(lab, "g", succeed=20, expire=10, fail=0))
        second.kill()
    assert seen.keys() == set(ids)
    assert sorted(seen.values()) == ["1"] * 10 + ["2"] * 10
    lab.audit()


async def test_a_rate_limit_counts_the_messages_of_batches(lab: Lab) -> None:
    app, calls = lab.app(), Calls()

    @app.consumer("t", group="g", batch=10, batch_wait="50ms", rate_limit="40/s")
    async def handle(messages: Messages) -> None:
        calls.add(messages)

    await app.publish_many("t", range(100))
    async with lab.working(app):
        await calls.seen.count(100)
    assert sorted(message.body for message in calls.seen.messages) == list(range(100))
    assert max(calls.sizes) <= 10
    assert calls.seen.at[-1] - calls.seen.at[0] > 0.75  # 40 at once, the others in 1.5 s
