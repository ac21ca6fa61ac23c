"""A first figure: how fast one worker process is, and the floor beside it, in one run.

    python benchmarks/first.py [--messages 200000] [--repeat 3] [--profile] [--json FILE]

Workload W1: a no-op handler that reads a field of a body of about 100 bytes; defaults on (fencing,
history, counters); every id handled is recorded and checked. The floor is a bare loop over the same
scripts, 100 messages a call: publish; lease; succeed. "Redis us" is server CPU per message.
"""

import argparse
import asyncio
import cProfile
import json
import platform
import pstats
import statistics
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from rqretry import App, Message
from rqretry.command import Command
from rqretry.commands.consuming import Receipt, lease, succeed
from rqretry.embedded import EmbeddedRedis
from rqretry.runtime.worker import Worker
from rqretry.store_sync import SyncStore

FLOOR_BATCH = 100


def body(number: int) -> dict[str, Any]:
    """About 100 bytes."""
    return {"n": number, "carrier": "UA", "origin": "EWR", "note": "x" * 60}


def redis_cpu_s(store: SyncStore) -> float:
    """CPU seconds that the server has used."""
    info: Command[bytes] = Command("info", (), (), bytes, words=("INFO", "cpu"))
    fields = dict(
        line.split(":") for line in store.run(info).decode().splitlines() if line.startswith("used")
    )
    return float(fields["used_cpu_user"]) + float(fields["used_cpu_sys"])


async def work(url: str, count: int) -> dict[str, float]:
    """Publish, then drain with one worker."""
    app = App(url)
    seen: list[str] = []
    done = asyncio.Event()

    @app.consumer("w1", group="noop")
    async def noop(message: Message[Any]) -> None:
        message.body["n"]
        seen.append(message.id)
        if len(seen) == count:
            done.set()

    bodies = [body(number) for number in range(count)]
    with SyncStore(app.settings.url) as store:
        started, cpu = time.perf_counter(), redis_cpu_s(store)
        ids = await app.publish_many("w1", bodies)
        published, published_cpu = time.perf_counter() - started, redis_cpu_s(store) - cpu
        worker = Worker(app.settings, app.consumers)
        task = asyncio.create_task(worker.run())  # noqa: TID251 - awaited below
        await worker.started.wait()
        started, cpu, own = time.perf_counter(), redis_cpu_s(store), time.process_time()
        async with asyncio.timeout(600):
            await done.wait()
        drained, drained_cpu = time.perf_counter() - started, redis_cpu_s(store) - cpu
        own = time.process_time() - own
    worker.stop()
    await task
    await app.aclose()
    assert sorted(seen) == sorted(ids), "a message was lost or handled twice"
    return {
        "publish_per_s": count / published,
        "w1_per_s": count / drained,
        "worker_us": own / count * 1e6,
        "redis_publish_us": published_cpu / count * 1e6,
        "redis_consume_us": drained_cpu / count * 1e6,
    }


def floor(url: str, count: int) -> float:
    """A bare loop over the same scripts; messages per second of lease and succeed."""
    app = App(url, namespace="floor")
    client = app.client
    client.publish_many("w1", [body(number) for number in range(count)])
    store = client.store
    store.perform(client.catalog.join("bare", "push", ["w1"]))
    keys = client.catalog.group_keys("w1", 0, "bare")
    handled, started = 0, time.perf_counter()
    while handled < count:
        leased = store.run(lease(keys, worker="bare", want=FLOOR_BATCH, visibility_ms=30_000))
        receipts = [
            Receipt(id_, lease_no)
            for id_, (lease_no, _) in zip(leased.ids, leased.numbers, strict=True)
        ]
        store.run(succeed(keys, receipts, worker="bare"))
        handled += len(receipts)
    rate = count / (time.perf_counter() - started)
    client.close()
    return rate


def measure(count: int) -> dict[str, float]:
    """One repetition on a fresh server."""
    with EmbeddedRedis() as server, asyncio.Runner(loop_factory=loop_factory()) as runner:
        figures = runner.run(work(server.url, count))
        figures["floor_per_s"] = floor(server.url, count)
    figures["floor_ratio"] = figures["w1_per_s"] / figures["floor_per_s"]
    return figures


def loop_factory() -> Any:
    """Uvloop where it is installed."""
    try:
        return import_module("uvloop").new_event_loop
    except ImportError:
        return None


def main() -> None:
    """Measure, print, and say how much the repetitions differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="profile one repetition instead")
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    if options.profile:
        profile = cProfile.Profile()
        with EmbeddedRedis() as server, profile:
            asyncio.run(work(server.url, options.messages))
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        return
    runs = [measure(options.messages) for _ in range(options.repeat)]
    result = {}
    for name in runs[0]:
        values = [run[name] for run in runs]
        result[name] = {"median": statistics.median(values), "runs": values}
        spread = ", ".join(f"{value:,.2f}" for value in values)
        print(f"{name:18} {statistics.median(values):12,.2f}   ({spread})")
    if options.json:
        about = {"python": platform.python_version(), "machine": platform.machine()}
        with Path(options.json).open("w", encoding="utf-8") as file:
            json.dump({"messages": options.messages, **about, "figures": result}, file, indent=1)


if __name__ == "__main__":
    main()
