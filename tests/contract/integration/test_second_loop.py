"""An AsyncClient that outlives its event loop: the next asyncio.run() opens new connections."""

import asyncio
import gc
import warnings

import pytest

from rqretry import AsyncClient, InvalidArgument
from rqretry.testing.embedded_redis import EmbeddedRedis


@pytest.mark.parametrize("closed", [True, False], ids=["ended", "waiting"])
def test_a_client_in_a_second_event_loop_leaves_no_socket_open(closed: bool) -> None:
    with EmbeddedRedis() as server, warnings.catch_warnings(record=True) as stated:
        warnings.simplefilter("always")
        client = AsyncClient(server.url)
        first = asyncio.new_event_loop()
        first.run_until_complete(client.publish("t", 1))
        if closed:
            first.close()

        async def go_on(client: AsyncClient) -> int:
            await client.publish("t", 2)
            stored = (await client.admin.stats("t")).topics[0].stored
            await client.aclose()
            return stored

        assert asyncio.run(go_on(client)) == 2
        if not closed:
            first.run_until_complete(asyncio.sleep(0))
            first.close()
        del client
        gc.collect()
        assert [str(warning.message) for warning in stated] == []


def test_a_client_is_refused_in_a_loop_while_another_one_that_uses_it_runs() -> None:
    async def publish(client: AsyncClient) -> None:
        await client.publish("t", 2)

    async def look(client: AsyncClient) -> None:
        await client.admin.stats("t")

    async def use(client: AsyncClient) -> int:
        await client.publish("t", 1)
        for act in (publish, look):
            with pytest.raises(InvalidArgument, match="another event loop, which still runs"):
                await asyncio.to_thread(asyncio.run, act(client))
        await client.publish("t", 3)
        stored = (await client.admin.stats("t")).topics[0].stored
        await client.aclose()
        return stored

    with EmbeddedRedis() as server:
        assert asyncio.run(use(AsyncClient(server.url))) == 2
