"""Two cores against one for a CPU-bound handler with `process=True`."""

import asyncio
import multiprocessing
import os
import time

from benchmarks.figures import Figures
from benchmarks.handlers import Tally, count_up, register
from benchmarks.servers import Server
from benchmarks.workers import wait_until
from benchmarks.workload import TOPIC, run
from rqretry import App

_STARTED_S = 0.5


def cpu_bound(messages: int | None) -> Figures:
    """About 50 ms of pure Python each; the floor is the same work in bare processes."""
    count = messages or 60
    with Server() as server:
        one, two = (run(_measure(server.url, cores, count)) for cores in (1, 2))
    bare = [_alone(cores, count) for cores in (1, 2)]
    return Figures(
        rate=two,
        checked=True,
        floor_ratio=two / bare[1],
        more={
            "cores": float(os.cpu_count() or 1),
            "one_core_per_s": one,
            "speedup": two / one,
            "bare_speedup": bare[1] / bare[0],
        },
    )


async def _measure(url: str, cores: int, count: int) -> float:
    app = App(url, namespace=f"cpu-{cores}")
    register(app, "burn", Tally(), [TOPIC], "bench", process=True, concurrency=cores)
    running = asyncio.ensure_future(app.run(signals=False))
    await app.publish_many(TOPIC, [0] * cores * 2)
    await asyncio.sleep(_STARTED_S)  # the group is there, and all processes are started
    await _drained(app)
    await app.publish_many(TOPIC, range(count))
    started = time.perf_counter()
    await _drained(app)
    took = time.perf_counter() - started
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return count / took


async def _drained(app: App) -> None:
    while True:
        stats = await app.admin.stats(TOPIC, "bench")
        if stats.ready + stats.retry + stats.inflight + stats.waiting + stats.dead == 0:
            return
        await asyncio.sleep(0.005)


def _count_many(count: int) -> None:
    for _ in range(count):
        count_up()


def _alone(cores: int, count: int) -> float:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_count_many, args=(count // cores,)) for _ in range(cores)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    wait_until(
        lambda: not any(worker.is_alive() for worker in workers), 600, "the bare processes end"
    )
    return count / (time.perf_counter() - started)
