"""Maintenance of a whole namespace: what every worker does for its own groups, for all groups."""

import time
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from rqretry.catalog.catalog import Catalog
from rqretry.maintenance.due import Due, Maintenance
from rqretry.maintenance.retention import Sweeps
from rqretry.protocol.command import MAX_BATCH, Operation
from rqretry.protocol.keys import GroupKeys

_AT_ONCE = 100


class Round(NamedTuple):
    """What one round moved, and what it saw."""

    promoted: int = 0
    expired: int = 0
    delivered: int = 0
    next_ms: int | None = None
    """Milliseconds until the next message is due; None for none."""
    more: bool = False
    """A batch was full: there may be more that is due already."""

    def plus(self, other: "Round") -> "Round":
        """Both together."""
        nexts = [n for n in (self.next_ms, other.next_ms) if n is not None]
        return Round(
            self.promoted + other.promoted,
            self.expired + other.expired,
            self.delivered + other.delivered,
            min(nexts, default=None),
            self.more or other.more,
        )


class Upkeep:
    """Maintains all groups and partitions; others may do the same at the same time."""

    def __init__(self, catalog: Catalog, worker: str) -> None:
        self._catalog = catalog
        self._maintenance = Maintenance(catalog.topics, worker)
        self._seen: dict[GroupKeys, tuple[int, float]] = {}
        self._sweeps = Sweeps(catalog.topics, catalog.group_keys)

    def round(self) -> Operation[Round]:
        """Look at every partition once; topics and groups are read anew each time."""
        topics = yield from self._catalog.topics.all()
        numbered = [(topic, number) for topic in topics for number in range(topic.partitions)]
        partitions = [self._catalog.partition(topic.name, number) for topic, number in numbered]
        groups = [
            self._catalog.group_keys(topic.name, number, group.name)
            for topic, number in numbered
            for group in topic.members
        ]
        self._seen = {keys: seen for keys, seen in self._seen.items() if keys in set(groups)}
        parts: list[Round] = []
        for start in range(0, len(groups), _AT_ONCE):
            parts += yield from self._move(groups[start : start + _AT_ONCE])
        for start in range(0, len(partitions), _AT_ONCE):
            delivered = yield from self._maintenance.deliver(partitions[start : start + _AT_ONCE])
            parts += [Round(0, 0, d.moved, d.next_ms, d.moved >= MAX_BATCH) for d in delivered]
        if time.monotonic() >= self._sweeps.next_at:
            yield from self._sweeps.round(partitions)
        more = time.monotonic() >= self._sweeps.next_at
        return reduce(Round.plus, parts, Round(more=more))

    def _move(self, groups: Sequence[GroupKeys]) -> Operation[list[Round]]:
        moved = yield from self._maintenance.move([self._due(keys) for keys in groups])
        at = time.monotonic()
        self._seen |= {keys: (m.now_ms, at) for keys, m in zip(groups, moved, strict=True)}
        return [Round(m.promoted, m.expired, 0, m.next_due_ms, m.more) for m in moved]

    def _due(self, keys: GroupKeys) -> Due:
        if keys not in self._seen:
            return Due(keys)
        seen_ms, seen_at = self._seen[keys]
        elapsed_ms = round((time.monotonic() - seen_at) * 1000)
        return Due(keys, seen_ms=seen_ms, elapsed_ms=elapsed_ms)
