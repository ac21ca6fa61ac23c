"""Maintenance of a whole namespace: what every worker does for its own groups, for all groups."""

import logging
import time
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import NamedTuple, TypeVar

from rqretry.catalog.catalog import Catalog
from rqretry.core.back_off import BackOff
from rqretry.core.errors import RqretryError, StoreUnavailable
from rqretry.maintenance.due import Due, Maintenance
from rqretry.maintenance.retention import Sweeps
from rqretry.protocol.command import MAX_BATCH, Operation
from rqretry.protocol.keys import GroupKeys, PartitionKeys
from rqretry.protocol.lease import expected_ms

log = logging.getLogger("rqretry")

_AT_ONCE = 100
K = TypeVar("K", GroupKeys, PartitionKeys)


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
        self._put_off: dict[GroupKeys | PartitionKeys, BackOff] = {}

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
        due = self._ready(groups)
        for start in range(0, len(due), _AT_ONCE):
            parts += yield from self._move(due[start : start + _AT_ONCE])
        open_ = self._ready(partitions)
        for start in range(0, len(open_), _AT_ONCE):
            some = open_[start : start + _AT_ONCE]
            delivered = yield from self._maintenance.deliver(some, self._expected())
            self._judge(some, [d.error for d in delivered])
            parts += [Round(0, 0, d.moved, d.next_ms, d.moved >= MAX_BATCH) for d in delivered]
        if time.monotonic() >= self._sweeps.next_at:
            yield from self._sweeps.round(partitions)
        more = time.monotonic() >= self._sweeps.next_at
        return reduce(Round.plus, parts, Round(more=more))

    def _move(self, groups: Sequence[GroupKeys]) -> Operation[list[Round]]:
        moved = yield from self._maintenance.move([self._due(keys) for keys in groups])
        self._judge(groups, [one.error for one in moved])
        at = time.monotonic()
        seen = zip(groups, moved, strict=True)
        self._seen |= {keys: (one.now_ms, at) for keys, one in seen if one.error is None}
        return [Round(m.promoted, m.expired, 0, m.next_due_ms, m.more) for m in moved]

    def _ready(self, places: Iterable[K]) -> list[K]:
        """Those that are not put off after an error."""
        now = time.monotonic()
        put_off = {keys for keys, one in self._put_off.items() if one.again_at > now}
        return [keys for keys in places if keys not in put_off]

    def _judge(
        self, places: Sequence[GroupKeys | PartitionKeys], errors: Sequence[RqretryError | None]
    ) -> None:
        """Put off those with an error, and no other.

        Raises:
            StoreUnavailable: No server answers.
        """
        away = [error for error in errors if isinstance(error, StoreUnavailable)]
        if len(away) == len(places):
            raise away[0]
        now = time.monotonic()
        for keys, error in zip(places, errors, strict=True):
            if error is None:
                self._put_off.pop(keys, None)
            else:
                log.warning("maintenance of %s failed, trying again: %s", keys, error)
                self._put_off.setdefault(keys, BackOff()).failed(str(error), now)

    def _due(self, keys: GroupKeys) -> Due:
        return Due(keys, expected_ms=self._expected_of(keys))

    def _expected_of(self, keys: GroupKeys) -> int | None:
        return expected_ms(self._seen.get(keys), time.monotonic())

    def _expected(self) -> dict[PartitionKeys, int | None]:
        return {keys.partition: self._expected_of(keys) for keys in self._seen}
