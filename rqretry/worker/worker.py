"""A worker process: puts the parts together, starts them in order, and stops them in order."""

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rqretry.catalog.catalog import Catalog
from rqretry.consumer.registry import ConsumerSpec
from rqretry.consumer.transaction_checker import Checkers
from rqretry.core.catalog_records import BROADCAST, PUSH
from rqretry.core.errors import ConfigError, RqretryError
from rqretry.core.middleware import Announcer, Event, Hooks
from rqretry.core.settings import Settings
from rqretry.core.worker_name import worker_name
from rqretry.protocol.command import Operation
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.store import Store
from rqretry.transport.store_sync import SyncStore
from rqretry.worker.broadcast import Broadcaster, Ends, starting_positions, unleased
from rqretry.worker.consumer import Consumer
from rqretry.worker.fetch import Fetcher
from rqretry.worker.heartbeat import Heartbeat
from rqretry.worker.leases import Delivery, Place
from rqretry.worker.partition_watch import Growth
from rqretry.worker.reaper import Reaper
from rqretry.worker.recycle_process import retire_after_messages
from rqretry.worker.registration import Condition, Presence
from rqretry.worker.settle import Settler
from rqretry.worker.transaction_check_loop import CheckBack

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
        explicit: Apply the settings that consumers name to their groups (decisions 20).
        hooks: Middleware and callbacks.
        declared: Partitions of topics that the app declares.
        checkers: Who is asked about transactions that nobody decided.
        library: The scripts, for tests.
    """

    def __init__(
        self,
        settings: Settings,
        specs: Sequence[ConsumerSpec],
        *,
        concurrency: int | None = None,
        grace: float = GRACE_S,
        explicit: bool = True,
        hooks: Hooks | None = None,
        declared: Mapping[str, int] | None = None,
        checkers: Checkers | None = None,
        library: ScriptLibrary | None = None,
    ) -> None:
        self._checkers = (checkers or Checkers()).specs
        if not specs and not self._checkers:
            raise ConfigError("the app has no consumers: register one with @app.consumer")
        self.name = worker_name()
        self._settings = settings
        self._grace = grace
        self._explicit = explicit
        self._library = library
        self._specs = [replace(s, concurrency=concurrency) if concurrency else s for s in specs]
        self._store = Store(settings.url, library)
        self._declared = declared or {}
        self._catalog = self._new_catalog()
        self._hooks = hooks or Hooks()
        self._announcer = Announcer(self._hooks)
        self._settler = Settler(self._store, self._announcer, self.name)
        self._ends = Ends(self._announcer, self.name)
        self._consumers: list[Consumer] = []
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self.started = asyncio.Event()
        self.needs_replacement = False
        """It stops in order to be replaced by a fresh process."""
        self.max_messages: int | None = None
        """It stops to be replaced when it has finished so many; set before `run`."""
        self.changed = asyncio.Event()
        """What `condition` answers may have changed."""
        self._presence = Presence(self._store, self._catalog.keys, self.name, self._specs)
        self._store.on_change = self._store_changed

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

    def condition(self) -> Condition:
        """How this worker is, as the supervisor tells who asks for its health."""
        state = "stopping" if self.stopping else "working" if self.started.is_set() else "starting"
        return Condition(state, self._store.fault, self._store.proved_at)

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stop.is_set()

    async def run(self) -> None:
        """Join the groups, work until stopped, and give back what is not done.

        Raises:
            ConfigError: A group is of another kind, or the level tables differ.
        """
        try:
            await self._unless_stopped(self._join_until_reachable())
            await self._work()
        finally:
            await self._store.aclose()

    def _store_changed(self) -> None:
        self.changed.set()
        self._presence.trouble()

    @property
    def places(self) -> list[Place]:
        """All partitions that this process works on."""
        return [place for consumer in self._consumers for place in consumer.places]

    # -- joining -----------------------------------------------------------------------------

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this; when told to stop leave it, however long the server lets it wait."""
        loop = asyncio.get_running_loop()
        working, stopped = loop.create_task(work), loop.create_task(self._wait_for_stop())
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
        while not self._stop.is_set():
            try:
                self._consumers = [await self._join(spec) for spec in self._specs]
            except ConfigError:
                raise
            except RqretryError as error:
                log.warning("cannot start yet, trying again: %s", error)
                await self._pause(1.0)
            else:
                return

    async def _join(self, spec: ConsumerSpec) -> Consumer:
        consumer = self._consumer(spec)
        visibility_s = consumer.spec.visibility_ms / 1000
        record = await self._store.perform(apply_spec(self._catalog, spec, explicit=self._explicit))
        consumer.execution.max_retries = record
        places = await self._store.perform(self._catalog.groups.places(spec.group, spec.topics))
        for name, number, keys in places:
            consumer.places.append(Place(name, number, keys, visibility_s))
        consumer.on_stuck = self._replace
        consumer.on_lost = self._announce_lost
        if spec.broadcast:
            await self._begin_broadcast(consumer)
        return consumer

    async def _begin_broadcast(self, consumer: Consumer) -> None:
        for place in consumer.places:
            place.broadcast = True
        begin = starting_positions(self._catalog, consumer.places)
        for position in await self._store.perform(begin):
            self._ends.positions[position.place] = position

    def _consumer(self, spec: ConsumerSpec) -> Consumer:
        if not spec.broadcast:
            return Consumer(spec, self._settler, self._hooks, self.name)
        return Consumer(unleased(spec), self._ends, self._hooks, self.name)

    async def _rejoin(self) -> None:
        """A partition does not know the group: the server lost its data, or a copy is missing."""
        log.warning("a partition does not know its group, joining again")
        self._catalog = self._new_catalog()
        for spec in self._specs:
            await self._store.perform(apply_spec(self._catalog, spec, explicit=False))

    def _new_catalog(self) -> Catalog:
        catalog = Catalog(self._settings.namespace, self._settings.levels, self.name)
        catalog.topics.declared = self._declared
        return catalog

    def _replace(self) -> None:
        log.error("all threads of a consumer are stuck in handlers that timed out")
        self.retire("its threads are stuck")

    # -- working -----------------------------------------------------------------------------

    async def _work(self) -> None:
        if self._specs and not self._consumers:  # stopped before the server was reached
            return
        leasing = self._those(broadcast=False)
        fetcher = Fetcher(self._store, leasing, self.name, self._rejoin)
        casting = self._those(broadcast=True)
        broadcaster = Broadcaster(self._store, casting, self._ends, self._rejoin)
        places = self.places  # these lists grow with the partitions
        leased = [place for consumer in leasing for place in consumer.places]
        reaper = Reaper(self._store, self._catalog, places, self.name)
        fetcher.changed, broadcaster.on_entry = reaper.changed, reaper.look_at
        self._settler.on_settled = fetcher.look_for_room
        if self.max_messages is not None:
            retire_after_messages(self._consumers, self.max_messages, self.retire)
        heartbeat = Heartbeat(
            SyncStore(self._settings.url, self._library, repeat_seconds=2.0),
            leased,
            self._lose,
        )
        growth = Growth(self._store, self._catalog, fetcher, (places, leased))
        check_back = CheckBack(self._store, self._catalog, self._checkers, self.name)
        for consumer in self._consumers:
            consumer.start()
        heartbeat.start()
        loop = asyncio.get_running_loop()
        broadcasting, fetching = (
            loop.create_task(broadcaster.run(), name="broadcaster"),
            loop.create_task(fetcher.run(), name="fetcher"),
        )
        others = [
            loop.create_task(self._settler.run(), name="settler"),
            loop.create_task(reaper.run(), name="reaper"),
            loop.create_task(self._presence.run(), name="presence"),
            loop.create_task(growth.run(), name="growth"),
            loop.create_task(self._announcer.run(), name="announcer"),
            loop.create_task(check_back.run(), name="check-back"),
            broadcasting,
        ]
        self.started.set()
        self.changed.set()
        try:
            await self._hooks.emit(Event("started", self.name))
            await self._until_stopped([fetching, *others])
            broadcasting.cancel()
            await self._wind_down(fetcher, fetching)
            await broadcaster.tell_last()
        finally:
            heartbeat.stop()
            check_back.close()
            await self._end([fetching, *others])

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for consumer in self._consumers:
            consumer.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._presence.say_goodbye()
        await self._announcer.finish()
        await self._hooks.emit(Event("stopped", self.name))

    def _those(self, *, broadcast: bool) -> list[Consumer]:
        return [c for c in self._consumers if c.spec.broadcast is broadcast]

    async def _until_stopped(self, tasks: list[asyncio.Task[None]]) -> None:
        stopped = asyncio.get_running_loop().create_task(self._wait_for_stop())
        everything: list[asyncio.Task[None]] = [stopped, *tasks]
        await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        for task in tasks:
            if task.done():
                task.result()  # a part that ends by itself has failed: say why, and be replaced
                raise RuntimeError(f"{task.get_name()} ended")

    async def _wait_for_stop(self) -> None:
        await self._stop.wait()

    async def _wind_down(self, fetcher: Fetcher, fetching: asyncio.Task[None]) -> None:
        """Lease nothing more, give back what has not started, drain, give back the rest."""
        await fetcher.stop()
        # A lease under way is worth waiting for, but not from a server that does not answer.
        patience = _LAST_LEASE_S if self._store.fault is None else 0.0
        await asyncio.wait([fetching], timeout=patience)
        until = time.monotonic() + self._grace
        drains = asyncio.gather(*(consumer.drain(until) for consumer in self._consumers))
        hurry = asyncio.get_running_loop().create_task(self._stop_now.wait())
        either: list[asyncio.Future[Any]] = [drains, hurry]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        drains.cancel()
        hurry.cancel()
        for consumer in self._consumers:
            consumer.abandon()
        patience = _HURRIED_SETTLE_S if self._stop_now.is_set() else _LAST_SETTLE_S
        await self._settler.finish(time.monotonic() + patience)

    def _lose(self, delivery: Delivery) -> None:
        for consumer in self._consumers:
            if delivery.place in consumer.places:
                consumer.lose(delivery)

    def _announce_lost(self, delivery: Delivery) -> None:
        if self._announcer.wants("lease_lost"):
            place = delivery.place
            lost = Event(
                "lease_lost", self.name, place.keys.group, place.topic, delivery.id,
                delivery.attempt,
            )  # fmt: skip
            self._announcer.post(lost)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            pass


def apply_spec(catalog: Catalog, spec: ConsumerSpec, *, explicit: bool) -> Operation[int]:
    """Subscribe a consumer's group; `explicit`: what the consumer names becomes the group's.

    Returns:
        The group's max_retries; -1 is unlimited.
    """
    settings: dict[str, Any] = {}
    if explicit and spec.max_retries is not None:
        settings["max_retries"] = spec.max_retries
    if explicit and spec.policy is not None:
        settings["policy"] = replace(spec.policy, max_retries=None)
    if explicit and spec.tags is not None:
        settings["tags"] = spec.tags
    if explicit and spec.max_inflight is not None:
        settings["max_inflight"] = spec.max_inflight
    if explicit and spec.rate_limit is not None:
        settings["rate_limit"] = spec.rate_limit
    kind = BROADCAST if spec.broadcast else PUSH
    record = yield from catalog.join(
        spec.group, kind, spec.topics, start=spec.start, ordered=spec.ordered, **settings
    )
    return 0 if spec.broadcast else record.max_retries
