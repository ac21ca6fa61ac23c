"""Receives that wait: how many, what ends them, and what becomes of messages that nobody took."""

import asyncio
import time
from typing import Any

import pytest

from rqretry import AsyncClient
from rqretry.core.catalog_records import SIMPLE
from rqretry.core.parts import parts_of
from rqretry.gateway import receiving
from rqretry.gateway.access import AccessKeys
from rqretry.gateway.groups import Groups
from rqretry.gateway.receiving import Receiving
from rqretry.gateway.requests import Caller, Names
from rqretry.gateway.server import Gateway, Terms
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.gateway.raw import METADATA, Raw, message, receive, send

MOST = 100


async def test_so_many_polls_wait_and_all_of_them_are_answered(
    redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "MOST_POLLS", MOST)
    async with AsyncClient(redis_server.url, create_topics=True) as ours:
        gateway = Gateway(ours, AccessKeys({}), Terms(create=True))
        address = f"127.0.0.1:{await gateway.serve('127.0.0.1:0')}"
        groups = gateway.calls.groups
        async with Raw(address) as raw:
            asked = [raw.receive(receive("all", "crowded", wait=15)) for _ in range(MOST)]
            waiting = [asyncio.ensure_future(one) for one in asked]
            await until_open(groups, MOST)
            assert (await raw.receive(receive("all", "crowded", wait=15)))[0] == "TOO_MANY_REQUESTS"
            for number in range(10):
                waiting[number].cancel()  # their clients vanish
            await until_open(groups, MOST - 10)
            ids = [f"08{number:032X}" for number in range(60)]
            await raw.call("SendMessage", send(*(message("crowded", id_) for id_ in ids)))
            await until_open(groups, MOST - 70)
            await groups.aclose()
            answers = await asyncio.gather(*waiting[10:])
            codes = [code for code, _ in answers]
            assert (codes.count("OK"), codes.count("MESSAGE_NOT_FOUND")) == (60, 30)
            found = {one.system_properties.message_id for _, got in answers for one in got}
            assert found == {*ids}
        await gateway.aclose()


async def test_a_poll_that_is_open_when_redis_goes_away_is_answered() -> None:
    with EmbeddedRedis() as server:
        async with AsyncClient(server.url, create_topics=True, timeout=1.0) as ours:
            gateway = Gateway(ours, AccessKeys({}), Terms(create=True))
            address = f"127.0.0.1:{await gateway.serve('127.0.0.1:0')}"
            async with Raw(address) as raw:
                polling = asyncio.ensure_future(raw.receive(receive("all", "waits", wait=15)))
                await until_open(gateway.calls.groups, 1)
                server.kill()
                assert (await polling)[0] in ("PROXY_TIMEOUT", "MESSAGE_NOT_FOUND")
            await gateway.aclose()


async def test_what_a_stream_that_breaks_had_to_bring_comes_again_uncounted(
    redis_server: EmbeddedRedis,
) -> None:
    async with AsyncClient(redis_server.url, create_topics=True) as ours:
        gateway = Gateway(ours, AccessKeys({}), Terms(create=True))
        await gateway.serve("127.0.0.1:0")
        calls = gateway.calls
        caller = Caller(calls.clients.heard(METADATA[0][1]), {}, None)
        caller.client.kind = SIMPLE
        answers = Receiving(Names("default"), parts_of(ours).store, calls.groups, calls.leases)
        asked = receive("all", "broken", batch_size=8)
        assert [part async for part in answers.receive_message(asked, caller)]  # it is subscribed
        await ours.publish_many("broken", range(3))
        for _ in range(3):
            stream: Any = answers.receive_message(asked, caller)
            parts = [await anext(stream), await anext(stream)]
            assert parts[1].message.system_properties.delivery_attempt == 1
            await stream.aclose()  # one of three messages was sent
            asked.long_polling_timeout.seconds = 10
        attempts: list[int] = []
        while len(attempts) < 3:  # they are given back one by one
            got = [part.message async for part in answers.receive_message(asked, caller)]
            attempts += [one.system_properties.delivery_attempt for one in got if one.body]
        assert attempts == [1, 1, 1]
        await gateway.aclose()


async def until_open(groups: Groups, count: int) -> None:
    end = time.monotonic() + 10
    while groups.polls != count:
        assert time.monotonic() < end, groups.polls
        await asyncio.sleep(0.01)
