"""What a worker costs by the number of its places, on one server and on a cluster of three.

Idle: commands that clients send, per place and second, and connections that they open. Busy: one
message at a time, to partitions at random; the median from publish to the start of its handler, as
a multiple of that with one partition.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing

from benchmarks.cluster import Cluster
from benchmarks.figures import percentile
from benchmarks.scenarios.scale.measure import Measure
from benchmarks.servers import Server, sent_within
from benchmarks.workers import Job, Workers
from benchmarks.workload import body, check, run
from rqretry import App

SIZES = (1, 8, 64, 256)
IDLE_BAR, CONNECTIONS_BAR, RATIO_BAR = 0.5, 0, 3
_IDLE_S, _SETTLE_S = 60.0, 6.0
"""What a process does for itself comes every 5 to 30 s: one place is watched the longest."""
_MESSAGES, _EVERY_S = 200, 0.02


def places(most: int | None) -> Iterator[Measure]:
    """Both, at each size up to `most` (with that, for a shorter time)."""
    short = most is not None
    with Server() as server:
        yield from _on("server", server.url, [server], most, short=short)
    with Cluster() as cluster:
        yield from _on("cluster", cluster.url, cluster.servers, most, short=short)


def _on(
    name: str, url: str, servers: list[Server], most: int | None, *, short: bool
) -> Iterator[Measure]:
    base = 0.0
    for size in SIZES:
        if most is not None and size > most:
            break
        print(f"  places: {size} partitions, {name} ...", file=sys.stderr, flush=True)
        topic = f"places-{size}"
        run(_create(url, topic, size))
        with Workers(Job(url, "timed", topics=(topic,), look_every_s=0.5)) as workers:
            time.sleep(0.5 if short else _SETTLE_S)
            seconds = 1.0 if short else _IDLE_S / min(size, 4)
            before = sum(server.connections() for server in servers)
            sent = sent_within(servers, seconds)
            opened = sum(server.connections() for server in servers) - before - len(servers)
            published = run(_publish_slowly(url, topic, 20 if short else _MESSAGES))
            workers.wait_for(len(published))
            (report,) = workers.finish()
        check(published, report.tally.ids)
        seen = dict(zip(report.tally.ids, report.tally.starts, strict=True))
        p50_ms = percentile([(seen[id_] - at) * 1000 for id_, at in published.items()], 50)
        base = base or p50_ms
        yield Measure(f"idle_per_place_{size}_{name}", sent / seconds / size, IDLE_BAR)
        yield Measure(f"opened_idle_{size}_{name}", opened, CONNECTIONS_BAR)
        yield Measure(f"p50_ratio_{size}_{name}", p50_ms / base, RATIO_BAR)


async def _create(url: str, topic: str, partitions: int) -> None:
    async with aclosing(App(url)) as app:
        await app.async_client.admin.create_topic(topic, partitions=partitions)


async def _publish_slowly(url: str, topic: str, count: int) -> dict[str, float]:
    """Monotonic times at which publish was called, by id."""
    sent: dict[str, float] = {}
    async with aclosing(App(url)) as app:
        for number in range(count):
            await asyncio.sleep(_EVERY_S)
            at = time.monotonic()
            sent[str(await app.publish(topic, body(number)))] = at
    return sent
