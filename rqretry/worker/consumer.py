"""One consumer in one process: it runs the attempts of one handler.

The path of a message here: fetch.py hands over what it leased, a slot (slots.py) takes it,
attempt.py runs the handler, and settle.py reports the result to the server.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar

from rqretry.consumer.registry import ConsumerSpec
from rqretry.core.consume_result import ConsumeResult, Outcome
from rqretry.core.middleware import Hooks
from rqretry.protocol.command import MAX_BATCH
from rqretry.protocol.lease import Failure
from rqretry.worker.attempt import Execution, RunningAttempts, RunningBatches
from rqretry.worker.batch_attempt import BatchCaller
from rqretry.worker.batch_slots import BatchSlots
from rqretry.worker.invoker import Waiting, make_caller
from rqretry.worker.lease_journal import LeaseJournal, Region
from rqretry.worker.leases import ConsumerEvents, Delivery, LeasedPlace, Results
from rqretry.worker.recycle_process import MessageLimit
from rqretry.worker.slots import LONGEST_RUN_S, Buffer, Slots
from rqretry.worker.wakeups import Rooms

log = logging.getLogger("rqretry")

_UNSETTLED_MOST = 4 * MAX_BATCH
_ORDERED_RUN_S = 0.0005
"""Sooner than elsewhere: nothing of a message group can be leased before its result is sent, so
while the server lets the next ones of some go, the rest runs here."""


@dataclass(frozen=True, slots=True)
class ConsumerContext:
    """What a consumer gets from its worker."""

    worker: str
    hooks: Hooks
    results: Results
    rooms: Rooms
    events: ConsumerEvents
    limit: MessageLimit | None = None
    """How many messages the process may finish."""
    journal: LeaseJournal | None = None
    """Where its supervisor reads what it has."""


class Consumer:
    """Runs the messages of one registered handler; `max_retries` are those of its group."""

    _of_running: ClassVar[type[RunningAttempts]] = RunningAttempts

    def __init__(self, spec: ConsumerSpec, context: ConsumerContext, max_retries: int) -> None:
        self.spec = spec
        self.places: list[LeasedPlace] = []
        self._context = context
        self._results = context.results
        self._caller = make_caller(spec)
        self._abandoned = False
        self.execution = Execution(
            spec, self._caller.call, context.hooks, context.worker, max_retries
        )
        self.running = self._of_running(
            spec, self.execution, context.results, context.events, self._caller.can_stick
        )
        self._slots = self._new_slots()
        self._noted: Region | None = None
        if context.journal is not None and not spec.broadcast:
            self._noted = context.journal.region(spec.concurrency)
            self._slots.running, self._slots.counts = self._noted.firsts, self._noted.counts
        self._watching: asyncio.Task[None] | None = None

    # -- for leasing -------------------------------------------------------------------------

    def room(self) -> int:
        """How many messages to lease now; 0 while the buffer is well filled."""
        room = self._slots.room(len(self.running))
        if room and (unsettled := self._results.unsettled):
            group = self.spec.group
            held = [len(place.outbox) for place in unsettled if place.keys.group == group]
            return 0 if sum(held) > _UNSETTLED_MOST else room
        return room

    def accept(self, deliveries: list[Delivery]) -> None:
        """Take messages leased from one place; slots start on them at once."""
        if self._noted is not None:
            self._noted.leased(self._slots.accepted + 1, deliveries)
        self._slots.accept(deliveries)

    def slots(self) -> tuple[int, int]:
        """How many attempts run, and how many can at once; in a batch consumer batches."""
        return sum(map(bool, self._slots.running)), self.spec.concurrency

    # -- starting and stopping ---------------------------------------------------------------

    def start(self) -> None:
        """Start the slots and the watch."""
        name = self.spec.group
        self._slots.start(name)
        loop = asyncio.get_running_loop()
        self._watching = loop.create_task(self._watch(), name=f"{name} watch")

    async def drain(self, until: float) -> None:
        """Give back what has not started, and wait for the rest until a monotonic time."""
        self._give_back(self._slots.take_back())
        while time.monotonic() < until and any(  # noqa: ASYNC110 - ends within one look of the last
            not d.settled for d in self.running
        ):
            await asyncio.sleep(0.01)

    def abandon(self) -> None:
        """Give back, uncounted, what is still running, and stop the slots."""
        self._abandoned = True
        for delivery in list(self.running):
            delivery.cancel()
            if not delivery.settled:
                self._give_back([delivery])
        self.close()

    def close(self) -> None:
        """Stop the slots, and end the processes of handlers."""
        self._abandoned = True
        self.running.abandon()
        self._slots.close()
        if self._watching is not None:
            self._watching.cancel()
        self._caller.shut_down()

    def _new_slots(self) -> Buffer[Delivery]:
        longest_s = _ORDERED_RUN_S if self.spec.ordered else LONGEST_RUN_S
        return Slots(self.spec.concurrency, self._begin, longest_s)

    # -- attempts ----------------------------------------------------------------------------

    def _begin(
        self, delivery: Delivery, task: asyncio.Task[None] | None, now: float
    ) -> Coroutine[Any, Any, None] | None:
        """What a slot does with a delivery."""
        delivery.task = task
        if delivery.lost or now >= delivery.sent_at + delivery.place.visibility_s:
            self.running.lose(delivery)  # its lease ended in the buffer: the process stood still
            self._context.rooms.room_in(self)  # leasing may wait for the room that it took
            return None
        return self._start(delivery, now)

    async def process_all(self, deliveries: list[Delivery]) -> None:
        """Run the attempts of some messages and settle them, outside of any slot."""
        for delivery in deliveries:
            delivery.task = asyncio.current_task()
            rest = self._start(delivery, time.monotonic())
            if rest is not None:
                await rest

    def _start(self, delivery: Delivery, now: float) -> Coroutine[Any, Any, None] | None:
        """Run an attempt and settle it; what is to be awaited where its handler waits."""
        outcome = self.execution.start(delivery, now)
        if isinstance(outcome, Waiting):
            return self._finish(delivery, outcome)
        if not (delivery.settled or delivery.lost):
            self._settle(delivery, outcome)
        self._count()
        return None

    async def _finish(self, delivery: Delivery, waiting: Waiting) -> None:
        """Run an attempt that waits to its end, and settle it."""
        self.running.deliveries.add(delivery)
        if not self._slots.one_waits():  # free slots must not wait until this handler has finished
            self._context.rooms.room_in(self)
        try:
            result = await self.execution.finish(delivery, waiting)
        except asyncio.CancelledError as error:
            if self._abandoned:
                raise
            self._keep_slot(delivery.task)
            started = waiting.started  # not called off: the handler has cancelled its own task
            result = self.execution.result_of(delivery, error, started)
        finally:
            self.running.end(delivery)
            self._keep_slot(delivery.task)
            self._count()
        if not (delivery.settled or delivery.lost):
            self._settle(delivery, result)

    def _count(self) -> None:
        """An attempt is over: there may be room for more."""
        if self._slots.one_finished():
            self._context.rooms.room_in(self)
        if self._context.limit is not None:
            self._context.limit.count()

    def _keep_slot(self, task: asyncio.Task[None] | None) -> None:
        """The attempt itself was cancelled, whether or not its handler suppressed that."""
        while task is not None and not self._abandoned and task.cancelling():
            task.uncancel()

    def _settle(self, delivery: Delivery, result: ConsumeResult | Failure) -> None:
        delivery.settled, delivery.ended_at = True, time.monotonic()
        if result is ConsumeResult.SUCCESS:  # the hot path
            self._results.succeed(delivery)
        elif isinstance(result, Failure):
            self._results.fail(delivery, result)
        elif result.outcome is Outcome.SUCCESS:
            self._results.succeed(delivery)
        elif result.outcome is Outcome.POSTPONE:
            limit = self.execution.failure(delivery, "failure", "postponed too often")
            self._results.postpone(delivery, result.delay_ms or 0, self.spec.max_postpones, limit)
        else:
            failure = self.execution.failure_of(result, delivery)
            assert failure is not None
            self._results.fail(delivery, failure)

    # -- the watch ---------------------------------------------------------------------------

    async def _watch(self) -> None:
        timeout_s = self.spec.consume_timeout_ms / 1000
        visibility_s = self.spec.visibility_ms / 1000
        every = max(0.01, min(1.0, visibility_s / 20, timeout_s / 10))
        while True:
            await asyncio.sleep(every)
            now = time.monotonic()
            self._give_back_late_starters(now - visibility_s / 3)
            self.running.check(now)

    def _give_back_late_starters(self, before: float) -> None:
        self._give_back(self._slots.take_back(lambda delivery: delivery.leased_at < before))

    def _give_back(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if not delivery.lost:
                delivery.settled = True
                self._results.release(delivery, "")


class BatchConsumer(Consumer):
    """Runs batches of messages of a handler that takes a list (docs/decisions/0076)."""

    _of_running: ClassVar[type[RunningAttempts]] = RunningBatches

    def __init__(self, spec: ConsumerSpec, context: ConsumerContext, max_retries: int) -> None:
        super().__init__(spec, context, max_retries)
        self._batches = BatchCaller(spec, self._caller.call, context.hooks)

    def _new_slots(self) -> Buffer[Delivery]:
        spec, wait_s = self.spec, self.spec.batch_wait_ms / 1000
        return BatchSlots(spec.concurrency, spec.batch, wait_s, self._begin_batch, self._ended)

    async def process_all(self, deliveries: list[Delivery]) -> None:
        """Run a batch, in a task of its own as everywhere."""
        await asyncio.get_running_loop().create_task(self._process_batch(deliveries))

    async def _begin_batch(self, deliveries: list[Delivery]) -> None:
        """What a slot does with a batch."""
        task, now = asyncio.current_task(), time.monotonic()
        for delivery in deliveries:
            delivery.task = task  # before the look: the heartbeat gives back what has none
            if delivery.lost or now >= delivery.sent_at + delivery.place.visibility_s:
                self.running.lose(delivery)
        await self._process_batch([delivery for delivery in deliveries if not delivery.lost])

    async def _process_batch(self, deliveries: list[Delivery]) -> None:
        """Run one attempt of each message, all by one call, and settle each for itself."""
        undecodable = self.execution.messages(deliveries)
        for delivery, failure in undecodable.items():
            self._settle(delivery, failure)
            self._count()
        rest = [delivery for delivery in deliveries if delivery not in undecodable]
        if rest:
            await self._attempt(rest)

    async def _attempt(self, deliveries: list[Delivery]) -> None:
        """Call the handler with a batch; what is lost or timed out meanwhile is not settled."""
        started = time.monotonic()
        watched = self.execution.watch(deliveries)
        messages = [delivery.message for delivery in deliveries]
        for delivery in deliveries:
            delivery.started_at = started
            self.running.deliveries.add(delivery)
        try:
            answers = await self._batches.answers(messages, watched)
        except asyncio.CancelledError as error:
            if self._abandoned:
                raise
            self._keep_slot(asyncio.current_task())  # the handler may have cancelled its own task
            answers = dict.fromkeys((delivery.id for delivery in deliveries), error)
        finally:
            for delivery in deliveries:
                self.running.end(delivery)
                self._count()
        for delivery in deliveries:
            if delivery.id in answers and not (delivery.settled or delivery.lost):
                answer = answers[delivery.id]
                self._settle(delivery, self.execution.result_of(delivery, answer, started))

    def _count(self) -> None:
        self._slots.one_finished()
        if self._context.limit is not None:
            self._context.limit.count()

    def _ended(self, deliveries: list[Delivery], error: BaseException | None) -> None:
        """A slot is free; after an error of ours messages come again when their leases end."""
        if error is not None:
            log.error("a batch of group %s broke off", self.spec.group, exc_info=error)
            for delivery in deliveries:
                self.running.lose(delivery)
        self._context.rooms.room_in(self)


def consumer_for(spec: ConsumerSpec) -> type[Consumer]:
    """What runs a handler."""
    return BatchConsumer if spec.batch else Consumer
