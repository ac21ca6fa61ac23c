"""Entries of the history as columns: one row for each message of an entry.

An entry is one call of one script with its whole batch (lua/include/history.lua). Arrow cuts it
into rows, and repeats what the call has in common; Python touches no row, except in
event_details.py.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rqretry.protocol.history import Entry
from rqretry.spark.event_details import Calls, needed
from rqretry.spark.position import Position

# Where the values are in an entry: names and values come in turn.
VERB, GROUP, WORKER, IDS, NOTES, BLOB, TIMES = 1, 3, 5, 7, 9, 11, 13


class Page:
    """Consecutive entries of one partition, cut to a range of positions.

    Args:
        topic, partition: Where they are from.
        entries: The entries, of which the first and the last may be cut.
        start: The first row wanted, where it lies in the first entry.
        end: The first row not wanted, where it lies in the last entry.

    Attributes:
        rows: How many rows are wanted.
    """

    def __init__(
        self, topic: str, partition: int, entries: Sequence[Entry], start: Position, end: Position
    ) -> None:
        self._topic, self._partition = topic, partition
        self._names = [name for name, _ in entries]
        self._fields = [fields for _, fields in entries]
        batches = pc.split_pattern(pa.array(self._of_calls(IDS), pa.string()), " ")
        self._ids = batches.values
        offsets = batches.offsets.to_numpy().astype(np.int64)
        self._starts, self._counts = offsets[:-1], np.diff(offsets)
        self._entry = np.repeat(np.arange(len(entries)), self._counts)
        self._first, last = 0, len(self._ids)
        if entries and self._names[0].decode() == start.entry:
            self._first = min(start.item, int(self._counts[0]))
        if entries and self._names[-1].decode() == end.entry:
            last = min(int(self._starts[-1]) + end.item, last)
        self.rows = max(0, last - self._first)

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """The rows with these columns, which are columns of the history."""
        details: dict[str, pa.Array] = {}
        calls: Calls | None = None
        for make in needed(schema.names):
            calls = calls or self._calls()
            details |= make(calls)
        columns = [self._column(column, details) for column in schema]
        whole = pa.RecordBatch.from_arrays(columns, schema=schema)
        return whole.slice(self._first, self.rows)

    def _calls(self) -> Calls:
        return Calls(
            self._of_calls(VERB),
            self._of_calls(NOTES),
            self._of_calls(BLOB),
            np.array([int(name.partition(b"-")[0]) for name in self._names], np.int64),
            self._ids,
            self._counts,
            self._starts,
            [fields[TIMES] if len(fields) > TIMES else b"" for fields in self._fields],
        )

    def _column(self, column: pa.Field, details: dict[str, pa.Array]) -> pa.Array:
        makers: dict[str, Callable[[], pa.Array]] = {
            "topic": lambda: pa.repeat(self._topic, len(self._ids)),
            "partition": lambda: pa.repeat(self._partition, len(self._ids)),
            "offset": self._offsets,
            "event": lambda: self._repeated(self._of_calls(VERB), pa.string()),
            "event_time": self._times,
            "entry": self._numbers,
            "message_id": lambda: self._ids,
            "group": lambda: self._texts(GROUP),
            "worker": lambda: self._texts(WORKER),
        }
        made = makers[column.name]() if column.name in makers else details[column.name]
        return made.cast(column.type)

    def _of_calls(self, index: int) -> list[bytes]:
        return [fields[index] for fields in self._fields]

    def _repeated(self, values: Sequence[Any], type_: pa.DataType) -> pa.Array:
        return pa.array(values, type_).take(pa.array(self._entry))

    def _texts(self, index: int) -> pa.Array:
        return self._repeated([text or None for text in self._of_calls(index)], pa.string())

    def _times(self) -> pa.Array:
        ms = [int(name.partition(b"-")[0]) for name in self._names]
        return self._repeated(ms, pa.timestamp("ms", "UTC"))

    def _numbers(self) -> pa.Array:
        numbers = [int(name.partition(b"-")[2]) for name in self._names]
        return self._repeated(numbers, pa.int64())

    def _offsets(self) -> pa.Array:
        indexes = np.arange(len(self._ids)) - np.repeat(self._starts, self._counts)
        numbers = pa.array(np.arange(indexes.max(initial=-1) + 1)).cast(pa.string())
        entries = self._repeated(self._names, pa.string())
        return pc.binary_join_element_wise(entries, numbers.take(pa.array(indexes)), ":")
