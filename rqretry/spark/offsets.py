"""Where the histories of topics begin and end, and how far a number of rows goes."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rqretry.catalog.catalog import Catalog
from rqretry.core.errors import InvalidArgument, show
from rqretry.core.settings import Settings
from rqretry.core.worker_name import worker_name
from rqretry.protocol import history
from rqretry.protocol.command import Command
from rqretry.protocol.history import Kept
from rqretry.protocol.keys import PartitionKeys
from rqretry.spark.events import IDS
from rqretry.spark.options import Options
from rqretry.spark.position import EARLIEST, LATEST, Offsets, Position, Wanted
from rqretry.transport.store_sync import SyncStore, reach

TopicPartition = tuple[str, int]
"""A topic and the number of a partition."""
Positions = dict[TopicPartition, Position]
_WALKED = 500


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a partition keeps: positions from `begin` up to `end`."""

    begin: Position
    end: Position
    kept: Kept

    def share(self, start: Position, end: Position) -> float:
        """About how many bytes lie between two positions, if events came evenly."""
        read_ms = min(end, self.end).ms - max(start, self.begin).ms
        return self.kept.bytes * max(0, read_ms) / max(1, self.end.ms - self.begin.ms)


@contextmanager
def connected(settings: Settings) -> Iterator[tuple[SyncStore, Catalog]]:
    """A connection that has reached its server, and the catalog of the namespace."""
    with SyncStore(settings.url) as store:
        reach(store)
        yield store, Catalog(settings.namespace, settings.levels, worker_name())


@contextmanager
def histories_of(options: Options) -> Iterator["Histories"]:
    """The histories that a read is about."""
    with connected(options.settings) as (store, catalog):
        yield Histories(options, store, catalog)


@dataclass(slots=True)
class Histories:
    """The histories that a read is about, over a connection."""

    options: Options
    store: SyncStore
    catalog: Catalog

    def partitions(self) -> list[TopicPartition]:
        """Every partition of the requested topics. Raises TopicNotFound."""
        wanted = self.options.topics
        if wanted is None:
            pattern = re.compile(self.options.pattern or ".*")
            records = self.store.perform(self.catalog.topics.all())
            records = [record for record in records if pattern.fullmatch(record.name)]
        else:
            records = [self.store.perform(self.catalog.store.topic(name)) for name in wanted]
        return [(record.name, n) for record in records for n in range(record.partitions)]

    def keys(self, partition: TopicPartition) -> PartitionKeys:
        """The keys of a partition."""
        return self.catalog.partition(*partition)

    def bounds(self) -> dict[TopicPartition, Bounds]:
        """Where the history of each partition begins and ends now. Raises TopicNotFound."""
        found = self.partitions()
        commands: list[Command[Any]] = []
        for keys in map(self.keys, found):
            commands += (history.first_entry(keys), history.kept(keys), history.last_entry(keys))
        replies = iter(self.store.run_all(commands) if commands else ())
        triples = zip(found, replies, replies, replies, strict=True)
        return {partition: _bounds(*triple) for partition, *triple in triples}

    def ends(self) -> Positions:
        """Where the history of each partition ends now. Raises TopicNotFound."""
        return {partition: known.end for partition, known in self.bounds().items()}

    def resolve(
        self, name: str, wanted: Wanted, bounds: Mapping[TopicPartition, Bounds]
    ) -> Positions:
        """The positions that startingOffsets or endingOffsets name.

        What a JSON does not name begins at the earliest, or ends at the latest.

        Raises:
            InvalidArgument: It names a partition that there is not.
        """
        named: Offsets = {} if isinstance(wanted, str) else wanted
        rest = LATEST if name == "endingOffsets" else EARLIEST
        default = wanted if isinstance(wanted, str) else rest
        for topic, parts in named.items():
            for number in parts:
                if (topic, int(number)) not in bounds:
                    raise InvalidArgument(
                        f"option {name} names partition {number} of topic {show(topic)}, which is"
                        " not read here: there is no such partition, or option topic leaves it out"
                    )
        return {
            partition: _position(named.get(partition[0], {}).get(str(partition[1]), default), known)
            for partition, known in bounds.items()
        }

    def walk(
        self, partition: TopicPartition, start: Position, end: Position, rows: int
    ) -> tuple[Position, int]:
        """How far `rows` rows go from a position, and how many there are if `end` comes first."""
        keys, taken = self.keys(partition), 0
        while start < end:
            page = self.store.run(history.entries(keys, **span(start, end), count=_WALKED))
            for entry_id, fields in page:
                name = entry_id.decode()
                first = start.item if name == start.entry else 0
                last = fields[IDS].count(b" ") + 1
                last = min(last, end.item) if name == end.entry else last
                if taken + last - first > rows:
                    return Position.parse(f"{name}:{first + rows - taken}"), rows
                taken += last - first
            if len(page) < _WALKED:
                break
            start = Position.after(page[-1][0].decode())
        return end, taken


def span(start: Position, end: Position) -> dict[str, str]:
    """The stream ids between two positions, as XRANGE takes them."""
    return {"start": start.entry, "end": end.entry if end.item else f"({end.entry}"}


def _bounds(first: str, kept: Kept, last: str) -> Bounds:
    lost = Position.after(kept.lost) if kept.lost else Position()
    end = Position.after(last) if last else lost
    begin = Position.parse(first) if first else end
    return Bounds(begin, max(begin, end), kept)


def _position(text: str, known: Bounds) -> Position:
    if text == EARLIEST:
        return known.begin
    position = known.end if text == LATEST else Position.parse(text)
    return position if position.number or position.item else min(position, known.end)
