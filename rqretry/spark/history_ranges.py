"""Ranges of the history as Spark reads them: planned on the driver, read in tasks."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
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
_SHARED_BYTES = 1024 * 1024
"""About how much of it spans that share such a task have together."""
_SHARED_ENTRIES = 1000
"""How many entries spans that share a task of a stream have together."""


@dataclass(frozen=True, slots=True)
class Span:
    """A part of one partition's history.

    Attributes:
        topic, partition: Whose it is.
        start, end: From which event, up to which.
    """

    topic: str
    partition: int
    start: Position
    end: Position

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] {self.start}..{self.end}"

    @property
    def entries(self) -> float:
        """How many entries it has; infinite where it begins at a time."""
        if self.start.number or not self.start.ms:
            return self.end.number + (self.end.item > 0) - max(1, self.start.number)
        return math.inf


@dataclass
class Spans(InputPartition):
    """What one task reads, one after the other."""

    spans: list[Span]

    def __repr__(self) -> str:
        return ", ".join(map(str, self.spans))


def plan_batch(spans: Mapping[Span, float], at_least: int | None) -> list[Spans]:
    """The tasks of a batch: large spans are cut, small ones share a task.

    Args:
        spans: One for each partition, by topic, with about how many bytes it has.
        at_least: How many tasks are wanted, if there is so much to read; none is shared then.
    """
    full = {part: size for part, size in spans.items() if part.start < part.end}
    wanted, pieces = _wanted(full, at_least), dict[Span, float]()
    for part, size in full.items():
        count = max(wanted, round(size / _TASK_BYTES))
        pieces |= dict.fromkeys(_pieces(part, count), size / count)
    return _alone(pieces) if at_least else [*_share_tasks(pieces, _SHARED_BYTES)]


def plan_stream(spans: Iterable[Span], at_least: int | None) -> list[Spans]:
    """The tasks of a micro-batch, which are the same when it is run again.

    So they depend on nothing but the offsets. The rows of a partition are read in their order
    unless more tasks are wanted.

    Args:
        spans: One for each partition, by topic.
        at_least: How many tasks are wanted, if there is so much to read; none is shared then.
    """
    full = [part for part in spans if part.start < part.end]
    wanted = _wanted(full, at_least)
    pieces = {piece: part.entries / wanted for part in full for piece in _pieces(part, wanted)}
    return _alone(pieces) if at_least else [*_share_tasks(pieces, _SHARED_ENTRIES)]


def _wanted(spans: Collection[Span], at_least: int | None) -> int:
    """How many pieces of each span."""
    return -(-(at_least or 1) // max(1, len(spans)))


def _pieces(whole: Span, count: int) -> Iterator[Span]:
    """Cut a span at equal distances in time; a piece may turn out to be empty."""
    first, last = whole.start, whole.end
    width = last.ms - first.ms
    cuts = sorted({first.ms + width * n // count for n in range(1, count)} - {first.ms})
    edges = [first, *(Position(ms) for ms in cuts if first < Position(ms) < last), last]
    for start, end in pairwise(edges):
        yield Span(whole.topic, whole.partition, start, end)


def _alone(spans: Iterable[Span]) -> list[Spans]:
    return [Spans([part]) for part in spans]


def _share_tasks(spans: Mapping[Span, float], room: float) -> Iterator[Spans]:
    """Fill tasks with spans, given with their sizes; a topic that fits in a task stays together.

    So a quiet system takes few tasks, and writes one file of each topic.
    """
    task, left = Spans([]), room
    for _, found in groupby(spans, key=lambda part: part.topic):
        mine = list(found)
        whole = sum(spans[part] for part in mine)
        for part in mine:
            needed = whole if part is mine[0] and whole <= room else spans[part]
            if task.spans and left < needed:
                yield task
                task, left = Spans([]), room
            task.spans.append(part)
            left -= spans[part]
    if task.spans:
        yield task


def read_spans(
    options: Options, task: Spans, schema: pa.Schema, pruning: Pruning | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of some spans, page by page.

    Raises:
        DataLoss: A part of them is not there, and failOnDataLoss is set.
    """
    # The next page is on its way while Arrow and Spark work on this one.
    with histories_of(options) as histories, ThreadPoolExecutor(1) as fetcher:
        for part in task.spans:
            for page in _pages(histories, part, fetcher):
                entries = pruning.entries(page) if pruning else page
                rows = Page(part.topic, part.partition, entries, part.start, part.end)
                if rows.rows:
                    yield rows.batch(schema)


def _pages(
    histories: Histories, part: Span, fetcher: ThreadPoolExecutor
) -> Iterator[Sequence[Entry]]:
    partition = part.topic, part.partition
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
            count = _entries_for(histories.options.fetch_size, page)
            coming = fetcher.submit(fetch, position, count)
        yield page
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
