"""Running a handler on one message outside of any worker: nothing is leased or settled."""

import inspect
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from rqretry.consumer.registry import ConsumerSpec
from rqretry.core.consume_result import ConsumeResult, HandlerSignal, Outcome
from rqretry.core.failure_record import reason_in
from rqretry.core.message import Message
from rqretry.core.middleware import Hooks
from rqretry.protocol.lease import Failure
from rqretry.worker.attempt import Execution
from rqretry.worker.batch_attempt import BatchCaller
from rqretry.worker.invoker import Call, Waiting, make_caller
from rqretry.worker.leases import Delivery


@dataclass(frozen=True, slots=True)
class DryRun:
    """How an attempt ended that was not reported to the server.

    Attributes:
        outcome: "success", "postponed", or why it failed: "failure", "rejected", "mismatch", ...
        reason: The error's type and text, or the handler's reason; "" if it did not fail.
        error: The exception that the handler raised; None for none.
        seconds: How long it took.
    """

    outcome: str
    reason: str
    error: BaseException | None
    seconds: float


class _Recorder:
    """Another call; what comes through it is remembered."""

    def __init__(self, inner: Call) -> None:
        self._inner = inner
        self.error: BaseException | None = None

    async def call(self, message: Message[Any]) -> Any:
        try:
            return await self._inner(message)
        except HandlerSignal:
            raise
        except BaseException as error:
            self.error = error
            raise


async def dry_run(hooks: Hooks, spec: ConsumerSpec, delivery: Delivery, most: int) -> DryRun:
    """Run one attempt of a handler, with its middleware, in this process.

    Args:
        hooks: The app's.
        spec: The handler; one with `process=True` runs in a thread of this process.
        delivery: The message, its attempt and its last error.
        most: The group's max_retries.
    """
    here = replace(spec, in_process=False, is_async=inspect.iscoroutinefunction(spec.handler))
    caller = make_caller(here)
    recorder = _Recorder(caller.call)
    execution = Execution(here, recorder.call, hooks, "replay", most)
    batches = BatchCaller(here, recorder.call, hooks) if here.batch else None
    began = time.monotonic()
    try:
        started: ConsumeResult | Failure | Waiting
        if batches is not None:
            started = await _in_batch(execution, batches, delivery, began)
        else:
            started = execution.start(delivery, began)
        if isinstance(started, Waiting):
            started = await execution.finish(delivery, started)
    finally:
        caller.shut_down()
    seconds = time.monotonic() - began
    failure = started if isinstance(started, Failure) else execution.failure_of(started, delivery)
    if failure is None:
        assert isinstance(started, ConsumeResult)
        outcome = "postponed" if started.outcome is Outcome.POSTPONE else "success"
        return DryRun(outcome, "", None, seconds)
    return DryRun(failure.cause, reason_in(failure.record), recorder.error, seconds)


async def _in_batch(
    execution: Execution, batches: BatchCaller, delivery: Delivery, began: float
) -> ConsumeResult | Failure:
    """The same with a batch of this message alone."""
    undecodable = execution.messages([delivery]).get(delivery)
    if undecodable is not None:
        return undecodable
    answers = await batches.answers([delivery.message])
    return execution.result_of(delivery, answers[delivery.id], began)


def spec_for(specs: Iterable[ConsumerSpec], group: str, topic: str) -> ConsumerSpec | None:
    """The handler of a group for a topic; None for none."""
    return next((s for s in specs if s.group == group and topic in s.topics), None)
