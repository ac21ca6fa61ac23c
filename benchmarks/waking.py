"""The floor of W4: one process waits and leases, another one publishes, with nothing around it.

BZPOPMIN and the lease behind it go over one connection, as in a worker. Once with sockets that
block, which is the best that Python can do, and once with redis-py and asyncio.
"""

import asyncio
import multiprocessing
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from multiprocessing.connection import Connection
from typing import Any, Protocol

import hiredis
import redis.asyncio

from benchmarks.servers import Server
from benchmarks.workload import body, run
from rqretry import App
from rqretry.core.envelope import encode
from rqretry.core.message_id import make_id, make_producer
from rqretry.core.parts import parts_of
from rqretry.core.receipt import Receipt
from rqretry.core.redis_url import RedisUrl
from rqretry.core.route import Route
from rqretry.protocol.command import Argument, Command
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.lease import lease, succeed
from rqretry.protocol.publish import Prepared, publish
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.connection import pack_one
from rqretry.transport.node import Node, dialect_of
from rqretry.transport.session import spell
from rqretry.transport.share import load

SOCKETS, REDIS_PY = "sockets", "redis-py"
_NAMESPACE, _TOPIC, _GROUP = "floor", "bare-wake", "bare"
_LANE_TTL_MS = 60_000
_READ = 65_536
_spawn = multiprocessing.get_context("spawn")

Arguments = tuple[Argument, ...]


class _Speaker(Protocol):
    async def ask(self, *requests: Arguments) -> list[Any]:
        """Send requests at once, and read as many replies."""
        ...

    async def aclose(self) -> None:
        """Close the connection."""
        ...


class _Socket:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()

    async def ask(self, *requests: Arguments) -> list[Any]:
        self._socket.sendall(b"".join(map(pack_one, requests)))
        replies: list[Any] = []
        while len(replies) < len(requests):
            reply = self._reader.gets()
            if reply is False:
                self._reader.feed(self._socket.recv(_READ))
            else:
                replies.append(reply)
        return replies

    async def aclose(self) -> None:
        self._socket.close()


class _RedisPy:
    def __init__(self, port: int) -> None:
        self._client: Any = redis.asyncio.Redis(port=port, socket_timeout=60)  # noqa: TID251 - this is what is compared with

    async def ask(self, *requests: Arguments) -> list[Any]:
        if len(requests) == 1:
            return [await self._client.execute_command(*requests[0])]
        pipeline = self._client.pipeline(transaction=False)
        for request_parts in requests:
            pipeline.execute_command(*request_parts)
        replies: list[Any] = await pipeline.execute()
        return replies

    async def aclose(self) -> None:
        await self._client.aclose()


_SPEAKERS: dict[str, Callable[[int], _Speaker]] = {SOCKETS: _Socket, REDIS_PY: _RedisPy}


def bare_waits_ms(server: Server, count: int, every_s: float) -> dict[str, list[float]]:
    """From sending a publish to having the message, of so many, one every `every_s`; by speaker."""
    with App(server.url, namespace=_NAMESPACE).client as client:
        parts_of(client).store.perform(parts_of(client).catalog.join(_GROUP, "push", [_TOPIC]))
        keys = parts_of(client).catalog.group_keys(_TOPIC, 0, _GROUP)
        route = parts_of(client).catalog.topics.route(_TOPIC, 0)
    ours, theirs = _spawn.Pipe(duplex=False)
    args = (server.port, server.version, keys, count, theirs)
    consumer = _spawn.Process(target=_consume_in_process, args=args)
    consumer.start()
    theirs.close()
    waits: dict[str, list[float]] = {}
    for kind in _SPEAKERS:
        ours.recv()  # it is ready
        sent: dict[str, float] = run(_publish(kind, server, keys, route, every_s, count))
        seen: dict[str, float] = ours.recv()
        waits[kind] = [(seen[id_] - at) * 1000 for id_, at in sent.items()]
    consumer.join()
    return waits


async def _publish(
    kind: str, server: Server, keys: GroupKeys, route: Route, every_s: float, count: int
) -> dict[str, float]:
    """Monotonic times at which each was sent, by id."""
    node, producer = _node(server.version), make_producer()
    sent: dict[str, float] = {}
    now_ms, due = time.time_ns() // 1_000_000, time.monotonic()
    async with aclosing(_SPEAKERS[kind](server.port)) as speaker:
        for number in range(1, count + 1):
            id_ = make_id(now_ms)
            command = publish(
                keys.partition, route, [Prepared(id_, encode(body(number)), "", "")],
                producer=producer, seq=number, checksum=str(number), lane_ttl_ms=_LANE_TTL_MS,
            )  # fmt: skip
            if number == 1:
                await speaker.ask(load(node, command))
            request_parts = spell(node, command)
            due += every_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            sent[id_] = time.monotonic()
            (reply,) = await speaker.ask(request_parts)
            assert command.decode(reply).status == "OK"
    return sent


def _consume_in_process(
    port: int, version: str, keys: GroupKeys, count: int, end: Connection
) -> None:
    for kind in _SPEAKERS:
        end.send(run(_consume(kind, port, _node(version), keys, count, end)))
    end.close()


async def _consume(
    kind: str, port: int, node: Node, keys: GroupKeys, count: int, end: Connection
) -> dict[str, float]:
    """Monotonic times at which each message was there, by id."""
    leasing = lease(keys, worker=_GROUP, want=100, visibility_ms=30_000)
    waiting: Sequence[Arguments] = (("BZPOPMIN", keys.wake, 5), spell(node, leasing))
    seen: dict[str, float] = {}
    async with aclosing(_SPEAKERS[kind](port)) as speaker:
        await speaker.ask(load(node, leasing), load(node, _settling(keys, ["-"])))
        end.send(None)
        while len(seen) < count:
            _, reply = await speaker.ask(*waiting)
            ids, at = leasing.decode(reply).ids, time.monotonic()
            seen |= dict.fromkeys(ids, at)
            if ids:
                await speaker.ask(spell(node, _settling(keys, ids)))
    return seen


def _settling(keys: GroupKeys, ids: Sequence[str]) -> Command[list[bytes]]:
    return succeed(keys, [Receipt(id_, 1) for id_ in ids], worker=_GROUP)


def _node(version: str) -> Node:
    node = Node(RedisUrl.parse("redis://the-server"), ScriptLibrary())
    node.dialect = dialect_of(version)
    return node
