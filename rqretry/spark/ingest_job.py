"""ingest: the rows of Parquet, CSV or JSON Lines files become messages of a topic.

The same files into the same topic are the same job: running it again adds what is missing. The plan
does not depend on the machine, or the record of each task's rows would not match.
"""

from collections.abc import Iterator
from collections.abc import Mapping as Mapping_
from dataclasses import asdict, dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from rqretry.spark.error_messages import plain_in_worker, plain_on_driver
from rqretry.spark.input_files import CORRUPT, fingerprint_of_files, format_of, open_files
from rqretry.spark.options import Options, given_options, read_options
from rqretry.spark.parquet_files import Folder, absolute
from rqretry.spark.progress import Progress, watched
from rqretry.spark.rejects import Rejects
from rqretry.spark.rows import Mapping, map_row
from rqretry.spark.sink import begin_job, close_epoch, publish_batches
from rqretry.spark.task_context import Task, Totals, current_task

_COUNTS = "rows long, sent long, known long, rejected long"


@dataclass(frozen=True, slots=True)
class IngestSummary:
    """What an ingest did.

    Attributes:
        topic: Where the messages are.
        rows: Rows of the files.
        published: Messages that this run added.
        known: Messages that an earlier attempt or run had added.
        rejected: Rows that cannot be messages.
        rejected_folder: Where those are, with the reasons; None without any.
        job: The name under which running it again publishes nothing twice.
    """

    topic: str
    rows: int
    published: int
    known: int
    rejected: int
    rejected_folder: str | None
    job: str


@dataclass(frozen=True, slots=True)
class _Work:
    """What a task needs to know."""

    options: Options
    mapping: Mapping
    job: str
    rejected: Folder


def ingest(  # noqa: PLR0913 - options by name
    spark: SparkSession,
    path: str,
    topic: str,
    *,
    url: str | None = None,
    namespace: str | None = None,
    format: str | None = None,  # noqa: A002 - as Spark calls it
    id: str | None = None,  # noqa: A002 - the name of the contract
    key: str | None = None,
    tag: str | None = None,
    delay: str | None = None,
    schema: str | None = None,
    options: Mapping_[str, str] | None = None,
    rejected: str | None = None,
    job: str | None = None,
    progress: Progress | None = None,
) -> IngestSummary:
    """Publish each row of files as a message whose body is the row.

    Args:
        spark: The session to run on.
        path: A file, a folder or a pattern.
        topic: Created with one partition where there is none.
        url: The server, as everywhere.
        namespace: The namespace, as everywhere.
        format: "parquet", "csv" (with a header line) or "json" (one object a line); default by
            the ending of the path.
        id: The column of the message ids, text or whole numbers: each is published once, and
            rejected with another body.
        key: The column of the message keys.
        tag: The column of the tags.
        delay: The column of the delays: seconds, or text such as "5m".
        schema: The columns of CSV or JSON files, as in SQL ("id string, n int"): what does not
            fit is rejected. Default as Spark finds them.
        options: How to read the files, as Spark names it: sep, quote, escape, header, encoding,
            multiLine and so on. By default CSV is RFC 4180, with a header line.
        rejected: A folder for rows that cannot be messages; default the path and "-rejected".
        job: A name of the job; default made of the files and of where they go.
        progress: Called with how many tasks are done, and how many there are.

    Raises:
        InvalidArgument: A column is not there or is of the wrong type, or the format has no such
            option.
        ConfigError: The files cannot be read, or are not those of an earlier run of the job.
        StoreUnavailable, QueueFull, AmbiguousResult: Not all was stored; run it again.
    """
    target = read_options(given_options(topic=topic, url=url, namespace=namespace))
    reading = dict(options or {})
    format_, path = format_of(path, format), absolute(path)
    columns = {"id": id, "keys": key, "tag": tag, "delay": delay}
    with plain_on_driver(), open_files(spark, path, format_, schema, reading) as rows:
        mapping = map_row(rows.schema, columns, CORRUPT)
        name = job or fingerprint_of_files(
            rows, target.target, target.settings.namespace, {**columns, **reading}
        )
        folder = rejected or f"{path.rstrip('/*')}-rejected"
        Folder(absolute(folder)).open()  # one that tasks cannot write to is refused before any
        total = _run(spark, rows, _Work(target, mapping, name, Folder(absolute(folder))), progress)
    where = folder if total.rejected else None
    return IngestSummary(topic, total.rows, total.sent, total.known, total.rejected, where, name)


def _run(spark: SparkSession, rows: DataFrame, work: _Work, progress: Progress | None) -> Totals:
    tasks = rows.rdd.getNumPartitions()
    task = Task(work.job, 0, replayable=True)
    if work.mapping.id_column is None:
        begin_job(work.options, task, f"{tasks} tasks {rows.schema.simpleString()}")
    with watched(spark, tasks, progress):
        counts = rows.mapInArrow(partial(_publish, work), _COUNTS).collect()
    if work.mapping.id_column is None:
        close_epoch(work.options, task, tasks)
    return Totals(*map(sum, zip(*counts, strict=True)))


def _publish(work: _Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: publish its rows, and put those aside that cannot be published."""
    task = Task(work.job, current_task().partitionId(), replayable=True)
    with plain_in_worker(), Rejects(work.rejected, task) as rejects:
        batches = rejects.watching(batches)
        total = publish_batches(work.options, work.mapping, task, batches, rejects.add)
    yield pa.RecordBatch.from_pylist([asdict(total)])
