"""The processes of a run: real workers and real clients, whose wires are simulated."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rqretry.app import App
from rqretry.consumer.registry import ConsumerSpec
from rqretry.consumer.transaction_checker import TransactionCheck, TransactionResolution
from rqretry.core.consume_result import ConsumeResult
from rqretry.core.errors import RqretryError
from rqretry.core.message import Message
from rqretry.core.parts import parts_of
from rqretry.core.retry_policy import RetryPolicy
from rqretry.protocol.command import batches
from rqretry.protocol.lease import OK, renew
from rqretry.protocol.maintain import register
from rqretry.transport.store import Store
from rqretry.worker.consumer import Consumer
from rqretry.worker.fetch import Fetcher
from rqretry.worker.leases import Delivery, LeasedPlace
from rqretry.worker.partition_watch import PartitionWatch
from rqretry.worker.reaper import Reaper
from rqretry.worker.registration import ROSTER_EVERY_S
from rqretry.worker.transaction_check_loop import TransactionChecks
from rqretry.worker.worker import Worker
from tests.model.simulation.plans import MAX_POSTPONES, GroupPlan

TOPIC = "t"
PRODUCERS = "producers"
SCHEDULE = "tick"

Handle = Callable[[str, list[Message[Any]]], Any]
"""What becomes of each of some messages that a group's handler was called with, in their order."""
Check = Callable[[TransactionCheck], TransactionResolution]


class Ordered(dict[Any, None]):
    """As much of a set as a consumer needs, in one order for every run of a seed."""

    def add(self, item: Any) -> None:
        """Put it in."""
        self[item] = None

    def discard(self, item: Any) -> None:
        """Take it out, if it is in."""
        self.pop(item, None)


class SimulatedWorker(Worker):
    """A worker whose leases are renewed by a task, as there is one thread; the rest is as it is."""

    def __init__(self, app: App, store: Store) -> None:
        super().__init__(
            parts_of(app).settings,
            parts_of(app).consumers,
            checkers=parts_of(app).checkers,
            hooks=parts_of(app).hooks,
            store=store,
        )
        self.schedules = parts_of(app).schedules

    async def _join(self, spec: ConsumerSpec) -> Consumer:
        consumer = await super()._join(spec)
        consumer.running.deliveries = Ordered()  # type: ignore[assignment]
        return consumer

    async def _work(self) -> None:
        if self._specs and not self._consumers:  # stopped before it had joined
            return
        leasing = list(self._consumers)
        fetcher = Fetcher(
            self._store,
            leasing,
            self.name,
            self._rejoin,
            self._wake_ups,
            self._upkeep,
            self._registration.soon,
            self._settler,
        )
        reaper = Reaper(self._store, self._catalog, self._all_places, self.name, self._upkeep)
        check_back = TransactionChecks(self._store, self._catalog, self._checkers, self.name)
        for consumer in self._consumers:
            consumer.start()
        partition_watch = PartitionWatch(
            self._store,
            self._catalog,
            leasing,
            lambda c, found: fetcher.add(
                c,
                self._add(
                    c,
                    LeasedPlace(*found, c.spec.visibility_ms / 1000, ordered=c.spec.ordered),
                ),
            ),
            lambda c, place: fetcher.remove(self._remove(c, place)),
            fetcher.look_again,
        )
        loop = asyncio.get_running_loop()
        fetching = loop.create_task(fetcher.run(), name="fetcher")
        others = [
            loop.create_task(self._settler.run(), name="settler"),
            loop.create_task(reaper.run(), name="reaper"),
            loop.create_task(partition_watch.run(), name="partition watch"),
            loop.create_task(check_back.run(), name="transaction checks"),
            loop.create_task(self._join_late(leasing, fetcher), name="late joiner"),
            loop.create_task(
                renew_leases(self._store, self._leased_places, self._lose), name="heartbeat"
            ),
        ]
        if self.schedules:
            others += [
                loop.create_task(self._periodic().run(), name="schedules"),
                loop.create_task(self._note_time(), name="registration"),
            ]
        self.started.set()
        try:
            await self._until_stopped([fetching, *others])
            await self._wind_down(fetching)
        finally:
            await self._end([fetching, *others])

    async def _note_time(self) -> None:
        """Say that it lives, as far as the time of the namespace needs it."""
        alive = register(self._catalog.keys, worker=self.name, about="{}", ttl_ms=15_000)
        while True:
            with suppress(RqretryError):
                await self._store.run(alive)
            await asyncio.sleep(ROSTER_EVERY_S)


async def renew_leases(
    store: Store, places: list[LeasedPlace], lose: Callable[[Delivery], None]
) -> None:
    """What worker/heartbeat.py does in a thread, with its rules."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(min((place.visibility_s for place in places), default=30.0) / 6)
        for place in list(places):
            old = place.leases.sent_before(loop.time() - place.visibility_s / 3)
            for batch in batches(old):
                sent_at = loop.time()
                command = renew(
                    place.keys,
                    [delivery.receipt for delivery in batch],
                    visibility_ms=round(place.visibility_s * 1000),
                    expected_ms=place.schedule.expected_again_ms(sent_at),
                )
                try:
                    (verdicts,) = await store.run_each([command], 2.0)
                except RqretryError:
                    continue
                if isinstance(verdicts, Exception):
                    continue
                for delivery, verdict in zip(batch, verdicts, strict=True):
                    if verdict == OK:
                        delivery.sent_at = sent_at
                    elif not delivery.settled:
                        lose(delivery)


def app_of(
    url: str,
    namespace: str,
    groups: list[GroupPlan],
    handle: Handle,
    check: Check,
    every_s: int,
) -> App:
    """The app of a worker process; with a schedule, if `every_s` is not 0."""
    app = App(url, namespace=namespace)
    if every_s:
        app.cron(
            every=every_s,
            name=SCHEDULE,
            body={"n": SCHEDULE},
            catch_up="all",
            policy=RetryPolicy.fixed("500ms"),
            visibility=2,
        )(_handler(SCHEDULE, handle))
    for group in groups:
        handler = (_batch_handler if group.batch else _handler)(group.name, handle)
        parts_of(app).register(TOPIC, group.name, options_of(group))(handler)

    @app.transaction_checker(PRODUCERS, check_after=2, check_every=3, timeout=2)
    async def checker(asked: TransactionCheck) -> TransactionResolution:
        return check(asked)

    return app


def options_of(group: GroupPlan) -> dict[str, Any]:
    """A group as its consumers name it."""
    first = group.ladder.split()[0]
    options: dict[str, Any] = {
        "max_retries": group.max_retries,
        "policy": RetryPolicy.fixed(first) if group.ordered else RetryPolicy.ladder(group.ladder),
        "concurrency": group.concurrency,
        "visibility": group.visibility_s,
        "consume_timeout": 12,
        "max_postpones": MAX_POSTPONES,
        "ordered": group.ordered,
        "tags": group.tags,
    }
    if group.max_inflight is not None:
        options["max_inflight"] = group.max_inflight
    if group.rate_limit is not None:
        options["rate_limit"] = group.rate_limit
    if group.batch:
        options |= {"batch": group.batch, "batch_wait": "100ms"}
        if group.ordered:
            del options["concurrency"]
    return options


def _handler(name: str, handle: Handle) -> Callable[[Message[Any]], Any]:
    async def handler(message: Message[Any]) -> ConsumeResult:
        (result,) = await handle(name, [message])
        if isinstance(result, BaseException):
            raise result
        return result  # type: ignore[no-any-return]

    handler.__qualname__ = name
    return handler


def _batch_handler(name: str, handle: Handle) -> Callable[[list[Message[Any]]], Any]:
    async def handler(messages: list[Message[Any]]) -> Any:
        """What failed first fails all of them, or is said of each, or left out."""
        results = await handle(name, messages)
        how = sum(messages[0].id.encode()) % 3
        failed = [result for result in results if result is not ConsumeResult.SUCCESS]
        if how == 0 and failed:
            if isinstance(failed[0], BaseException):
                raise failed[0]
            return failed[0]
        pairs = zip(messages, results, strict=True)
        return {m.id: result for m, result in pairs if how == 1 or result not in failed}

    handler.__qualname__ = name
    return handler
