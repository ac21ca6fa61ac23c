"""Ranges of the history as Spark reads them: planned on the driver, read in tasks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from rqretry.command import Command
from rqretry.commands import archiving
from rqretry.commands.archiving import Entry
from rqretry.edge.spark.events import Page
from rqretry.edge.spark.filters import Pruning
from rqretry.edge.spark.histories import Histories, Place, check_kept, span
from rqretry.edge.spark.options import Options
from rqretry.edge.spark.positions import Position

_FIRST_FETCH = 64


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
    ends: Mapping[Place, Position], starts: Mapping[Place, Position], at_least: int | None
) -> list[Span]:
    """One span for each partition that has something to read; more where more are wanted."""
    spans = [
        Span(topic, number, starts[topic, number], end)
        for (topic, number), end in ends.items()
        if starts[topic, number] < end
    ]
    if not spans or at_least is None or at_least <= len(spans):
        return spans
    pieces = -(-at_least // len(spans))
    return [piece for whole in spans for piece in _pieces(whole, pieces)]


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
        DataLoss: A part of it was dropped, and failOnDataLoss is set.
    """
    place = part.topic, part.partition
    with Histories(options) as histories:
        position, count = part.start, _FIRST_FETCH
        while position < part.end:
            page = _page(histories, place, position, part.end, count, options)
            rows = Page(*place, pruning.entries(page) if pruning else page, position, part.end)
            if rows.rows:
                yield rows.batch(schema)
            if len(page) < count:
                return
            position = Position.after(page[-1][0].decode())
            per_entry = max(1, rows.rows) / len(page)
            count = max(1, min(options.fetch_size, round(options.fetch_size / per_entry)))


def _page(
    histories: Histories, place: Place, start: Position, end: Position, count: int, options: Options
) -> Sequence[Entry]:
    keys = histories.keys(place)
    # What was kept is asked after the entries: what is dropped in between is noticed.
    look: list[Command[Any]] = [
        archiving.entries(keys, **span(start, end), count=count),
        archiving.kept(keys),
    ]
    page, kept = histories.store.run_all(look)
    if options.fail_on_data_loss:
        check_kept(place, start, kept)
    found: Sequence[Entry] = page
    return found
