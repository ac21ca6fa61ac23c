"""Runs the lab: one message at a time in a fixed order, the clock from due time to due time.

Nothing here decides what happens to a message; the scripts do.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from rqretry.core.durations import spell
from rqretry.core.failure_record import describe_cause
from rqretry.protocol.lease import renew
from rqretry.testing.clock import VirtualClock, clock_key
from rqretry.testing.faults import Fault, Faults
from rqretry.testing.lab_stores import LabStore, score
from rqretry.testing.lab_workers import LabPlace, LabWorkers
from rqretry.worker.consumer import Consumer
from rqretry.worker.leases import Delivery

MAX_STEPS = 10_000
"""Attempts of one run, unless the test says otherwise; more count as an endless loop."""


One = tuple[LabPlace, Delivery]
Taken = list[One]
"""What a handler is called with next: a message, or the messages of a batch."""


@dataclass(frozen=True, slots=True)
class Running:
    """What the handler that is running in this context was called with."""

    taken: Taken

    @property
    def worker(self) -> str:
        """The worker's name."""
        return self.taken[0][0].worker

    def crash(self) -> None:
        """The worker dies: nothing of it is reported."""
        for _, delivery in self.taken:
            delivery.lost = True

    def of(self, id_: str | None) -> One | None:
        """The message with an id, or the first; None: another handler has it."""
        return next((one for one in self.taken if id_ in (None, one[1].id)), None)


@dataclass(slots=True)
class Gathering:
    """A batch that is not full, and when its first message came."""

    since_ms: int
    taken: Taken


@dataclass(slots=True)
class Budget:
    """How many attempts a run may make, and has made."""

    most: int
    used: int = 0


RUNNING: ContextVar[Running | None] = ContextVar("rqretry_lab_running", default=None)
"""Handlers, async or in threads, inherit it."""


class Engine:
    """The workers of a lab's apps, its faults and its clock."""

    def __init__(self, store: LabStore, clock: VirtualClock, namespace: str) -> None:
        self.apps: list[LabWorkers] = []
        self.faults = Faults()
        self.clock = clock
        self._store = store
        self._key = clock_key(namespace)
        self._gathering: dict[Consumer, Gathering] = {}
        """Batches that wait for more."""
        self._finished: dict[tuple[str, str], int] = {}
        """How many deliveries of (group, id) have ended."""
        self.set_clock(clock.ms)

    @property
    def places(self) -> list[LabPlace]:
        """All partitions of all groups, in the order in which consumers were registered."""
        return [place for app in self.apps for place in app.places]

    def join(self) -> None:
        """Subscribe the groups of consumers that were registered since the last call."""
        for app in self.apps:
            app.join()

    # -- time ----------------------------------------------------------------------------------

    def set_clock(self, now_ms: int) -> None:
        """Virtual time is now this; it never goes back."""
        self.clock.ms = max(now_ms, self.clock.ms)
        self._store.set_clock(self._key, self.clock.ms)

    def set_attempt(self, place: LabPlace, id_: str, number: int, last_error: str) -> None:
        """Number the next delivery of a message, where its partition has it."""
        keys = place.keys
        if self._store.read(bool, "HEXISTS", keys.partition.bodies, id_):
            self._store.write("HSET", keys.attempts, id_, f"1:{number}:0:0")
            if last_error:
                record = f"{number - 1} {self.clock.ms} {describe_cause('failure', last_error)}\n"
                self._store.write("HSET", keys.failures, id_, record)

    def next_due(self) -> int | None:
        """The next virtual time in ms at which something is due; after run()."""
        times = [place.next_due_ms for place in self.places] + [app.check_at for app in self.apps]
        times += [app.publish_at for app in self.apps]
        times += [_ripe_ms(consumer, batch) for consumer, batch in self._gathering.items()]
        return min((at for at in times if at is not None), default=None)

    async def advance(self, end_ms: int | None, most: int) -> int:
        """Run what is due, at each due time until `end_ms`; None: until the next one only."""
        async with self._started():
            budget = Budget(most)
            await self._run(budget)
            due_ms = self.next_due()
            while due_ms is not None and (end_ms is None or due_ms <= end_ms):
                self._pass_to(due_ms)
                await self._run(budget)
                if end_ms is None:
                    break
                due_ms = self.next_due()
            if end_ms is not None:
                self._pass_to(end_ms)
            return budget.used

    def _pass_to(self, end_ms: int) -> None:
        """Let time pass; what is kept for a time is forgotten on the way, when it is over."""
        for app in self.apps:
            app.forget(self.clock.ms)
            while app.forget_at is not None and app.forget_at <= end_ms:
                self.set_clock(app.forget_at)
                app.forget(self.clock.ms)
        self.set_clock(end_ms)

    # -- running -------------------------------------------------------------------------------

    async def run(self, most: int) -> int:
        """Run everything that is ready or due now."""
        budget = Budget(most)
        async with self._started():
            await self._run(budget)
        return budget.used

    async def _run(self, budget: Budget, done: Callable[[], bool] = bool) -> None:
        self.join()
        for app in self.apps:
            app.publish_due(self.clock.ms)
        while not done():
            taken = self._take()
            if taken is None:
                # Transactions that are due may make messages ready.
                if any([await app.check_back(self.clock.ms) for app in self.apps]):
                    continue
                break
            if budget.used >= budget.most:
                self._give_up(*taken[0], budget)
            budget.used += len(taken)
            await self._attempt(taken)

    def _take(self) -> Taken | None:
        idle = False
        while not idle:
            idle, now_ms = True, self.clock.ms
            for place in self.places:
                if not place.workers.may_have(place, now_ms):
                    continue
                idle = False
                delivery = place.workers.next(place, now_ms)
                taken = None if delivery is None else self._gather(place, delivery)
                if taken is not None:
                    return taken
        return self._take_ripe()

    def _gather(self, place: LabPlace, delivery: Delivery) -> Taken | None:
        """Put a message into the next batch; that batch, if it is full, or no batch is wanted."""
        consumer = place.consumer
        if not consumer.spec.batch:
            return [(place, delivery)]
        batch = self._gathering.setdefault(consumer, Gathering(self.clock.ms, []))
        if any(other.id == delivery.id for _, other in batch.taken):  # of another topic
            self._gathering[consumer] = Gathering(self.clock.ms, [(place, delivery)])
            return batch.taken
        batch.taken.append((place, delivery))
        if len(batch.taken) < consumer.spec.batch:
            return None
        return self._gathering.pop(consumer).taken

    def _take_ripe(self) -> Taken | None:
        for consumer, batch in self._gathering.items():
            if _ripe_ms(consumer, batch) <= self.clock.ms:
                return self._gathering.pop(consumer).taken
        return None

    async def _attempt(self, taken: Taken) -> None:
        faults = [self.faults.take(place.worker, delivery.id) for place, delivery in taken]
        if Fault.CRASH in faults:
            for place, delivery in taken:
                place.leases.end(delivery)
        else:
            for one, fault in zip(taken, faults, strict=True):
                if fault is Fault.DUPLICATE:
                    await self.duplicate(*one)
            await self._handle(taken, crashes=Fault.CRASH_AFTER in faults)
            for one, fault in zip(taken, faults, strict=True):
                if fault is Fault.LOSE_LEASE:
                    self.lose(*one, taken)
            for place in dict.fromkeys(place for place, _ in taken):
                await place.workers.settle(place)
        for place, delivery in taken:
            key = (place.worker, delivery.id)
            self._finished[key] = self._finished.get(key, 0) + 1

    async def _handle(self, taken: Taken, *, crashes: bool) -> None:
        consumer = taken[0][0].consumer
        running = Running(taken)
        if crashes:
            running.crash()
        token = RUNNING.set(running)
        try:
            await consumer.process_all([delivery for _, delivery in taken])
        finally:
            RUNNING.reset(token)
        for place, delivery in taken:
            if delivery.lost:  # crashed: no result reaches the server
                place.tracebacks.take()
                place.leases.end(delivery)

    def _give_up(self, place: LabPlace, delivery: Delivery, budget: Budget) -> None:
        raise AssertionError(
            f"not idle after {budget.used} attempts: message {delivery.id} of {place.topic}"
            f" is delivered to {place.worker} again, attempt {delivery.attempt}, at"
            f" {spell(self.clock.seconds(self.clock.ms))}; does its handler retry, postpone or"
            " publish without a delay, or its ordered group without a limit? Name max_retries, or"
            " raise max_steps if that many attempts are intended"
        )

    @asynccontextmanager
    async def _started(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for app in self.apps:
                await stack.enter_async_context(app.at_work())
            for place in self.places:
                place.polled = -1  # somebody may have published from elsewhere
            yield

    # -- leases that end while a handler runs ----------------------------------------------------

    def lose(self, place: LabPlace, delivery: Delivery, batch: Taken | None = None) -> None:
        """Let a lease end: time moves on to its deadline, and the message expires.

        The others of its batch are renewed, as in a worker.
        """
        deadline = score(self._store, place.keys.inflight, delivery.id)
        if deadline is None:
            return
        running = RUNNING.get()
        for other, held in batch or (running.taken if running else ()):
            if held is not delivery:
                visibility_ms = other.consumer.spec.visibility_ms
                self.set_clock(deadline - 1)
                self._store.run(renew(other.keys, [held.receipt], visibility_ms=visibility_ms))
        self.set_clock(deadline)
        place.workers.expire(place)
        if delivery.message is not None:
            delivery.message.cancelled = True
        place.workers.lease_lost(delivery)

    async def duplicate(self, place: LabPlace, delivery: Delivery) -> bool:
        """End the lease, and run what is due until the message was delivered once more.

        Returns:
            Whether it was; not if that was its last attempt.
        """
        key = (place.worker, delivery.id)
        before = self._finished.get(key, 0)
        self.lose(place, delivery)
        token, budget = RUNNING.set(None), Budget(MAX_STEPS)
        try:
            while True:
                await self._run(budget, lambda: self._finished.get(key, 0) > before)
                if self._finished.get(key, 0) > before:
                    return True
                due_ms = self.next_due()
                dead = score(self._store, place.keys.dead, delivery.id) is not None
                if due_ms is None or dead:
                    return False
                self.set_clock(due_ms)
        finally:
            RUNNING.reset(token)


def _ripe_ms(consumer: Consumer, batch: Gathering) -> int:
    """When a batch starts that is not full, in virtual milliseconds."""
    return batch.since_ms + consumer.spec.batch_wait_ms
