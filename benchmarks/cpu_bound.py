"""Two cores against one for a CPU-bound handler with `process=True`.

    python benchmarks/cpu_bound.py [--messages 60] [--repeat 3]

Each message costs about 50 ms of pure Python. The processes are warmed up first, so that starting
them is not counted; the ratio is that of the fastest runs, because other work on the machine can
only slow a run down. `alone` is the same work in two bare processes: what the machine can give.
"""

import argparse
import asyncio
import multiprocessing
import os
import time
from typing import Any

from rqretry import App, Message
from rqretry.embedded import EmbeddedRedis

ROUNDS = 600_000


def burn(_message: Message[Any]) -> None:
    """The handler."""
    count()


def count() -> None:
    """About 50 ms of one core."""
    total = 0
    for number in range(ROUNDS):
        total += number


async def drained(app: App, topic: str, group: str) -> None:
    """Wait until the group has finished with its topic."""
    while True:
        stats = await app.admin.stats(topic, group)
        if stats.ready + stats.retry + stats.inflight == 0:
            return
        await asyncio.sleep(0.005)


async def measure(url: str, cores: int, messages: int) -> float:
    """Messages per second with so many processes."""
    app = App(url, namespace=f"cpu-{cores}-{time.monotonic_ns()}")
    app.consumer("work", group="burn", process=True, concurrency=cores)(burn)
    running = asyncio.ensure_future(app.run(signals=False))
    await app.publish_many("work", [0] * cores * 2)
    await asyncio.sleep(0.5)  # the group is there, and all processes are started
    await drained(app, "work", "burn")
    await app.publish_many("work", range(messages))
    start = time.perf_counter()
    await drained(app, "work", "burn")
    took = time.perf_counter() - start
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return messages / took


def burn_many(messages: int) -> None:
    """The floor's process."""
    for _ in range(messages):
        count()


def alone(cores: int, messages: int) -> float:
    """The same work per second without rqretry."""
    workers = [
        multiprocessing.Process(target=burn_many, args=(messages // cores,)) for _ in range(cores)
    ]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return messages / (time.perf_counter() - start)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=60)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores")
    best: dict[str, float] = {}
    with EmbeddedRedis() as server:
        for _ in range(options.repeat):
            for cores in (1, 2):
                found = asyncio.run(measure(server.url, cores, options.messages))
                bare = alone(cores, options.messages)
                best[f"rqretry {cores}"] = max(found, best.get(f"rqretry {cores}", 0))
                best[f"alone {cores}"] = max(bare, best.get(f"alone {cores}", 0))
    for name, value in best.items():
        print(f"{name:10} {value:8.1f} per s")
    print(f"ratio, rqretry {best['rqretry 2'] / best['rqretry 1']:.2f}")
    print(f"ratio, alone   {best['alone 2'] / best['alone 1']:.2f}")


if __name__ == "__main__":
    main()
