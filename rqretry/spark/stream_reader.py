"""Streaming reads of the history: exact offsets, admission control, and a stop at "now"."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rqretry.core.errors import ConfigError, RqretryError, show
from rqretry.spark.continuity import check_range, name_of, report_loss
from rqretry.spark.error_messages import DataLoss, plain_in_worker
from rqretry.spark.history_ranges import Span, Spans, plan_stream, read_spans
from rqretry.spark.offsets import (
    Bounds,
    Histories,
    Positions,
    TopicPartition,
    histories_of,
)
from rqretry.spark.options import Options
from rqretry.spark.position import ABOUT, LATEST, Offsets, Position, Wanted, read_positions

_NAMESPACE = "namespace"
_TRIGGER_DELAY_S = 900.0
"""As for Kafka."""
_EPOCHS = f"{ABOUT}epochs"
"""The key of the offsets that names when each history began, by topic/partition."""


@dataclass
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming read; between calls it holds nothing but where "now" was."""

    options: Options
    schema: pa.Schema

    target: Positions | None = field(default=None, init=False)
    triggered_at: float = field(default=-math.inf, init=False)
    """When the last batch was planned (monotonic)."""

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Where a new query begins: startingOffsets, by default what comes from now on."""
        starting: Wanted = self.options.starts or LATEST
        with plain_in_worker(), histories_of(self.options) as histories:
            bounds = histories.bounds()
            return self._spelled(histories.resolve("startingOffsets", starting, bounds), bounds)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802 - Spark's name
        """Where the next batch ends."""
        with plain_in_worker(), histories_of(self.options) as histories:
            bounds = self._bounds(histories, start)
            starts = self._starts(start, bounds)
            ends = {which: self._end(which, known, starts) for which, known in bounds.items()}
            if self._waits(histories, starts, ends):
                return start
            if isinstance(limit, ReadMaxRows):
                ends = _admitted(histories, starts, ends, limit.max_rows)
            return self._spelled(ends, bounds)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The read limit: the option maxOffsetsPerTrigger."""
        most = self.options.max_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Where the history ends now; it shows in the query's progress."""
        with plain_in_worker(), histories_of(self.options) as histories:
            bounds = histories.bounds()
            ends = {partition: known.end for partition, known in bounds.items()}
            return self._spelled(ends, bounds)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Everything up to now, and nothing that comes later."""
        with plain_in_worker(), histories_of(self.options) as histories:
            self.target = histories.ends()

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """What is new in each partition; partitions with little of it share tasks."""
        with plain_in_worker(), histories_of(self.options) as histories:
            ends = read_positions(end)
            bounds = self._bounds(histories, end)
            starts = self._starts(start, bounds) if bounds else {}
            old = self._made_anew(end, bounds)
            live = {p: position for p, position in ends.items() if p in starts and p not in old}
            for partition, position in live.items():
                if starts[partition] < position:
                    check_range(histories, partition, starts[partition], bounds[partition])
            spans = [Span(*p, starts[p], end) for p, end in sorted(live.items())]
            return plan_stream(spans, self.options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        assert isinstance(partition, Spans)
        with plain_in_worker():
            yield from read_spans(self.options, partition, self.schema)

    def commit(self, end: Offsets) -> None:
        """Nothing to do: the history is kept for other readers, and the checkpoint for us."""

    def stop(self) -> None:
        """Nothing is held."""

    def _bounds(self, histories: Histories, offsets: Offsets) -> dict[TopicPartition, Bounds]:
        """The bounds of all current partitions, and of those in the checkpoint."""
        self._check_origin(offsets)
        bounds = histories.bounds()
        gone = [partition for partition in read_positions(offsets) if partition not in bounds]
        if gone and self.options.fail_on_data_loss:
            topic, number = gone[0]
            raise DataLoss(
                f"partition {number} of topic {show(topic)} is in the checkpoint, and there is no"
                " such partition any more, or option topic leaves it out; set failOnDataLoss to"
                " false to continue without it"
            )
        return bounds

    def _starts(self, start: Offsets, bounds: dict[TopicPartition, Bounds]) -> Positions:
        """Where each partition continues; a new one, and one made anew, starts at its beginning."""
        known, anew = read_positions(start), self._made_anew(start, bounds)
        return {p: Position() if p in anew else known.get(p, Position()) for p in bounds}

    def _made_anew(
        self, offsets: Offsets, bounds: dict[TopicPartition, Bounds]
    ) -> set[TopicPartition]:
        """The partitions whose history is not the one that was read. Raises DataLoss."""
        anew: set[TopicPartition] = set()
        for partition, known in bounds.items():
            epoch = offsets.get(_EPOCHS, {}).get("{}/{}".format(*partition), "")
            if "" not in (epoch, known.kept.epoch) and epoch != known.kept.epoch:
                anew.add(partition)
                report_loss(
                    f"{name_of(partition)} was made anew with {known.kept.entries} entries since"
                    " it was read: the topic was deleted, or the server emptied, and what was not"
                    " read by then is lost",
                    fail=self.options.fail_on_data_loss,
                )
        return anew

    def _waits(self, histories: Histories, starts: Positions, ends: Positions) -> bool:
        """Whether to wait for more events: minOffsetsPerTrigger, for maxTriggerDelay at most."""
        least, now = self.options.min_per_trigger or 0, time.monotonic()
        delay_s = self.options.max_trigger_delay_s or _TRIGGER_DELAY_S
        if self.target is None and now - self.triggered_at < delay_s:
            for partition, end in ends.items():
                least -= histories.walk(partition, starts[partition], end, least)[1] if least else 0
            if least:
                return True
        self.triggered_at = now
        return False

    def _end(self, partition: TopicPartition, known: Bounds, starts: Positions) -> Position:
        end = known.end
        if self.target is not None:
            end = min(end, self.target.get(partition, starts[partition]))
        if known.end < starts[partition] and self.options.fail_on_data_loss:
            topic, number = partition
            raise DataLoss(
                f"the history of topic {show(topic)}, partition {number}, ends at {known.end},"
                f" before {starts[partition]} where this query continues: the server has lost data,"
                " or is another one; set failOnDataLoss to false to wait for newer events"
            )
        return max(end, starts[partition])

    def _spelled(self, positions: Positions, bounds: dict[TopicPartition, Bounds]) -> Offsets:
        offsets: Offsets = {ABOUT: {_NAMESPACE: self.options.settings.namespace}}
        offsets[_EPOCHS] = {
            "{}/{}".format(*p): bounds[p].kept.epoch for p in sorted(positions) if p in bounds
        }
        for (topic, number), position in sorted(positions.items()):
            offsets.setdefault(topic, {})[str(number)] = str(position)
        return offsets

    def _check_origin(self, offsets: dict[str, Any]) -> None:
        namespace = self.options.settings.namespace
        found = offsets.get(ABOUT, {}).get(_NAMESPACE, namespace)
        if found != namespace:
            raise ConfigError(
                f"this checkpoint is of namespace {show(found)}, and the query reads"
                f" {show(namespace)}: give it the namespace it had, or a checkpoint of its own"
            )


@dataclass
class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read with wrong options.

    It raises when it is used: Spark 4.3 loses what is raised while it makes a reader.
    """

    error: RqretryError

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Refuse."""
        with plain_in_worker():
            raise self.error

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Refuse."""
        with plain_in_worker():
            raise self.error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Never called."""
        raise self.error


def _admitted(histories: Histories, starts: Positions, ends: Positions, limit: int) -> Positions:
    """Ends for at most `limit` rows, shared out among the partitions that have any."""
    reached = {partition: starts[partition] for partition in ends}
    left, active = limit, [partition for partition in ends if starts[partition] < ends[partition]]
    while left > 0 and active:
        share = max(1, left // len(active))
        for partition in list(active):
            rows = min(share, left)
            if rows == 0:
                break
            position, taken = histories.walk(partition, reached[partition], ends[partition], rows)
            reached[partition] = position
            left -= taken
            if position >= ends[partition]:
                active.remove(partition)
    return reached
