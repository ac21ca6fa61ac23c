"""Failovers under load: orderly ones lose nothing, a lost primary nothing that was confirmed."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from rqretry import App, AsyncClient, Client, Message, NotConfirmed
from rqretry.core.errors import AmbiguousResult, StoreUnavailable
from rqretry.core.parts import parts_of
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
