"""One gateway process: sending, receiving and acknowledging, and a long poll that a publish wakes.

The client is bare gRPC in this process, with 32 calls under way; for comparison the direct asyncio
client publishes the same bodies in the same run, 32 at a time. `rate` and `worker_us` are of
sending, and of the gateway process; `floor_ratio` is its rate by the direct client's.
"""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figures, percentile
from benchmarks.servers import MICROSECONDS, Server
from benchmarks.workers import process_cpu_s, wait_until
from benchmarks.workload import TOPIC, check
from rqretry import AsyncClient

_AT_ONCE, _POLLS, _BODY, _MARGIN_S = 32, 100, 100 * b"x", 0.02
_ROOT = Path(__file__).parents[2]


@dataclass(slots=True)
class _Took:
    """Of a part: messages a second, and microseconds of CPU for each."""

    rate: float
    gateway_us: float
    redis_us: float
    own_us: float


def gateway(messages: int | None) -> Figures:
    """All parts, one after another."""
    count = messages or 5_000
    with Server() as server, serving(server.url) as (address, pid):
        sent, received, direct, waits = asyncio.run(_parts(server, address, pid, count))
    return Figures(
        rate=sent.rate,
        checked=True,
        p50_ms=percentile(waits, 50),
        p99_ms=percentile(waits, 99),
        redis_us=sent.redis_us,
        worker_us=sent.gateway_us,
        floor_ratio=sent.rate / direct.rate,
        more={
            "client_us": sent.own_us,
            "direct_per_s": direct.rate,
            "direct_us": direct.own_us,
            "direct_redis_us": direct.redis_us,
            "received_per_s": received.rate,
            "received_us": received.gateway_us,
            "received_redis_us": received.redis_us,
        },
    )


@contextmanager
def serving(url: str) -> Iterator[tuple[str, int]]:
    """A gateway process: where it listens, and its id."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = (sys.executable, "-m", "rqretry", "gateway", "--auto-create", "--listen", address)
    process = subprocess.Popen((*command, "--url", url), stdout=subprocess.DEVNULL, cwd=_ROOT)
    try:
        host, _, port = address.partition(":")
        wait_until(lambda: _accepts(host, int(port)), 30, "a gateway that accepts")
        yield address, process.pid
    finally:
        process.terminate()
        process.wait()


def _accepts(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


class Calls:
    """Calls of the protocol."""

    def __init__(self, address: str) -> None:
        import grpc  # noqa: PLC0415 - of the extra [gateway]

        from rqretry.gateway.protocol import SERVICE, v2  # noqa: PLC0415

        self.v2, self.channel = v2, grpc.aio.insecure_channel(address)
        self._methods = {
            name: getattr(self.channel, kind)(
                f"/{SERVICE}/{name}",
                request_serializer=getattr(v2, f"{name}Request").SerializeToString,
                response_deserializer=getattr(v2, f"{name}Response").FromString,
            )
            for name, kind in (
                ("SendMessage", "unary_unary"),
                ("ReceiveMessage", "unary_stream"),
                ("AckMessage", "unary_unary"),
            )
        }

    def call(self, name: str, request: Any, client: str = "bench", within: float = 60) -> Any:
        """The stub's own call, by the name of a client, which waits so many seconds."""
        return self._methods[name](request, metadata=(("x-mq-client-id", client),), timeout=within)

    async def send(self, id_: str) -> None:
        """One message."""
        request = self.v2.SendMessageRequest()
        message = request.messages.add(body=_BODY)
        message.topic.name = TOPIC
        message.system_properties.message_id = id_
        answer = await self.call("SendMessage", request)
        assert answer.status.code == self.v2.Code.OK, answer

    async def receive(self) -> list[Any]:
        """What there is within 10 s."""
        request = self.v2.ReceiveMessageRequest(batch_size=16)
        request.group.name, request.message_queue.topic.name = "bench", TOPIC
        request.invisible_duration.seconds = request.long_polling_timeout.seconds = 10
        parts = self.call("ReceiveMessage", request)
        return [part.message async for part in parts if part.HasField("message")]

    async def ack(self, message: Any) -> str:
        """The id of the message that is committed."""
        request, system = self.v2.AckMessageRequest(), message.system_properties
        request.group.name, request.topic.name = "bench", TOPIC
        request.entries.add(receipt_handle=system.receipt_handle)
        answer = await self.call("AckMessage", request)
        assert answer.status.code == self.v2.Code.OK, answer
        return str(system.message_id)


async def _parts(
    server: Server, address: str, pid: int, count: int
) -> tuple[_Took, _Took, _Took, list[float]]:
    calls = Calls(address)
    ids = [f"01{number:032X}" for number in range(count)]
    await calls.send("01" + 32 * "F")
    got: list[str] = []

    async def consume() -> None:
        while len(got) <= count:
            got.extend(await asyncio.gather(*map(calls.ack, await calls.receive())))

    async def receive_all() -> None:
        consumers = [asyncio.ensure_future(consume()) for _ in range(4)]
        await asyncio.wait(consumers, return_when=asyncio.FIRST_COMPLETED)
        for consumer in consumers:
            consumer.cancel()

    sent = await _measured(server, pid, count, lambda: _each(calls.send, ids))
    received = await _measured(server, pid, count, receive_all)
    check(["01" + 32 * "F", *ids], got)
    waits = [await _woken(calls, number) for number in range(_POLLS)]
    async with AsyncClient(server.url) as client:
        await client.publish("direct", _BODY)

        async def publish(_: str) -> None:
            await client.publish("direct", _BODY)

        direct = await _measured(server, pid, count, lambda: _each(publish, ids))
    await calls.channel.close()
    return sent, received, direct, waits


async def _each(do: Callable[[str], Awaitable[None]], ids: list[str]) -> None:
    left = iter(ids)

    async def one() -> None:
        for id_ in left:
            await do(id_)

    await asyncio.gather(*(one() for _ in range(_AT_ONCE)))


async def _measured(
    server: Server, pid: int, count: int, do: Callable[[], Awaitable[None]]
) -> _Took:
    cpu, redis, own = process_cpu_s(pid), server.cpu_s(), time.process_time()
    began = time.perf_counter()
    await do()
    took, own = time.perf_counter() - began, time.process_time() - own
    cpu, redis = process_cpu_s(pid) - cpu, server.cpu_s() - redis
    by = MICROSECONDS / count
    return _Took(count / took, cpu * by, redis * by, own * by)


async def _woken(calls: Calls, number: int) -> float:
    """Milliseconds from the send of a message to the end of the poll that waited for it."""
    poll = asyncio.ensure_future(calls.receive())
    await asyncio.sleep(_MARGIN_S)
    began = time.perf_counter()
    await calls.send(f"02{number:032X}")
    messages = await poll
    took = (time.perf_counter() - began) * 1000
    for message in messages:
        await calls.ack(message)
    return took
