"""What receives that wait cost, however many there are: connections, calls and time."""

import asyncio
import resource
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import redis

from rqretry import AsyncClient
from rqretry.gateway import groups, slots
from rqretry.gateway.access import AccessKeys
from rqretry.gateway.front import Front, Probes
from rqretry.gateway.groups import GroupReader
from rqretry.gateway.metrics import Counted
from rqretry.gateway.protocol import v2
from rqretry.gateway.receiving import Receiving
from rqretry.gateway.requests import Caller, Names
from rqretry.gateway.server import Gateway, Terms
from rqretry.gateway.slots import Slots
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.gateway.raw import Raw, message, receive, send

POLLS, WAIT_S = 300, 4
GROUPS = ("first", "second", "third")


@pytest.fixture
async def gateway(redis_server: EmbeddedRedis) -> AsyncIterator[tuple[Gateway, Raw]]:
    """One in this process, and a channel to it."""
    async with AsyncClient(redis_server.url, create_topics=True) as ours:
        await ours.admin.create_topic("many")
        made = Gateway(ours, AccessKeys({}), Terms(create=True))
        async with Raw(f"127.0.0.1:{await made.serve('127.0.0.1:0')}") as raw:
            yield made, raw
        await made.aclose()


def asked(group: str, topic: str, wait: int = WAIT_S) -> Any:
    """A receive as clients send it, with a filter."""
    made = receive(group, topic, wait=wait)
    made.filter_expression.type, made.filter_expression.expression = v2.FilterType.TAG, "*"
    return made


def connections(server: EmbeddedRedis) -> int:
    """How many the server has accepted."""
    with redis.Redis(unix_socket_path=str(server.socket_path)) as own:
        found: Any = own.info("stats")
        return int(found["total_connections_received"])


async def until_open(gateway: Gateway, count: int) -> None:
    end = time.monotonic() + 10
    while gateway.calls.groups.polls != count:
        assert time.monotonic() < end, gateway.calls.groups.polls
        await asyncio.sleep(0.01)


async def test_polls_that_wait_share_connections_and_looks_and_end_at_their_time(
    redis_server: EmbeddedRedis,
    gateway: tuple[Gateway, Raw],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks, look = Counter[str](), GroupReader._look

    async def counted(reader: GroupReader, poll: Any) -> Any:
        looks[reader.operations.group] += 1
        return await look(reader, poll)

    monkeypatch.setattr(GroupReader, "_look", counted)
    made, raw = gateway
    before = connections(redis_server)

    async def poll(number: int) -> tuple[str, int, float]:
        began = time.monotonic()
        one = asked(GROUPS[number % len(GROUPS)], "many")
        code, found = await raw.by(f"raw@{number}").receive(one)
        return code, len(found), time.monotonic() - began

    waiting = [asyncio.ensure_future(poll(number)) for number in range(POLLS)]
    await until_open(made, POLLS)
    assert connections(redis_server) - before <= 8 * len(GROUPS)
    began = time.monotonic()
    await raw.call("SendMessage", send(message("many", "02" + 32 * "5")))
    await until_open(made, POLLS - len(GROUPS))
    assert time.monotonic() - began < WAIT_S
    answers = await asyncio.gather(*waiting)
    assert Counter(code for code, *_ in answers) == {
        "OK": len(GROUPS), "MESSAGE_NOT_FOUND": POLLS - len(GROUPS),
    }  # fmt: skip
    ended = [took for code, _, took in answers if code != "OK"]
    assert min(ended) >= WAIT_S - 0.1
    assert max(ended) < WAIT_S + 3
    assert max(looks.values()) <= 6


async def test_a_process_waits_for_so_many_groups_and_refuses_further_ones(
    gateway: tuple[Gateway, Raw], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MOST_READERS", 2)
    made, raw = gateway
    polls = [asyncio.ensure_future(raw.receive(asked(g, "full", 20))) for g in GROUPS[:2]]
    await until_open(made, 2)
    assert (await raw.receive(asked(GROUPS[2], "full")))[0] == "TOO_MANY_REQUESTS"
    polls.append(asyncio.ensure_future(raw.receive(asked(GROUPS[0], "full", 20))))
    await until_open(made, 3)
    await raw.call("SendMessage", send(*(message("full", f"0{n}" + 32 * "6") for n in (1, 2))))
    assert [code for code, _ in await asyncio.gather(*polls)] == 3 * ["OK"]


async def test_a_poll_ends_well_before_its_client_stops_waiting(
    gateway: tuple[Gateway, Raw],
) -> None:
    calls = gateway[0].calls
    store = calls.groups.store
    receiving = Receiving(Names("default"), store, calls.groups, calls.leases)
    client = calls.clients.heard("late")
    for remaining_s, most in ((30.0, 20.0), (10.0, 9.0), (1.0, 0.7), (0.1, 0.0)):
        began = time.monotonic()
        poll = receiving._poll(asked("all", "many", 20), Caller(client, {}, remaining_s))
        assert poll.until - began == pytest.approx(most, abs=0.1)


async def test_calls_that_find_no_slot_are_refused_in_time(
    gateway: tuple[Gateway, Raw], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "_PATIENCE_S", 0.05)
    made, raw = gateway
    made.calls.groups.slots = Slots(1)
    made.calls.groups.lookups = Slots(1)
    async with made.calls.groups.slots:
        assert await raw.code("SendMessage", send(message("busy"))) == "TOO_MANY_REQUESTS"
    async with made.calls.groups.lookups:
        assert (await raw.receive(asked("all", "busy")))[0] == "TOO_MANY_REQUESTS"
    assert await raw.code("SendMessage", send(message("busy"))) == "OK"


async def test_receives_of_a_group_that_is_subscribed_need_no_slot(
    gateway: tuple[Gateway, Raw], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(groups, "_RECORD_S", 60.0)
    made, raw = gateway
    assert (await raw.receive(asked("all", "calm", 0)))[0] == "MESSAGE_NOT_FOUND"
    made.calls.groups.slots = made.calls.groups.lookups = Slots(1)
    async with made.calls.groups.slots:
        late = [raw.by(f"late-{number}").receive(asked("all", "calm", 0)) for number in range(20)]
        assert {code for code, _ in await asyncio.gather(*late)} == {"MESSAGE_NOT_FOUND"}


async def test_a_connection_too_many_is_closed_at_once(tmp_path: Path) -> None:
    counted, backend = Counted(), str(tmp_path / "grpc.sock")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = await asyncio.start_unix_server(greeted, backend)
        front = Front(listening, backend, tls, Probes(lambda: None, str, counted))
        assert front._most == resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
        front._most = 1
        accepting = asyncio.create_task(front.serve())
        where = listening.getsockname()
        reader, writer = await asyncio.open_connection(*where)
        writer.write(b"PRI")
        assert await reader.readexactly(5) == b"hello"
        refused, other = await asyncio.open_connection(*where)
        assert await refused.read() == b""
        assert counted.connections == 1
        for each in (writer, other):
            each.close()
        for _ in range(500):
            if counted.connections == 0:
                break
            await asyncio.sleep(0.01)
        assert counted.connections == 0
        accepting.cancel()
        await asyncio.gather(accepting, return_exceptions=True)
        server.close()
        await server.wait_closed()


async def greeted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that says hello and waits for the end."""
    writer.write(b"hello")
    await reader.read()
    writer.close()
    await writer.wait_closed()
