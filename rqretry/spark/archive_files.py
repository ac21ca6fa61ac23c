"""The archive as Parquet files: which events are in which file, as its name says.

A file holds events of one partition on one day, and is named after the first and the last of them:
`topic=flights/date=2026-11-21/0000-<first>-<last>.parquet`. Where few events came, those of several
partitions share a file, whose name ends with a digest of such ranges. So writing the same events
again makes the same name. Spark writes the files of a batch in a hidden folder first; each then
gets its name, whole and at once, and is never changed, merged or deleted (docs/decisions/0122): no
reader sees an event twice, or misses one.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from rqretry.spark.columns import schema_of
from rqretry.spark.hadoop_folder import HIDDEN, HadoopFolder
from rqretry.spark.offsets import Positions, TopicPartition
from rqretry.spark.options import ALL_TOPICS, read_options
from rqretry.spark.position import Position, read_positions

SUFFIX = ".parquet"
POSITION = """struct(CAST(split(offset, '[-:]')[0] AS BIGINT) AS ms,
       CAST(split(offset, '[-:]')[1] AS BIGINT) AS number,
       CAST(split(offset, '[-:]')[2] AS BIGINT) AS item)"""
"""The position of an event, in Spark SQL."""
_DAY = "date_from_unix_date(CAST(unix_seconds(event_time) DIV 86400 AS INT))"
_NAME = re.compile(
    r"topic=([^/]+)/date=([0-9-]{10})/([0-9]{4,})-([0-9]+\.[0-9]+\.[0-9]+)-([0-9]+\.[0-9]+\.[0-9]+)"
    + re.escape(SUFFIX)
)
_SHARED = "shared"
CHECKPOINT = f"{HIDDEN}checkpoint"


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
    def path(self) -> str:
        """Its path in the archive; names sort as their events do."""
        name = f"{self.shelf.partition:04d}-{_spell(self.first)}-{_spell(self.last)}{SUFFIX}"
        return f"{self.shelf.folder}/{name}"

    def holds(self, other: "Book") -> bool:
        """Whether all events of another file are in this one."""
        return self.shelf == other.shelf and self.first <= other.first and other.last <= self.last


class Stored(NamedTuple):
    """What a batch added."""

    events: int = 0
    files: int = 0


class StagedFile(NamedTuple):
    """A file of a batch that is not in the archive yet.

    Attributes:
        books: What it holds of each partition.
        path: Where it is among the others.
        events, bytes: How many.
    """

    books: tuple[Book, ...]
    path: str
    events: int
    bytes: int

    @property
    def name(self) -> str:
        """Its path in the archive."""
        if len(self.books) == 1:
            return self.books[0].path
        ranges = " ".join(book.path for book in self.books)
        first, last = min(book.first for book in self.books), max(book.last for book in self.books)
        digest = hashlib.sha256(ranges.encode()).hexdigest()[:16]
        name = f"{_SHARED}-{_spell(first)}-{_spell(last)}-{digest}{SUFFIX}"
        return f"{self.books[0].shelf.folder}/{name}"


class ParquetFiles:
    """An archive of files that any reader of Parquet understands.

    Args:
        spark: The session.
        folder: Where it is, or will be.
    """

    def __init__(self, spark: SparkSession, folder: HadoopFolder) -> None:
        self._spark, self.folder = spark, folder

    def ends(self) -> Positions:
        """Where the archive of each partition continues."""
        known = committed(self.folder)
        if known is not None:
            return known
        ends, shared = ends_of(self._books()), self._shared()
        return ends | last_events(read_files(self._spark, self.folder, shared), ends)

    def store(self, batch: DataFrame, number: int, query: str) -> Stored:  # noqa: ARG002 - known by name
        """Add a batch; what the archive has is skipped."""
        events = files = 0
        with staged(self.folder, batch) as (folder, found):
            for one in sorted(found):
                if not self.folder.has(one.name):
                    self.folder.take(folder, one.path, one.name)
                    events, files = events + one.events, files + 1
        return Stored(events, files)

    def rows(self) -> DataFrame | None:
        """Each event once, though an earlier release may have left what it had merged."""
        books, shared, kept = self._books(), self._shared(), list[Book]()
        for book in sorted(books, key=lambda one: (one.shelf, one.first, [-n for n in one.last])):
            if not kept or not kept[-1].holds(book):
                kept.append(book)
        if not (books or shared):
            return None
        names = [*(book.path for book in kept), *shared]
        return read_files(self._spark, self.folder, [""] if len(kept) == len(books) else names)

    def compact(self) -> int:
        """Files of which nobody keeps a list are left as they are."""
        return 0

    def _books(self) -> list[Book]:
        names = self.folder.list(f"topic=*/date=*/*{SUFFIX}")
        return [book for book in map(read_name, names) if book is not None]

    def _shared(self) -> list[str]:
        return self.folder.list(f"topic=*/date=*/{_SHARED}-*{SUFFIX}")


@contextmanager
def staged(
    folder: HadoopFolder, batch: DataFrame
) -> Iterator[tuple[HadoopFolder, list[StagedFile]]]:
    """A batch as files that are not in the archive yet, with their folder."""
    place, spark = folder.beside("staged"), batch.sparkSession
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    writer = dated(batch).write.mode("overwrite").option("compression", "zstd")
    writer.partitionBy("topic", "date").parquet(place.uri)
    found: list[StagedFile] = []
    if place.list("topic=*"):
        file = fn.col("_metadata.file_path"), fn.col("_metadata.file_size"), fn.col("partition")
        last = fn.expr(POSITION)
        ranges = spark.read.parquet(place.pattern).groupBy(*file)
        sums = ranges.agg(fn.count("*"), fn.min(last), fn.max(last)).collect()
        found = [*_staged_files(sums)]
    try:
        yield place, found
    finally:
        place.delete()


def dated(batch: DataFrame) -> DataFrame:
    """The rows with their day in UTC, whatever the time zone of the session."""
    return batch.withColumn("date", fn.expr(_DAY))


def read_files(spark: SparkSession, folder: HadoopFolder, names: Iterable[str]) -> DataFrame:
    """The events of some files, or of all in a folder, that belong to an archive."""
    columns = schema_of(read_options({"topic": ALL_TOPICS}))
    paths = [f"{folder.pattern}/{name}" for name in names]
    if not paths:
        return spark.createDataFrame([], columns)
    rows = spark.read.schema(columns).option("basePath", folder.uri).parquet(*paths)
    return rows.select(columns.names)


def read_name(path: str) -> Book | None:
    """The events that a path names; None for a file that is not ours."""
    match = _NAME.fullmatch(path)
    if match is None:
        return None
    topic, date, partition, first, last = match.groups()
    return Book(Shelf(topic, int(partition), date), _read(first), _read(last))


def committed(folder: HadoopFolder) -> Positions | None:
    """How far the query of an archive has committed; None without its checkpoint."""
    commits = folder.list(f"{CHECKPOINT}/commits/[0-9]*")
    if not commits:
        return None
    last = max(int(name.rpartition("/")[2]) for name in commits)
    *_, offsets = folder.read(f"{CHECKPOINT}/offsets/{last}").splitlines()
    return read_positions(json.loads(offsets))


def last_events(rows: DataFrame, known: Positions) -> Positions:
    """Behind the last event of each partition that is in some rows, unless more is known."""
    found = rows.groupBy("topic", "partition").agg(fn.max(fn.expr(POSITION))).collect()
    ends = {(topic, number): Position(*last) for topic, number, last in found}
    return {
        which: max(last._replace(item=last.item + 1), known.get(which, Position()))
        for which, last in ends.items()
    }


def ends_of(books: Iterable[Book]) -> Positions:
    """Behind the last event of each partition."""
    ends: Positions = {}
    for book in books:
        partition: TopicPartition = book.shelf.topic, book.shelf.partition
        after = book.last._replace(item=book.last.item + 1)
        ends[partition] = max(after, ends.get(partition, after))
    return ends


def _staged_files(sums: Iterable[Any]) -> Iterator[StagedFile]:
    """What was found of each file and partition, by file."""
    for (file, size), rows in groupby(sorted(sums), key=itemgetter(0, 1)):
        topic, date, name = file.split("/")[-3:]
        books, events = list[Book](), 0
        for _, _, partition, count, first, last in rows:
            shelf = Shelf(topic.partition("=")[2], partition, date.partition("=")[2])
            books.append(Book(shelf, Position(*first), Position(*last)))
            events += count
        yield StagedFile(tuple(books), f"{topic}/{date}/{name}", events, size)


def _spell(position: Position) -> str:
    return f"{position.ms:013d}.{position.number:06d}.{position.item:06d}"


def _read(text: str) -> Position:
    return Position(*map(int, text.split(".")))
