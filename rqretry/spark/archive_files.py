"""The archive's files: which events are in which file, as its name says.

A file holds consecutive events of one partition on one day, and is named after the first and the
last of them: `topic=flights/date=2026-11-21/0000-<first>-<last>.parquet`. So writing the same
events again writes the same file, and the names alone show how far the archive reaches.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rqretry.spark.offsets import TopicPartition
from rqretry.spark.parquet_files import SUFFIX, Folder
from rqretry.spark.position import Position

_NAME = re.compile(
    r"topic=([^/]+)/date=([0-9-]{10})/([0-9]{4,})-([0-9]+\.[0-9]+\.[0-9]+)-([0-9]+\.[0-9]+\.[0-9]+)"
    + re.escape(SUFFIX)
)
_INSIDE = ("topic",)
"""Columns of the path; readers of partitioned folders add them."""


class Shelf(NamedTuple):
    """Where one day of one partition lies."""

    topic: str
    partition: int
    date: str

    @property
    def folder(self) -> str:
        """Its folder in the archive."""
        return f"topic={self.topic}/date={self.date}"


class Book(NamedTuple):
    """One file: the events from the first to the last, both in it."""

    shelf: Shelf
    first: Position
    last: Position

    @property
    def file_name(self) -> str:
        """Its name in its folder; names sort as their events do."""
        return f"{self.shelf.partition:04d}-{_spell(self.first)}-{_spell(self.last)}{SUFFIX}"

    @property
    def path(self) -> str:
        """Its path in the archive."""
        return f"{self.shelf.folder}/{self.file_name}"

    def holds(self, other: "Book") -> bool:
        """Whether all events of another file are in this one."""
        return self.shelf == other.shelf and self.first <= other.first and other.last <= self.last


def read_name(path: str) -> Book | None:
    """The events that a path names; None for a file that is not ours."""
    match = _NAME.fullmatch(path)
    if match is None:
        return None
    topic, date, partition, first, last = match.groups()
    return Book(Shelf(topic, int(partition), date), _read(first), _read(last))


def books_in(folder: Folder, below: str = "") -> list[Book]:
    """The files of the archive, in the order of their events."""
    return sorted(book for book in map(read_name, folder.list(below)) if book is not None)


def ends_of(books: Iterable[Book]) -> dict[TopicPartition, Position]:
    """Where the archive of each partition continues."""
    ends: dict[TopicPartition, Position] = {}
    for book in books:
        partition = book.shelf.topic, book.shelf.partition
        after = book.last._replace(item=book.last.item + 1)
        ends[partition] = max(after, ends.get(partition, after))
    return ends


@dataclass(slots=True)
class Stored:
    """What a task wrote."""

    rows: int = 0
    files: int = 0


def store_rows(folder: Folder, batches: Iterable[pa.RecordBatch]) -> Stored:
    """Write events of one partition, in their order; what the archive has is skipped."""
    stored = Stored()
    for shelf, runs in groupby(_runs(batches), itemgetter(0)):
        _store_day(folder, shelf, (part for _, part in runs), stored)
    return stored


def _store_day(
    folder: Folder, shelf: Shelf, parts: Iterator[pa.RecordBatch], stored: Stored
) -> None:
    """One file, unless its events are in a larger one: an earlier run wrote and merged them."""
    part = next(parts)
    first = last = part.column("offset")
    with folder.begin(shelf.folder, part.drop_columns(list(_INSIDE)).schema) as growing:
        for more in chain([part], parts):
            last = more.column("offset")
            growing.add(more.drop_columns(list(_INSIDE)))
        book = Book(shelf, Position.parse(first[0].as_py()), Position.parse(last[-1].as_py()))
        others = books_in(folder, shelf.folder)
        if any(other.holds(book) for other in others if other != book):
            return
        growing.name(book.file_name)
    stored.rows += growing.rows
    stored.files += 1


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Shelf, pa.RecordBatch]]:
    """Batches cut where the day changes; events come in the order of their time."""
    for batch in batches:
        if batch.num_rows == 0:
            continue
        topic, partition = batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()
        times: Any = batch.column("event_time").cast(pa.timestamp("us"))
        days, start = pc.run_end_encode(times.cast(pa.date32())), 0
        for day, end in zip(days.values.to_pylist(), days.run_ends.to_pylist(), strict=True):
            yield Shelf(topic, partition, day.isoformat()), batch.slice(start, end - start)
            start = end


def _spell(position: Position) -> str:
    return f"{position.ms:013d}.{position.number:06d}.{position.item:06d}"


def _read(text: str) -> Position:
    return Position(*map(int, text.split(".")))
