"""What tracing costs: every attempt traced over OTLP, and the extra installed and off."""

import statistics

from benchmarks.crew import ABSENT, LOADED, Crew, Job, Report, rate_of
from benchmarks.figures import Figures
from benchmarks.receiver import Receiver
from benchmarks.servers import Server
from benchmarks.workload import bodies, check, publish_all

TRACED, OFF = 40_000, 100_000
PAIRS = 10


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
    """W1 without OpenTelemetry, and with it loaded but off: pairs of runs, in turns.

    `overhead_percent` is the median over the pairs of the difference of the worker's CPU per
    message, `least_percent` and `most_percent` are the least and the most of them, and
    `middle_percent` is how far the middle half of them reaches. `slower_percent` is the median of
    the differences of the rates, which other jobs of the machine disturb more.
    """
    count = messages or OFF
    runs: dict[str, list[Report]] = {ABSENT: [], LOADED: []}
    for pair in range(PAIRS):
        for kind in (ABSENT, LOADED) if pair % 2 == 0 else (LOADED, ABSENT):
            runs[kind].append(_drain(count, kind))
    pairs = list(zip(runs[ABSENT], runs[LOADED], strict=True))
    cpu = [100 * (loaded.worker_us / (absent.worker_us or 1.0) - 1) for absent, loaded in pairs]
    slower = [100 * (rate_of([absent]) / rate_of([loaded]) - 1) for absent, loaded in pairs]
    low, _, high = statistics.quantiles(cpu, n=4)
    return Figures(
        rate=statistics.median(rate_of([report]) for report in runs[LOADED]),
        checked=True,
        worker_us=statistics.median(report.worker_us for report in runs[LOADED]),
        more={
            "absent_us": statistics.median(report.worker_us for report in runs[ABSENT]),
            "overhead_percent": statistics.median(cpu),
            "least_percent": min(cpu),
            "most_percent": max(cpu),
            "middle_percent": high - low,
            "slower_percent": statistics.median(slower),
        },
    )


def _drain(count: int, otel: str = "") -> Report:
    with Server() as server:
        ids = publish_all(server.url, bodies(count))
        with Crew(Job(server.url, "noop", otel=otel)) as crew:
            crew.wait_for(count)
            (report,) = crew.finish()
    check(ids, report.tally.ids)
    return report
