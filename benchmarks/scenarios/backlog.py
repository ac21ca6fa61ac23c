"""A long queue: are rates and memory what they are with a short one, and is no script long?"""

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from benchmarks.figures import Figures
from benchmarks.servers import MICROSECONDS, Server
from benchmarks.workers import Job, Workers, rate_of
from benchmarks.workload import bodies, encoded_size, join, publish_all, unfinished

_SLICE = 100_000
_MEASURED = 100_000


def backlog_1m(messages: int | None) -> Figures:
    """A million messages wait."""
    return _backlog(messages or 1_000_000)


def backlog_10m(messages: int | None) -> Figures:
    """Ten million messages wait: 2.5 GB."""
    return _backlog(messages or 10_000_000)


def _backlog(count: int) -> Figures:
    measured = min(_MEASURED, count)
    short = _measure(0, measured)
    long = _measure(count, measured)
    return Figures(
        rate=long["drain"],
        checked=True,
        bytes_per_message=long["bytes"],
        more={
            "waiting": count,
            "bytes_over_encoded": long["bytes"] - encoded_size(),
            "drain_ratio": long["drain"] / short["drain"],
            "publish_per_s": long["publish"],
            "publish_ratio": long["publish"] / short["publish"],
            "publish_redis_us": long["redis_us"],
            "publish_redis_us_short": short["redis_us"],
            "slowest_script_ms": long["slowest"],
            "slowest_script_short_ms": short["slowest"],
        },
    )


def _measure(waiting: int, measured: int) -> dict[str, float]:
    with Server() as server:
        empty = server.memory()
        join(server.url, "bench")
        server.forget_slow()
        ids: set[str] = set()
        for at in range(0, waiting, _SLICE):
            ids.update(publish_all(server.url, bodies(min(_SLICE, waiting - at))))
        per_message = (server.memory() - empty) / waiting if waiting else 0.0
        used = server.cpu_s()
        # In a process of its own: the memory of this one is full of ids.
        with ProcessPoolExecutor(1, get_context("spawn")) as publisher:
            made, publish_s = publisher.submit(_publish, server.url, measured).result()
        redis_us = (server.cpu_s() - used) / measured * MICROSECONDS
        ids.update(made)
        with Workers(Job(server.url, "noop")) as workers:
            workers.wait_for(measured)
            (report,) = workers.finish()
        seen = report.tally.ids
        left = unfinished(server.url)
        slowest = server.slowest_ms()
    assert len(set(seen)) == len(seen), "a message was handled twice"
    assert ids.issuperset(seen), "a message that was never published was handled"
    assert len(seen) + left == len(ids), f"{len(ids)} published, {len(seen)} handled, {left} left"
    return {
        "drain": rate_of([report]),
        "publish": measured / publish_s,
        "redis_us": redis_us,
        "bytes": per_message,
        "slowest": slowest,
    }


def _publish(url: str, count: int) -> tuple[list[str], float]:
    items: list[Any] = bodies(count)
    started = time.perf_counter()
    return publish_all(url, items), time.perf_counter() - started
