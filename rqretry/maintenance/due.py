"""What is due in a partition: promote, expire and deliver it, and report the deaths that result.

There is no leader: workers, receivers, `rqretry reaper` and the lab do this for the partitions that
they look at, at times of their own; the scripts see to it that a message is moved once. Every call
moves a bounded number of messages and says when something is due next (docs/decisions/0014).
"""

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from rqretry.catalog.topics import Topics
from rqretry.core.dead_letter import DeadLetterRecord, read_dead_letter
from rqretry.core.errors import RqretryError, StoreUnavailable, TopicNotFound
from rqretry.maintenance.process_exits import with_exits
from rqretry.observability import observer
from rqretry.observability.log_format import log_death
from rqretry.protocol.command import MAX_BATCH, Command, Each, Operation, query, text
from rqretry.protocol.keys import GroupKeys, NamespaceKeys, PartitionKeys
from rqretry.protocol.maintain import Expired, Promoted, expire, promote
from rqretry.protocol.publish import deliver, due_members

log = logging.getLogger("rqretry")

HOLD_MS = 10_000
"""After a jump of the server's clock, live workers get so long to renew: a third of the usual
visibility."""
STUCK_MS = 50
"""How soon to look again where something is due and could not be moved."""
_ROUTE_CHANGES = 50


class Due(NamedTuple):
    """What to move in one place, a group in a partition.

    Attributes:
        keys: The place.
        promote: Move retries that are due to ready.
        expire: Move messages whose lease has ended to ready, to their delay level, or to dead.
        hold_ms: How long nothing falls due after a jump of the server's clock.
        expected_ms: Server time by the caller's own clock, from its last look at this partition, if
            there was one: it shows a server's clock that jumped or stepped back.
    """

    keys: GroupKeys
    promote: bool = True
    expire: bool = True
    hold_ms: int = HOLD_MS
    expected_ms: int | None = None


class Moved(NamedTuple):
    """What was moved in one place.

    Attributes:
        now_ms: Server time.
        promoted: Retries that are ready now.
        next_due_ms: Milliseconds until the next retry is due; None for none.
        expired: Messages whose lease had ended.
        held_ms: For so long nothing expires, since the server's clock jumped; None: it did not.
        error: Why not everything was; it concerns this place alone.
    """

    now_ms: int = 0
    promoted: int = 0
    next_due_ms: int | None = None
    expired: int = 0
    held_ms: int | None = None
    error: RqretryError | None = None

    @property
    def more(self) -> bool:
        """A batch was full, so there may be more that is due already."""
        return max(self.promoted, self.expired) >= MAX_BATCH

    def plus(self, answer: Promoted | Expired | RqretryError) -> "Moved":
        """The same with the answer of one call."""
        if isinstance(answer, RqretryError):
            return self._replace(error=answer)
        seen = self._replace(now_ms=answer.now_ms)
        if isinstance(answer, Promoted):
            return seen._replace(promoted=answer.moved, next_due_ms=answer.next_due_ms)
        if answer.held:
            return seen._replace(held_ms=answer.moved)
        return seen._replace(expired=answer.moved)


class Delivered(NamedTuple):
    """How many scheduled messages were due in one partition, and when the next one is.

    Attributes:
        moved: How many.
        next_ms: Milliseconds until the next one is due; None for none.
        error: Why not all were moved; it concerns this partition alone.
    """

    moved: int = 0
    next_ms: int | None = None
    error: RqretryError | None = None

    @property
    def more(self) -> bool:
        """A call ended at one of its bounds, so there is more that is due already."""
        return self.moved > 0 and self.next_ms == 0


class Maintenance:
    """Moves what is due."""

    def __init__(
        self, topics: Topics, worker: str, chance: Callable[[], float] | None = None
    ) -> None:
        self._topics = topics
        self._worker = worker
        self._chance = chance or random.Random().random

    def move(self, places: Sequence[Due]) -> Operation[list[Moved]]:
        """Promote and expire in one round trip, then report what died."""
        calls = [(at, call) for at, due in enumerate(places) for call in self._calls(due)]
        answers: list[Any] = (yield Each([call for _, call in calls])) if calls else []
        moved = [Moved()] * len(places)
        for (at, _), answer in zip(calls, answers, strict=True):
            moved[at] = moved[at].plus(answer)
            if isinstance(answer, Expired) and answer.dead:
                yield from self.report_deaths(places[at].keys, answer.dead, answer.now_ms)
        return moved

    def _calls(self, due: Due) -> list[Command[Any]]:
        calls: list[Command[Any]] = []
        if due.promote:
            calls.append(
                promote(
                    due.keys,
                    worker=self._worker,
                    expected_ms=due.expected_ms,
                    hold_ms=due.hold_ms,
                )
            )
        if due.expire:
            calls.append(
                expire(
                    due.keys,
                    worker=self._worker,
                    hold_ms=due.hold_ms,
                    random=self._chance(),
                    expected_ms=due.expected_ms,
                )
            )
        return calls

    def deliver(
        self, partitions: Sequence[PartitionKeys], expected: Mapping[PartitionKeys, int | None] = {}
    ) -> Operation[list[Delivered]]:
        """Scheduled messages that are due to ready, for every group of their topic's route.

        `expected`: Due.expected_ms of partitions.
        """
        done = dict.fromkeys(partitions, Delivered())
        stale = list(done)
        for _ in range(_ROUTE_CHANGES):
            calls: dict[PartitionKeys, Command[Any]] = {}
            for keys in stale:
                call, seen = yield from self._delivery(keys, expected.get(keys))
                if call is None:
                    done[keys] = seen._replace(moved=done[keys].moved)
                else:
                    calls[keys] = call
            answers = (yield Each([*calls.values()])) if calls else []
            stale = []
            for keys, answer in zip(calls, answers, strict=True):
                if isinstance(answer, RqretryError):
                    done[keys] = done[keys]._replace(error=answer)
                    continue
                _, moved, next_ms, newer = answer
                done[keys] = Delivered(done[keys].moved + moved, next_ms)
                if newer is not None:
                    stale.append(keys)
                    with suppress(TopicNotFound):
                        yield from self._topics.note_route(keys.topic, keys.partition, newer)
            if not stale:
                break
        return [done[keys] for keys in partitions]

    def _delivery(
        self, keys: PartitionKeys, expected_ms: int | None
    ) -> Operation[tuple[Command[Any] | None, Delivered]]:
        """The call to make; None, and why there is none."""
        members: list[str] = []
        try:
            if (yield from self._topics.get_if_there(keys.topic)) is None:
                return None, Delivered()  # it was deleted meanwhile, and has nothing
            route = self._topics.route(keys.topic, keys.partition)
            if route.filtered:  # each message goes to the groups that take its tag
                members, next_ms = yield due_members(keys, limit=MAX_BATCH)
                if not members:
                    return None, Delivered(next_ms=next_ms)
        except StoreUnavailable:
            raise
        except RqretryError as error:
            return None, Delivered(error=error)
        call = deliver(
            keys,
            route,
            worker=self._worker,
            limit=MAX_BATCH,
            members=members,
            expected_ms=expected_ms,
            hold_ms=HOLD_MS,
        )
        return call, Delivered()

    def report_deaths(self, keys: GroupKeys, ids: Sequence[str], now_ms: int) -> Operation[None]:
        """Log dead letters that no attempt reports, and report them to the observer, if any.

        Bodies are read only for the observer, those over 8 KiB not at all: their headers, and
        with them the trace of the publish, are then not known.
        """
        try:
            read = yield from self._read_dead_letters(keys, ids, now_ms)
            dead_letters = yield from with_exits(NamespaceKeys(keys.partition.namespace), read)
        except RqretryError as error:
            log.warning("dead letters could not be reported: %s", error)
            return
        for dead in dead_letters:
            trace = dead.errors[-1].trace if dead.errors else ""
            of = dead.id, dead.topic, dead.group, dead.attempt
            log_death(*of, dead.error or "expired", trace, kept=not keys.source)
        if observer.installed is None or keys.source:  # there is no DLQ of a DLQ
            return
        observer.installed.dead_lettered(keys.partition.namespace, dead_letters, self._worker)

    def _read_dead_letters(
        self, keys: GroupKeys, ids: Sequence[str], now_ms: int
    ) -> Operation[list[DeadLetterRecord]]:
        deaths, failures, sizes = yield [
            _many(key, ids) for key in (keys.deaths, keys.failures, keys.partition.big)
        ]
        wanted = observer.installed is not None
        small = [id_ for id_, size in zip(ids, sizes, strict=True) if wanted and size is None]
        bodies = (yield _many(keys.partition.bodies, small)) if small else []
        data = dict(zip(small, bodies, strict=True))
        return [
            read_dead_letter(
                keys.partition.topic,
                keys.group,
                id_,
                now_ms,
                text(death or b""),
                text(failure or b""),
                data.get(id_) or b"",
            )
            for id_, death, failure in zip(ids, deaths, failures, strict=True)
        ]


def _many(key: str, ids: Sequence[str]) -> Command[list[Any]]:
    return query(list, "HMGET", key, *ids)
