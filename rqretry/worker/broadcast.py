"""Broadcast groups: every running consumer gets every message published while it runs.

Nothing is leased and nothing is retried (docs/decisions/0024). A partition keeps what it broadcasts
in a stream; each consumer has its own position in it, in memory, and if it has a name in the
partition too, and waits on a connection of its own (on a cluster one per partition).
"""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rqretry.catalog.catalog import Catalog
from rqretry.consumer.registry import ConsumerSpec
from rqretry.core.back_off import FIRST_S, BackOff
from rqretry.core.catalog_records import BROADCAST
from rqretry.core.envelope import decode
from rqretry.core.errors import CodecError, RqretryError, StoreUnavailable
from rqretry.core.failure_record import fingerprint_in, reason_in
from rqretry.core.middleware import Announcer, Event
from rqretry.core.route import EVERY_TAG, RouteGroup
from rqretry.observability.log_format import about
from rqretry.observability.observer import FAILURE, RELEASED, SUCCESS
from rqretry.protocol.broadcast import (
    Entry,
    Mark,
    keep_at,
    kept_at,
    now_at,
    read_waited,
    tally,
    wait_arguments,
)
from rqretry.protocol.command import Command, Operation
from rqretry.protocol.lease import Failure
from rqretry.transport.hiredis_channel import Connection
from rqretry.transport.node import BLOCK_MARGIN_SECONDS
from rqretry.transport.replies import TryAgain, broken, is_error
from rqretry.transport.store import Store, jitter
from rqretry.worker.leases import Delivery, Intake, LeasedPlace
from rqretry.worker.wakeups import Alarm, HasRoom

log = logging.getLogger("rqretry")

BLOCK_S = 5.0
ENTRIES = 8
"""Stream entries per read; each holds the messages of one call, 500 or 1 MiB at most."""
TALLY_EVERY_S = 1.0
_LAST_COUNT_S = 2.0
NO_LEASE_S = 10 * 365 * 86_400.0
"""A broadcast message is not leased: nothing ends while its handler runs but consume_timeout."""


def unleased(spec: ConsumerSpec) -> ConsumerSpec:
    """A broadcast consumer as Consumer runs it: no lease of its messages ends."""
    return replace(spec, visibility_ms=round(NO_LEASE_S * 1000))


@dataclass(slots=True)
class _Unfinished:
    """An entry of which some messages are not done with."""

    end: Mark
    messages: int


class Position:
    """Where one consumer is in what one partition broadcasts."""

    def __init__(self, place: LeasedPlace, mark: Mark, group: RouteGroup, reader: str = "") -> None:
        self.place = place
        self.reader = reader
        """The name under which its position is kept; "": it is not."""
        self.mark = mark
        self.group = group
        self.refused = BackOff()
        self.done = self.kept = mark
        """Behind what its handler has ended for, and what of that is kept; with a name."""
        self._unfinished: deque[_Unfinished] = deque()
        self._entry_of: dict[str, _Unfinished] = {}
        self.counts: dict[str, int] = {}
        """What became of its messages, since the server's counters had it last."""

    def count(self, verb: str, messages: int = 1) -> None:
        """Note what became of some messages."""
        if messages:
            self.counts[verb] = self.counts.get(verb, 0) + messages

    def take_counts(self) -> dict[str, int]:
        """The counts, which begin anew."""
        taken, self.counts = self.counts, {}
        return taken

    def take(self, entry: Entry) -> list[Delivery]:
        """Move past an entry: its messages for this group. What was missed is counted."""
        missed = entry.first - self.mark.passed
        if missed > 0:
            self.count("gap", missed)
            log.error(
                "broadcast group %s fell behind in %s and has missed %d messages: they were"
                " dropped after ten minutes, or earlier as the oldest of 64 MiB",
                self.place.keys.group, self.place.topic, missed,
            )  # fmt: skip
        self.mark = entry.end
        now = time.monotonic()
        wanted = [one for one in entry.messages if _takes(self.group, one[1])]
        self.count("filtered", len(entry.messages) - len(wanted))
        self.count("lease", len(wanted))
        if self.reader:
            entry_left = _Unfinished(self.mark, len(wanted))
            self._unfinished.append(entry_left)
            self._entry_of |= dict.fromkeys((id_ for id_, _ in wanted), entry_left)
            self._pass_finished()
        return [Delivery(self.place, id_, data, (1, 1), now) for id_, data in wanted]

    def ended(self, id_: str) -> None:
        """A handler has ended for a message."""
        entry_left = self._entry_of.pop(id_, None)
        if entry_left is not None:
            entry_left.messages -= 1
            self._pass_finished()

    def _pass_finished(self) -> None:
        while self._unfinished and not self._unfinished[0].messages:
            self.done = self._unfinished.popleft().end

    def to_keep(self) -> Iterator[Command[int]]:
        """What keeps its position, if that is another one."""
        if self.reader and self.done != self.kept:
            self.kept = self.done
            yield keep_at(self.place.keys, self.reader, self.done)


class BroadcastResults:
    """Takes results in place of a settler: they are logged and counted."""

    unsettled = ()

    def __init__(self, announcer: Announcer, worker: str) -> None:
        self.positions: dict[LeasedPlace, Position] = {}
        self.room = asyncio.Event()
        """A consumer may have room for more."""
        self._announcer = announcer
        self._worker = worker

    def begin(self, positions: Iterable[Position]) -> None:
        """Count results for the places of these positions."""
        self.positions.update((position.place, position) for position in positions)

    def room_in(self, _consumer: HasRoom) -> None:
        """Wake whoever waits for room."""
        self.room.set()

    def succeed(self, delivery: Delivery) -> None:
        """The attempt succeeded."""
        self.positions[delivery.place].count("succeed")
        self.positions[delivery.place].ended(delivery.id)
        if delivery.watch is not None:
            delivery.watch.settled(SUCCESS)

    def fail(self, delivery: Delivery, failure: Failure) -> None:
        """The attempt failed, and that is the end of it here."""
        place = delivery.place
        self.positions[place].count("fail")
        self.positions[place].ended(delivery.id)
        if delivery.watch is not None:
            delivery.watch.settled(FAILURE, record=failure.record)
        reason = reason_in(failure.record)
        log.warning(
            "message %s of %s failed in broadcast group %s, which does not retry: %s",
            delivery.id, place.topic, place.keys.group, reason,
            extra=about(delivery.id, place.topic, place.keys.group, 1),
        )  # fmt: skip
        if self._announcer.wants("failure"):
            group = place.keys.group
            facts = (group, place.topic, delivery.id, 1, reason, None)
            kind = fingerprint_in(failure.record)
            self._announcer.post(Event("failure", self._worker, *facts, kind))

    def release(self, delivery: Delivery, _delay_ms: int | str) -> None:
        """The worker stops before it has started."""
        self.positions[delivery.place].count("release")
        if delivery.watch is not None:
            delivery.watch.settled(RELEASED)

    def postpone(self, delivery: Delivery, _delay_ms: int, _most: int, limit: Failure) -> None:
        """Nothing is delivered again, so that is a failure."""
        self.fail(delivery, limit)

    def take_counts(self) -> list[tuple[LeasedPlace, dict[str, int]]]:
        """What is not in the server's counters yet."""
        uncounted = [position for position in self.positions.values() if position.counts]
        return [(position.place, position.take_counts()) for position in uncounted]


@dataclass(eq=False)
class Broadcaster:
    """Reads for the broadcast consumers of a process."""

    store: Store
    _consumers: Sequence[Intake]
    _results: BroadcastResults
    _rejoin: Callable[[], Awaitable[None]]
    _upkeep: Alarm

    def __post_init__(self) -> None:
        """A chance of its own."""
        self._random = random.Random()

    async def run(self) -> None:
        """Read and count for ever; one task and one connection per consumer, or per partition."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._count_for_ever(), name="tally")
            for consumer in self._consumers:
                positions = {
                    place.keys.partition.broadcast: self._results.positions[place]
                    for place in consumer.places
                }
                apart = [{key: position} for key, position in positions.items()]
                shares = apart if self.store.spread else [positions]
                for share in shares:
                    group.create_task(_Reader(self, consumer, share, self._results.room).run())

    async def count(self) -> None:
        """Add to the server's counters what has become of messages since the last time."""
        counts = self._results.take_counts()
        commands: list[Command[int]] = [tally(place.keys, count) for place, count in counts]
        for position in self._results.positions.values():
            commands += position.to_keep()
        for answer in await self.store.run_each(commands, self.store.patience) if commands else ():
            if isinstance(answer, Exception):
                log.warning("what a broadcast group did could not be counted: %s", answer)

    async def count_last(self) -> None:
        """The same at the end, where it is not worth waiting for."""
        try:
            async with asyncio.timeout(_LAST_COUNT_S):
                await self.count()
        except TimeoutError as error:
            log.warning("what broadcast groups did last is not counted: %s", error)

    async def _count_for_ever(self) -> None:
        while True:
            await asyncio.sleep(jitter(TALLY_EVERY_S, self._random))
            await self.count()

    def published(self, place: LeasedPlace) -> None:
        """Something was published, perhaps for later."""
        now = time.monotonic()
        place.schedule.published_for_later(now)
        self._upkeep.due(now)

    async def lost(self) -> None:
        """The connection broke; the server may have lost its data too."""
        try:
            await self._rejoin()
        except RqretryError as error:
            log.warning("cannot join again yet: %s", error)


@dataclass(eq=False)
class _Reader:
    """One connection that waits for what is broadcast."""

    _owner: Broadcaster
    _consumer: Intake
    _positions: dict[str, Position]
    """By the key of what is broadcast."""
    _room: asyncio.Event
    _connection: Connection | None = None

    async def run(self) -> None:
        """Read for ever."""
        try:
            while True:
                if self._consumer.room() <= 0:
                    self._room.clear()
                    await self._room.wait()
                    continue
                try:
                    await self._read()
                except (TryAgain, RqretryError) as error:
                    log.info("waiting for broadcast messages was cut off: %s", error)
                    self._close()
                    await asyncio.sleep(0.2)
                    await self._owner.lost()
        finally:
            self._close()

    async def _read(self) -> None:
        store, now = self._owner.store, time.monotonic()
        positions = [p for p in self._positions.values() if p.refused.again_at <= now]
        if not positions:
            await asyncio.sleep(FIRST_S)
            return
        if self._connection is None:
            self._connection = await store.acquire(next(iter(self._positions)))
        where = [(position.place.keys.partition, position.mark) for position in positions]
        arguments = wait_arguments(where, count=ENTRIES, block_ms=round(BLOCK_S * 1000))
        patience = BLOCK_S + BLOCK_MARGIN_SECONDS
        (reply,) = await store.exchange(self._connection, [arguments], patience)
        if is_error(reply):
            if await self._put_off(positions):
                return
            raise broken(self._connection.node, reply, sent=True)
        for position in positions:
            if position.refused.again_at:
                position.refused.worked()
        for stream, entries in read_waited(reply).items():
            position = self._positions[stream]
            for entry in entries:
                deliveries = position.take(entry)
                if deliveries:
                    self._consumer.accept(deliveries)
                else:
                    self._owner.published(position.place)

    async def _put_off(self, positions: Sequence[Position]) -> bool:
        """Leave alone the streams that cannot be read; whether there are any."""
        store = self._owner.store
        probes: list[Command[Any]] = []
        for position in positions:
            keys = position.place.keys.partition
            arguments = wait_arguments([(keys, position.mark)], count=1, block_ms=1)
            probes.append(Command("read", (keys.broadcast,), (), bool, arguments=arguments))
        answers = await store.run_each(probes, store.patience)
        refused = False
        for position, answer in zip(positions, answers, strict=True):
            if isinstance(answer, StoreUnavailable) or not isinstance(answer, Exception):
                continue
            log.warning("nothing can be read for %s: %s", position.place.keys, answer)
            position.refused.failed(str(answer), time.monotonic())
            refused = True
        return refused

    def _close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()


def starting_positions(
    catalog: Catalog, places: Sequence[LeasedPlace], reader: str
) -> Operation[list[Position]]:
    """Where consumers begin: behind everything that was published until now, or where one was.

    What is kept of a server that has lost data since then tells nothing.
    """
    marks: list[Mark] = yield [now_at(place.keys.partition) for place in places]
    kept: list[Mark | None] = [None] * len(places)
    if reader:
        kept = yield [kept_at(place.keys, reader) for place in places]
    positions = []
    for place, now, before in zip(places, marks, kept, strict=True):
        mark = now if before is None or before.behind(now) else before
        topic = yield from catalog.topics.get(place.topic)
        name = place.keys.group
        group = next((g for g in topic.groups if g.name == name), RouteGroup(name, 0, BROADCAST))
        positions.append(Position(place, mark, group, reader))
    return positions


def _takes(group: RouteGroup, data: bytes) -> bool:
    if group.tags == EVERY_TAG:
        return True
    try:
        return group.takes(decode(data).tag or "")
    except CodecError:
        return True  # the attempt fails, and shows what is wrong with it
