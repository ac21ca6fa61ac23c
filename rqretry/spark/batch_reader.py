"""Batch reads: the history between two offsets, dead letters, and stored messages."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from rqretry.spark.continuity import check_range
from rqretry.spark.dead_letters import Stored, read_stored, stored_parts
from rqretry.spark.error_messages import plain_in_worker
from rqretry.spark.filters import Pruning
from rqretry.spark.history_ranges import Span, Spans, plan_batch, read_spans
from rqretry.spark.offsets import Histories, histories_of
from rqretry.spark.options import HISTORY, Options
from rqretry.spark.position import EARLIEST, LATEST, Wanted


@dataclass
class BatchReader(DataSourceReader):
    """One batch read."""

    options: Options
    schema: pa.Schema

    pruning: Pruning = field(default_factory=Pruning, init=False)

    def partitions(self) -> Sequence[InputPartition]:
        """The parts to read, resolved once: what happens later is not read."""
        with plain_in_worker(), histories_of(self.options) as histories:
            if self.options.kind == HISTORY:
                return self._spans(histories)
            return stored_parts(histories, self.pruning)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one part; Spark asks for None if there is none."""
        with plain_in_worker():
            if isinstance(partition, Spans):
                yield from read_spans(self.options, partition, self.schema, self.pruning)
            elif isinstance(partition, Stored):
                yield from read_stored(self.options, partition, self.schema)

    def _spans(self, histories: Histories) -> list[Spans]:
        starting: Wanted = self.options.starts or EARLIEST
        ending: Wanted = self.options.ends or LATEST
        bounds = histories.bounds()
        starts = histories.resolve("startingOffsets", starting, bounds)
        ends = histories.resolve("endingOffsets", ending, bounds)
        for partition in list(bounds):
            starts[partition], ends[partition] = self.pruning.clip(
                starts[partition], ends[partition]
            )
            if not self.pruning.takes(*partition):
                del ends[partition]
            elif starts[partition] < ends[partition]:
                check_range(histories, partition, starts[partition], bounds[partition])
        sizes = {
            Span(*partition, starts[partition], end): bounds[partition].share(
                starts[partition], end
            )
            for partition, end in ends.items()
        }
        return plan_batch(sizes, self.options.min_partitions)


class PushingReader(BatchReader):
    """A reader with filters; a class of its own, since Spark checks for the method."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Read less by them; Spark still applies each of them."""
        self.pruning.push(filters)
        return filters
