"""Writes: publish, from a batch or from a stream."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from rqretry.core.errors import InvalidArgument, RqretryError
from rqretry.protocol.publish import Prepared
from rqretry.spark.error_messages import plain_in_worker
from rqretry.spark.options import Options
from rqretry.spark.rows import Mapping
from rqretry.spark.sink import close_epoch, publish_batches
from rqretry.spark.task_context import Task, Totals, current_task

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass
class Written(WriterCommitMessage):
    """What one task reports to the driver."""

    totals: Totals
    task: Task


@dataclass
class BatchWriter(DataSourceArrowWriter):
    """One batch write; its tasks may run more than once, and publish once."""

    options: Options
    mapping: Mapping
    unnamed: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The job's name where it has none, by which it would be the same job when it is run again."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: publish its rows."""
        with plain_in_worker():
            job = self.options.job_id
            number = current_task().partitionId()
            task = Task(self.unnamed if job is None else job, number, replayable=job is not None)
            return _publish(self.options, self.mapping, task, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: all tasks are done, and an earlier run had no more of them."""
        if self.options.job_id is not None:
            _close(self.options, self.mapping, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What was published stays published; running the job again adds what is missing."""


@dataclass
class StreamWriter(DataSourceStreamArrowWriter):
    """The writes of a streaming query; a micro-batch may run more than once, and publishes once."""

    options: Options
    mapping: Mapping

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: publish its rows."""
        with plain_in_worker():
            context = current_task()
            query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
            if query is None or batch is None:
                raise RqretryError("Spark gave this task no query and batch")
            task = Task(query, context.partitionId(), int(batch), replayable=True)
            return _publish(self.options, self.mapping, task, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """On the driver: all tasks of a micro-batch are done, and there were never more of them."""
        _close(self.options, self.mapping, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was published stays published; the batch that is run again adds what is missing."""


def _publish(
    options: Options, mapping: Mapping, task: Task, batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    seen = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal seen
        for batch in batches:
            yield batch
            seen += batch.num_rows

    def refuse_row(row: int | Prepared, error: RqretryError) -> None:
        if isinstance(row, Prepared):
            raise error
        raise InvalidArgument(
            f"row {seen + row} of partition {task.partition} cannot be published: {error}"
        ) from error

    return Written(publish_batches(options, mapping, task, counted(), refuse_row), task)


def _close(
    options: Options, mapping: Mapping, messages: Sequence[WriterCommitMessage | None]
) -> None:
    done = [message.task for message in messages if isinstance(message, Written)]
    if done and mapping.id_column is None:
        with plain_in_worker():
            close_epoch(options, done[0], len(messages))
