"""Failovers under load: orderly ones lose nothing, a lost primary nothing that was confirmed."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rqretry import App, AsyncClient, Client, Message, NotConfirmed, RetryPolicy
from rqretry.core.errors import AmbiguousResult, StoreUnavailable
from rqretry.core.parts import parts_of
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.store import Store
from rqretry.worker.worker import Worker
from tests.conftest import program
from tests.contract.integration.harness import NAMESPACE, until
from tests.support.fleets import SentinelFleet
from tests.support.servers import SERVERS
from tests.support.soundness import assert_sound

pytestmark = pytest.mark.chaos


@pytest.fixture(params=list(SERVERS))
def fragile(request: pytest.FixtureRequest) -> Iterator[SentinelFleet]:
    """Servers of this test alone, without passwords: one of them is killed."""
    with SentinelFleet(binary=program(request.param).path) as fleet:
        yield fleet


ORDERLY = pytest.param(False, marks=pytest.mark.campaign, id="orderly")


@pytest.mark.parametrize("killed", [ORDERLY, pytest.param(True, id="killed")])
async def test_a_failover_under_load(
    fragile: SentinelFleet, record_property: Callable[[str, object], None], *, killed: bool
) -> None:
    app = App(fragile.url, namespace=NAMESPACE)
    done: Counter[str] = Counter()

    @app.consumer("t", group="g", visibility=2)
    async def handle(message: Message[int]) -> None:
        done[message.id] += 1

    confirmed: list[str] = []
    unsure: list[str] = []
    stop = asyncio.Event()

    async def publish(client: AsyncClient) -> None:
        while not stop.is_set():
            with contextlib.suppress(StoreUnavailable):
                try:
                    confirmed.append(await client.publish("t", 1, durability="replica:1"))
                except (NotConfirmed, AmbiguousResult) as error:
                    unsure.append(error.id)
            await asyncio.sleep(0.002)

    worker = parts_of(app).worker(grace=2)
    working = asyncio.ensure_future(worker.run())
    await worker.started.wait()
    async with AsyncClient(fragile.url, namespace=NAMESPACE) as client:
        publishing = [asyncio.ensure_future(publish(client)) for _ in range(4)]
        await until(lambda: len(confirmed) > 50, 20)
        victim, began = fragile.primary, time.monotonic()
        if killed:
            victim.embedded.kill()
            await until(lambda: fragile.primary is not victim, 20)
        else:
            await asyncio.to_thread(fragile.fail_over)
            await asyncio.to_thread(fragile.settled)
        promoted, before = time.monotonic() - began, len(confirmed)
        if killed:  # alone now: nobody can confirm
            stop.set()
        else:
            await until(lambda: len(confirmed) > before + 50, 20)
        stop.set()
        await asyncio.gather(*publishing)
        await until(lambda: not set(confirmed) - set(done), 20)
        after = await client.publish("t", 2)
        await until(lambda: after in done, 20)
    worker.stop()
    await working
    await app.aclose()
    record_property("promoted_after_s", round(promoted, 2))
    record_property("confirmed", len(confirmed))
    record_property("unsure", len(unsure))
    record_property("unsure_and_lost", len(set(unsure) - set(done)))
    if not killed:
        assert not set(unsure) - set(done)
    with Client(fragile.url, namespace=NAMESPACE) as sync:
        assert_sound(parts_of(sync).store, NAMESPACE)


BEHIND_KEY, BEHIND_MS = "rqretry:behind", 600_000
BEHIND = f"""
local function wall_ms()
  local now = redis.call('TIME')
  local behind = redis.call('GET', '{BEHIND_KEY}') or 0
  return now[1] * 1000 + math.floor(now[2] / 1000) - behind
end
"""
"""Takes the place of lua/include/clock.lua: a clock that is behind on the servers that say so."""
WAIT_S = 3.0


@pytest.mark.parametrize("fragile", ["redis-7"], indirect=True)
async def test_time_goes_on_where_the_clock_of_the_promoted_replica_is_behind(
    fragile: SentinelFleet,
) -> None:
    """A retry comes at its time, and a rate-limited group does not stop."""
    fragile.replica.call("CONFIG", "SET", "replica-read-only", "no")
    fragile.replica.call("SET", BEHIND_KEY, BEHIND_MS)
    app = App(fragile.url, namespace=NAMESPACE)
    failed_at: list[float] = []
    retried_at: list[float] = []
    limited: list[int] = []

    @app.consumer("retried", group="r", policy=RetryPolicy.fixed(f"{WAIT_S}s"))
    async def fails_once(message: Message[Any]) -> None:
        (failed_at if message.attempt == 1 else retried_at).append(time.monotonic())
        if message.attempt == 1:
            raise ValueError("once")

    @app.consumer("limited", group="l", rate_limit="50/s")
    async def take(message: Message[int]) -> None:
        limited.append(message.body)

    settings, consumers = parts_of(app).settings, parts_of(app).consumers
    library = ScriptLibrary({"clock": BEHIND})
    worker = Worker(settings, consumers, library=library, grace=2)
    working = asyncio.ensure_future(worker.run())
    await worker.started.wait()
    await app.publish("limited", 0)
    await app.publish("retried", 1)
    await until(lambda: bool(failed_at and limited), 20)
    async with AsyncClient(fragile.url, namespace=NAMESPACE) as client:
        parts_of(client).use(Store(settings.url, library))
        await until_waiting(client)
        old = fragile.primary
        assert old.call("WAIT", 1, 10_000) == 1
        old.embedded.kill()
        await until(lambda: fragile.primary is not old, 20)
        assert int(fragile.primary.call("GET", BEHIND_KEY)) == BEHIND_MS
        await client.publish_many("limited", range(1, 101))
        await until(lambda: len(limited) == 101 and bool(retried_at), 15)
    worker.stop()
    await working
    await app.aclose()
    assert retried_at[0] - failed_at[0] >= WAIT_S


async def until_waiting(client: AsyncClient) -> None:
    """The failure is stored."""
    while True:
        (group,) = (await client.admin.stats("retried")).topics[0].groups
        if group.waiting:
            return
        await asyncio.sleep(0.01)
