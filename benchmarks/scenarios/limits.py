"""The bounds of a script with large bodies: bytes per call, and how long it runs."""

import time

from benchmarks.figures import Figures
from benchmarks.servers import MICROSECONDS, Server
from benchmarks.workers import Job, Workers, rate_of
from benchmarks.workload import bodies, check, publish_all

LARGE = 1_000_000


def limits(messages: int | None) -> Figures:
    """Bodies of a megabyte: a call carries 1 MiB of them in and 4 MiB out."""
    count = messages or 200
    with Server() as server:
        server.forget_slow()
        cpu, started = server.cpu_s(), time.perf_counter()
        ids = publish_all(server.url, bodies(count, LARGE))
        published = count / (time.perf_counter() - started)
        with Workers(Job(server.url, "noop")) as workers:
            workers.wait_for(count)
            reports = workers.finish()
        cpu, slowest = server.cpu_s() - cpu, server.slowest_ms()
    check(ids, reports[0].tally.ids)
    return Figures(
        rate=rate_of(reports),
        checked=True,
        redis_us=cpu / count * MICROSECONDS,
        worker_us=reports[0].worker_us,
        rss_mb=reports[0].rss_mb,
        more={"publish_per_s": published, "slowest_script_ms": slowest},
    )
