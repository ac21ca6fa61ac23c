"""What a worker costs that has nothing to do."""

import time

from benchmarks.figures import Figures
from benchmarks.servers import Server
from benchmarks.workers import Job, Workers

PAIRS = ("a", "b", "c", "d")


def idle(messages: int | None) -> Figures:
    """Four group-partition pairs for `messages` tenths of a second; `rate` is commands sent."""
    seconds = (messages or 200) / 10
    with Server() as server:
        job = Job(server.url, "noop", PAIRS, look_every_s=1.0)
        with Workers(job) as workers:
            time.sleep(min(2.0, seconds))
            commands, own, cpu = server.requests(), workers.cpu_s(), server.cpu_s()
            time.sleep(seconds)
            commands = server.requests() - commands
            own, cpu = workers.cpu_s() - own, server.cpu_s() - cpu
            (report,) = workers.finish()
    return Figures(
        rate=commands / seconds,
        checked=not report.tally.ids,
        rss_mb=report.rss_mb,
        more={"cpu_percent": own / seconds * 100, "redis_cpu_percent": cpu / seconds * 100},
    )
