"""simulate: archived outcomes are replayed through other retry policies.

What is known and what is assumed of each message: retry_model.py.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from rqretry.core import retry_policy
from rqretry.core.delay_levels import DEFAULT_LEVELS, LevelTable
from rqretry.core.durations import Duration, milliseconds
from rqretry.core.errors import ConfigError, InvalidArgument, show
from rqretry.core.limits import DEFAULT_MAX_RETRIES, UNLIMITED, check_group, check_max_retries
from rqretry.core.retry_policy import RetryPolicy
from rqretry.spark.error_messages import plain_on_driver
from rqretry.spark.options import ALL_TOPICS
from rqretry.spark.queries import EVENTS
from rqretry.spark.report_job import open_archive
from rqretry.spark.retry_model import Candidate, Case, Played, observed, read_case, replay

OBSERVED, BEST, WORST = "observed", "best", "worst"
_NOT_KNOWN = "not known"
_PLAYED = pa.schema(
    [
        ("topic", pa.string()),
        ("group", pa.string()),
        ("policy", pa.int32()),
        ("scenario", pa.string()),
        ("outcome", pa.string()),
        ("known", pa.bool_()),
        ("busy", pa.int64()),
        ("took", pa.int64()),
        ("begun", pa.list_(pa.int64())),
    ]
)
_CASES = """
WITH born AS (
    SELECT topic, partition, message_id,
           coalesce(min(event_time) FILTER (WHERE event = 'deliver'),
                    min(event_time) FILTER (WHERE event = 'publish')) AS ready_at
    FROM {events} WHERE event IN ('publish', 'deliver') GROUP BY topic, partition, message_id),
limits AS (
    SELECT `group`, max(attempt) FILTER (WHERE event IN ('fail', 'expire')
                                           AND outcome IN ('waiting_retry', 'ready')) AS retried,
           unix_millis(max(event_time)) AS until
    FROM {events} GROUP BY `group`),
known AS (
    SELECT topic, partition, `group`, message_id,
           array_sort(collect_list(struct(position, event, unix_millis(event_time) AS at, attempt,
                                          outcome, error_type, unix_millis(due_time) AS due)))
               AS steps
    FROM {events} WHERE event IN ('lease', 'succeed', 'fail', 'expire', 'release', 'redrive')
    GROUP BY topic, partition, `group`, message_id)
SELECT topic, `group`, unix_millis(ready_at) AS ready, coalesce(retried, 0) AS retried, until, steps
FROM known JOIN limits USING (`group`) LEFT JOIN born USING (topic, partition, message_id)
"""
_SUMS = """
WITH windows AS (
    SELECT topic, `group`, policy, scenario, max(count) AS peak
    FROM (SELECT topic, `group`, policy, scenario, count(*) AS count
          FROM (SELECT topic, `group`, policy, scenario, explode(begun) AS at FROM {played})
          GROUP BY topic, `group`, policy, scenario, at DIV {window})
    GROUP BY topic, `group`, policy, scenario)
SELECT topic, `group`, policy, scenario, count(*) AS messages,
       count_if(outcome = 'committed') AS committed, count_if(outcome = 'dead') AS dead,
       count_if(outcome = 'unfinished') AS unfinished, count_if(NOT known) AS not_known,
       sum(size(begun)) AS deliveries, sum(busy) / 1000 AS handler_seconds, any_value(peak) AS peak,
       percentile_approx(took, 0.5) / 1000 AS to_success_p50,
       percentile_approx(took, 0.95) / 1000 AS to_success_p95,
       max(took) / 1000 AS to_success_longest
FROM {played} JOIN windows USING (topic, `group`, policy, scenario)
GROUP BY topic, `group`, policy, scenario ORDER BY topic, `group`, policy, scenario
"""
_LEFT_OUT = "SELECT count(*) AS n FROM {played} WHERE scenario = 'not known'"


@dataclass(slots=True)
class SimulationSummary:
    """The result of a simulation.

    Attributes:
        rows: For each topic and group what was observed, and for each policy what it would have
            done at best and at worst (`scenario`): messages, committed, dead, unfinished,
            deliveries, handler_seconds, peak (the most deliveries begun in one window), and
            seconds from ready to committed (to_success_p50, to_success_p95, to_success_longest).
            `not_known` counts the messages for which best and worst may differ.
        left_out: Messages whose first delivery is not in the archive, or was never settled.
        assumptions: What was supposed, in sentences.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: int = 0
    assumptions: list[str] = field(default_factory=list)


ASSUMPTIONS = (
    (
        "The moment decides, not the number of the attempt: up to its last observed failure a"
        " message fails, from its observed success on it succeeds."
    ),
    (
        "In between, and after the last failure of a message that never succeeded, nothing is"
        " known: at best the first attempt there succeeds, at worst all fail."
    ),
    "A message that its handler rejected is rejected whenever it is tried after that.",
    (
        "A delivery takes as long as the observed one before it, and begins as long after it is due"
        " as the one of its number did: more load slows nothing down."
    ),
    (
        "Jitter, and waits that handlers chose themselves, are left out. What a redrive made of a"
        " message is used as knowledge, not as an outcome."
    ),
)
"""The assumptions of a simulation; they are part of every result."""


def simulate(
    spark: SparkSession,
    archive: str,
    policies: str | RetryPolicy | Sequence[str | RetryPolicy],
    topics: str = ALL_TOPICS,
    *,
    group: str | None = None,
    max_retries: int | str | None = None,
    delay_levels: str | Sequence[Duration] | None = None,
    window: Duration = 60,
) -> SimulationSummary:
    """Replay the outcomes of an archive through candidate retry policies.

    Nothing is written, and no server is needed.

    Args:
        spark: The session to run on.
        archive: The folder that `archive` writes.
        policies: Policies, or texts such as "ladder:10s 30s 1m".
        topics: A topic, several as "a,b", or "*" for all.
        group: One group; default all.
        max_retries: Of every policy that has none of its own; default 16.
        delay_levels: The level table, which the policy "rocketmq" uses; default RocketMQ's.
        window: How long deliveries are counted for the peak; seconds, or text such as "1m".

    Raises:
        ConfigError: There is no archive there, or nothing in it to replay.
        InvalidArgument: A policy is not one, or a value is outside its limits.
    """
    given = [policies] if isinstance(policies, str | RetryPolicy) else list(policies)
    if not given:
        raise InvalidArgument("which policies? give at least one, such as 'ladder:10s 30s 1m'")
    levels = DEFAULT_LEVELS if delay_levels is None else LevelTable.parse(delay_levels)
    retries = DEFAULT_MAX_RETRIES if max_retries is None else check_max_retries(max_retries)
    tried = [_candidate(one, retries, levels) for one in given]
    window_ms = milliseconds(window, name="window", minimum=0.001)
    with plain_on_driver():
        history = open_archive(spark, archive, topics)
        if group is not None:
            # What happened in the group, and when its messages were published.
            own = history.group == check_group(group)
            history = history.where(history.group.isNull() | own)
        rows, left_out = _run(spark, history, tried, window_ms)
    if not rows:
        where = "" if group is None else f" of group {show(group)}"
        raise ConfigError(f"the archive {show(archive)} has no delivery{where} to replay")
    return SimulationSummary([_named(row, tried) for row in rows], left_out, list(ASSUMPTIONS))


def _candidate(given: str | RetryPolicy, retries: int, levels: LevelTable) -> Candidate:
    policy = RetryPolicy.parse(given) if isinstance(given, str) else given
    limit = retries if policy.max_retries is None else policy.max_retries
    most = None if limit == UNLIMITED else limit + 1
    return Candidate(str(policy), retry_policy.compiled(policy, levels.ms), most)


def _run(
    spark: SparkSession, history: DataFrame, tried: Sequence[Candidate], window_ms: int
) -> tuple[list[dict[str, Any]], int]:
    events = spark.sql(EVENTS, history=history)
    cases = spark.sql(_CASES, events=events)
    played = cases.mapInArrow(partial(_play, tried), from_arrow_schema(_PLAYED)).persist()
    try:
        rows = spark.sql(_SUMS, played=played, window=window_ms).toArrow().to_pylist()
        (left_out,) = spark.sql(_LEFT_OUT, played=played).toArrow().to_pylist()
    finally:
        played.unpersist()
    return rows, left_out["n"]


def _play(
    tried: Sequence[Candidate], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a task: each message as it was, and under each policy."""
    for batch in batches:
        rows = [made for row in batch.to_pylist() for made in _rows(row, tried)]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=_PLAYED)


def _rows(row: dict[str, Any], tried: Sequence[Candidate]) -> Iterator[dict[str, Any]]:
    case = read_case(row["ready"], row["steps"], row["retried"])
    common = {"topic": row["topic"], "group": row["group"]}
    if case is None:
        yield common | {"policy": -1, "scenario": _NOT_KNOWN, "begun": []}
        return
    for number, name, played in _plays(case, tried, row["until"]):
        yield common | {"policy": number, "scenario": name} | played._asdict()


def _plays(case: Case, tried: Sequence[Candidate], until: int) -> Iterator[tuple[int, str, Played]]:
    yield -1, OBSERVED, observed(case)
    for number, candidate in enumerate(tried):
        best = replay(case, candidate, until, hopeful=True)
        yield number, BEST, best
        worst = best if best.known else replay(case, candidate, until, hopeful=False)
        yield number, WORST, worst


def _named(row: dict[str, Any], tried: Sequence[Candidate]) -> dict[str, Any]:
    """The policy by its name instead of its number."""
    number = row.pop("policy")
    one = tried[number] if number >= 0 else None
    most = one.deliveries if one else None
    fields = {
        "topic": row.pop("topic"),
        "group": row.pop("group"),
        "policy": one.name if one else None,
        "max_retries": None if one is None else "unlimited" if most is None else most - 1,
    }
    return fields | row
