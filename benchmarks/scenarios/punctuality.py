"""Retries that are due within one second, and single ones: how late do they start?"""

import time

from benchmarks.figures import Figures, percentile
from benchmarks.servers import Server
from benchmarks.workers import Job, Workers, wait_until
from benchmarks.workload import check, publish_all

LEAD_MS = 4000
WITHIN_MS = 1000
SINGLES = 20
_SINGLE_EVERY_MS = 150


def punctuality(messages: int | None) -> Figures:
    """All due within one second, after it some single ones; none may come early."""
    count = messages or 10_000
    with Server() as server, Workers(Job(server.url, "punctual")) as workers:
        at_ms = time.time_ns() / 1e6 + LEAD_MS
        wanted = [at_ms + number * WITHIN_MS / count for number in range(count)]
        alone_from = at_ms + WITHIN_MS + 1000
        wanted += [alone_from + number * _SINGLE_EVERY_MS for number in range(SINGLES)]
        ids = publish_all(server.url, [{"at_ms": at} for at in wanted])
        due = _due(server, len(ids))
        workers.wait_for(len(ids))
        (report,) = workers.finish()
    check(ids, report.tally.ids)
    late = {
        id_: wall - due[id_] for id_, wall in zip(report.tally.ids, report.tally.walls, strict=True)
    }
    crowd, singles = [late[id_] for id_ in ids[:count]], [late[id_] for id_ in ids[count:]]
    early = sum(1 for value in late.values() if value < 0)
    assert not early, f"{early} messages came before they were due"
    starts = report.tally.starts
    return Figures(
        rate=count / (max(starts[:count]) - min(starts[:count])),
        checked=True,
        p50_ms=percentile(crowd, 50),
        p99_ms=percentile(crowd, 99),
        worker_us=report.worker_us,
        more={"single_p50_ms": percentile(singles, 50), "single_max_ms": max(singles)},
    )


def _due(server: Server, count: int) -> dict[str, float]:
    """When the server says that each is due, once all are waiting."""
    found: dict[str, float] = {}

    def all_wait() -> bool:
        for key in server.client.scan_iter("*:delay:*", count=1000):
            found.update(
                (id_.decode(), due)
                for id_, due in server.client.zrange(key, 0, -1, withscores=True)
            )
        return len(found) >= count

    wait_until(all_wait, LEAD_MS / 1000, "all messages wait for their retry")
    return found
