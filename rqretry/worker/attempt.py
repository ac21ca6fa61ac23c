"""One attempt to handle a message: running it, and calling it off past its time.

`Execution` runs a handler and makes a result of whatever comes of it. `RunningAttempts` are those
whose handlers wait for something; they end early at consume_timeout or with their lease.
"""

import asyncio
import contextvars
import logging
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rqretry.consumer.registry import ConsumerSpec
from rqretry.core.consume_result import ConsumeResult, HandlerSignal, Outcome
from rqretry.core.envelope import decode_fields
from rqretry.core.errors import CodecError
from rqretry.core.failure_record import describe_cause, describe_exception, fingerprint_of
from rqretry.core.message import Message
from rqretry.core.middleware import Hooks
from rqretry.core.receipt import Receipt
from rqretry.core.typed_body import ReceivedMismatch
from rqretry.core.waits import Started
from rqretry.observability import observer
from rqretry.observability.log_format import about, current_attempt
from rqretry.protocol.lease import Failure
from rqretry.worker.invoker import Call, Waiting, raised_itself, resumed
from rqretry.worker.leases import ConsumerEvents, Delivery, Results

log = logging.getLogger("rqretry")

DEAD = -1
HELD = 2
"""A handler of an ordered group that goes on for so many times its consume_timeout is ended with
its process; until then its message is renewed (docs/decisions/0053)."""
_new = tuple.__new__


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
        delivery.started_at = started
        call: Any = self._call
        if observer.installed is not None:
            namespace = delivery.place.keys.partition.namespace
            _note_start(delivery, started)
            delivery.watch = observer.installed.attempting(namespace, message, self._worker)
            call = delivery.watch.around(call)
        try:
            coroutine: Any = call(message)
            run = contextvars.copy_context().run
            run(current_attempt.set, message)  # what is logged in there is about it
            waited = run(coroutine.send, None)
        except StopIteration as end:
            if end.value is None:
                return self._of_none
            return self._returned(delivery, end.value, started)
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
            if issubclass(type(error), GeneratorExit):
                raise
            return self._outcome(delivery, error, waiting.started)
        return self._returned(delivery, value, waiting.started)

    def _returned(
        self, delivery: Delivery, value: object, started: float
    ) -> ConsumeResult | Failure:
        """What a returned value means; one that cannot even be looked at is a failure."""
        try:
            return self._classify(value)
        except BaseException as error:  # noqa: BLE001 - of the code of somebody's class
            return self._outcome(delivery, error, started)

    def _outcome(
        self, delivery: Delivery, error: BaseException, started: float
    ) -> ConsumeResult | Failure:
        """What an exception of a handler means; raises it again if it is the slot's own."""
        try:
            if isinstance(error, HandlerSignal):
                return error.result
            if isinstance(error, ReceivedMismatch):
                return self.failure(delivery, "mismatch", str(error), level=DEAD)
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise error  # noqa: TRY301 - it is the slot's own
            return self._raised(delivery, error, time.monotonic() - started)
        except BaseException as worse:
            if worse is error:
                raise
            reason = f"{type(error).__qualname__}, which raises {type(worse).__qualname__} itself"
            return self.failure(delivery, "failure", reason)

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
        record = describe_cause(cause, reason, self._worker, delivery.ran_s, delivery.trace)
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

    def messages(self, deliveries: Sequence[Delivery]) -> dict[Delivery, Failure]:
        """Decode the messages of a batch; those that cannot be decoded, with their failures."""
        undecodable = {}
        for delivery in deliveries:
            try:
                self._message(delivery)
            except CodecError as error:
                undecodable[delivery] = self.failure(
                    delivery, "undecodable", str(error), level=DEAD
                )
        return undecodable

    def watch(self, deliveries: Sequence[Delivery]) -> observer.BatchAttempt | None:
        """Have the attempts of a batch observed, if anybody observes."""
        if observer.installed is None:
            return None
        now = time.monotonic()
        for delivery in deliveries:
            _note_start(delivery, now)
        messages = [delivery.message for delivery in deliveries]
        namespace = deliveries[0].place.keys.partition.namespace
        watched = observer.installed.attempting_batch(namespace, messages, self._worker)
        for delivery, watch in zip(deliveries, watched.messages, strict=True):
            delivery.watch = watch
        return watched

    def result_of(
        self, delivery: Delivery, answer: ConsumeResult | BaseException, started: float
    ) -> ConsumeResult | Failure:
        """What the answer for one message of a batch means."""
        if isinstance(answer, BaseException):
            return self._outcome(delivery, answer, started)
        return answer

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
            decode_fields(delivery.data),
            delivery.attempt,
            self._max_retries,
            delivery.sent_at + place.visibility_s,
            delivery.error,
        )
        delivery.message = message
        return message


@dataclass(eq=False)
class RunningAttempts:
    """The attempts of a consumer with handlers that wait for something."""

    _spec: ConsumerSpec
    _execution: Execution
    _results: Results
    _events: ConsumerEvents
    _can_stick: bool
    _stuck: int = field(default=0, init=False)
    """Slots with a thread still running after its attempt timed out or lost its lease."""
    _held: dict[Delivery, Failure] = field(default_factory=dict, init=False)
    """Attempts of an ordered group that timed out: reported when their handlers have ended."""
    deliveries: set[Delivery] = field(default_factory=set, init=False)

    def __len__(self) -> int:
        return len(self.deliveries)

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self.deliveries)

    def end(self, delivery: Delivery) -> None:
        """Its handler has returned, or stopped."""
        self.deliveries.discard(delivery)
        if delivery.lost or delivery.settled:
            self._stuck -= self._can_stick
        if failure := self._held.pop(delivery, None):
            self._results.fail(delivery, failure)

    def abandon(self) -> None:
        """Report nothing of those whose handlers go on: their leases end, after this process."""
        self._held.clear()

    def check(self, now: float) -> None:
        """Call off those that are past consume_timeout, or past the end of their lease."""
        timeout_s, visibility_s = (
            self._spec.consume_timeout_ms / 1000,
            self._spec.visibility_ms / 1000,
        )
        for delivery in list(self.deliveries):
            if delivery.settled or delivery.lost:
                continue
            if now - delivery.leased_at > timeout_s:
                self._time_out(delivery)
            elif now > delivery.sent_at + visibility_s:
                self.lose(delivery)
        if any(now - delivery.leased_at > HELD * timeout_s for delivery in self._held):
            self._events.stuck()

    def lose(self, delivery: Delivery) -> None:
        """The lease is over: stop the handler; its result would be rejected."""
        if delivery.lost or delivery.settled:
            return
        delivery.lost = True
        delivery.place.leases.end(delivery)
        of = delivery.id, delivery.place.topic, self._spec.group, delivery.attempt
        log.warning(
            "lease lost: message %s of %s, group %s, attempt %d; its handler is called off",
            *of, extra=about(*of, delivery.trace),
        )  # fmt: skip
        self._call_off(delivery)
        if delivery.watch is not None:
            delivery.watch.settled(observer.LOST)
        self._events.lease_lost(delivery)

    def _time_out(self, delivery: Delivery) -> None:
        seconds = self._spec.consume_timeout_ms / 1000
        reason = f"the handler ran longer than consume_timeout, {seconds:g} s"
        delivery.settled, delivery.ended_at = True, time.monotonic()
        failure = self._execution.failure(delivery, "timeout", reason)
        if self._spec.ordered and delivery in self.deliveries:
            self._held[delivery] = failure
        else:
            self._results.fail(delivery, failure)
        self._call_off(delivery)

    def _call_off(self, delivery: Delivery) -> None:
        delivery.cancel()
        if delivery.task is not None and delivery in self.deliveries:
            self._stuck += self._can_stick
            delivery.task.cancel()
            if self._stuck >= self._spec.concurrency:
                self._events.stuck()


@dataclass(eq=False)
class RunningBatches(RunningAttempts):
    """Those of a batch consumer: a batch ends early when the last of its messages has."""

    _called_off: set[asyncio.Task[Any]] = field(default_factory=set, init=False)

    def end(self, delivery: Delivery) -> None:
        """Its handler has returned, or stopped."""
        self.deliveries.discard(delivery)
        if delivery.task in self._called_off:
            self._called_off.remove(delivery.task)
            self._stuck -= self._can_stick
        if failure := self._held.pop(delivery, None):
            self._results.fail(delivery, failure)

    def _call_off(self, delivery: Delivery) -> None:
        delivery.cancel()
        task = delivery.task
        batch = [other for other in self.deliveries if other.task is task]
        if task is not None and batch and all(other.settled or other.lost for other in batch):
            self._called_off.add(task)
            self._stuck += self._can_stick
            task.cancel()
            if self._stuck >= self._spec.concurrency:
                self._events.stuck()


def _note_start(delivery: Delivery, now: float) -> None:
    """Let observers find out how long the message waited."""
    place = delivery.place
    if (seen := place.schedule.seen) is not None:
        # Half the cost of calling Started, whose own __new__ is written in Python.
        facts = (delivery.leased_at, now, seen, place.refusals)
        delivery.message._started = _new(Started, facts)  # noqa: SLF001 - for observers


def _as_it_is(result: Any) -> ConsumeResult:
    """What middleware answers is a result already."""
    return result  # type: ignore[no-any-return] # Hooks.around has looked


def _is_cancelled() -> bool:
    """Whether this slot was cancelled; else a CancelledError came out of the handler itself."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
