"""The connection budget of docs/deployment.md: 7 for each worker process, 1 for its supervisor."""

import asyncio

import pytest

from rqretry.core.redis_url import RedisUrl
from rqretry.transport.store import MAX_IDLE, Store
from tests.contract.production.conftest import Site, until

pytestmark = pytest.mark.chaos

PER_PROCESS = 7
PER_SUPERVISOR = 1


def test_a_worker_under_load_keeps_to_its_connections(site: Site) -> None:
    site.client.publish_many("many", range(6000))
    others = len(site.redis.client_list())
    most = 0
    service = site.start("--processes", "2")
    until(lambda: site.live_workers() == 2)

    def done() -> bool:
        nonlocal most
        most = max(most, len(site.redis.client_list()) - others)
        return most > 0 and site.stats("many").counters.get("succeed", 0) >= 6000

    until(done, say=service.diagnosis)

    assert 2 * 2 <= most <= 2 * PER_PROCESS + PER_SUPERVISOR
    assert service.stop() == 0
    assert len(site.redis.client_list()) == others


async def test_connections_that_a_burst_opened_are_closed_after_it(site: Site) -> None:
    before = len(site.redis.client_list())
    async with Store(RedisUrl.parse(site.server.url)) as store:
        burst = [await store.acquire("any") for _ in range(3 * MAX_IDLE)]
        for connection in burst:
            store.release(connection)
        await asyncio.to_thread(until, lambda: len(site.redis.client_list()) - before == MAX_IDLE)
    await asyncio.to_thread(until, lambda: len(site.redis.client_list()) == before)
