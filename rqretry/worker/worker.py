"""A worker process: puts the parts together, starts them in order, and stops them in order."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from rqretry.catalog.catalog import Catalog
from rqretry.consumer.registry import ConsumerSpec
from rqretry.consumer.transaction_checker import Checkers
from rqretry.core.errors import ConfigError, InvalidArgument, RqretryError, StoreUnavailable
from rqretry.core.middleware import Announcer, Event, Hooks
from rqretry.core.schedule import ScheduleRecord
from rqretry.core.settings import Settings
from rqretry.core.worker_name import worker_name
from rqretry.observability import observer
from rqretry.producer.lane import Publishing
from rqretry.producer.periodic import PeriodicMessages
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.store import Store
from rqretry.transport.store_sync import SyncStore
from rqretry.worker.attempt import HELD
from rqretry.worker.broadcast import Broadcaster, BroadcastResults, starting_positions, unleased
from rqretry.worker.consumer import Consumer, ConsumerContext, consumer_for
from rqretry.worker.fetch import Fetcher
from rqretry.worker.heartbeat import Heartbeat
from rqretry.worker.lease_journal import LeaseJournal
from rqretry.worker.leases import Delivery, LeasedPlace
from rqretry.worker.partition_watch import PartitionWatch
from rqretry.worker.reaper import LOOK_EVERY_S, Reaper
from rqretry.worker.recycle_process import MessageLimit
from rqretry.worker.registration import (
    Activity,
    Condition,
    Registration,
    apply_spec,
    check_specs,
    join_again,
)
from rqretry.worker.schedule_loop import ScheduleLoop
from rqretry.worker.settle import Settler
from rqretry.worker.transaction_check_loop import TransactionChecks
from rqretry.worker.wakeups import Alarm, WakeUps, wait_for

log = logging.getLogger("rqretry")

GRACE_S = 25.0
_LAST_SETTLE_S = 5.0
_HURRIED_SETTLE_S = 0.5
_LAST_LEASE_S = 2.0


class Worker:
    """Runs consumers in this process until it is stopped.

    Args:
        settings: Server and namespace.
        specs: What to run.
        concurrency: Attempts at once per consumer; None for each consumer's own.
        grace: Seconds that running handlers get when the worker stops.
        explicit: Apply the settings that consumers name to their groups (docs/decisions/0018).
        hooks: Middleware and callbacks.
        declared: Partitions of topics that the app declares.
        checkers: Who is asked about transactions that nobody decided.
        library: The scripts, for tests.
        store: The server, for tests.
    """

    schedules: Sequence[ScheduleRecord] = ()
    """Whose periodic messages it publishes."""

    def __init__(
        self,
        settings: Settings,
        specs: Sequence[ConsumerSpec],
        *,
        concurrency: int | None = None,
        grace: float = GRACE_S,
        explicit: bool = True,
        hooks: Hooks | None = None,
        declared: Mapping[str, int | None] | None = None,
        checkers: Checkers | None = None,
        library: ScriptLibrary | None = None,
        store: Store | None = None,
    ) -> None:
        self.serving: Callable[[], AbstractContextManager[None]] = nullcontext
        """What it runs inside of."""
        self._checkers = (checkers or Checkers()).specs
        if not specs and not self._checkers:
            raise ConfigError("the app has no consumers: register one with @app.consumer")
        self.name = worker_name()
        self._settings = settings
        self._grace = grace
        self._explicit = explicit
        self._library = library
        self._specs = [replace(s, concurrency=s.at_once(concurrency)) for s in specs]
        self._store = store or Store(settings.url, library, notify=self._store_changed)
        self._declared = declared or {}
        self._catalog = self._new_catalog()
        self._limit: MessageLimit | None = None
        self._journal: LeaseJournal | None = None
        self._hooks = hooks or Hooks()
        self._announcer = Announcer(self._hooks)
        self._wake_ups = WakeUps(self._store)
        self._upkeep = Alarm()
        self._settler = Settler(self._store, self._announcer, self.name, self._wake_ups)
        self._broadcast = BroadcastResults(self._announcer, self.name)
        self._consumers: list[Consumer] = []
        self._all_places: list[LeasedPlace] = []
        self._leased_places: list[LeasedPlace] = []
        """What upkeep and the heartbeat go through; both grow with the partitions."""
        self._unjoined = list(self._specs)
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self.started = asyncio.Event()
        self.needs_replacement = False
        """It stops in order to be replaced by a fresh process."""
        self.changed = asyncio.Event()
        """What `condition` answers may have changed."""
        self._registration = Registration(
            self._store, self._catalog, self.name, self._specs, self._refused, self._activity
        )

    def stop(self) -> None:
        """Stop gracefully; called a second time, at once."""
        if self._stop.is_set():
            self._stop_now.set()
        self._stop.set()
        self.changed.set()

    def retire(self, why: str) -> None:
        """Stop gracefully, and ask to be replaced by a fresh process."""
        if not self._stop.is_set():
            log.info("this process drains and is replaced: %s", why)
            self.needs_replacement = True
            self.stop()

    def limit_messages(self, most: int) -> None:
        """Stop after this many finished messages, to be replaced; call it before `run`."""
        self._limit = MessageLimit(most, self.retire)

    def note_leases_in(self, journal: LeaseJournal) -> None:
        """Note there what it leases and runs; call it before `run`."""
        self._journal = journal

    def describe(self, facts: Mapping[str, Any]) -> None:
        """What the list of workers says of this one besides; call it before `run`."""
        self._registration.describe(facts)

    def _activity(self) -> Activity:
        return Activity(self.slots(), self._settler.failures, self._settler.done)

    def slots(self) -> dict[str, tuple[int, int]]:
        """Of each group how many attempts run, and how many can at once."""
        return {consumer.spec.group: consumer.slots() for consumer in self._consumers}

    def condition(self) -> Condition:
        """How this worker is, as the supervisor answers who asks for its health."""
        state = "stopping" if self.stopping else "working" if self.started.is_set() else "starting"
        refused = next(iter(self._refused()), self._store.session.eviction.fault)
        return Condition(state, self._store.fault or refused, self._store.proved_at)

    def _refused(self) -> list[str]:
        """Which places cannot be leased from or settled to, and why."""
        late = self._unjoined if self.started.is_set() else ()
        refused = [f"group {spec.group} cannot be joined" for spec in late]
        reasons = (p.leasing.reason or p.settling.reason for p in self._leased_places)
        return [*refused, *filter(None, reasons)]

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stop.is_set()

    async def run(self) -> None:
        """Join the groups, work until stopped, and give back what is not done.

        Raises:
            ConfigError: A group is of another kind, or the level tables differ.
        """
        observer.use_server(self._settings.namespace, self._store.url)
        with self.serving():
            try:
                await self._unless_stopped(self._join_until_reachable())
                await self._work()
            finally:
                await self._store.aclose()

    def _periodic(self) -> ScheduleLoop:
        publishing = Publishing(self._catalog, self._store.clock)
        return ScheduleLoop(self._store, PeriodicMessages(publishing, self.schedules))

    def _store_changed(self) -> None:
        self.changed.set()
        self._registration.soon()

    @property
    def places(self) -> list[LeasedPlace]:
        """All partitions that this process works on."""
        return list(self._all_places)

    # -- joining -----------------------------------------------------------------------------

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this, but abandon it when asked to stop: the server may keep it waiting."""
        loop = asyncio.get_running_loop()
        working, stopped = loop.create_task(work), loop.create_task(self._stop.wait())
        try:
            await asyncio.wait([working, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not working.done():
                working.cancel()
        await asyncio.wait([working])
        if not working.cancelled():
            working.result()

    async def _join_until_reachable(self) -> None:
        """Join the groups, at least one of those that lease and all that broadcast."""
        while not self._stop.is_set():
            try:
                await self._store.perform(
                    check_specs(self._new_catalog(), self._unjoined, explicit=self._explicit)
                )
                await self._join_more()
            except StoreUnavailable as error:
                log.warning("cannot start yet, trying again: %s", error)
            if not self._unjoined or (self._consumers and not _broadcasts(self._unjoined)):
                return
            await wait_for(self._stop, 1.0)

    async def _join_more(self) -> list[Consumer]:
        """Join what is not joined yet; an error keeps out its own group alone.

        Raises:
            ConfigError, InvalidArgument: What is declared does not go with what is there.
            StoreUnavailable: Nothing can be joined.
        """
        joined = []
        for spec in list(self._unjoined):
            try:
                joined.append(await self._join(spec))
                self._unjoined.remove(spec)
            except (ConfigError, InvalidArgument, StoreUnavailable):
                raise
            except RqretryError as error:
                log.warning("group %s cannot start yet, trying again: %s", spec.group, error)
        return joined

    async def _join(self, spec: ConsumerSpec) -> Consumer:
        apply = apply_spec(self._catalog, spec, explicit=self._explicit)
        consumer = self._consumer(spec, await self._store.perform(apply))
        places = await self._store.perform(self._catalog.groups.places(spec.group, spec.topics))
        found = [_place(spec, place) for place in places]
        if spec.broadcast:
            begin = starting_positions(self._catalog, found, spec.reader)
            self._broadcast.begin(await self._store.perform(begin))
        for place in found:
            self._add(consumer, place)
        self._consumers.append(consumer)
        return consumer

    async def _join_late(self, leasing: list[Consumer], fetcher: Fetcher) -> None:
        """Join the groups that could not be joined at the start."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                joined = await self._join_more()
            except RqretryError as error:
                log.warning("groups cannot be joined yet, trying again: %s", error)
                continue
            for consumer in joined:
                leasing.append(consumer)
                consumer.start()
                for place in consumer.places:
                    fetcher.add(consumer, place)

    def _consumer(self, spec: ConsumerSpec, max_retries: int) -> Consumer:
        results = self._broadcast if spec.broadcast else self._settler
        rooms = self._broadcast if spec.broadcast else self._wake_ups
        context = ConsumerContext(
            self.name, self._hooks, results, rooms, self, self._limit, self._journal
        )
        chosen = unleased(spec) if spec.broadcast else spec
        return consumer_for(chosen)(chosen, context, max_retries)

    def _add(self, consumer: Consumer, place: LeasedPlace) -> LeasedPlace:
        """Have a consumer work on one more partition."""
        consumer.places.append(place)
        self._all_places.append(place)
        if not place.broadcast:
            self._leased_places.append(place)
        return place

    def _remove(self, consumer: Consumer, place: LeasedPlace) -> LeasedPlace:
        """Have it work there no longer."""
        for places in (consumer.places, self._all_places, self._leased_places):
            places.remove(place)
        return place

    async def _rejoin(self) -> None:
        """A partition does not know the group: the server lost its data, or a copy is missing."""
        log.warning("a partition does not know its group, joining again")
        self._catalog = self._new_catalog()
        await self._store.perform(join_again(self._catalog, self._specs))

    def _new_catalog(self) -> Catalog:
        catalog = Catalog(self._settings.namespace, self._settings.levels, self.name)
        catalog.topics.declared = self._declared
        return catalog

    # -- what consumers report -----------------------------------------------------------------

    def stuck(self) -> None:
        """Handlers that timed out go on, in all threads of a consumer or in a message group."""
        if not self.stopping:
            log.error("handlers of a consumer that timed out do not end")
        self.retire("its handlers are stuck")

    def lease_lost(self, delivery: Delivery) -> None:
        """A lease ended while its message was handled."""
        if self._announcer.wants("lease_lost"):
            place = delivery.place
            lost = Event(
                "lease_lost", self.name, place.keys.group, place.topic, delivery.id,
                delivery.attempt,
            )  # fmt: skip
            self._announcer.post(lost)

    # -- working -----------------------------------------------------------------------------

    async def _work(self) -> None:
        if self._specs and not self._consumers:  # stopped before the server was reached
            return
        leasing, reading = self._those(broadcast=False), self._those(broadcast=True)
        fetcher = Fetcher(
            self._store,
            leasing,
            self.name,
            self._rejoin,
            self._wake_ups,
            self._upkeep,
            self._store_changed,
            self._settler,
        )
        broadcaster = Broadcaster(self._store, reading, self._broadcast, self._rejoin, self._upkeep)
        reaper = Reaper(self._store, self._catalog, self._all_places, self.name, self._upkeep)
        heartbeat = Heartbeat(
            SyncStore(self._settings.url, self._library, repeat_seconds=2.0),
            self._leased_places,
            self._lose,
            self.name,
            self._registration.blocked,
        )
        partition_watch = PartitionWatch(
            self._store,
            self._catalog,
            leasing,
            lambda c, found: fetcher.add(c, self._add(c, _place(c.spec, found))),
            lambda c, place: fetcher.remove(self._remove(c, place)),
            fetcher.look_again,
        )
        checks = TransactionChecks(self._store, self._catalog, self._checkers, self.name)
        for consumer in self._consumers:
            consumer.start()
        start = asyncio.get_running_loop().create_task
        fetching = start(fetcher.run(), name="fetcher")
        broadcasting = start(broadcaster.run(), name="broadcaster")
        others = [
            start(heartbeat.run(), name="heartbeat"),
            start(self._settler.run(), name="settler"),
            start(reaper.run(), name="reaper"),
            start(self._registration.run(), name="registration"),
            start(partition_watch.run(), name="partition watch"),
            start(self._announcer.run(), name="announcer"),
            start(checks.run(), name="transaction checks"),
            start(self._join_late(leasing, fetcher), name="late joiner"),
            broadcasting,
        ]
        if self.schedules:
            others.append(start(self._periodic().run(), name="schedules"))
        self.started.set()
        self.changed.set()
        try:
            self._announcer.post(Event("started", self.name))
            await self._until_stopped([fetching, *others])
            broadcasting.cancel()
            await self._wind_down(fetching)
            await broadcaster.count_last()
        finally:
            heartbeat.stop()
            checks.close()
            await self._end([fetching, *others])

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for consumer in self._consumers:
            consumer.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._wake_ups.close()
        await self._registration.end()
        await self._announcer.close(Event("stopped", self.name))

    def _those(self, *, broadcast: bool) -> list[Consumer]:
        return [c for c in self._consumers if c.spec.broadcast is broadcast]

    async def _until_stopped(self, tasks: list[asyncio.Task[None]]) -> None:
        stopped = asyncio.get_running_loop().create_task(self._stop.wait())
        everything: list[asyncio.Task[Any]] = [stopped, *tasks]
        await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        for task in tasks:
            if task.done():
                task.result()  # a part that ends by itself has failed: raise why, and be replaced
                raise RuntimeError(f"{task.get_name()} ended")

    async def _wind_down(self, fetching: asyncio.Task[None]) -> None:
        """Lease nothing more, give back what has not started, drain, give back the rest."""
        self._wake_ups.stop()
        # Wait for a lease that is under way, unless the server does not answer.
        patience = _LAST_LEASE_S if self._store.fault is None else 0.0
        await asyncio.wait([fetching], timeout=patience)
        until = time.monotonic() + self._grace
        drains = asyncio.gather(*(consumer.drain(until) for consumer in self._consumers))
        hurry = asyncio.get_running_loop().create_task(self._stop_now.wait())
        either: list[asyncio.Future[Any]] = [drains, hurry]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        drains.cancel()
        hurry.cancel()
        await asyncio.gather(*either, return_exceptions=True)
        for consumer in self._consumers:
            consumer.abandon()
        patience = _HURRIED_SETTLE_S if self._stop_now.is_set() else _LAST_SETTLE_S
        await self._settler.finish(time.monotonic() + patience)

    def _lose(self, delivery: Delivery) -> None:
        for consumer in self._consumers:
            if delivery.place in consumer.places:
                consumer.running.lose(delivery)


def _place(spec: ConsumerSpec, found: tuple[str, int, GroupKeys]) -> LeasedPlace:
    return LeasedPlace(
        *found,
        spec.visibility_ms / 1000,
        longest_s=(HELD if spec.ordered else 1) * spec.consume_timeout_ms / 1000,
        broadcast=spec.broadcast,
        ordered=spec.ordered,
    )


def _broadcasts(specs: Sequence[ConsumerSpec]) -> bool:
    return any(spec.broadcast for spec in specs)
