"""The workers of one app in the lab: one per consumer group, and named after it.

They are made of the parts of a real worker (Consumer, Execution, Settler). What a worker does in
time and in tasks (fetching, heartbeat, reaper) the lab does step by step; see engine.py.
"""

import random
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from rqretry.app import App
from rqretry.catalog.catalog import Catalog
from rqretry.catalog.group_rules import source_of
from rqretry.catalog.store import Place
from rqretry.consumer.registry import ConsumerSpec
from rqretry.core.middleware import Announcer, Event
from rqretry.core.parts import parts_of
from rqretry.maintenance.due import Due, Maintenance
from rqretry.maintenance.quiet import any_key, holding
from rqretry.maintenance.retention import kept_keys, purges
from rqretry.producer.lane import Publishing
from rqretry.producer.periodic import PeriodicMessages
from rqretry.protocol.broadcast import Entry, read_after
from rqretry.protocol.command import Operation, side_by_side
from rqretry.protocol.keys import GroupKeys, PartitionKeys
from rqretry.protocol.lease import lease, with_large
from rqretry.protocol.maintain import feed_dlq_group, sweep
from rqretry.protocol.rate_limit import rate_take
from rqretry.testing.lab_stores import LabAsyncStore, LabStore, first_score, tag_of
from rqretry.worker.broadcast import BroadcastResults, Position, starting_positions, unleased
from rqretry.worker.consumer import Consumer, ConsumerContext, consumer_for
from rqretry.worker.leases import Delivery, LeasedPlace
from rqretry.worker.registration import apply_spec
from rqretry.worker.settle import Settler
from rqretry.worker.transaction_check_loop import TransactionChecks
from rqretry.worker.wakeups import WakeUps

_THREADS = 16
"""A plain handler that calls lab.duplicate() waits in its thread while another one runs."""
_SETTLES_MOST = 10

Waits = tuple[int | None, int | None, int | None]
"""Milliseconds to the next due time, deadline and scheduled message; None for none."""


class LabPlace(LeasedPlace):
    """A place of the lab.

    Attributes:
        consumer: What runs its messages.
        workers: The workers that the consumer belongs to.
        next_due_ms: The virtual time in ms at which something is due, as of the last poll.
        polled: How many changes of its slots that poll has seen.
        position: Of a broadcast consumer: how far it has read.
        shown: Of a broadcast consumer: what it has read and not handled.
    """

    def __init__(self, workers: "LabWorkers", consumer: Consumer, place: Place) -> None:
        super().__init__(*place, consumer.spec.visibility_ms / 1000)
        self.consumer = consumer
        self.workers = workers
        self.next_due_ms: int | None = None
        self.polled = -1
        self.slots = tag_of(self.keys.wake), tag_of(self.keys.bucket)
        self.position: Position | None = None
        self.shown: deque[Delivery] = deque()

    @property
    def worker(self) -> str:
        """The worker's name: its group."""
        return self.consumer.spec.group


class LabWorkers:
    """The consumers of one app."""

    def __init__(self, app: App, store: LabStore) -> None:
        self._parts = parts_of(app)
        self.announcer = Announcer(self._parts.hooks)
        self.catalog = Catalog(self._parts.settings.namespace, self._parts.settings.levels, "lab")
        self.catalog.topics.declared = self._parts.topics
        self.places: list[LabPlace] = []
        self._maintenance = Maintenance(self.catalog.topics, "lab", chance=lambda: 0.5)
        self._store = store
        self._async_store = LabAsyncStore(store)
        self._settlers: dict[str, Settler] = {}
        self._broadcast = BroadcastResults(self.announcer, "lab")
        self._wake_ups = WakeUps(self._async_store)
        self.check_at: int | None = None
        """The virtual time in ms at which a transaction is to be checked."""
        self.publish_at: int | None = None
        """The virtual time in ms at which the next periodic message is due."""
        self.forget_at: int | None = None
        """The virtual time in ms at which something that is kept for a time is over."""
        self._consumers: list[Consumer] = []
        self._joined: list[ConsumerSpec] = []

    def join(self) -> None:
        """Subscribe the groups of the app's consumers that are not subscribed yet."""
        for specs in _apart(self._parts.consumers[len(self._joined) :]):
            self._joined += specs
            joining = side_by_side([self._subscribe(spec) for spec in specs])
            for spec, joined in zip(specs, self._store.perform(joining), strict=True):
                self._join(spec, *joined)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """The app's lifespan and its events, as around a worker that starts and stops."""
        async with self._parts.living():
            await self._parts.hooks.emit(Event("started", "lab"))
            try:
                yield
            finally:
                await self._parts.hooks.emit(Event("stopped", "lab"))

    def close(self) -> None:
        """Release the threads of plain handlers."""
        for consumer in self._consumers:
            consumer.abandon()

    # -- leasing and maintenance -----------------------------------------------------------------

    def may_have(self, place: LabPlace, now_ms: int) -> bool:
        """Whether something may be ready in a place since it was polled."""
        due = place.next_due_ms is not None and place.next_due_ms <= now_ms
        return due or place.polled != self._store.changes(place.slots)

    def next(self, place: LabPlace, now_ms: int) -> Delivery | None:
        """The next message of a place, leased or broadcast; None: nothing is ready."""
        if place.position is not None:
            return self._next_shown(place, place.position, now_ms)
        return self.lease(place, now_ms)

    def lease(self, place: LabPlace, now_ms: int) -> Delivery | None:
        """Lease the next message of a place, after what is due there; None: nothing is ready."""
        while True:
            changes = self._store.changes(place.slots)
            if place.keys.source:
                self._store.run(feed_dlq_group(place.keys, worker=place.worker))
            tokens_in_ms = self._wait_for_tokens(place)
            if tokens_in_ms is not None:
                place.next_due_ms, place.polled = now_ms + tokens_in_ms, changes
                return None
            command = lease(
                place.keys,
                worker=place.worker,
                want=1,
                visibility_ms=place.consumer.spec.visibility_ms,
                prefer=place.next_list(),
                tokens=place.rated,
            )
            leased = self._store.perform(with_large(place.keys, self._store.run(command)))
            if place.rated and not leased.ids:
                self._store.run(rate_take(place.keys.bucket, want=0, returned=1))
            found = place.leased(leased, time.monotonic())
            if found:
                return found[0]
            if leased.status == "NO_GROUP":
                self._store.perform(self._subscribe(place.consumer.spec))
                continue
            if leased.status == "RATED":
                continue
            if leased.status == "PAUSED":
                waits = self._waits_of_paused(place)
            else:
                waits = (leased.next_due_ms, leased.next_deadline_ms, leased.next_scheduled_ms)
            if 0 not in waits:
                known = [wait for wait in waits if wait is not None]
                place.next_due_ms = now_ms + min(known) if known else None
                place.polled = changes
                return None
            self._maintain(place, waits)

    def _wait_for_tokens(self, place: LeasedPlace) -> int | None:
        """Take a token where the group's rate limit wants one; else milliseconds until the next."""
        if not place.rated:
            return None
        tokens = self._store.run(rate_take(place.keys.bucket, want=1))
        return max(1, tokens.wait_ms) if tokens.given == 0 else None

    def _next_shown(self, place: LabPlace, position: Position, now_ms: int) -> Delivery | None:
        partition = place.keys.partition
        while not place.shown:
            changes = self._store.changes(place.slots)
            due_ms = first_score(self._store, partition.scheduled)
            if due_ms is not None and due_ms <= now_ms:
                self._store.perform(self._maintenance.deliver([partition]))
                continue
            entries: list[Entry] = self._store.run(read_after(partition, position.mark, count=1))
            if not entries:
                place.next_due_ms, place.polled = due_ms, changes
                return None
            place.shown.extend(position.take(entries[0]))
        return place.shown.popleft()

    async def check_back(self, now_ms: int) -> bool:
        """Ask the app's checkers about transactions that are due; whether there were any."""
        checks = TransactionChecks(
            self._async_store, self.catalog, self._parts.checkers.specs, "lab"
        )
        next_ms = await checks.look()
        checks.close()
        self.check_at = None if next_ms is None else now_ms + next_ms
        return checks.found

    def publish_due(self, now_ms: int) -> None:
        """Publish the periodic messages that are due."""
        schedules = self._parts.schedules
        if schedules and (self.publish_at is None or self.publish_at <= now_ms):
            publishing = Publishing(self.catalog, self._store.clock)
            due = PeriodicMessages(publishing, schedules).publish_due()
            _, self.publish_at = self._store.perform(due)

    def forget(self, now_ms: int) -> None:
        """Purge dead letters that were kept as long as their groups say; note when others are."""
        by_partition: dict[PartitionKeys, list[GroupKeys]] = {}
        for place in self.places:
            by_partition.setdefault(place.keys.partition, []).append(place.keys)
        kept = holding([*by_partition.items()], any_key(kept_keys), len(by_partition))
        waits: list[int] = []
        for keys, groups in self._store.perform(kept) if by_partition else ():
            swept = self._store.run(sweep(keys, groups))
            while swept.next_ms == 0:
                for purge in purges(groups, swept.dead):
                    self._store.run(purge)
                swept = self._store.run(sweep(keys, groups))
            waits += [] if swept.next_ms is None else [swept.next_ms]
        self.forget_at = now_ms + min(waits) if waits else None

    def expire(self, place: LabPlace) -> None:
        """Expire what is overdue in a place."""
        self._store.perform(self._maintenance.move([Due(place.keys, promote=False)]))

    def _maintain(self, place: LabPlace, waits: Waits) -> None:
        due, deadline, scheduled = waits
        moves = Due(place.keys, promote=due == 0, expire=deadline == 0)
        self._store.perform(self._maintenance.move([moves]))
        if scheduled == 0:
            self._store.perform(self._maintenance.deliver([place.keys.partition]))

    def _waits_of_paused(self, place: LabPlace) -> Waits:
        """A paused group gets no messages, but its leases and waits still end."""
        keys = place.keys
        now_ms = self._store.clock.now_ms()
        times = [
            first_score(self._store, key)
            for key in (keys.due, keys.inflight, keys.partition.scheduled)
        ]
        due, deadline, scheduled = (None if at is None else max(0, at - now_ms) for at in times)
        return due, deadline, scheduled

    # -- settling ------------------------------------------------------------------------------

    async def settle(self, place: LabPlace) -> None:
        """Report how attempts of this worker ended, to the server and to the app's callbacks."""
        if place.position is not None:
            await self.announcer.finish()
            return
        settler = self._settlers[place.worker]
        for _ in range(_SETTLES_MOST):
            if not place.outbox:
                break
            await settler.flush()
        await self.announcer.finish()

    def lease_lost(self, delivery: Delivery) -> None:
        """Report to the app's callbacks, soon, that a lease was lost."""
        if self.announcer.wants("lease_lost"):
            place, group = delivery.place, delivery.place.keys.group
            event = Event("lease_lost", group, group, place.topic, delivery.id, delivery.attempt)
            self.announcer.post(event)

    def stuck(self) -> None:
        """No thread is given up here."""

    # -- joining -------------------------------------------------------------------------------

    def _join(self, spec: ConsumerSpec, max_retries: int, places: list[Place]) -> None:
        settler = self._settlers.get(spec.group)
        if settler is None:
            settler = Settler(self._async_store, self.announcer, spec.group, self._wake_ups)
            self._settlers[spec.group] = settler
        if not (spec.is_async or spec.in_process):
            spec = replace(spec, concurrency=_THREADS)
        results = self._broadcast if spec.broadcast else settler
        rooms = self._broadcast if spec.broadcast else self._wake_ups
        spec = unleased(spec) if spec.broadcast else spec
        context = ConsumerContext(spec.group, self._parts.hooks, results, rooms, events=self)
        consumer = consumer_for(spec)(spec, context, max_retries)
        consumer.execution._random = random.Random(0)  # noqa: SLF001 - the same jitter every time
        for one in places:
            place = LabPlace(self, consumer, one)
            place.position = self._position_of(spec, place)
            consumer.places.append(place)
            self.places.append(place)
        self._consumers.append(consumer)

    def _position_of(self, spec: ConsumerSpec, place: LeasedPlace) -> Position | None:
        if not spec.broadcast:
            return None
        (position,) = self._store.perform(starting_positions(self.catalog, [place], spec.reader))
        self._broadcast.begin([position])
        return position

    def _subscribe(self, spec: ConsumerSpec) -> Operation[tuple[int, list[Place]]]:
        max_retries = yield from apply_spec(self.catalog, spec, explicit=True)
        return max_retries, (yield from self.catalog.groups.places(spec.group, spec.topics))


def _apart(specs: Sequence[ConsumerSpec]) -> Iterator[list[ConsumerSpec]]:
    """Consumers in their order, cut where one changes the same records as another one before it."""
    some: list[ConsumerSpec] = []
    taken: set[str] = set()
    for spec in specs:
        names = {spec.group, source_of(spec.group, spec.topics), *spec.topics}
        if names & taken:
            yield some
            some, taken = [], set()
        some.append(spec)
        taken |= names - {""}
    if some:
        yield some
