"""Upkeep of a whole namespace: expire, promote and deliver what is due, for all of its groups."""

import random
import time
from contextlib import suppress
from typing import Any, NamedTuple

from rqretry.catalog.catalog import Catalog
from rqretry.core.errors import TopicNotFound
from rqretry.core.route import Route
from rqretry.maintenance.dlq_retention import purge_expired
from rqretry.maintenance.expired_deaths import tell_buried
from rqretry.protocol.command import MAX_BATCH, Command, Operation, batches
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.maintain import Expired, Promoted, expire, promote, sweep
from rqretry.protocol.publish import deliver, due_members

HOLD_MS = 10_000
"""After a jump of the server's clock, live workers get so long to renew: a third of the usual
visibility."""
SWEEP_EVERY_S = 60.0
_AT_ONCE = 100
_ROUTE_CHANGES = 5


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
    """Does what every worker does for its own groups, for all groups and partitions.

    Others may do the same at the same time: the scripts decide, one message is moved once.
    """

    def __init__(self, catalog: Catalog, worker: str) -> None:
        self._catalog = catalog
        self._worker = worker
        self._random = random.Random()
        self._seen: dict[GroupKeys, tuple[int, float]] = {}
        self._swept_at = -SWEEP_EVERY_S  # the first round sweeps

    def round(self) -> Operation[Round]:
        """Look at every partition once; topics and groups are read anew each time."""
        topics = yield from self._catalog.topics.all()
        places = [(t.name, number) for t in topics for number in range(t.partitions)]
        groups = [
            self._catalog.group_keys(t.name, number, group.name)
            for t in topics
            for number in range(t.partitions)
            for group in t.members
        ]
        self._seen = {keys: seen for keys, seen in self._seen.items() if keys in set(groups)}
        done = Round()
        for start in range(0, len(groups), _AT_ONCE):
            done = done.plus((yield from self._move(groups[start : start + _AT_ONCE])))
        for start in range(0, len(places), _AT_ONCE):
            done = done.plus((yield from self._deliver(places[start : start + _AT_ONCE])))
        if time.monotonic() >= self._swept_at + SWEEP_EVERY_S:
            self._swept_at = time.monotonic()
            partitions = [self._catalog.partition(topic, number) for topic, number in places]
            for batch in batches(partitions):
                yield [sweep(keys) for keys in batch]
            yield from purge_expired(self._catalog, groups)
        return done

    def _move(self, groups: list[GroupKeys]) -> Operation[Round]:
        promoted: list[Promoted] = yield [promote(keys, worker=self._worker) for keys in groups]
        expired: list[Expired] = yield [self._expire(keys) for keys in groups]
        for keys, answer in zip(groups, expired, strict=True):
            yield from tell_buried(keys, answer, self._worker)
        at = time.monotonic()
        self._seen |= {k: (seen.now_ms, at) for k, seen in zip(groups, expired, strict=True)}
        nexts = [answer.next_due_ms for answer in promoted if answer.next_due_ms is not None]
        moved = [answer.moved for answer in promoted]
        ended = [0 if answer.held else answer.moved for answer in expired]
        full = max((*moved, *ended), default=0) >= MAX_BATCH
        return Round(sum(moved), sum(ended), 0, min(nexts, default=None), full)

    def _expire(self, keys: GroupKeys) -> Command[Expired]:
        now = time.monotonic()
        seen_ms, seen_at = self._seen.get(keys, (None, now))
        return expire(
            keys,
            worker=self._worker,
            hold_ms=HOLD_MS,
            random=self._random.random(),
            last_seen_ms=seen_ms,
            elapsed_ms=round((now - seen_at) * 1000),
        )

    def _deliver(self, places: list[tuple[str, int]]) -> Operation[Round]:
        done = Round()
        for _ in range(_ROUTE_CHANGES):
            steps = []
            for place in places:
                step, next_ms = yield from self._deliver_step(*place)
                done = done.plus(Round(next_ms=next_ms))
                steps += [(place, step)] if step else []
            answers = (yield [step for _, step in steps]) if steps else []
            stale = []
            for (place, _), (_, moved, next_ms, newer) in zip(steps, answers, strict=True):
                done = done.plus(Round(0, 0, moved, next_ms, moved >= MAX_BATCH))
                if newer is not None:
                    yield from self._note(place, newer)
                    stale.append(place)
            places = stale
            if not places:
                break
        return done

    def _deliver_step(
        self, topic: str, number: int
    ) -> Operation[tuple[Command[Any] | None, int | None]]:
        """The call to make, or milliseconds until there is one to make; None: neither."""
        try:
            yield from self._catalog.topics.get(topic)
        except TopicNotFound:  # it was deleted meanwhile
            return None, None
        keys, route = (
            self._catalog.partition(topic, number),
            self._catalog.topics.route(topic, number),
        )
        members: list[str] = []
        if route.filtered:  # each message goes to the groups that take its tag
            members, next_ms = yield due_members(keys, limit=MAX_BATCH)
            if not members:
                return None, next_ms
        step = deliver(keys, route, worker=self._worker, limit=MAX_BATCH, members=members)
        return step, None

    def _note(self, place: tuple[str, int], newer: Route) -> Operation[None]:
        with suppress(TopicNotFound):
            yield from self._catalog.topics.note_route(*place, newer)
