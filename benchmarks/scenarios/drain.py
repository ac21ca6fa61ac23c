"""W1 and W2: a worker drains what was published before it started."""

from benchmarks import floor
from benchmarks.figures import Figures
from benchmarks.servers import MICROSECONDS, Server
from benchmarks.workers import Job, Workers, rate_of
from benchmarks.workload import LARGE, SMALL, bodies, check, encoded_size, join, publish_all

GROUPS = ("one", "two", "three")
COUNT = 200_000


def w1(messages: int | None) -> Figures:
    """A no-op handler, bodies of about 100 bytes, one process."""
    return drain(messages or COUNT)


def w1_2_processes(messages: int | None) -> Figures:
    """Two worker processes; `ceiling_ratio` is by what two cores could give at best."""
    count = messages or COUNT
    alone, both = drain(count), drain(count, processes=2)
    worker, redis = alone.worker_us or 1.0, alone.redis_us or 1.0
    ceiling = alone.rate * 2 * worker / (worker + redis)
    both.more["one_process_per_s"] = alone.rate
    both.more["ceiling_ratio"] = both.rate / ceiling
    return both


def w1_3_groups(messages: int | None) -> Figures:
    """Three groups get every message; the rate counts deliveries."""
    count = (messages or COUNT) // 2
    alone, three = drain(count), drain(count, groups=GROUPS)
    three.more["one_group_per_s"] = alone.rate
    three.more["ratio"] = three.rate / alone.rate
    return three


def w1_aof_everysec(messages: int | None) -> Figures:
    """With an append-only file, synced every second."""
    return _with_aof(messages or COUNT, "everysec")


def w1_aof_always(messages: int | None) -> Figures:
    """With an append-only file, synced before every answer."""
    return _with_aof(messages or COUNT, "always")


def w2(messages: int | None) -> Figures:
    """Bodies of 1 KB; `ratio` is by the same with 100 bytes."""
    count = messages or COUNT // 2
    small, large = drain(count), drain(count, filling=LARGE)
    large.more["w1_per_s"] = small.rate
    large.more["ratio"] = large.rate / small.rate
    return large


def drain(
    count: int,
    *,
    filling: int = SMALL,
    processes: int = 1,
    groups: tuple[str, ...] = ("bench",),
    fsync: str = "",
) -> Figures:
    """Publish, then let workers that start now handle everything."""
    with Server(fsync) as server:
        cpu, empty = server.cpu_s(), server.memory()
        join(server.url, *groups)
        ids = publish_all(server.url, bodies(count, filling))
        waiting, commands = server.memory(), server.requests()
        with Workers(Job(server.url, "noop", groups=groups), processes) as workers:
            workers.wait_for(count * len(groups))
            reports = workers.finish()
        cpu, commands = server.cpu_s() - cpu, server.requests() - commands
        bare = floor.drain_rate(server.url, count, filling)
    check(ids, (id_ for report in reports for id_ in report.tally.ids), len(groups))
    deliveries, rate = count * len(groups), rate_of(reports)
    return Figures(
        rate=rate,
        checked=True,
        redis_us=cpu / deliveries * MICROSECONDS,
        worker_us=sum(report.worker_us for report in reports) / len(reports),
        bytes_per_message=(waiting - empty) / count,
        floor_ratio=rate / bare,
        redis_commands=commands / deliveries,
        rss_mb=max(report.rss_mb for report in reports),
        more={
            "floor_per_s": bare,
            "bytes_over_encoded": (waiting - empty) / count - encoded_size(filling),
        },
    )


def _with_aof(count: int, fsync: str) -> Figures:
    without, with_it = drain(count), drain(count, fsync=fsync)
    with_it.more["without_per_s"] = without.rate
    with_it.more["ratio"] = with_it.rate / without.rate
    return with_it
