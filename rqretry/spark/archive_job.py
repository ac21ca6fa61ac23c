"""archive: the history of deliveries is kept for ever, as Parquet files or as a Delta table.

A streaming query over the history whose checkpoint lies in the archive. A batch that is run again
adds nothing (archive_files.py, archive_delta.py), so every event is in the archive exactly once
whenever the driver, the JVM or a task is killed.
"""

import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rqretry.core.durations import Duration, seconds
from rqretry.core.errors import ConfigError, refuse, show
from rqretry.spark.archive_delta import LOG, DeltaArchive
from rqretry.spark.archive_files import CHECKPOINT, ParquetFiles
from rqretry.spark.error_messages import plain_on_driver
from rqretry.spark.hadoop_folder import HadoopFolder
from rqretry.spark.lag import Lag, lags
from rqretry.spark.offsets import Positions, TopicPartition, histories_of
from rqretry.spark.options import ALL_TOPICS, given_options, read_options
from rqretry.spark.position import EARLIEST, Position

PARQUET, DELTA = "parquet", "delta"
FORMATS = (PARQUET, DELTA)
_LOOK_S = 1
_FINISH_S = 60
_COMPACT_EVERY_S = 3600
_STARTS = 6
_TOO_SLOW = "Python worker failed to connect back"
_QUERY = "sql.streaming.queryId"

Progress = Callable[[int], None]
"""Called with how many more events are in the archive."""


@dataclass(slots=True)
class ArchiveSummary:
    """What an archive run did, and how far behind it is.

    Attributes:
        output: Where the archive is.
        events: Events that this run added.
        files: Files that it wrote.
        merged: How many files of a Delta table there are fewer because small ones were merged.
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
    format: str = PARQUET,  # noqa: A002 - as Spark calls it
    follow: bool = False,
    interval: Duration = 10,
    max_events: int = 1_000_000,
    fail_on_data_loss: bool = True,
    compact: bool = True,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> ArchiveSummary:
    """Add what is new in the history of topics to an archive.

    Args:
        spark: The session to run on.
        output: The archive's folder: a path, or a URI that Spark knows.
        topics: A topic, several as "a,b", or "*" for all, also those that are created later.
        url: The server, as everywhere.
        namespace: The namespace, as everywhere.
        format: "parquet", or "delta" for a Delta table, which needs the extra `delta`.
        follow: Archive new events too, until `stop` is true; default: only what is there now.
        interval: How often, when it follows; seconds, or text such as "1m".
        max_events: The most in one batch.
        fail_on_data_loss: Fail where history was trimmed before it was archived; else skip it.
        compact: Merge small files of a Delta table at the end of the run, and of each hour when it
            follows. Parquet files are never merged, since readers would see their events twice.
        progress: Called with how many events were added.
        stop: Asked again and again whether to stop following.

    Raises:
        TopicNotFound, StoreUnavailable: There is nothing to read from.
        ConfigError: History was trimmed before it was archived, or the archive is another's.
    """
    started = time.monotonic()
    if format not in FORMATS:
        refuse("format", format, f"must be one of {', '.join(FORMATS)}")
    options = given_options(url=url, namespace=namespace, topic=topics)
    checked = read_options(options)
    every = seconds(interval, name="interval", minimum=0.1)
    with histories_of(checked) as histories:
        partitions = histories.partitions()
    summary = ArchiveSummary(output)
    with plain_on_driver():
        kept = open_for_writing(spark, output, format)
        options |= {
            "startingOffsets": _starting(kept.ends(), partitions),
            "maxOffsetsPerTrigger": str(max_events),
            "failOnDataLoss": str(fail_on_data_loss).lower(),
        }
        pace = every if follow else None
        begin = partial(_start, spark, options, kept, summary, pace, progress, compact=compact)
        run_query(begin, stop)
        if compact:
            summary.merged += kept.compact()
        ends = kept.ends()
    with histories_of(checked) as histories:
        summary.lags = lags(histories, ends)
    summary.seconds = round(time.monotonic() - started, 3)
    return summary


def open_for_writing(spark: SparkSession, output: str, format_: str) -> ParquetFiles | DeltaArchive:
    """An archive that can be added to. Raises ConfigError if it has the other format."""
    folder = HadoopFolder(spark, output)
    files, is_table = ParquetFiles(spark, folder), folder.has(LOG)
    if is_table if format_ == PARQUET else not is_table and files.ends():
        held = "a Delta table: give --format delta" if is_table else "an archive of Parquet files"
        raise ConfigError(f"{show(output)} is {held}, or name another folder")
    return files if format_ == PARQUET else DeltaArchive(spark, folder)


def _starting(known: Positions, partitions: Collection[TopicPartition]) -> str:
    """Where a query without a checkpoint begins: behind what the archive holds.

    What it has nothing of begins at its very beginning, so that it is noticed where that was
    trimmed.
    """
    starts: dict[str, dict[str, str]] = {}
    for topic, number in partitions:
        position = known.get((topic, number), Position())
        starts.setdefault(topic, {})[str(number)] = str(position)
    return json.dumps(starts) if starts else EARLIEST


def _start(
    spark: SparkSession,
    options: dict[str, str],
    kept: ParquetFiles | DeltaArchive,
    summary: ArchiveSummary,
    every: float | None,
    progress: Progress | None,
    *,
    compact: bool,
) -> StreamingQuery:
    rows = spark.readStream.format("rqretry").options(**options).load()

    compacted_at = time.monotonic()

    def store(batch: DataFrame, number: int) -> None:
        nonlocal compacted_at
        if compact and time.monotonic() - compacted_at > _COMPACT_EVERY_S:
            summary.merged, compacted_at = summary.merged + kept.compact(), time.monotonic()
        query = batch.sparkSession.sparkContext.getLocalProperty(_QUERY)
        stored = kept.store(batch, number, str(query))
        summary.events += stored.events
        summary.files += stored.files
        if progress is not None:
            progress(stored.events)

    writer = rows.writeStream.foreachBatch(store).queryName(f"archive {kept.folder.uri}")
    writer = writer.option("checkpointLocation", f"{kept.folder.uri}/{CHECKPOINT}")
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(every * 1000)} milliseconds").start()


def run_query(start: Callable[[], StreamingQuery], stop: Callable[[], bool] | None = None) -> None:
    """Run a streaming query to its end; start it again where a busy machine was too slow for Spark.

    Spark 4 gives each Python process ten seconds to start, which cannot be set. A query that has a
    checkpoint continues where it was.

    Args:
        start: Starts the query, as `lambda: writer.start()`.
        stop: Asked again and again whether to stop it; default: it ends by itself.

    Raises:
        PySparkException: The query failed for another reason.
    """
    for left in reversed(range(_STARTS)):
        try:
            _wait(start(), stop)
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
    except PySparkException:
        # A signal to all processes ends the tasks of a batch, too: the next run stores it.
        if stop is None or not stop():
            raise
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
