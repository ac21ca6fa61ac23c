"""Publishing one by one and in bulk; nobody consumes meanwhile."""

import time
from contextlib import aclosing
from typing import Any

from benchmarks import floor
from benchmarks.figures import Figures
from benchmarks.servers import MICROSECONDS, Server
from benchmarks.workload import SMALL, TOPIC, bodies, check, encoded_size, run, stored
from rqretry import App


def single(messages: int | None) -> Figures:
    """One synchronous publish after another, beside bare redis-py loops of LPUSH and XADD."""
    count = messages or 20_000
    with Server() as server:
        app = App(server.url)
        with app.client as client:
            client.publish(TOPIC, 0)
            costs = floor.server_us(server, count, encoded_size())
            bare = floor.lpush_rate(server.port, count, encoded_size())
            cpu, commands = server.cpu_s(), server.requests()
            started, own = time.perf_counter(), time.process_time()
            ids = [str(client.publish(TOPIC, body)) for body in bodies(count)]
            took, own = time.perf_counter() - started, time.process_time() - own
            cpu, commands = server.cpu_s() - cpu, server.requests() - commands
            bare = max(bare, floor.lpush_rate(server.port, count, encoded_size()))
        check(ids, stored(server)[1:])
    rate = count / took
    return Figures(
        rate=rate,
        checked=True,
        redis_us=cpu / count * MICROSECONDS,
        worker_us=own / count * MICROSECONDS,
        floor_ratio=rate / bare,
        redis_commands=commands / count,
        more={"lpush_per_s": bare, **costs},
    )


def bulk(messages: int | None) -> Figures:
    """`publish_many` of an asyncio client, beside a bare loop over the same script."""
    count = messages or 200_000
    with Server() as server:
        before = server.memory()
        took, own, cpu, calls, ids = run(_bulk(server, count))
        per_message = (server.memory() - before) / count
        check(ids, stored(server)[1:])
        bare = floor.publish_rate(server.url, count, SMALL)
    rate = count / took
    return Figures(
        rate=rate,
        checked=True,
        redis_us=cpu / count * MICROSECONDS,
        worker_us=own / count * MICROSECONDS,
        bytes_per_message=per_message,
        floor_ratio=rate / bare,
        redis_commands=calls / count,
        more={
            "floor_per_s": bare,
            "messages_per_call": count / max(1, calls),
            "bytes_over_encoded": per_message - encoded_size(),
        },
    )


async def _bulk(server: Server, count: int) -> tuple[float, float, float, int, list[str]]:
    async with aclosing(App(server.url)) as app:
        await app.publish(TOPIC, 0)
        items: list[Any] = bodies(count)
        cpu, calls = server.cpu_s(), server.requests()
        started, own = time.perf_counter(), time.process_time()
        made = await app.publish_many(TOPIC, items)
        took, own = time.perf_counter() - started, time.process_time() - own
        cpu, calls = server.cpu_s() - cpu, server.requests() - calls
        return took, own, cpu, calls, [str(id_) for id_ in made]
