"""One attempt: decode the message, call the handler, and say how it ended."""

import asyncio
import contextvars
import random
import time
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, NamedTuple

from rqretry.consumer.registry import ConsumerSpec
from rqretry.core.consume_result import ConsumeResult, HandlerSignal, Outcome
from rqretry.core.envelope import decode
from rqretry.core.errors import CodecError
from rqretry.core.failure_record import (
    describe_cause,
    describe_exception,
    fingerprint_of,
    formatted,
)
from rqretry.core.message import Message
from rqretry.core.middleware import Hooks
from rqretry.core.receipt import Receipt
from rqretry.core.typed_body import ReceivedMismatch
from rqretry.observability import observer
from rqretry.observability.log_format import current_attempt
from rqretry.protocol.lease import Failure
from rqretry.worker.invoker import Caller
from rqretry.worker.leases import Delivery

DEAD = -1
_new = tuple.__new__


class Execution:
    """Runs attempts of one handler."""

    def __init__(self, spec: ConsumerSpec, caller: Caller, hooks: Hooks, worker: str) -> None:
        self._spec = spec
        self._caller = caller
        # Middleware sees results; without any, nothing stands between the slot and the handler.
        self._call = hooks.around(self._classified) if hooks.middleware else caller
        self._read = spec.return_reader()
        self._classify = _as_it_is if hooks.middleware else self._read
        self._worker = worker
        self._random = random.Random()
        self.max_retries = 16

    def start(self, delivery: Delivery, started: float) -> "ConsumeResult | Failure | Waiting":
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
            return self._classify(end.value)
        except GeneratorExit as error:
            return self._raised(delivery, _not_ours(error), time.monotonic() - started)
        except BaseException as error:  # noqa: BLE001 - it becomes the attempt's outcome
            return self._outcome(delivery, error, started)
        return Waiting(coroutine, run, waited, started)

    async def finish(self, delivery: Delivery, waiting: "Waiting") -> ConsumeResult | Failure:
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
        record = describe_cause(cause, reason, self._worker, ran, _trace(delivery))
        delay: int | str = "" if delay_ms is None else delay_ms
        return Failure(delivery.receipt, level, delay, self._random.random(), cause, record)

    def _raised(self, delivery: Delivery, error: BaseException, ran: float) -> Failure:
        fingerprint, place = fingerprint_of(error), delivery.place
        if fingerprint not in place.told and fingerprint not in place.tracebacks:
            place.tracebacks[fingerprint] = formatted(error)
        record = describe_exception(error, fingerprint, self._worker, ran, _trace(delivery))
        level = 0 if self._spec.retries_on(error) else DEAD
        cause = "failure" if level == 0 else "rejected"
        # Half the cost of calling Receipt and Failure, whose own __new__ is written in Python.
        receipt = _new(Receipt, (delivery.id, delivery.lease_no))
        return _new(Failure, (receipt, level, "", self._random.random(), cause, record))

    async def _classified(self, message: Message[Any]) -> ConsumeResult:
        """What middleware's call_next answers."""
        try:
            return self._read(await self._caller(message))
        except HandlerSignal as signal:
            return signal.result

    def _message(self, delivery: Delivery) -> Message[Any]:
        place, spec = delivery.place, self._spec
        message: Message[Any] = Message(
            (place.topic, place.partition, spec.group, delivery.lease_no, delivery.id),
            decode(delivery.data),
            delivery.attempt,
            self.max_retries,
            delivery.sent_at + place.visibility_s,
            delivery.error,
        )
        delivery.message = message
        return message


def outcome_of(result: ConsumeResult, execution: Execution, delivery: Delivery) -> Failure | None:
    """The Failure that a handler's answer means; None for success and for a postponement."""
    if result.outcome is Outcome.FAILURE:
        reason = result.reason or "handler reported failure"
        level, delay_ms = result.level, result.delay_ms
        return execution.failure(delivery, "failure", reason, level=level, delay_ms=delay_ms)
    if result.outcome is Outcome.DEAD_LETTER:
        return execution.failure(delivery, "rejected", result.reason or "dead-lettered", level=DEAD)
    return None


def _as_it_is(result: Any) -> ConsumeResult:
    """What middleware answers is a result already."""
    return result  # type: ignore[no-any-return] # Hooks.around has looked


def _trace(delivery: Delivery) -> str:
    """What the failure record keeps, so that the next attempt can be linked to this one."""
    return "" if delivery.watch is None else delivery.watch.trace


class Waiting(NamedTuple):
    """An attempt whose handler waits for something."""

    coroutine: Coroutine[Any, Any, Any]
    run: Callable[..., Any]
    """Of the context of the attempt."""
    waited: Any
    """What it waits for."""
    started: float


def _is_cancelled() -> bool:
    """Whether this slot was cancelled; else a CancelledError came out of the handler itself."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _not_ours(error: GeneratorExit) -> RuntimeError:
    """Nobody closes a coroutine that runs: the handler raised that itself."""
    raised = RuntimeError("the handler raised GeneratorExit")
    raised.__cause__ = error
    return raised


@types.coroutine
def resumed(waiting: Waiting) -> Generator[Any, Any, Any]:
    """Drive a coroutine in the context of its attempt, inside the current task.

    A slot's task runs one attempt after another without a task for each; context variables that
    one attempt sets must not be seen by the next.
    """
    coroutine, run, waited, _ = waiting
    while True:
        try:
            value = yield waited
            step = coroutine.send
        except BaseException as error:  # noqa: BLE001 - thrown into the coroutine, where it belongs
            step, value = coroutine.throw, error
        try:
            waited = run(step, value)
        except StopIteration as end:
            return end.value
        except GeneratorExit as error:
            if isinstance(value, GeneratorExit):  # we are being closed
                raise
            raise _not_ours(error) from error
