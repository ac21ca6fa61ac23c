"""One consumer in one process: it runs the attempts of one handler.

The path of a message here: fetch.py hands over what it leased, a slot (slots.py) takes it,
attempt.py runs the handler, and settle.py reports the result to the server.
"""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from rqretry.consumer.registry import ConsumerSpec
from rqretry.core.consume_result import ConsumeResult, Outcome
from rqretry.core.middleware import Hooks
from rqretry.protocol.command import MAX_BATCH
from rqretry.protocol.lease import Failure
from rqretry.worker.attempt import Execution, RunningAttempts
from rqretry.worker.invoker import Waiting, make_caller
from rqretry.worker.leases import ConsumerEvents, Delivery, LeasedPlace, Results
from rqretry.worker.recycle_process import MessageLimit
from rqretry.worker.slots import Slots
from rqretry.worker.wakeups import Rooms

_UNSETTLED_MOST = 4 * MAX_BATCH


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


class Consumer:
    """Runs the messages of one registered handler; `max_retries` are those of its group."""

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
        self.running = RunningAttempts(
            spec, self.execution, context.results, context.events, self._caller.can_stick
        )
        self._slots: Slots[Delivery] = Slots(spec.concurrency, self._begin)
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
        """Take leased messages; slots start on them at once."""
        self._slots.accept(deliveries)

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

    # -- attempts ----------------------------------------------------------------------------

    def _begin(
        self, delivery: Delivery, task: asyncio.Task[None] | None, now: float
    ) -> Coroutine[Any, Any, None] | None:
        """What a slot does with a delivery."""
        delivery.task = task
        if delivery.lost or now >= delivery.sent_at + delivery.place.visibility_s:
            # A process that stood still finds leases in its buffer that ended meanwhile.
            self.running.lose(delivery)
            self._context.rooms.room_in(self)  # leasing may wait for the room that it took
            return None
        waiting = self._start(delivery, task, now)
        return None if waiting is None else self._finish(delivery, waiting)

    async def process(self, delivery: Delivery) -> None:
        """Run one attempt and settle it."""
        waiting = self._start(delivery, asyncio.current_task(), time.monotonic())
        if waiting is not None:
            await self._finish(delivery, waiting)

    def _start(
        self, delivery: Delivery, task: asyncio.Task[None] | None, now: float
    ) -> Waiting | None:
        """Run an attempt and settle it; or up to where its handler waits."""
        delivery.task = task
        outcome = self.execution.start(delivery, now)
        if isinstance(outcome, Waiting):
            return outcome
        if not (delivery.settled or delivery.lost):
            self._settle(delivery, outcome)
        self._count()
        return None

    async def _finish(self, delivery: Delivery, waiting: Waiting) -> None:
        """Run an attempt that waits to its end, and settle it."""
        result: ConsumeResult | Failure | None
        self.running.deliveries.add(delivery)
        if not self._slots.one_waits():  # free slots must not wait until this handler has finished
            self._context.rooms.room_in(self)
        try:
            result = await self.execution.finish(delivery, waiting)
        except asyncio.CancelledError:
            result = None
            if self._abandoned or not (delivery.lost or delivery.settled):
                raise
        finally:
            self.running.end(delivery)
            if delivery.lost or delivery.settled:
                self._keep_slot(delivery.task)
            self._count()
        if result is not None and not (delivery.settled or delivery.lost):
            self._settle(delivery, result)

    def _count(self) -> None:
        """An attempt is over: there may be room for more."""
        if self._slots.one_finished():
            self._context.rooms.room_in(self)
        if self._context.limit is not None:
            self._context.limit.count()

    def _keep_slot(self, task: asyncio.Task[None] | None) -> None:
        """The attempt itself was cancelled, even if its handler suppressed that."""
        while task is not None and not self._abandoned and task.cancelling():
            task.uncancel()

    def _settle(self, delivery: Delivery, result: ConsumeResult | Failure) -> None:
        delivery.settled = True
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
