"""Filters that Spark offers: they prune what is read; Spark applies each of them again."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from rqretry.protocol.history import Entry
from rqretry.spark.events import GROUP, IDS, VERB
from rqretry.spark.position import Position

_FIELDS = {"event": VERB, "group": GROUP}


@dataclass
class Pruning:
    """What the filters of a batch read rule out.

    Attributes:
        values: The values that a column may have, for columns that were compared with constants.
        since, until: The times between which, both included, events are wanted; milliseconds.
    """

    values: dict[str, frozenset[Any]] = field(default_factory=dict)
    since: int | None = None
    until: int | None = None

    def push(self, filters: Iterable[Filter]) -> None:
        """Take what can be used of these filters."""
        for one in filters:
            if isinstance(one, EqualTo | In):
                values = one.value if isinstance(one, In) else (one.value,)
                self._only(one.attribute, frozenset(values))
            elif isinstance(one, GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
                self._between(one)

    def takes(self, topic: str, partition: int) -> bool:
        """Whether a partition may have wanted rows."""
        return topic in self.values.get("topic", {topic}) and partition in self.values.get(
            "partition", {partition}
        )

    def takes_group(self, name: str) -> bool:
        """Whether a group may have rows that are wanted."""
        return name in self.values.get("group", {name})

    def clip(self, start: Position, end: Position) -> tuple[Position, Position]:
        """The part of a range that may have wanted rows."""
        if self.since is not None:
            start = max(start, Position(max(0, self.since)))
        if self.until is not None:
            end = min(end, Position(max(0, self.until + 1)))
        return start, max(start, end)

    def entries(self, page: Sequence[Entry]) -> Sequence[Entry]:
        """The entries that may have wanted rows."""
        tests: list[Callable[[list[bytes]], bool]] = []
        for name, index in _FIELDS.items():
            if name in self.values:
                tests.append(_one_of(index, self.values[name]))
        if "message_id" in self.values:
            tests.append(_any_id(self.values["message_id"]))
        if not tests:
            return page
        return [entry for entry in page if all(test(entry[1]) for test in tests)]

    def _only(self, attribute: tuple[str, ...], values: frozenset[Any]) -> None:
        (name, *inner) = attribute
        if not inner:
            self.values[name] = self.values.get(name, values) & values

    def _between(self, one: Any) -> None:
        if one.attribute != ("event_time",) or not isinstance(one.value, datetime):
            return
        moment = one.value if one.value.tzinfo else one.value.astimezone(UTC)
        ms = int(moment.timestamp() * 1000)
        # A millisecond more on either side: Spark compares again, and more closely.
        if isinstance(one, GreaterThan | GreaterThanOrEqual):
            self.since = max(self.since or 0, ms - 1)
        else:
            self.until = ms + 1 if self.until is None else min(self.until, ms + 1)


def _one_of(index: int, wanted: frozenset[Any]) -> Callable[[list[bytes]], bool]:
    values = {str(value).encode() for value in wanted}
    return lambda fields: fields[index] in values


def _any_id(wanted: frozenset[Any]) -> Callable[[list[bytes]], bool]:
    values = [str(value).encode() for value in wanted]
    return lambda fields: any(value in fields[IDS] for value in values)
