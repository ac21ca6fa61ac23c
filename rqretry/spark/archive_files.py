"""The archive's files: which events are in which file, as its name says.

A file holds consecutive events of one partition on one day, and is named after the first and the
last of them: `topic=flights/date=2026-11-21/0000-<first>-<last>.parquet`. So writing the same
events again writes the same file, and the names alone show how far the archive reaches.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from rqretry.spark.offsets import TopicPartition
from rqretry.spark.parquet_files import SUFFIX, Folder, Growing
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
    shelf: Shelf | None = None
    growing: Growing | None = None
    first = last = ""
    try:
        for here, part in _runs(batches):
            offsets = part.column("offset")
            table = part.drop_columns(list(_INSIDE))
            if growing is not None and shelf is not None and here != shelf:
                _finish(folder, growing, Book(shelf, _parse(first), _parse(last)), stored)
                growing = None
            if growing is None:
                shelf, first = here, offsets[0].as_py()
                growing = folder.begin(here.folder, table.schema)
            growing.add(table)
            last = offsets[-1].as_py()
        if growing is not None and shelf is not None:
            _finish(folder, growing, Book(shelf, _parse(first), _parse(last)), stored)
    except BaseException:
        if growing is not None:
            growing.drop()
        raise
    return stored


def _finish(folder: Folder, growing: Growing, book: Book, stored: Stored) -> None:
    """Name a file, unless its events are in a larger one: an earlier run wrote and merged them."""
    others = [other for other in books_in(folder, book.shelf.folder) if other != book]
    if any(other.holds(book) for other in others):
        growing.drop()
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
        days: Any = batch.column("event_time").cast(pa.timestamp("us")).cast(pa.date32())
        dates, start = days.dictionary_encode(), 0
        names = dates.dictionary.to_pylist()
        if len(names) == 1:
            yield Shelf(topic, partition, names[0].isoformat()), batch
            continue
        runs = dates.indices.to_pylist()
        for end in range(1, len(runs) + 1):
            if end == len(runs) or runs[end] != runs[start]:
                shelf = Shelf(topic, partition, names[runs[start]].isoformat())
                yield shelf, batch.slice(start, end - start)
                start = end


def _spell(position: Position) -> str:
    return f"{position.ms:013d}.{position.number:06d}.{position.item:06d}"


def _read(text: str) -> Position:
    return Position(*map(int, text.split(".")))


def _parse(offset: str) -> Position:
    return Position.parse(offset)
