"""W4: an idle worker, one message every 5 ms, from publish to handler start.

`floor_ratio` is the median of bare sockets over the same scripts by the worker's, in the same run.
"""

import asyncio
import time
from contextlib import aclosing

from benchmarks.figures import Figures, percentile
from benchmarks.servers import MICROSECONDS, Server
from benchmarks.waking import REDIS_PY, SOCKETS, bare_waits_ms
from benchmarks.workers import Job, Workers
from benchmarks.workload import TOPIC, body, check, run
from rqretry import App

EVERY_S = 0.005
_SETTLE_S = 0.5


def w4(messages: int | None) -> Figures:
    """The latency of single messages."""
    count = messages or 500
    with Server() as server, Workers(Job(server.url, "timed", look_every_s=0.1)) as workers:
        run(_publish_slowly(server.url, 1))
        workers.wait_for(1)
        time.sleep(_SETTLE_S)
        cpu = server.cpu_s()
        sent = run(_publish_slowly(server.url, count))
        workers.wait_for(count + 1)
        cpu = server.cpu_s() - cpu
        (report,) = workers.finish()
        bare = bare_waits_ms(server, count, EVERY_S)
    seen = dict(zip(report.tally.ids[1:], report.tally.starts[1:], strict=True))
    check(sent, report.tally.ids[1:])
    waits = [(seen[id_] - at) * 1000 for id_, at in sent.items()]
    p50_ms, floor_ms = percentile(waits, 50), percentile(bare[SOCKETS], 50)
    return Figures(
        rate=count / (max(seen.values()) - min(seen.values())),
        checked=True,
        p50_ms=p50_ms,
        p99_ms=percentile(waits, 99),
        floor_ratio=floor_ms / p50_ms,
        redis_us=cpu / count * MICROSECONDS,
        worker_us=report.worker_us,
        rss_mb=report.rss_mb,
        more={
            "floor_p50_ms": floor_ms,
            "floor_p99_ms": percentile(bare[SOCKETS], 99),
            "redis_py_p50_ms": percentile(bare[REDIS_PY], 50),
            "redis_py_p99_ms": percentile(bare[REDIS_PY], 99),
        },
    )


async def _publish_slowly(url: str, count: int) -> dict[str, float]:
    """Monotonic times at which publish was called, by id."""
    sent: dict[str, float] = {}
    async with aclosing(App(url)) as app:
        due = time.monotonic()
        for number in range(count):
            due += EVERY_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            at = time.monotonic()
            sent[str(await app.publish(TOPIC, body(number)))] = at
    return sent
