"""What partitions remember of producers: no more than there are at once."""

import asyncio
import threading
from typing import Any

import pytest
import redis

from rqretry import AmbiguousResult, AsyncClient, Client
from rqretry.core.parts import parts_of
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.contract.integration.harness import NAMESPACE, PATIENCE_S, Lab
from tests.support.faults.proxy import proxied
from tests.support.faults.rules import Fault, always

SINGLE, BULK = 1, 2
"""Lanes that one call uses at most."""
MINUTE_MS = 60_000


def lanes(lab: Lab) -> int:
    return len(lab.redis.keys("rqretry:test:{t:0}:lane:*"))


def lives_ms(lab: Lab) -> list[int]:
    """How long each lane is remembered if nothing happens."""
    return [lab.redis.pttl(key) for key in lab.redis.keys("rqretry:test:{t:0}:lane:*")]


def in_threads(count: int, work: Any, *args: Any) -> None:
    """Run it in so many new threads at once."""
    threads = [threading.Thread(target=work, args=args) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)


async def test_threads_that_come_and_go_leave_one_lane(lab: Lab) -> None:
    client = lab.client()
    for _ in range(30):
        in_threads(1, client.publish, "t", "a message")
    assert lanes(lab) == SINGLE
    in_threads(1, client.publish_many, "t", range(1200))
    assert lanes(lab) == BULK
    assert lab.redis.hlen("rqretry:test:{t:0}:bodies") == 30 + 1200


async def test_threads_at_once_have_lanes_of_their_own(lab: Lab) -> None:
    client, together = lab.client(), threading.Barrier(4)
    client.publish("t", "so that the topic is there")

    def work() -> None:
        together.wait(PATIENCE_S)
        for number in range(50):
            client.publish("t", number)

    in_threads(4, work)
    assert lanes(lab) <= 4 * SINGLE
    assert lab.redis.hlen("rqretry:test:{t:0}:bodies") == 1 + 200


async def test_the_lanes_of_a_closed_client_are_forgotten_in_a_minute(lab: Lab) -> None:
    for _ in range(2):
        with Client(lab.url, namespace=NAMESPACE) as client:
            client.publish("t", 1)
        async with AsyncClient(lab.url, namespace=NAMESPACE) as asynchronous:
            await asynchronous.publish("t", 1)
    assert lanes(lab) == 2 * (SINGLE + SINGLE)
    with Client(lab.url, namespace=NAMESPACE) as client:
        client.publish_many("t", range(1200))
    async with AsyncClient(lab.url, namespace=NAMESPACE) as asynchronous:
        await asynchronous.publish_many("t", range(1200))
    assert lanes(lab) == 4 * SINGLE + 2 * BULK
    assert max(lives_ms(lab)) <= MINUTE_MS


async def test_what_is_in_doubt_is_remembered_for_an_hour_also_when_its_client_is_closed(
    lab: Lab,
) -> None:
    async with proxied(lab.server) as proxy, AsyncClient(proxy.url, namespace=NAMESPACE) as client:
        await client.publish("t", "warm")
        parts_of(client).store.repeat_seconds = 0.1
        proxy.rules = always(Fault.DROP_REPLY, "publish")
        with pytest.raises(AmbiguousResult):
            await client.publish("t", "in doubt")
        proxy.rules = []
        await client.publish("t", "another lane")
    in_doubt, known = sorted(lives_ms(lab), reverse=True)
    assert in_doubt > 59 * MINUTE_MS
    assert known <= MINUTE_MS


def test_event_loops_one_after_another_leave_one_lane() -> None:
    with EmbeddedRedis() as server:
        client = AsyncClient(server.url, namespace=NAMESPACE)
        for number in range(5):
            asyncio.run(client.publish("t", number))
        asyncio.run(client.aclose())
        with redis.Redis(unix_socket_path=str(server.socket_path)) as raw:
            assert len(raw.keys("rqretry:test:{t:0}:lane:*")) == SINGLE
