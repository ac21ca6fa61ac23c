"""One consumer in one process: a buffer of leased messages, slots that run them, and a watch.

The path of a message here: fetching.py puts it into the buffer, a slot takes it out, execution.py
runs the handler, settling.py tells the server.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

from rqretry.consumer.registry import ConsumerSpec
from rqretry.core.consume_result import ConsumeResult, Outcome
from rqretry.core.middleware import Hooks
from rqretry.observability.log_format import about
from rqretry.observability.observer import LOST
from rqretry.protocol.command import MAX_BATCH
from rqretry.protocol.lease import Failure
from rqretry.worker.attempt import Execution, Waiting, outcome_of
from rqretry.worker.invoker import make_caller
from rqretry.worker.leases import Delivery, Ending, Place

log = logging.getLogger("rqretry")

HORIZON_S = 0.05
"""Lease what will be finished in this time, beyond the free slots (decisions 16)."""
_LONGEST_RUN_S = 0.005
"""A slot yields to the event loop after this, however short the handlers are."""
_UNSETTLED_MOST = 4 * MAX_BATCH
_RATE_MEMORY_S = 0.2


class Consumer:
    """Runs the messages of one registered handler."""

    def __init__(self, spec: ConsumerSpec, settler: Ending, hooks: Hooks, worker: str) -> None:
        self.spec = spec
        self.places: list[Place] = []
        self.running: set[Delivery] = set()
        self.stuck = 0
        """Slots whose thread goes on although its attempt timed out or lost its lease."""
        self._settler = settler
        self._caller = make_caller(spec)
        self._abandoned = False
        self.execution = Execution(spec, self._caller, hooks, worker)
        self._buffer: deque[Delivery] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._slots: list[asyncio.Task[None]] = []
        self._target = spec.concurrency
        self._finished = 0
        self._rate = 0.0
        self._rate_from = (0, time.monotonic())
        self.on_room: Callable[[], None] = lambda: None
        self.on_finished: Callable[[], None] | None = None
        self.on_stuck: Callable[[], None] = lambda: None
        self.on_lost: Callable[[Delivery], None] = lambda _: None

    # -- for fetching ------------------------------------------------------------------------

    def room(self) -> int:
        """How many messages to lease now; 0 while the buffer is well filled."""
        self._measure()
        target = self._target = self.spec.concurrency + int(self._rate * HORIZON_S)
        buffered = len(self._buffer)
        if buffered and 2 * buffered >= target:
            return 0
        if sum(place.unsettled for place in self.places) > _UNSETTLED_MOST:
            return 0
        return min(MAX_BATCH, max(0, target - buffered - len(self.running)))

    def accept(self, deliveries: list[Delivery]) -> None:
        """Take leased messages; slots start on them at once."""
        self._buffer.extend(deliveries)
        self._wake(1)

    def _wake(self, slots: int) -> None:
        """Let idle slots look at the buffer.

        One is enough for handlers that do not wait. A slot whose handler waits wakes two more, so
        that all are at work after a few turns of the event loop, and none is woken for nothing.
        """
        while slots and self._idle:
            slot = self._idle.popleft()
            if not slot.done():
                slot.set_result(None)
                slots -= 1

    # -- slots -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the slots and the watch."""
        loop = asyncio.get_running_loop()
        name = f"{self.spec.group}"
        self._slots = [
            loop.create_task(self._slot(), name=f"{name} slot {number}")
            for number in range(self.spec.concurrency)
        ]
        self._slots.append(loop.create_task(self._watch(), name=f"{name} watch"))

    async def drain(self, until: float) -> None:
        """Give back what has not started, and wait for the rest until a monotonic time."""
        self._give_back(list(self._buffer))
        self._buffer.clear()
        while time.monotonic() < until and any(  # noqa: ASYNC110 - ends within one look of the last
            not d.settled for d in self.running
        ):
            await asyncio.sleep(0.01)

    def abandon(self) -> None:
        """Give back, uncounted, what is still running, and stop the slots."""
        self._abandoned = True
        for delivery in list(self.running):
            if delivery.message is not None:
                delivery.message.cancelled = True
            if not delivery.settled:
                delivery.settled = True
                self._settler.release(delivery, "")
        self.close()

    def close(self) -> None:
        """Stop the slots, and end the processes of handlers."""
        self._abandoned = True
        for task in self._slots:
            task.cancel()
        self._caller.shut_down()

    async def _slot(self) -> None:
        task = asyncio.current_task()
        now = since = time.monotonic()
        while not self._abandoned:
            if not self._buffer:
                idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._idle.append(idle)
                await idle
                now = since = time.monotonic()
                continue
            delivery = self._buffer.popleft()
            if delivery.lost or now >= delivery.sent_at + delivery.place.visibility_s:
                # A process that stood still finds leases in its buffer that ended meanwhile (R23).
                self.lose(delivery)
                self.on_room()  # fetching may be waiting for the room that it had in the buffer
            else:
                waiting = self._start(delivery, task, now)
                if waiting is not None:
                    await self._finish(delivery, waiting)
            now = time.monotonic()
            if now - since > _LONGEST_RUN_S:
                await asyncio.sleep(0)
                now = since = time.monotonic()

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
        self.running.add(delivery)
        if self._buffer:
            self._wake(2)
        else:  # free slots must not wait until this handler has finished
            self.on_room()
        try:
            result = await self.execution.finish(delivery, waiting)
        except asyncio.CancelledError:
            result = None
            if self._abandoned or not (delivery.lost or delivery.settled):
                raise
        finally:
            self.running.discard(delivery)
            if delivery.lost or delivery.settled:
                self.stuck -= self._caller.can_stick
                self._keep_slot(delivery.task)
            self._count()
        if result is not None and not (delivery.settled or delivery.lost):
            self._settle(delivery, result)

    def _count(self) -> None:
        """An attempt is over: there may be room for more."""
        self._finished += 1
        if 2 * len(self._buffer) < self._target:  # else there is not, as room() would say
            self.on_room()
        if self.on_finished is not None:
            self.on_finished()

    def _keep_slot(self, task: asyncio.Task[None] | None) -> None:
        """It was the attempt that was cancelled, even where its handler swallowed that."""
        while task is not None and not self._abandoned and task.cancelling():
            task.uncancel()

    def _settle(self, delivery: Delivery, result: ConsumeResult | Failure) -> None:
        delivery.settled = True
        if result is ConsumeResult.SUCCESS:  # the hot path
            self._settler.succeed(delivery)
        elif isinstance(result, Failure):
            self._settler.fail(delivery, result)
        elif result.outcome is Outcome.SUCCESS:
            self._settler.succeed(delivery)
        elif result.outcome is Outcome.POSTPONE:
            limit = self.execution.failure(delivery, "failure", "postponed too often")
            self._settler.postpone(delivery, result.delay_ms or 0, self.spec.max_postpones, limit)
        else:
            failure = outcome_of(result, self.execution, delivery)
            assert failure is not None
            self._settler.fail(delivery, failure)

    # -- the watch ---------------------------------------------------------------------------

    def lose(self, delivery: Delivery) -> None:
        """The lease is over: stop the handler; its result would be refused."""
        if delivery.lost or delivery.settled:
            return
        delivery.lost = True
        if delivery.place.leases.get(delivery.id) is delivery:  # it may be ours again, anew
            del delivery.place.leases[delivery.id]
        log.warning(
            "lease lost: message %s of %s, group %s, attempt %d; its handler is called off",
            delivery.id, delivery.place.topic, self.spec.group, delivery.attempt,
            extra=about(delivery.id, delivery.place.topic, self.spec.group, delivery.attempt),
        )  # fmt: skip
        self._call_off(delivery)
        if delivery.watch is not None:
            delivery.watch.settled(LOST)
        self.on_lost(delivery)

    async def _watch(self) -> None:
        timeout_s = self.spec.consume_timeout_ms / 1000
        visibility_s = self.spec.visibility_ms / 1000
        every = max(0.01, min(1.0, visibility_s / 20, timeout_s / 10))
        while True:
            await asyncio.sleep(every)
            now = time.monotonic()
            self._release_late_starters(now - visibility_s / 3)
            for delivery in list(self.running):
                if delivery.settled or delivery.lost:
                    continue
                if now - delivery.leased_at > timeout_s:
                    self._time_out(delivery)
                elif now > delivery.sent_at + visibility_s:
                    self.lose(delivery)

    def _release_late_starters(self, before: float) -> None:
        late = []
        while self._buffer and self._buffer[0].leased_at < before:
            late.append(self._buffer.popleft())
        self._give_back(late)

    def _give_back(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            delivery.settled = True
            self._settler.release(delivery, "")

    def _time_out(self, delivery: Delivery) -> None:
        seconds = self.spec.consume_timeout_ms / 1000
        reason = f"the handler ran longer than consume_timeout, {seconds:g} s"
        delivery.settled = True
        self._settler.fail(delivery, self.execution.failure(delivery, "timeout", reason))
        self._call_off(delivery)

    def _call_off(self, delivery: Delivery) -> None:
        if delivery.message is not None:
            delivery.message.cancelled = True
        if delivery.task is not None and delivery in self.running:
            self.stuck += self._caller.can_stick
            delivery.task.cancel()
            if self.stuck >= self.spec.concurrency:
                self.on_stuck()

    def _measure(self) -> None:
        finished, since = self._rate_from
        now = time.monotonic()
        if now - since >= _RATE_MEMORY_S:
            fresh = (self._finished - finished) / (now - since)
            self._rate = max(fresh, (self._rate + fresh) / 2)
            self._rate_from = (self._finished, now)
