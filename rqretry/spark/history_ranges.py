"""Ranges of the history as Spark reads them: planned on the driver, read in tasks."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from rqretry.protocol import history
from rqretry.protocol.command import Command
from rqretry.protocol.history import Entry
from rqretry.spark.continuity import Numbering, check_trimmed
from rqretry.spark.events import IDS, Page
from rqretry.spark.filters import Pruning
from rqretry.spark.offsets import Histories, TopicPartition, histories_of, span
from rqretry.spark.options import Options
from rqretry.spark.position import Position

_FIRST_FETCH = 64
_TASK_BYTES = 4 * 1024 * 1024
"""About how much of the history one task of a batch reads: half a second of work."""


@dataclass
class Span(InputPartition):
    """A part of one partition's history, for one task."""

    topic: str
    partition: int
    start: Position
    end: Position

    def __repr__(self) -> str:
        return f"{self.topic}[{self.partition}] {self.start}..{self.end}"


def plan(
    ends: Mapping[TopicPartition, Position],
    starts: Mapping[TopicPartition, Position],
    at_least: int | None,
    sizes: Mapping[TopicPartition, float] | None = None,
) -> list[Span]:
    """One span for each partition that has something to read; more where more are wanted.

    Args:
        ends: Where the read of each partition ends.
        starts: Where it begins.
        at_least: How many spans are wanted, if there is so much to read.
        sizes: About how many bytes of each partition are to be read: it is cut into spans that are
            not too large. None: its rows are wanted in their order, in one span.
    """
    partitions = [partition for partition, end in ends.items() if starts[partition] < end]
    wanted = -(-(at_least or 1) // max(1, len(partitions)))
    spans: list[Span] = []
    for partition in partitions:
        whole = Span(*partition, starts[partition], ends[partition])
        pieces = max(wanted, round((sizes or {}).get(partition, 0) / _TASK_BYTES))
        spans += _pieces(whole, pieces) if pieces > 1 else [whole]
    return spans


def _pieces(whole: Span, count: int) -> Iterator[Span]:
    """Cut a span at equal distances in time; a piece may turn out to be empty."""
    first, last = whole.start, whole.end
    width = last.ms - first.ms
    cuts = sorted({first.ms + width * n // count for n in range(1, count)} - {first.ms})
    edges = [first, *(Position(ms) for ms in cuts if first < Position(ms) < last), last]
    for start, end in pairwise(edges):
        yield Span(whole.topic, whole.partition, start, end)


def read_span(
    options: Options, part: Span, schema: pa.Schema, pruning: Pruning | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a span, page by page.

    Raises:
        DataLoss: A part of it is not there, and failOnDataLoss is set.
    """
    partition = part.topic, part.partition
    # The next page is on its way while Arrow and Spark work on this one.
    with histories_of(options) as histories, ThreadPoolExecutor(1) as fetcher:
        position, count = part.start, _FIRST_FETCH
        numbering = Numbering.at(histories, partition, position)
        fetch = partial(_page, histories, partition, part.end)
        coming = fetcher.submit(fetch, position, count)
        while position < part.end:
            page = coming.result()
            numbering.check(page)
            more = len(page) == count
            if more:
                position = Position.after(page[-1][0].decode())
                count = _entries_for(options.fetch_size, page)
                coming = fetcher.submit(fetch, position, count)
            entries = pruning.entries(page) if pruning else page
            rows = Page(*partition, entries, part.start, part.end)
            if rows.rows:
                yield rows.batch(schema)
            if not more:
                numbering.ends(part.end.number and part.end.number + (part.end.item > 0))
                return


def _entries_for(rows: int, page: Sequence[Entry]) -> int:
    """How many entries have about this many rows, if they resemble these."""
    here = sum(fields[IDS].count(b" ") + 1 for _, fields in page)
    return max(1, min(rows, round(rows * len(page) / here)))


def _page(
    histories: Histories, partition: TopicPartition, end: Position, start: Position, count: int
) -> Sequence[Entry]:
    keys = histories.keys(partition)
    # What was kept is asked after the entries: what is dropped in between is noticed.
    look: list[Command[Any]] = [
        history.entries(keys, **span(start, end), count=count),
        history.kept(keys),
    ]
    page, kept = histories.store.run_all(look)
    if histories.options.fail_on_data_loss:
        check_trimmed(partition, start, kept)
    found: Sequence[Entry] = page
    return found
