"""One consumer in one process: it runs the attempts of one handler.

The path of a message here: fetch.py hands over what it leased, a slot (slots.py) takes it,
`Execution` runs the handler, and settle.py reports the result to the server.
"""

import asyncio
import contextvars
import logging
import random
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from rqretry.consumer.registry import ConsumerSpec
from rqretry.core.consume_result import ConsumeResult, HandlerSignal, Outcome
from rqretry.core.envelope import decode
from rqretry.core.errors import CodecError
from rqretry.core.failure_record import describe_cause, describe_exception, fingerprint_of
from rqretry.core.message import Message
from rqretry.core.middleware import Hooks
from rqretry.core.receipt import Receipt
from rqretry.core.typed_body import ReceivedMismatch
from rqretry.observability import observer
from rqretry.observability.log_format import about, current_attempt
from rqretry.protocol.command import MAX_BATCH
from rqretry.protocol.lease import Failure
from rqretry.worker.invoker import Call, Waiting, make_caller, raised_itself, resumed
from rqretry.worker.leases import ConsumerEvents, Delivery, LeasedPlace, Results
from rqretry.worker.recycle_process import MessageLimit
from rqretry.worker.slots import Slots
from rqretry.worker.wakeups import Rooms

log = logging.getLogger("rqretry")

DEAD = -1
_UNSETTLED_MOST = 4 * MAX_BATCH
_new = tuple.__new__


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


class Execution:
    """Runs attempts of one handler."""

    def __init__(
        self, spec: ConsumerSpec, call: Call, hooks: Hooks, worker: str, max_retries: int
    ) -> None:
        self._spec = spec
        self._handler = call
        # Middleware sees results; without any, nothing stands between the slot and the handler.
        self._call = hooks.around(self._classified) if hooks.middleware else call
        self._read = spec.return_reader()
        self._classify = _as_it_is if hooks.middleware else self._read
        self._of_none = self._read(None)  # what most handlers return
        self._worker = worker
        self._random = random.Random()
        self._max_retries = max_retries

    def start(self, delivery: Delivery, started: float) -> ConsumeResult | Failure | Waiting:
        """Run the handler on a delivery up to where it first waits.

        Most attempts end there: no task, no future and no coroutine of ours stands around them.
        Whatever the handler does happens in a context of its own. `started` is the monotonic time.
        """
        try:
            message = self._message(delivery)
        except CodecError as error:
            return self.failure(delivery, "undecodable", str(error), level=DEAD)
        call: Any = self._call
        if observer.installed is not None:
            namespace = delivery.place.keys.partition.namespace
            delivery.watch = observer.installed.attempting(namespace, message, self._worker)
            call = delivery.watch.around(call)
        try:
            coroutine: Any = call(message)
            run = contextvars.copy_context().run
            run(current_attempt.set, message)  # what is logged in there is about it
            waited = run(coroutine.send, None)
        except StopIteration as end:
            return self._of_none if end.value is None else self._classify(end.value)
        except GeneratorExit as error:
            return self._raised(delivery, raised_itself(error), time.monotonic() - started)
        except BaseException as error:  # noqa: BLE001 - it becomes the attempt's outcome
            return self._outcome(delivery, error, started)
        return Waiting(coroutine, run, waited, started)

    async def finish(self, delivery: Delivery, waiting: Waiting) -> ConsumeResult | Failure:
        """Run an attempt that waits to its end; an exception becomes the Failure that says so.

        Raises:
            asyncio.CancelledError: The attempt was called off.
        """
        try:
            value = await resumed(waiting)
        except BaseException as error:
            if isinstance(error, GeneratorExit):
                raise
            return self._outcome(delivery, error, waiting.started)
        return self._classify(value)

    def _outcome(
        self, delivery: Delivery, error: BaseException, started: float
    ) -> ConsumeResult | Failure:
        """What an exception of a handler means; raises it again if it is the slot's own."""
        if isinstance(error, HandlerSignal):
            return error.result
        if isinstance(error, ReceivedMismatch):
            return self.failure(delivery, "mismatch", str(error), level=DEAD)
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            raise error
        return self._raised(delivery, error, time.monotonic() - started)

    def failure(
        self,
        delivery: Delivery,
        cause: str,
        reason: str,
        *,
        level: int = 0,
        delay_ms: int | None = None,
    ) -> Failure:
        """A failed attempt that raised nothing."""
        ran = time.monotonic() - delivery.leased_at
        record = describe_cause(cause, reason, self._worker, ran, delivery.trace)
        delay: int | str = "" if delay_ms is None else delay_ms
        return Failure(delivery.receipt, level, delay, self._random.random(), cause, record)

    def failure_of(self, result: ConsumeResult, delivery: Delivery) -> Failure | None:
        """The Failure that a handler's answer means; None for success and for a postponement."""
        if result.outcome is Outcome.FAILURE:
            reason = result.reason or "handler reported failure"
            level, delay_ms = result.level, result.delay_ms
            return self.failure(delivery, "failure", reason, level=level, delay_ms=delay_ms)
        if result.outcome is Outcome.DEAD_LETTER:
            return self.failure(delivery, "rejected", result.reason or "dead-lettered", level=DEAD)
        return None

    def _raised(self, delivery: Delivery, error: BaseException, ran: float) -> Failure:
        fingerprint = fingerprint_of(error)
        delivery.place.tracebacks.note(fingerprint, error)
        record = describe_exception(error, fingerprint, self._worker, ran, delivery.trace)
        level = 0 if self._spec.retries_on(error) else DEAD
        cause = "failure" if level == 0 else "rejected"
        # Half the cost of calling Receipt and Failure, whose own __new__ is written in Python.
        receipt = _new(Receipt, (delivery.id, delivery.lease_no))
        return _new(Failure, (receipt, level, "", self._random.random(), cause, record))

    async def _classified(self, message: Message[Any]) -> ConsumeResult:
        """What middleware's call_next answers."""
        try:
            return self._read(await self._handler(message))
        except HandlerSignal as signal:
            return signal.result

    def _message(self, delivery: Delivery) -> Message[Any]:
        place, spec = delivery.place, self._spec
        message: Message[Any] = Message(
            (place.topic, place.partition, spec.group, delivery.lease_no, delivery.id),
            decode(delivery.data),
            delivery.attempt,
            self._max_retries,
            delivery.sent_at + place.visibility_s,
            delivery.error,
        )
        delivery.message = message
        return message


class Consumer:
    """Runs the messages of one registered handler; `max_retries` are those of its group."""

    def __init__(self, spec: ConsumerSpec, context: ConsumerContext, max_retries: int) -> None:
        self.spec = spec
        self.places: list[LeasedPlace] = []
        self.running: set[Delivery] = set()
        self.stuck = 0
        """Slots whose thread goes on although its attempt timed out or lost its lease."""
        self._context = context
        self._results = context.results
        self._caller = make_caller(spec)
        self._abandoned = False
        self.execution = Execution(
            spec, self._caller.call, context.hooks, context.worker, max_retries
        )
        self._slots: Slots[Delivery] = Slots(spec.concurrency, self._begin)
        self._watching: asyncio.Task[None] | None = None

    # -- for leasing -------------------------------------------------------------------------

    def room(self) -> int:
        """How many messages to lease now; 0 while the buffer is well filled."""
        room = self._slots.room(len(self.running))
        if room and sum([len(place.outbox) for place in self.places]) > _UNSETTLED_MOST:
            return 0
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
        self._slots.close()
        if self._watching is not None:
            self._watching.cancel()
        self._caller.shut_down()

    # -- attempts ----------------------------------------------------------------------------

    def _begin(
        self, delivery: Delivery, task: asyncio.Task[None] | None, now: float
    ) -> Coroutine[Any, Any, None] | None:
        """What a slot does with a delivery."""
        if delivery.lost or now >= delivery.sent_at + delivery.place.visibility_s:
            # A process that stood still finds leases in its buffer that ended meanwhile.
            self.lose(delivery)
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
        self.running.add(delivery)
        if not self._slots.one_waits():  # free slots must not wait until this handler has finished
            self._context.rooms.room_in(self)
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

    def lose(self, delivery: Delivery) -> None:
        """The lease is over: stop the handler; its result would be rejected."""
        if delivery.lost or delivery.settled:
            return
        delivery.lost = True
        delivery.place.leases.end(delivery)
        log.warning(
            "lease lost: message %s of %s, group %s, attempt %d; its handler is called off",
            delivery.id, delivery.place.topic, self.spec.group, delivery.attempt,
            extra=about(delivery.id, delivery.place.topic, self.spec.group, delivery.attempt),
        )  # fmt: skip
        self._call_off(delivery)
        if delivery.watch is not None:
            delivery.watch.settled(observer.LOST)
        self._context.events.lease_lost(delivery)

    async def _watch(self) -> None:
        timeout_s = self.spec.consume_timeout_ms / 1000
        visibility_s = self.spec.visibility_ms / 1000
        every = max(0.01, min(1.0, visibility_s / 20, timeout_s / 10))
        while True:
            await asyncio.sleep(every)
            now = time.monotonic()
            self._give_back_late_starters(now - visibility_s / 3)
            for delivery in list(self.running):
                if delivery.settled or delivery.lost:
                    continue
                if now - delivery.leased_at > timeout_s:
                    self._time_out(delivery)
                elif now > delivery.sent_at + visibility_s:
                    self.lose(delivery)

    def _give_back_late_starters(self, before: float) -> None:
        self._give_back(self._slots.take_back(lambda delivery: delivery.leased_at < before))

    def _give_back(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            delivery.settled = True
            self._results.release(delivery, "")

    def _time_out(self, delivery: Delivery) -> None:
        seconds = self.spec.consume_timeout_ms / 1000
        reason = f"the handler ran longer than consume_timeout, {seconds:g} s"
        delivery.settled = True
        self._results.fail(delivery, self.execution.failure(delivery, "timeout", reason))
        self._call_off(delivery)

    def _call_off(self, delivery: Delivery) -> None:
        delivery.cancel()
        if delivery.task is not None and delivery in self.running:
            self.stuck += self._caller.can_stick
            delivery.task.cancel()
            if self.stuck >= self.spec.concurrency:
                self._context.events.stuck()


def _as_it_is(result: Any) -> ConsumeResult:
    """What middleware answers is a result already."""
    return result  # type: ignore[no-any-return] # Hooks.around has looked


def _is_cancelled() -> bool:
    """Whether this slot was cancelled; else a CancelledError came out of the handler itself."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
