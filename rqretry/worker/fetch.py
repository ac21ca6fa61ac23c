"""Leasing for all consumers of a process: one loop, one connection.

The loop leases from every place that has room and may hold something, all in one round trip. When
nothing does, it blocks on the wake keys of those with room: a wake-up is a hint, the lease is the
truth. With a single place the wake-up and the lease go in one round trip (decisions 14).
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from rqretry.core.errors import RqretryError
from rqretry.protocol.command import Argument, Command
from rqretry.protocol.lease import Leased, Polled, lease, poll
from rqretry.protocol.maintain import feed_dlq_group
from rqretry.transport.hiredis_channel import Connection
from rqretry.transport.node import BLOCK_MARGIN_SECONDS
from rqretry.transport.replies import TryAgain, is_error
from rqretry.transport.store import Store, jitter
from rqretry.worker.consumer import Consumer
from rqretry.worker.leases import Delivery, Place
from rqretry.worker.rate_limiter import Purse, Want, share

log = logging.getLogger("rqretry")

LOOK_EVERY_S = 5.0
_UNBLOCK_EVERY_S = 0.005
_SHORT_S = 1.0
"""A wait for tokens that is longer than this ends early when the group's settings change."""

Pair = tuple[Consumer, Place]


class Fetcher:
    """Fills the buffers of consumers."""

    def __init__(
        self,
        store: Store,
        consumers: list[Consumer],
        worker: str,
        rejoin: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._worker = worker
        self.consumers = consumers
        self._pairs: list[Pair] = [(c, place) for c in consumers for place in c.places]
        self._rejoin = rejoin
        self._random = random.Random()
        self._connection: Connection | None = None
        self._connection_id = 0
        self._connection_keys: tuple[str, ...] = ()
        self._watched: set[Place] | None = None
        """The places whose wake keys we are blocked on; None while we are not blocked."""
        self._room = asyncio.Event()
        self._stopping = False
        self._unblocking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[set[str]] | None = None
        # On a cluster one server that fails must not hold up what the others have.
        self._purse = Purse(store)
        for consumer in consumers:
            consumer.on_room = partial(self._room_in, consumer)
        self.changed: Callable[[Place], None] = lambda _: None
        """Called when it is known anew when something of a place is due."""

    async def run(self) -> None:
        """Lease until stopped."""
        while not self._stopping:
            try:
                await self._round()
            except RqretryError as error:
                log.warning("fetching failed, trying again: %s", error)
                await asyncio.sleep(jitter(0.5, self._random))
        self._drop_connection()

    def add(self, consumer: Consumer, place: Place) -> None:
        """Lease from one more place."""
        self._pairs.append((consumer, place))
        self._room.set()
        self._unblock()

    async def stop(self) -> None:
        """Lease nothing more; returns when the loop was told, not when it has ended."""
        self._stopping = True
        self._room.set()
        self._unblock()

    async def _round(self) -> None:
        open_ = [(c, s, room) for c, s in self._pairs if (room := c.room()) > 0]
        if not open_:
            self._room.clear()
            await self._room.wait()
            return
        likely = [(c, s, room) for c, s, room in open_ if not s.empty]
        wants = await self._purse.allot(share(likely)) if likely else []
        if wants:
            await self._lease_all(wants)
        elif len(self._pairs) == 1 and self._pairs[0][1].simple:
            await self._wait_and_lease(*open_[0])
        else:
            await self._wait([place for _, place, _ in open_])

    async def _lease_all(self, wants: list[Want]) -> None:
        views = [place.keys for _, place, _ in wants if place.keys.source]
        if views:  # what died since goes to the groups that consume it
            feeds = [feed_dlq_group(keys, worker=self._worker) for keys in views]
            await self._store.run_each(feeds, self._store.patience)
        commands = [self._lease(place, want) for _, place, want in wants]
        sent_at = time.monotonic()
        answers = await self._store.run_each(commands, self._store.patience)
        unused, idle = [], True
        for (consumer, place, want), leased in zip(wants, answers, strict=True):
            if isinstance(leased, Exception):
                self._failed(place, leased)
                unused.append((place, want))
                continue
            clock = self._store.clock_of(place.keys.wake)
            leased_at = clock.ran_at(leased.now_ms, sent_at)  # maybe the last of many repeats
            clock.note(leased.now_ms, sent_at)
            unused.append((place, want - len(leased.ids)))
            await self._accept(consumer, place, leased, leased_at)
            idle = idle and place.empty
        await self._purse.give_back(unused)
        if idle:
            await _handlers_first()

    def _lease(self, place: Place, want: int) -> Command[Leased]:
        place.prefer = "retry" if place.prefer == "ready" else "ready"
        return lease(
            place.keys,
            worker=self._worker,
            want=want,
            visibility_ms=round(place.visibility_s * 1000),
            prefer=place.prefer,
            tokens=place.rated,
        )

    async def _accept(
        self, consumer: Consumer, place: Place, leased: Leased, sent_at: float
    ) -> None:
        if leased.status == "NO_GROUP":
            await self._rejoin()
            return
        self._take(consumer, place, leased, sent_at)
        self._note(place, leased, sent_at, time.monotonic())

    def _take(self, consumer: Consumer, place: Place, leased: Leased, sent_at: float) -> None:
        place.empty = leased.exhausted
        place.rated = bool(leased.rate)
        if leased.ids:
            rows = zip(leased.ids, leased.data, leased.numbers, leased.last_errors, strict=True)
            deliveries = [
                Delivery(place, id_, data, numbers, sent_at, line)
                for id_, data, numbers, line in rows
            ]
            for delivery in deliveries:
                place.leases[delivery.id] = delivery
            consumer.accept(deliveries)

    def _note(self, place: Place, seen: Leased | Polled, sent_at: float, now: float) -> None:
        """What is due there, and when, as a lease or a look told at the monotonic time `now`."""
        place.looked_at = now
        place.due_at = _at(now, seen.next_due_ms)
        place.deadline_at = _at(now, seen.next_deadline_ms)
        place.scheduled_at = _at(now, seen.next_scheduled_ms)
        place.seen = place.seen or (seen.now_ms, sent_at)
        self.changed(place)

    def _failed(self, place: Place, error: Exception) -> None:
        """A partition cannot be reached; on a cluster, others can."""
        if not self._store.spread:
            raise error
        log.warning(
            "partition %d of %s cannot be leased from, trying again: %s",
            place.partition, place.topic, error,
        )  # fmt: skip
        place.empty = True
        place.looked_at = time.monotonic()

    # -- waiting -----------------------------------------------------------------------------

    async def _wait_and_lease(self, consumer: Consumer, place: Place, want: int) -> None:
        command = self._lease(place, want)
        words = self._store.words(command)
        started = time.monotonic()
        replies = await self._blocked([place], [words])
        if replies is None:
            place.empty = False
            return
        reply = replies[1]
        if is_error(reply):
            leased = await self._store.run(command)  # loads the script, or says what is wrong
        else:
            leased = command.decode(reply)
        # The lease ran when we were woken, not when it was sent: ask the server's own clock.
        leased_at = self._store.clock_of(place.keys.wake).ran_at(leased.now_ms, started)
        if leased.status == "NO_GROUP":
            await self._rejoin()
            return
        answered_at = time.monotonic()
        self._take(consumer, place, leased, leased_at)
        await _handlers_first()
        self._note(place, leased, leased_at, answered_at)

    async def _wait(self, places: list[Place]) -> None:
        """Until a place is woken, is to be looked at, or may have tokens again."""
        now = time.monotonic()
        broke = [place for place in places if not place.empty]
        tokens_at = min((self._purse.waits_until(s) for s in broke), default=math.inf)
        watched = [s for s in places if s.empty or self._purse.waits_until(s) > now + _SHORT_S]
        if not watched:
            await self._sleep(tokens_at - now)
            return
        alarm = None
        if tokens_at < now + LOOK_EVERY_S:
            loop = asyncio.get_running_loop()
            alarm = loop.call_later(max(0.0, tokens_at - now), self._unblock)
        try:
            woken = await self._woken(watched)
        finally:
            if alarm is not None:
                alarm.cancel()
        now = time.monotonic()
        late = [s for s in watched if now - s.looked_at >= self._patience(s)]
        if woken is not None and not woken:  # nobody said that there is something: that is usual
            late = await self._look(late)
        for place in watched:
            if woken is None or place.keys.wake in woken or place in late:
                place.empty = False
                self._purse.ask_again(place)

    async def _look(self, places: list[Place]) -> list[Place]:
        """Look at all of them with one command; which need a lease to tell what they hold."""
        plain = [place for place in places if place.simple]
        if self._store.spread or len(plain) < 2:  # noqa: PLR2004 - a lease is one command, too
            return places
        sent_at = time.monotonic()
        looks = await self._store.run(poll([place.keys for place in plain]))
        idle: set[Place] = set()
        for place, seen in zip(plain, looks, strict=True):
            if seen is not None:
                self._note(place, seen, sent_at, time.monotonic())
                self._store.clock.note(seen.now_ms, sent_at)
                idle.add(place)
        return [place for place in places if place not in idle]

    async def _sleep(self, seconds: float) -> None:
        self._room.clear()
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._room.wait()
        except TimeoutError:
            pass

    async def _woken(self, places: list[Place]) -> set[str] | None:
        """Block until wake keys are set, and answer which; None: look at all of them."""
        if self._store.spread and len(places) > 1:
            return await self._woken_apart([place.keys.wake for place in places], places)
        replies = await self._blocked(places, [])
        if replies is None:
            return None
        return {replies[0][0].decode()} if isinstance(replies[0], list) else set()

    async def _woken_apart(self, wakes: list[str], places: list[Place]) -> set[str] | None:
        """The same on a cluster, where each partition is waited for by itself."""
        watch = self._store.watch(wakes, self._longest(places))
        watching = asyncio.get_running_loop().create_task(watch)
        self._watched, self._watching = set(places), watching
        try:
            if not self._stopping:
                await asyncio.wait([watching])
        finally:
            self._watched = self._watching = None
            watching.cancel()
        try:
            return await watching
        except asyncio.CancelledError:
            return set()
        except TryAgain as error:
            log.info("waiting for messages was cut off: %s", error)
            await asyncio.sleep(jitter(0.1, self._random))
            return None

    def _longest(self, places: list[Place]) -> float:
        return jitter(min([LOOK_EVERY_S, *(s.visibility_s for s in places)]), self._random)

    def _patience(self, place: Place) -> float:
        return 0.85 * min(LOOK_EVERY_S, place.visibility_s)

    async def _blocked(self, places: list[Place], after: list[tuple[Any, ...]]) -> list[Any] | None:
        """Block on wake keys, then run `after` on the same connection; None if it broke."""
        seconds = self._longest(places)
        wakes = [place.keys.wake for place in places]
        words: tuple[Argument, ...] = ("BZPOPMIN", *wakes, round(seconds, 3))
        try:
            line = await self._connected(places[0].keys.wake)
            self._watched = set(places)
            if self._stopping:
                return None
            replies = await self._store.exchange(
                line, [words, *after], seconds + BLOCK_MARGIN_SECONDS
            )
        except TryAgain as error:
            log.info("waiting for messages was cut off: %s", error)
            self._drop_connection()
            await asyncio.sleep(jitter(0.1, self._random))
            return None
        finally:
            self._watched = None
        if is_error(replies[0]):  # loading, failing over: do not ask again at once
            await asyncio.sleep(jitter(0.1, self._random))
        return replies

    async def _connected(self, key: str) -> Connection:
        if self._connection is None:
            connection = await self._store.acquire(key)
            (self._connection_id,) = await self._store.exchange(connection, [("CLIENT", "ID")])
            self._connection, self._connection_keys = connection, (key,)
        return self._connection

    def _drop_connection(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    # -- being told --------------------------------------------------------------------------

    def _room_in(self, consumer: Consumer) -> None:
        """A slot became free: is anybody waiting for that?"""
        if self._watched is None:
            if not self._room.is_set() and consumer.room() > 0:
                self._room.set()
        elif self._unwatched(consumer) and self._unblocking is None and consumer.room() > 0:
            self._unblock()

    def look_for_room(self) -> None:
        """What was finished is settled: a consumer that had too much unsettled has room again."""
        if self._watched is None:
            self._room.set()

    def _unwatched(self, consumer: Consumer) -> bool:
        watched = self._watched or set()
        return len(self._pairs) > 1 and not watched.issuperset(consumer.places)

    def _unblock(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        elif self._watched is not None and self._unblocking is None:
            self._unblocking = asyncio.get_running_loop().create_task(self._keep_unblocking())

    async def _keep_unblocking(self) -> None:
        """CLIENT UNBLOCK until it took: it may reach the server before the blocking command."""
        command: Command[int] = Command(
            "unblock",
            self._connection_keys,
            (),
            int,
            arguments=("CLIENT", "UNBLOCK", self._connection_id),
        )
        try:
            while self._watched is not None and not await self._store.run(command):  # noqa: ASYNC110
                await asyncio.sleep(_UNBLOCK_EVERY_S)
        except RqretryError:
            pass  # the connection that blocks is as broken as this one
        finally:
            self._unblocking = None


async def _handlers_first() -> None:
    """Let the slots that were woken run before the next wait is put together and sent."""
    await asyncio.sleep(0)


def _at(now: float, in_ms: int | None) -> float | None:
    return None if in_ms is None else now + in_ms / 1000
