"""Choosing dead letters by a condition of Spark SQL, with a preview of what was chosen."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
)
from pyspark.sql import DataFrame, SparkSession

from rqretry.core.errors import InvalidArgument, show
from rqretry.spark.error_messages import gist, plain_on_driver
from rqretry.spark.options import ALL_TOPICS, DEAD_LETTERS, given_options
from rqretry.spark.progress import Progress, watched
from rqretry.spark.redrive_record import Choice, ChosenDeadLetter, write_all

_SHOWN = 200
_COLUMNS = (
    "topic",
    "partition",
    "id",
    "unix_millis(dead_since) AS dead_since_ms",
    "cause",
    "deliveries",
    "error_type",
    f"left(error_message, {_SHOWN}) AS error_message",
    "fingerprint",
    f"left(body, {_SHOWN}) AS body",
)
_CHOSEN = """
SELECT concat_ws('\t', topic, partition, id, dead_since_ms) AS line
FROM {chosen} ORDER BY dead_since_ms, id, topic
"""
_UP_TO = "SELECT * FROM {chosen} WHERE (dead_since_ms, id, topic) <= ({ms}, {id}, {topic})"
_KINDS = """
SELECT topic, cause, error_type, fingerprint, count(*) AS count, min(dead_since_ms) AS first_ms,
       max(dead_since_ms) AS last_ms, min(error_message) AS example
FROM {chosen} GROUP BY topic, cause, error_type, fingerprint
ORDER BY count DESC, topic, fingerprint, cause, error_type LIMIT 20
"""
_SAMPLES = """
SELECT topic, id, deliveries, cause, error_type, error_message, fingerprint, dead_since_ms, body
FROM (SELECT *, row_number() OVER
                (PARTITION BY topic, fingerprint ORDER BY dead_since_ms, id) AS rank
      FROM {chosen})
ORDER BY rank, dead_since_ms, id LIMIT 5
"""
# What a condition may run into in some row: a number that is none, a division by zero.
_FAILED_ON_A_ROW = (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
)


def choose(
    spark: SparkSession,
    group: str,
    where: str,
    *,
    namespace: str,
    chosen_path: Path,
    url: str | None = None,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Choice:
    """The dead letters of a group for which a condition holds; none is changed.

    Args:
        spark: The session to run on.
        group: The group's name.
        where: A condition of Spark SQL over the columns of dead letters.
        namespace: The namespace.
        chosen_path: The file in which they are listed, the oldest death first.
        url: The server, as everywhere.
        limit: The most that are chosen; default all.
        progress: Called with how many tasks of the reading are done, and how many there are.

    Raises:
        InvalidArgument: The condition is not valid, or fails on a dead letter.
        ConfigError: The file cannot be written.
        GroupNotFound, StoreUnavailable: There is nothing to read from.
    """
    options = given_options(
        url=url, namespace=namespace, topic=ALL_TOPICS, kind=DEAD_LETTERS, group=group
    )
    with plain_on_driver(), _plain_condition(where):
        rows = spark.read.format("rqretry").options(includeHeaders=True, **options).load()
        # Three queries over one reading, so that they are about the same dead letters; very many
        # would fill the memory of executors.
        chosen = rows.where(where).selectExpr(*_COLUMNS).persist(StorageLevel.DISK_ONLY)
        try:
            with watched(spark, chosen.rdd.getNumPartitions(), progress):
                lines = _Lines(_in_order(spark, chosen, limit))
                write_all(chosen_path, lines)
            if lines.last and lines.count == limit:
                topic, _, id_, ms = ChosenDeadLetter.read(lines.last)
                upto: dict[str, Any] = {"topic": topic, "id": id_, "ms": ms}
                counted = spark.sql(_UP_TO, chosen=chosen, **upto)
            else:
                counted = chosen
            kinds, samples = _answer(spark, _KINDS, counted), _answer(spark, _SAMPLES, counted)
        finally:
            chosen.unpersist()
    return Choice(group, where, lines.count, kinds, samples)


class _Lines:
    """Texts of many lines, one after the other; how many there were, and the last one."""

    def __init__(self, texts: Iterable[list[str]]) -> None:
        self._texts = texts
        self.count, self.last = 0, ""

    def __iter__(self) -> Iterator[str]:
        for lines in self._texts:
            self.count += len(lines)
            self.last = lines[-1]
            yield "".join(lines)


def _in_order(spark: SparkSession, chosen: DataFrame, limit: int | None) -> Iterator[list[str]]:
    """The lines of the record, as many as one batch has: the driver never holds more of them."""
    texts = spark.sql(_CHOSEN, chosen=chosen).mapInArrow(_joined, "text string").toLocalIterator()
    left = limit
    for row in texts:
        lines = list(islice(row.text.splitlines(keepends=True), left))
        if lines:
            yield lines
        left = None if left is None else left - len(lines)
        if left == 0:
            return


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            text = "\n".join(batch.column(0).to_pylist()) + "\n"
            yield pa.RecordBatch.from_pydict({"text": [text]})


def _answer(spark: SparkSession, query: str, chosen: DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = spark.sql(query, chosen=chosen).toArrow().to_pylist()
    return rows


@contextmanager
def _plain_condition(where: str) -> Iterator[None]:
    try:
        yield
    except AnalysisException as error:
        raise InvalidArgument(
            f"where {show(where)} is not a condition over dead letters: {gist(error)}"
        ) from None
    except _FAILED_ON_A_ROW as error:
        raise InvalidArgument(
            f"where {show(where)} fails on a dead letter: {gist(error)}"
        ) from None
