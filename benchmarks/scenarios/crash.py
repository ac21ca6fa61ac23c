"""kill -9 of a worker that holds messages, with one live worker beside it."""

import time

from benchmarks.figures import Figures, percentile
from benchmarks.servers import Server
from benchmarks.workers import Job, Workers, wait_until
from benchmarks.workload import bodies, check, publish_all, unfinished

VISIBILITY_S = 2
_HELD = 64


def crash(messages: int | None) -> Figures:
    """From the kill to the handler's start in the other worker; nothing may be lost."""
    count = messages or _HELD
    options = {"visibility": VISIBILITY_S, "concurrency": count}
    with Server() as server:
        ids = publish_all(server.url, bodies(count))
        with Workers(Job(server.url, "hangs", options=options)) as doomed:
            doomed.wait_for(count)
            with Workers(Job(server.url, "timed", options=options)) as living:
                time.sleep(VISIBILITY_S / 2)
                doomed.kill()
                killed_at = time.monotonic()
                living.wait_for(count, 120)
                wait_until(lambda: unfinished(server.url) == 0, 30, "all messages settled")
                reports = living.finish()
            doomed.reports.append(reports[0])  # it cannot report any more
    tally = reports[0].tally
    check(ids, tally.ids)
    waits = [(start - killed_at) * 1000 for start in tally.starts]
    return Figures(
        rate=count / (max(waits) / 1000),
        checked=True,
        p50_ms=percentile(waits, 50),
        p99_ms=percentile(waits, 99),
        more={"latest_ms": max(waits), "visibility_ms": VISIBILITY_S * 1000},
    )
