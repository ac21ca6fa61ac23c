"""The scenarios, by name. Each one is a function of how many messages, and answers Figures."""

from collections.abc import Callable

from benchmarks.figures import Figures
from benchmarks.scenarios import (
    backlog,
    callers,
    cpu_bound,
    crash,
    drain,
    failing,
    gateway,
    gateway_polls,
    idle,
    latency,
    limits,
    mass_expiry,
    ordered,
    publishing,
    punctuality,
    scale,
    spark_reading,
    spark_writing,
    tracing,
)

Scenario = Callable[[int | None], Figures]

SCENARIOS: dict[str, Scenario] = {
    "publish": publishing.single,
    "publish_bulk": publishing.bulk,
    "callers": callers.callers,
    "w1": drain.w1,
    "w1_2_processes": drain.w1_2_processes,
    "w1_3_groups": drain.w1_3_groups,
    "w1_aof_everysec": drain.w1_aof_everysec,
    "w1_aof_always": drain.w1_aof_always,
    "w2": drain.w2,
    "w3": failing.w3,
    "w4": latency.w4,
    "retry_ladder": failing.retry_ladder,
    "punctuality": punctuality.punctuality,
    "mass_expiry": mass_expiry.mass_expiry,
    "crash": crash.crash,
    "idle": idle.idle,
    "limits": limits.limits,
    "scale": scale.scale,
    "ordered": ordered.ordered,
    "ordered_partitions": ordered.ordered_partitions,
    "ordered_alone": ordered.ordered_alone,
    "tracing": tracing.tracing,
    "tracing_off": tracing.tracing_off,
    "gateway": gateway.gateway,
    "gateway_polls": gateway_polls.gateway_polls,
    "cpu_bound": cpu_bound.cpu_bound,
    "spark_read": spark_reading.spark_read,
    "spark_ingest": spark_writing.spark_ingest,
    "backlog_1m": backlog.backlog_1m,
    "backlog_10m": backlog.backlog_10m,
}

GROUPS = {
    "publish": ("publish", "publish_bulk"),
    "drain": tuple(name for name in SCENARIOS if name.startswith(("w1", "w2", "w3"))),
    "all": tuple(name for name in SCENARIOS if name != "backlog_10m"),
}
"""Names that stand for several; 10 million messages are run only by their own name."""
