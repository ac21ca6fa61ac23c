"""What tracing costs: every attempt traced over OTLP, and the extra installed and off."""

import statistics
import time
from typing import NamedTuple

from benchmarks.figures import Figures
from benchmarks.receiver import Receiver
from benchmarks.servers import Server
from benchmarks.workers import ABSENT, LOADED, Job, Report, Workers, rate_of
from benchmarks.workload import bodies, check, publish_all

TRACED, OFF = 40_000, 100_000
PAIRS, TURNS = 10, 5


def tracing(messages: int | None) -> Figures:
    """W1 with a span for each attempt, exported to a collector; `ratio` is by W1 without.

    `cpu_ratio` is the same of the worker's CPU, which other jobs of the machine disturb less.
    `dropped_spans` were counted by the worker, `lost_spans` neither arrived nor were counted.
    """
    count = messages or TRACED
    plain = _drain(count)
    with Receiver() as receiver:
        traced = _drain(count, receiver.url)
        arrived = receiver.spans
    rate = rate_of([traced])
    return Figures(
        rate=rate,
        checked=traced.spans == count,
        worker_us=traced.worker_us,
        rss_mb=traced.rss_mb,
        more={
            "untraced_per_s": rate_of([plain]),
            "untraced_us": plain.worker_us,
            "ratio": rate / rate_of([plain]),
            "cpu_ratio": plain.worker_us / (traced.worker_us or 1.0),
            "exported_spans": arrived,
            "dropped_spans": traced.dropped,
            "lost_spans": count - arrived - traced.dropped,
        },
    )


def tracing_off(messages: int | None) -> Figures:
    """W1 without OpenTelemetry, and with it loaded but off: ten pairs of workers.

    The two of a pair live at the same time and take turns of a fifth of the messages each, one
    stopped while the other works: what else the machine does meets both. `overhead_us` and
    `overhead_percent` are the median over the pairs of the difference of the worker's CPU per
    message. With a confidence of 97.9 % (the second and the ninth of ten) the true one is between
    `low_percent` and `high_percent`; `least_percent` and `most_percent` are the outermost pairs.
    `rate` is that of the workers with it loaded, over their turns.
    """
    share = (messages or OFF) // TURNS
    pairs = [_pair(share, loaded_first=bool(number % 2)) for number in range(PAIRS)]
    percents = sorted(100 * (loaded.us / absent.us - 1) for absent, loaded in pairs)
    return Figures(
        rate=statistics.median(share * TURNS / loaded.seconds for _, loaded in pairs),
        checked=True,
        worker_us=statistics.median(loaded.us for _, loaded in pairs),
        more={
            "absent_us": statistics.median(absent.us for absent, _ in pairs),
            "overhead_us": statistics.median(loaded.us - absent.us for absent, loaded in pairs),
            "overhead_percent": statistics.median(percents),
            "low_percent": percents[1],
            "high_percent": percents[-2],
            "least_percent": percents[0],
            "most_percent": percents[-1],
        },
    )


class _Spent(NamedTuple):
    """What one worker of a pair took."""

    us: float
    """CPU per message."""
    seconds: float
    """Of all its turns."""


def _pair(share: int, *, loaded_first: bool) -> tuple[_Spent, _Spent]:
    """One worker without OpenTelemetry and one with it, in turns."""
    with Server() as one, Server() as other:
        servers = (one.url, other.url)
        with (
            Workers(Job(one.url, "noop", otel=ABSENT)) as absent,
            Workers(Job(other.url, "noop", otel=LOADED)) as loaded,
        ):
            all_workers = (absent, loaded)
            published: tuple[list[str], list[str]] = ([], [])
            seconds = [0.0, 0.0]
            for workers in all_workers:
                workers.pause()
            for turn in range(TURNS):
                for which in (0, 1) if loaded_first is bool(turn % 2) else (1, 0):
                    published[which].extend(publish_all(servers[which], bodies(share)))
                    began = time.perf_counter()
                    all_workers[which].resume()
                    all_workers[which].wait_for(share * (turn + 1))
                    all_workers[which].pause()
                    seconds[which] += time.perf_counter() - began
            for workers in all_workers:
                workers.resume()
            reports = [report for workers in all_workers for report in workers.finish()]
    for ids, report in zip(published, reports, strict=True):
        check(ids, report.tally.ids)
    first, second = (
        _Spent(report.worker_us, took) for report, took in zip(reports, seconds, strict=True)
    )
    return first, second


def _drain(count: int, otel: str = "") -> Report:
    with Server() as server:
        ids = publish_all(server.url, bodies(count))
        with Workers(Job(server.url, "noop", otel=otel)) as workers:
            workers.wait_for(count)
            (report,) = workers.finish()
    check(ids, report.tally.ids)
    return report
