"""W3: every message fails once and then succeeds. The ladder: every message fails 17 times."""

from benchmarks.figures import Figures
from benchmarks.servers import MICROSECONDS, Server
from benchmarks.workers import Job, Workers, rate_of
from benchmarks.workload import bodies, check, publish_all, unfinished
from rqretry import RetryPolicy

SHORTEST = "10ms"
DELIVERIES = 17


def w3(messages: int | None) -> Figures:
    """Every message raises once; messages per second, of two deliveries each."""
    count = messages or 60_000
    policy = RetryPolicy.fixed(SHORTEST)
    with Server() as server:
        cpu = server.cpu_s()
        ids = publish_all(server.url, bodies(count))
        calls = server.requests()
        with Workers(Job(server.url, "fails_once", options={"policy": policy})) as workers:
            workers.wait_for(2 * count)
            reports = workers.finish()
        cpu, calls = server.cpu_s() - cpu, server.requests() - calls
    tally = reports[0].tally
    check(ids, tally.ids, 2)
    assert sorted(tally.attempts) == [1] * count + [2] * count
    return Figures(
        rate=rate_of(reports) / 2,
        checked=True,
        redis_us=cpu / count * MICROSECONDS,
        worker_us=reports[0].worker_us * 2,
        redis_commands=calls / count,
        rss_mb=reports[0].rss_mb,
    )


def retry_ladder(messages: int | None) -> Figures:
    """Every message fails 17 times, with waits of 10 ms, and is dead; deliveries per second."""
    count = messages or 5_000
    policy = RetryPolicy.fixed(SHORTEST)
    with Server() as server:
        ids = publish_all(server.url, bodies(count))
        cpu, calls = server.cpu_s(), server.requests()
        with Workers(Job(server.url, "always_fails", options={"policy": policy})) as workers:
            workers.wait_for(DELIVERIES * count)
            reports = workers.finish()
        cpu, calls = server.cpu_s() - cpu, server.requests() - calls
        dead = unfinished(server.url)
    check(ids, reports[0].tally.ids, DELIVERIES)
    assert dead == count, f"{dead} of {count} messages are dead"
    return Figures(
        rate=rate_of(reports),
        checked=True,
        redis_us=cpu / count / DELIVERIES * MICROSECONDS,
        worker_us=reports[0].worker_us,
        redis_commands=calls / count / DELIVERIES,
        rss_mb=reports[0].rss_mb,
    )
