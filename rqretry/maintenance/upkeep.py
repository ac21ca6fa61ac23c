"""Maintenance of a whole namespace: what every worker does for its own groups, for all groups."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple, TypeVar

from rqretry.catalog.catalog import Catalog
from rqretry.core.back_off import BackOff
from rqretry.core.errors import RqretryError, StoreUnavailable
from rqretry.maintenance.due import Due, Maintenance, Moved
from rqretry.maintenance.quiet import any_key, holding
from rqretry.maintenance.retention import Sweeps
from rqretry.protocol.command import Command, Each, Operation, batches, query
from rqretry.protocol.keys import GroupKeys, PartitionKeys
from rqretry.protocol.lease import expected_ms

log = logging.getLogger("rqretry")

_AT_ONCE = 100
_ASKED, _ASKED_APART = 1000, 50
"""About how many quiet partitions one command asks; on a cluster, how many commands a round."""
_READ_PER_S = 2000
"""Of so many partitions the topics are read each second, of twice as many every other second."""
_LATELY_S, _LATELY_MOST, _OTHERS_MOST = 60.0, 50, 2
"""Where something was moved so lately is looked at in each round, if it is in so few; of the others
so many are."""
_STUCK_MS = 1000
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


@dataclass(slots=True)
class _Known:
    """A partition in which something is under a lease, waits, or is scheduled."""

    next_at: float
    """When something falls due there, as it was seen last (monotonic)."""
    looked_at: float = 0.0
    changed_at: float = field(default_factory=time.monotonic)
    """When something was last moved there."""


class Upkeep:
    """Maintains all groups and partitions; others may do the same at the same time.

    A round costs what is due. Partitions that hold nothing which could fall due are asked about by
    the hundred, on a cluster one by one and then some in each round. Of those that hold something,
    a round looks at those where it is due, at those where something happened lately, and at a few
    of the others, since their next time may have changed.

    Args:
        catalog: The catalog.
        worker: Who does it, for the history.
        spread: Whether two partitions may be on two servers.
        chance: What jitter is drawn from; default at random.
    """

    def __init__(
        self,
        catalog: Catalog,
        worker: str,
        *,
        spread: bool = False,
        chance: Callable[[], float] | None = None,
    ) -> None:
        self._catalog = catalog
        self._spread = spread
        self._maintenance = Maintenance(catalog.topics, worker, chance)
        self._seen: dict[GroupKeys, tuple[int, float]] = {}
        self._sweeps = Sweeps(catalog.topics, catalog.group_keys, together=not spread)
        self._put_off: dict[GroupKeys | PartitionKeys, BackOff] = {}
        self._groups: dict[PartitionKeys, list[GroupKeys]] = {}
        """All partitions, with the groups in each; those asked about last are at the end."""
        self._read_at = -math.inf
        self._known: dict[PartitionKeys, _Known] = {}

    def round(self) -> Operation[Round]:
        """Do what is due, and look for what will be."""
        first = not self._groups
        yield from self._read_catalog()
        yield from self._find(all_of_them=first or not self._spread)
        parts: list[Round] = []
        due = self._chosen()
        for some in batches(due, _AT_ONCE):
            parts += yield from self._look(some)
        if time.monotonic() >= self._sweeps.next_at:
            yield from self._sweeps.round(self._groups)
        now = time.monotonic()
        next_at = min((known.next_at for known in self._known.values()), default=None)
        next_ms = None if next_at is None else max(0, round((next_at - now) * 1000))
        return reduce(Round.plus, parts, Round(next_ms=next_ms, more=now >= self._sweeps.next_at))

    def _read_catalog(self) -> Operation[None]:
        """Topics and groups as they are now; where they are very many, not in every round."""
        now = time.monotonic()
        if now < self._read_at + len(self._groups) / _READ_PER_S:
            return
        topics = yield from self._catalog.topics.all()
        self._read_at = now
        groups_of = {
            self._catalog.partition(topic.name, number): [
                self._catalog.group_keys(topic.name, number, group.name) for group in topic.members
            ]
            for topic in topics
            for number in range(topic.partitions)
        }
        there = [keys for keys in self._groups if keys in groups_of]
        self._groups = {keys: groups_of[keys] for keys in dict.fromkeys([*there, *groups_of])}
        self._known = {keys: known for keys, known in self._known.items() if keys in groups_of}
        self._seen = {g: seen for g, seen in self._seen.items() if g.partition in groups_of}

    def _find(self, *, all_of_them: bool) -> Operation[None]:
        """Ask where partitions that held nothing hold something now."""
        quiet = [keys for keys in self._groups if keys not in self._known]
        if not all_of_them:
            quiet = quiet[:_ASKED_APART]
            self._groups |= {keys: self._groups.pop(keys) for keys in quiet}
        found = yield from holding(quiet, any_key(self._keys_of), 1 if self._spread else _ASKED)
        self._known |= {keys: _Known(-math.inf) for keys in found}

    def _keys_of(self, keys: PartitionKeys) -> list[str]:
        """What holds something that falls due."""
        groups = self._groups[keys]
        return [keys.scheduled, *(key for group in groups for key in (group.inflight, group.due))]

    def _chosen(self) -> list[PartitionKeys]:
        """Where something is due, has happened lately, or was not looked at for the longest."""
        now = time.monotonic()
        due, lately, others = [], [], []
        for keys, known in sorted(self._known.items(), key=lambda item: item[1].looked_at):
            if known.next_at <= now:
                due.append(keys)
            elif known.changed_at > now - _LATELY_S:
                lately.append(keys)
            else:
                others.append(keys)
        return [*due, *lately[:_LATELY_MOST], *others[:_OTHERS_MOST]]

    def _look(self, partitions: Sequence[PartitionKeys]) -> Operation[list[Round]]:
        """Move what is due in these, and note when the next is."""
        now = time.monotonic()
        groups = self._ready([group for keys in partitions for group in self._groups[keys]])
        moved = yield from self._move(groups)
        open_ = self._ready(partitions)
        delivered = yield from self._maintenance.deliver(open_, self._expected())
        self._judge(open_, [one.error for one in delivered])
        ends = yield Each([_first_score(keys.inflight) for keys in groups], None)
        parts: dict[PartitionKeys, Round] = {}
        for keys, out in zip(open_, delivered, strict=True):
            parts[keys] = Round(0, 0, out.moved, out.next_ms, out.more)
        for group, one, end in zip(groups, moved, ends, strict=True):
            first = end - one.now_ms if isinstance(end, int) else None
            ends_ms = one.held_ms if one.held_ms is not None else first and max(0, first)
            part = Round(one.promoted, one.expired, 0, one.next_due_ms, one.more)
            before = parts.get(group.partition, Round())
            parts[group.partition] = before.plus(part).plus(Round(next_ms=ends_ms))
        for keys in partitions:
            self._note(keys, parts.get(keys, Round(next_ms=_STUCK_MS)), now)
        return [part._replace(next_ms=None) for part in parts.values()]

    def _note(self, keys: PartitionKeys, seen: Round, now: float) -> None:
        """When a partition is to be looked at again; what holds nothing is asked about again."""
        changed = bool(seen.promoted or seen.expired or seen.delivered)
        if seen.next_ms is None and not changed:
            self._known.pop(keys, None)
            return
        known = self._known[keys]
        wait_ms = 0 if seen.next_ms is None else seen.next_ms
        if not changed:  # what is due and cannot be moved is not tried all the time
            wait_ms = max(wait_ms, _STUCK_MS if wait_ms == 0 else 0)
        known.next_at, known.looked_at = time.monotonic() + wait_ms / 1000, now
        known.changed_at = now if changed else known.changed_at

    def _move(self, groups: Sequence[GroupKeys]) -> Operation[list[Moved]]:
        dues = [self._due(keys) for keys in groups]
        moved = yield from self._maintenance.move(dues)
        self._judge(groups, [one.error for one in moved])
        at = time.monotonic()
        self._seen |= {
            due.keys: (one.now_ms, at)
            for due, one in zip(dues, moved, strict=True)
            # else the server has it from us, and we know it better
            if one.error is None and one.now_ms != due.expected_ms
        }
        return moved

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
        if away and len(away) == len(places):
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


def _first_score(key: str) -> Command[int | None]:
    """The lowest score of a sorted set."""

    def score(reply: list[bytes]) -> int | None:
        return int(float(reply[1])) if reply else None

    return query(score, "ZRANGE", key, 0, 0, "WITHSCORES")
