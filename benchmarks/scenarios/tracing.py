"""Every attempt traced: OpenTelemetry's SDK with batch export, beside the same untraced."""

from benchmarks.crew import Crew, Job, Report, rate_of
from benchmarks.figures import Figures
from benchmarks.servers import Server
from benchmarks.workload import bodies, check, publish_all


def tracing(messages: int | None) -> Figures:
    """W1 with a span for each attempt; `ratio` is by W1 without."""
    count = messages or 20_000
    plain, traced = _drain(count, traced=False), _drain(count, traced=True)
    rate = rate_of([traced])
    return Figures(
        rate=rate,
        checked=True,
        worker_us=traced.worker_us,
        rss_mb=traced.rss_mb,
        more={
            "untraced_per_s": rate_of([plain]),
            "ratio": rate / rate_of([plain]),
            "dropped_spans": count - traced.spans,
        },
    )


def _drain(count: int, *, traced: bool) -> Report:
    with Server() as server:
        ids = publish_all(server.url, bodies(count))
        with Crew(Job(server.url, "noop", traced=traced)) as crew:
            crew.wait_for(count)
            (report,) = crew.finish()
    check(ids, report.tally.ids)
    return report
