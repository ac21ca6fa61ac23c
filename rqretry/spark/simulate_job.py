"""simulate: archived outcomes are replayed through other retry policies, many times.

Why deliveries fail is estimated from the archive (failure_model.py); what another policy would do
with each message is drawn from that (forecast.py).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from rqretry.core import retry_policy
from rqretry.core.delay_levels import DEFAULT_LEVELS, LevelTable
from rqretry.core.durations import Duration, milliseconds
from rqretry.core.errors import ConfigError, InvalidArgument, show
from rqretry.core.limits import (
    DEFAULT_MAX_RETRIES,
    UNLIMITED,
    check_count,
    check_group,
    check_max_retries,
)
from rqretry.core.retry_policy import RetryPolicy
from rqretry.spark.back_test import back_test_of
from rqretry.spark.error_messages import plain_on_driver
from rqretry.spark.forecast import Forecast, Model, observed
from rqretry.spark.options import ALL_TOPICS
from rqretry.spark.queries import EVENTS
from rqretry.spark.report_job import open_archive, time_before, within
from rqretry.spark.retry_model import Candidate, Case, read_case
from rqretry.spark.tally import LIKELY, SCENARIOS, Tally
from rqretry.spark.task_context import current_task

OBSERVED = "observed"
SIMULATIONS = 200
_SAMPLE = 20_000
"""About how many messages the model is estimated from."""
_PLAYED = "topic string, `group` string, policy int, left_out long, tally binary"
_OWN = -1
_SAME = -2
"""In place of the number of a policy: what was observed, and what is the same under each."""
Key = tuple[str, str]
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
                                          outcome, error_type, fingerprint,
                                          unix_millis(due_time) AS due,
                                          handler_seconds * 1000 AS handler)))
               AS steps
    FROM {events} WHERE event IN ('lease', 'succeed', 'fail', 'expire', 'release', 'redrive')
    GROUP BY topic, partition, `group`, message_id)
SELECT topic, `group`, message_id, unix_millis(ready_at) AS ready,
       coalesce(retried, 0) AS retried, until, steps
FROM known JOIN limits USING (`group`) LEFT JOIN born USING (topic, partition, message_id)
"""
_SAMPLED = "SELECT * FROM {cases} WHERE pmod(xxhash64(message_id), {parts}) = 0"


@dataclass(slots=True)
class SimulationSummary:
    """The result of a simulation.

    Attributes:
        rows: For each topic and group what was `observed`, and for each policy what it would have
            done (`scenario`): `likely`, and `low` and `high`, the ends of 90 % intervals of each
            figure: messages, committed, dead, unfinished, deliveries, handler_seconds (null where
            the history has no times of handlers), peak (the most deliveries begun in one window),
            and seconds from ready to committed (to_success_p50, to_success_p95, to_success_longest,
            to_success_mean). `not_known` counts the messages of which a delivery was drawn.
        left_out: Messages whose first delivery is not in the archive, or was never settled.
        before: Rows as in `rows`, of as long a time before; only with compare.
        assumptions: What was supposed, in sentences.
        back_test: How often intervals held what was observed: of each figure the share that did
            (`model`), that of a naive forecast (`naive`), and of how many (`intervals`).
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: int = 0
    before: list[dict[str, Any]] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    back_test: list[dict[str, Any]] = field(default_factory=list)


ASSUMPTIONS = (
    (
        "Failures of one kind come from outages (by time), from messages that always fail, from"
        " messages whose time has not come, and from chance (by delivery); how often each, is"
        " estimated from the archive."
    ),
    "The first delivery of a message ends as it did; how later ones end is drawn.",
    "A message that its handler rejected is dead at once.",
    (
        "Deliveries take as long, and begin as late, as those in the archive: more load slows"
        " nothing down."
    ),
    (
        "Jitter, and waits that handlers chose themselves, are left out. What a redrive made of a"
        " message is used as knowledge, not as an outcome."
    ),
)
"""The assumptions of a simulation; they are part of every result."""


def simulate(  # noqa: PLR0913 - options by name
    spark: SparkSession,
    archive: str,
    policies: str | RetryPolicy | Sequence[str | RetryPolicy],
    topics: str = ALL_TOPICS,
    *,
    group: str | None = None,
    max_retries: int | str | None = None,
    delay_levels: str | Sequence[Duration] | None = None,
    window: Duration = 60,
    since: datetime | float | None = None,
    until: datetime | float | None = None,
    compare: bool = False,
    simulations: int = SIMULATIONS,
    back_test: bool = False,
) -> SimulationSummary:
    """Replay the outcomes of an archive through candidate retry policies.

    Nothing is written, and no server is needed. The same archive gives the same result.

    Args:
        spark: The session to run on.
        archive: The folder that `archive` writes.
        policies: Policies, or texts such as "ladder:10s 30s 1m".
        topics: A topic, several as "a,b", or "*" for all.
        group: One group; default all.
        max_retries: Of every policy that has none of its own; default 16.
        delay_levels: The level table, which the policy "rocketmq" uses; default RocketMQ's.
        window: How long deliveries are counted for the peak; seconds, or text such as "1m".
        since: Only events from this time on (an aware datetime, or seconds since the epoch).
        until: Only events before this time.
        compare: Also simulate as long a time before `since`; both times must be given.
        simulations: How many; more make the ends of the intervals steadier.
        back_test: Also forecast what was observed, part by part, and count how often that held.

    Raises:
        ConfigError: There is no archive there, or nothing in it to replay.
        InvalidArgument: A policy is not one, a value is outside its limits, or compare has nothing
            to compare.
    """
    given = [policies] if isinstance(policies, str | RetryPolicy) else list(policies)
    if not given:
        raise InvalidArgument("which policies? give at least one, such as 'ladder:10s 30s 1m'")
    levels = DEFAULT_LEVELS if delay_levels is None else LevelTable.parse(delay_levels)
    retries = DEFAULT_MAX_RETRIES if max_retries is None else check_max_retries(max_retries)
    tried = [_candidate(one, retries, levels) for one in given]
    window_ms = milliseconds(window, name="window", minimum=0.001)
    size = check_count(simulations, name="simulations")
    before = time_before(since, until) if compare else None
    with plain_on_driver():
        history = open_archive(spark, archive, topics)
        if group is not None:
            # What happened in the group, and when its messages were published.
            own = history.group == check_group(group)
            history = history.where(history.group.isNull() | own)
        run = partial(_run, spark, tried=tried, window_ms=window_ms, size=size)
        summary = run(within(history, since, until), back_test=back_test)
        if before is not None:
            summary.before = run(within(history, *before), back_test=False).rows
    if not summary.rows:
        where = "" if group is None else f" of group {show(group)}"
        raise ConfigError(f"the archive {show(archive)} has no delivery{where} to replay")
    return summary


def _candidate(given: str | RetryPolicy, retries: int, levels: LevelTable) -> Candidate:
    policy = RetryPolicy.parse(given) if isinstance(given, str) else given
    limit = retries if policy.max_retries is None else policy.max_retries
    most = None if limit == UNLIMITED else limit + 1
    return Candidate(str(policy), retry_policy.compiled(policy, levels.ms), most)


def _run(
    spark: SparkSession,
    history: DataFrame,
    tried: Sequence[Candidate],
    window_ms: int,
    size: int,
    *,
    back_test: bool,
) -> SimulationSummary:
    events = spark.sql(EVENTS, history=history)
    cases = spark.sql(_CASES, events=events).persist(StorageLevel.DISK_ONLY)
    try:
        parts = max(1, round(cases.count() / _SAMPLE))
        sampled = _by_group(spark.sql(_SAMPLED, cases=cases, parts=parts).toArrow().to_pylist())
        models = {key: Model.of(found) for key, found in sampled.items()}
        play = partial(_play, tried, models, window_ms, size)
        played = cases.mapInArrow(play, _PLAYED).repartition("topic", "group", "policy")
        tallies, left_out = _merged(played.mapInArrow(_sums, _PLAYED).toLocalIterator())
    finally:
        cases.unpersist()
    rows = [_named(*key, scenario, row, tried) for key, scenario, row in _scenarios(tallies)]
    tested = back_test_of(sampled, size) if back_test else []
    return SimulationSummary(rows, left_out, [], list(ASSUMPTIONS), tested)


def _by_group(rows: Iterable[dict[str, Any]]) -> dict[Key, list[Case]]:
    found: dict[Key, list[Case]] = {}
    for row in rows:
        case = read_case(row["ready"], row["steps"], row["retried"])
        if case is not None:
            found.setdefault((row["topic"], row["group"]), []).append(case)
    return found


def _merged(rows: Iterable[Any]) -> tuple[dict[tuple[str, str, int], Tally], int]:
    """The sums of tasks, one after the other."""
    tallies: dict[tuple[str, str, int], Tally] = {}
    left_out = 0
    for row in rows:
        left_out += row["left_out"]
        if row["tally"] is None:
            continue
        tally = Tally.unpacked(bytes(row["tally"]))
        key = row["topic"], row["group"], row["policy"]
        if key in tallies:
            tallies[key].merge(tally)
        else:
            tallies[key] = tally
    return tallies, left_out


def _play(
    tried: Sequence[Candidate],
    models: Mapping[Key, Model],
    window_ms: int,
    size: int,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """In a task: each message as it was, and under each policy; the sums."""
    rng, left_out = np.random.default_rng(current_task().partitionId()), 0
    forecasts: dict[Key, Forecast] = {}
    tallies: dict[tuple[str, str, int], Tally] = {}
    for rows in (batch.to_pylist() for batch in batches):
        untils = {(row["topic"], row["group"]): row["until"] for row in rows}
        found = _by_group(rows)
        left_out += len(rows) - sum(map(len, found.values()))
        for key, cases in found.items():
            if key not in forecasts:
                forecasts[key] = Forecast(models.get(key) or Model.of(cases), size, rng)
                tallies |= {(*key, n): Tally(1, window_ms) for n in (_OWN, _SAME)}
                tallies |= {(*key, n): Tally(size, window_ms) for n in range(len(tried))}
            same = [case for case in cases if _is_same(case)]
            others = [case for case in cases if not _is_same(case)]
            for number, some in ((_SAME, same), (_OWN, others)):
                if some:
                    tallies[*key, number].add(observed(some))
            for number, candidate in enumerate(tried):
                for played in forecasts[key].play(others, candidate, untils[key]):
                    tallies[*key, number].add(played)
    for key in forecasts:
        common = tallies.pop((*key, _SAME))
        for number in range(_OWN, len(tried)):
            tallies[*key, number].merge(common)
    yield _packed(tallies, left_out)


def _sums(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: what all tasks found of some groups and policies, added up."""
    yield _packed(*_merged(row for batch in batches for row in batch.to_pylist()))


def _packed(tallies: Mapping[tuple[str, str, int], Tally], left_out: int) -> pa.RecordBatch:
    made: list[tuple[Any, ...]] = [(*key, 0, tally.packed()) for key, tally in tallies.items()]
    columns = zip(*[*made, (None, None, None, left_out, None)], strict=True)
    types = (pa.string(), pa.string(), pa.int32(), pa.int64(), pa.binary())
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, ["topic", "group", "policy", "left_out", "tally"])


def _is_same(case: Case) -> bool:
    """Whether a message was committed at once: every policy leaves that as it is."""
    return len(case.attempts) == 1 and case.attempts[0].how == "succeed"


def _scenarios(
    tallies: Mapping[tuple[str, str, int], Tally],
) -> Iterator[tuple[tuple[str, str, int], str, dict[str, Any]]]:
    for key in sorted(tallies):
        if key[-1] == _OWN:
            yield key, OBSERVED, tallies[key].row(LIKELY)
            continue
        for scenario in SCENARIOS:
            yield key, scenario, tallies[key].row(scenario)


def _named(
    topic: str,
    group: str,
    number: int,
    scenario: str,
    row: dict[str, Any],
    tried: Sequence[Candidate],
) -> dict[str, Any]:
    """A row with the policy by its name instead of its number."""
    one = tried[number] if number != _OWN else None
    most = one.deliveries if one else None
    return {
        "topic": topic,
        "group": group,
        "policy": one.name if one else None,
        "max_retries": None if one is None else "unlimited" if most is None else most - 1,
        "scenario": scenario,
    } | row
