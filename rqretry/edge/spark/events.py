"""Entries of the history as columns: one row for each message of an entry.

An entry is one call of one script with its whole batch (lua/include/history.lua), so what the call
has in common is repeated by Arrow, and Python touches a message only where the entry says something
of that message alone (details.py).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rqretry.commands.archiving import Entry
from rqretry.edge.spark.details import Call, Details
from rqretry.edge.spark.positions import Position

# Where the values are in an entry: names and values come in turn.
VERB, GROUP, WORKER, IDS, NOTES, BLOB = 1, 3, 5, 7, 9, 11
_DETAILED = frozenset(
    {"attempt", "outcome", "error_type", "error_message", "fingerprint", "level", "due_time"}
    | {"trace_id", "tag", "keys", "message_group"}
)


class Page:
    """Consecutive entries of one partition, cut to a range of positions.

    Args:
        topic, partition: Where they are from.
        entries: The entries, of which the first and the last may be cut.
        start: The first row wanted, where it lies in the first entry.
        end: The first row not wanted, where it lies in the last entry.
    """

    def __init__(
        self, topic: str, partition: int, entries: Sequence[Entry], start: Position, end: Position
    ) -> None:
        self._topic, self._partition = topic, partition
        self._names = [name for name, _ in entries]
        self._fields = [fields for _, fields in entries]
        self._ids = [fields[IDS].split(b" ") for fields in self._fields]
        first, last = [0] * len(entries), [len(batch) for batch in self._ids]
        if entries and self._names[0].decode() == start.entry:
            first[0] = min(start.place, last[0])
        if entries and self._names[-1].decode() == end.entry:
            last[-1] = max(first[-1], min(end.place, last[-1]))
        self._first, self._last = first, last
        counts = [b - a for a, b in zip(first, last, strict=True)]
        self._repeat = pa.array(np.repeat(np.arange(len(counts)), counts))
        self.rows = len(self._repeat)

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """The rows with these columns, which are columns of the history."""
        details = Details()
        if not _DETAILED.isdisjoint(schema.names):
            for call in self._calls():
                details.add(call)
        columns = [self._column(field, details) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _calls(self) -> list[Call]:
        rows = zip(self._names, self._fields, self._ids, self._first, self._last, strict=True)
        return [
            Call(
                fields[VERB].decode(),
                int(name.partition(b"-")[0]),
                ids,
                fields[NOTES],
                fields[BLOB],
                first,
                last,
            )
            for name, fields, ids, first, last in rows
            if last > first
        ]

    def _column(self, field: pa.Field, details: Details) -> pa.Array:
        if field.name in _DETAILED:
            values = details.column(field.name)
            if values is None:
                return pa.nulls(self.rows, field.type)
            if field.name == "due_time":
                return pa.array(values, pa.timestamp("ms", "UTC")).cast(field.type)
            return pa.array(values, field.type)
        makers: dict[str, Callable[[], pa.Array]] = {
            "topic": lambda: pa.repeat(self._topic, self.rows),
            "partition": lambda: pa.repeat(pa.scalar(self._partition, field.type), self.rows),
            "offset": self._offsets,
            "event": lambda: self._of_entry(VERB),
            "event_time": self._times,
            "message_id": self._message_ids,
            "group": lambda: self._of_entry(GROUP),
            "worker": lambda: self._of_entry(WORKER),
        }
        made: pa.Array = makers[field.name]().cast(field.type)
        return made

    def _repeated(self, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind).take(self._repeat)

    def _of_entry(self, place: int) -> pa.Array:
        return self._repeated([fields[place] or None for fields in self._fields], pa.string())

    def _times(self) -> pa.Array:
        ms = [int(name.partition(b"-")[0]) for name in self._names]
        return self._repeated(ms, pa.timestamp("ms", "UTC"))

    def _message_ids(self) -> pa.Array:
        ids: list[bytes] = []
        for batch, first, last in zip(self._ids, self._first, self._last, strict=True):
            ids += batch[first:last]
        return pa.array(ids, pa.string())

    def _offsets(self) -> pa.Array:
        places: list[int] = []
        for first, last in zip(self._first, self._last, strict=True):
            places += range(first, last)
        numbers = pa.array(places, pa.int64()).cast(pa.string())
        entries = self._repeated(self._names, pa.string())
        joined: pa.Array = pc.binary_join_element_wise(entries, numbers, ":")
        return joined
