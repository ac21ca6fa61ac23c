"""Several gateways of one namespace: routes name all of them, and clients change between them."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rqretry import AsyncClient, Client
from rqretry.core.parts import parts_of
from rqretry.core.worker_info import groups_of
from rqretry.gateway import leases
from rqretry.gateway.access import AccessKeys
from rqretry.gateway.protocol import v2
from rqretry.gateway.server import Gateway, Terms
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.gateway.raw import METADATA, Raw, message, named, receive, send

CLIENT = METADATA[0][1]


@asynccontextmanager
async def gateway_at(
    url: str, advertise: tuple[str, int] | None
) -> AsyncIterator[tuple[Gateway, str]]:
    async with AsyncClient(url, create_topics=True) as ours:
        made = Gateway(ours, AccessKeys({}), Terms(advertise, create=True))
        port = await made.serve("127.0.0.1:0")
        try:
            yield made, f"127.0.0.1:{port}"
        finally:
            await made.aclose()


async def hosts_named(raw: Raw) -> list[str]:
    answer = await raw.call("QueryRoute", named("QueryRouteRequest", topic="routed"))
    return [one.host for one in answer.message_queues[0].broker.endpoints.addresses]


async def test_routes_name_all_gateways_that_live(redis_server: EmbeddedRedis) -> None:
    async with (
        gateway_at(redis_server.url, ("192.0.2.1", 1)) as (first, address),
        Raw(address) as raw,
    ):
        async with (
            gateway_at(redis_server.url, ("192.0.2.2", 1)),
            gateway_at(redis_server.url, ("name.example", 1)),
        ):
            await until_registered(first, 3)
            assert await hosts_named(raw) == ["192.0.2.1", "192.0.2.2"]
        first.calls.gateways._looked_at -= 100
        assert await hosts_named(raw) == ["192.0.2.1"]


async def test_a_lease_is_renewed_while_its_client_lives_at_another_gateway(
    redis_server: EmbeddedRedis, client: Client
) -> None:
    client.admin.create_topic("moving")
    parts = parts_of(client)
    parts.store.perform(parts.catalog.join("movers", "push", ["moving"]))
    async with (
        gateway_at(redis_server.url, None) as (first, here),
        gateway_at(redis_server.url, None) as (_, there),
        Raw(here) as raw,
        Raw(there) as elsewhere,
    ):
        await raw.call("SendMessage", send(message("moving", "01" + 32 * "7")))
        _, (found,) = await raw.receive(receive("movers", "moving", auto_renew=True))
        (held,) = first.calls.leases._held.values()
        del first.calls.clients._known[CLIENT]  # it is not heard here any more
        held.client.seen_at = -leases.VISIBILITY_S
        beat = named("HeartbeatRequest", "movers", client_type=v2.ClientType.PUSH_CONSUMER)
        assert await elsewhere.code("Heartbeat", beat) == "OK"
        while not await first.calls.gateways.knows(CLIENT):
            first.calls.gateways._looked_at -= 100
            await asyncio.sleep(0.02)
        await first.calls.leases.renew_once(time.monotonic())
        assert len(first.calls.leases) == 1
        ack = named("AckMessageRequest", "movers", "moving")
        ack.entries.add(receipt_handle=found.system_properties.receipt_handle)
        assert await elsewhere.code("AckMessage", ack) == "OK"
        await first.calls.leases.renew_once(time.monotonic())
        assert len(first.calls.leases) == 0


async def until_registered(gateway: Gateway, count: int) -> None:
    for _ in range(200):
        gateway.calls.gateways._looked_at -= 100
        live = await gateway.calls.gateways._live()
        if sum("gateway" in groups_of(worker.about).facts for worker in live) == count:
            return
        await asyncio.sleep(0.02)
    raise AssertionError
