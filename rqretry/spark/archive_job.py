"""archive: the history of deliveries becomes Parquet that is kept for ever.

A streaming query over the history whose checkpoint lies in the archive. A batch that is run again
writes the same files under the same names (shelves.py), so every event is in the archive exactly
once whenever the driver, the JVM or a task is killed; no reader needs to know of Spark.
"""

import json
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rqretry.core.durations import Duration, seconds
from rqretry.spark.archive_files import books_in, ends_of, store_rows
from rqretry.spark.compaction import finish_merges, merge_small
from rqretry.spark.error_messages import plain_in_worker, plain_on_driver
from rqretry.spark.lag import Lag, lags
from rqretry.spark.offsets import TopicPartition, histories_of
from rqretry.spark.options import ALL_TOPICS, given_options, read_options
from rqretry.spark.parquet_files import HIDDEN, Folder, absolute
from rqretry.spark.position import EARLIEST, Position

CHECKPOINT = f"{HIDDEN}checkpoint"
_COUNTS = "events long, files long"
_LOOK_S = 1
_FINISH_S = 60
_MERGE_EVERY_S = 3600
_STARTS = 6
_TOO_SLOW = "Python worker failed to connect back"

Progress = Callable[[int], None]
"""Called with how many more events are in the archive."""


@dataclass(slots=True)
class ArchiveSummary:
    """What an archive run did, and how far behind it is.

    Attributes:
        output: Where the archive is.
        events: Events that this run added.
        files: Files that it wrote.
        merged: How many files there are fewer because small ones were merged.
        seconds: How long it took.
        lags: For each partition, how far behind the archive is, and when what it has not read yet
            will be trimmed.
    """

    output: str
    events: int = 0
    files: int = 0
    merged: int = 0
    seconds: float = 0.0
    lags: list[Lag] = field(default_factory=list)


def archive(  # noqa: PLR0913 - options by name
    spark: SparkSession,
    output: str,
    topics: str = ALL_TOPICS,
    *,
    url: str | None = None,
    namespace: str | None = None,
    follow: bool = False,
    interval: Duration = 10,
    max_events: int = 1_000_000,
    fail_on_data_loss: bool = True,
    compact: bool = True,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> ArchiveSummary:
    """Add what is new in the history of topics to a folder of Parquet files.

    Args:
        spark: The session to run on.
        output: The archive's folder: a path, or a URI that Arrow knows.
        topics: A topic, several as "a,b", or "*" for all, also those that are created later.
        url: The server, as everywhere.
        namespace: The namespace, as everywhere.
        follow: Archive new events too, until `stop` is true; default: only what is there now.
        interval: How often, when it follows; seconds, or text such as "1m".
        max_events: The most in one batch.
        fail_on_data_loss: Fail where history was trimmed before it was archived; else skip it.
        compact: Merge small files at the end of the run, and of each hour when it follows.
        progress: Called with how many events were added.
        stop: Asked again and again whether to stop following.

    Raises:
        TopicNotFound, StoreUnavailable: There is nothing to read from.
        ConfigError: History was trimmed before it was archived, or the archive is another's.
    """
    started, folder = time.monotonic(), Folder(absolute(output))
    options = given_options(url=url, namespace=namespace, topic=topics)
    checked = read_options(options)
    every = seconds(interval, name="interval", minimum=0.1)
    with histories_of(checked) as histories:
        partitions = histories.partitions()
    options |= {
        "startingOffsets": _starting(folder, partitions),
        "maxOffsetsPerTrigger": str(max_events),
        "failOnDataLoss": str(fail_on_data_loss).lower(),
    }
    summary = ArchiveSummary(output)
    finish_merges(folder)
    with plain_on_driver():
        pace = every if follow else None
        begin = partial(_start, spark, options, folder, summary, pace, progress, compact=compact)
        wait_patiently(begin, stop)
    if compact:
        summary.merged += merge_small(folder)
    with histories_of(checked) as histories:
        summary.lags = lags(histories, ends_of(books_in(folder)))
    summary.seconds = round(time.monotonic() - started, 3)
    return summary


def _starting(folder: Folder, partitions: Collection[TopicPartition]) -> str:
    """Where a query without a checkpoint begins: behind what the files hold.

    What is in no file begins at its very beginning, so that it is noticed where that was trimmed.
    """
    known, starts = ends_of(books_in(folder)), dict[str, dict[str, str]]()
    for topic, number in partitions:
        position = known.get((topic, number), Position())
        starts.setdefault(topic, {})[str(number)] = str(position)
    return json.dumps(starts) if starts else EARLIEST


def _start(
    spark: SparkSession,
    options: dict[str, str],
    folder: Folder,
    summary: ArchiveSummary,
    every: float | None,
    progress: Progress | None,
    *,
    compact: bool,
) -> StreamingQuery:
    rows = spark.readStream.format("rqretry").options(**options).load()

    merged_at = time.monotonic()

    def store(batch: DataFrame, _number: int) -> None:
        nonlocal merged_at
        if compact and time.monotonic() - merged_at > _MERGE_EVERY_S:
            summary.merged, merged_at = summary.merged + merge_small(folder), time.monotonic()
        counts = batch.mapInArrow(partial(_store, folder), _COUNTS).collect()
        events = sum(row.events for row in counts)
        summary.events += events
        summary.files += sum(row.files for row in counts)
        if progress is not None:
            progress(events)

    writer = rows.writeStream.foreachBatch(store).queryName(f"archive {folder.location}")
    writer = writer.option("checkpointLocation", f"{folder.location.rstrip('/')}/{CHECKPOINT}")
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(every * 1000)} milliseconds").start()


def wait_patiently(begin: Callable[[], StreamingQuery], stop: Callable[[], bool] | None) -> None:
    """Run a query to its end; begin again where a busy machine was too slow for Spark.

    Spark 4 gives each Python process ten seconds to start, which cannot be set.
    """
    for left in reversed(range(_STARTS)):
        try:
            _wait(begin(), stop)
        except PySparkException as error:
            if _TOO_SLOW not in str(error) or not left:
                raise
        else:
            return


def _wait(query: StreamingQuery, stop: Callable[[], bool] | None) -> None:
    try:
        while not query.awaitTermination(_LOOK_S):
            if stop is not None and stop():
                _let_finish(query)
                break
    finally:
        query.stop()


def _let_finish(query: StreamingQuery) -> None:
    """Wait for the batch that is being stored.

    Spark takes a batch that is interrupted for a failed one, and looks at its error with a pattern
    that needs the more stack the longer the error is, until there is none.
    """
    end = time.monotonic() + _FINISH_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < end:
        query.awaitTermination(_LOOK_S)


def _store(folder: Folder, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: write the events of one partition of a topic."""
    with plain_in_worker():
        stored = store_rows(folder, batches)
    yield pa.RecordBatch.from_pylist([{"events": stored.rows, "files": stored.files}])
