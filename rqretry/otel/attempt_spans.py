"""Spans of attempts: the first a child of the publish, later ones linked to it and to the last."""

import time
from typing import Any, Protocol

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context

from rqretry.core.consume_result import HandlerSignal
from rqretry.core.failure_record import AttemptError, read_attempt_record
from rqretry.core.message import Message
from rqretry.core.waits import Started
from rqretry.observability.observer import DEAD_LETTER, FAILURE, SUCCESS, Call
from rqretry.otel import semconv
from rqretry.otel.meters import Telemetry
from rqretry.otel.span_links import origin, previous_end


class TracedAttempt:
    """One attempt and its span.

    The span ends when the server has answered, at the time at which the handler ended: only the
    answer has the level at which the message waits, and until when.
    """

    __slots__ = (
        "_began", "_context", "_message", "_over", "_seconds", "ended_ns", "error", "namespace",
        "span", "telemetry", "worker",
    )  # fmt: skip

    def __init__(
        self, telemetry: Telemetry, namespace: str, message: Message[Any], worker: str
    ) -> None:
        self.telemetry = telemetry
        self._message = message
        self.namespace = namespace
        self.worker = worker
        self.ended_ns: int | None = None
        self._over = False
        self.error = ""
        self._began = time.perf_counter()
        self._seconds = 0.0
        # Not `message.last_error`: it is None after a redrive, and the trace to link to is in here.
        before = read_attempt_record(message._error)  # noqa: SLF001 - as above
        parent, linked = origin(message, before, one_trace=telemetry.one_trace)
        self._context = parent
        self.span: Span = telemetry.tracer.start_span(
            f"process {message.topic}",
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes=_started(telemetry, namespace, message, worker, before),
            links=semconv.links(*linked),
        )
        context = self.span.get_span_context()
        if context.is_valid:
            message._trace_id = f"{context.trace_id:032x}"  # noqa: SLF001 - of this attempt

    @property
    def trace(self) -> str:
        """Its W3C traceparent."""
        return semconv.traceparent_of(self.span.get_span_context())

    def around(self, call: Call) -> Call:
        """The handler's call with the span as its current one."""

        async def traced(message: Message[Any]) -> Any:
            token = attach(set_span_in_context(self.span, self._context))
            try:
                return await call(message)
            except HandlerSignal:
                raise
            except BaseException as error:
                self._raised(error)
                raise
            finally:
                self._seconds = time.perf_counter() - self._began
                self.ended_ns = time.time_ns()
                detach(token)

        return traced

    def settled(
        self, outcome: str, *, record: str = "", level: int = 0, due_ms: int | None = None
    ) -> None:
        """The outcome of the attempt; the span ends."""
        if self._over:
            return
        self._over = True
        failure = read_attempt_record(f"{self._message.attempt} 0 {record}") if record else None
        span = self.span
        span.set_attribute(semconv.OUTCOME, outcome)
        if level:
            span.set_attribute(semconv.LEVEL, level)
        if due_ms is not None:
            span.set_attributes(semconv.when(due_ms))
            if failure is None:
                self.telemetry.due.note(self._message, due_ms)
        if outcome != SUCCESS and failure is not None:
            self._record_failure(failure)
        span.end(self.ended_ns)
        seconds = self._seconds or time.perf_counter() - self._began
        meters, message = self.telemetry.meters, self._message
        error = "" if failure is None else self.error or failure.type or failure.cause
        meters.attempted(message.topic, message.group, outcome, seconds, error)
        if outcome == DEAD_LETTER:
            trace_death(self, message, failure)

    def _raised(self, error: BaseException) -> None:
        if not self._over:
            self.error = type(error).__qualname__
            semconv.record_error(self.span, error)

    def _record_failure(self, failure: AttemptError) -> None:
        self.span.set_attributes(failure_attributes(failure, self.error))
        self.span.set_status(Status(StatusCode.ERROR, failure.message or failure.cause))


def _started(
    telemetry: Telemetry,
    namespace: str,
    message: Message[Any],
    worker: str,
    before: AttemptError | None,
) -> semconv.SpanAttributes:
    found = semconv.quick_delivery(namespace, message, worker, "process", "process")
    if message.attempt > 1:
        found.update(previous_end(before))
    started: Started | None = getattr(message, "_started", None)
    if started is None:
        pass
    elif not message._error:  # noqa: SLF001 - found out when the span is exported, in a third of the time
        found.first = message._due_ms or message._published_ms, started  # noqa: SLF001
    elif (waits := telemetry.due.waits(message, before)) is not None:
        found.update(semconv.waited(waits))
    if not telemetry.quick:
        found.complete()
    return found


def failure_attributes(failure: AttemptError, error: str = "") -> dict[str, str]:
    """Why an attempt failed; `error`: the type of what the handler raised, where that is known."""
    return {
        "rqretry.cause": failure.cause,
        "rqretry.fingerprint": failure.fingerprint,
        "error.type": error or failure.type or failure.cause,
    }


class Ended(Protocol):
    """What traces an attempt, at its end."""

    telemetry: Telemetry
    namespace: str
    worker: str
    span: Span
    error: str
    ended_ns: int | None


def trace_death(attempt: Ended, message: Message[Any], failure: AttemptError | None) -> None:
    """A span for the move to the dead-letter queue, a child of the last attempt."""
    queue = f"{semconv.DEAD_LETTER_PREFIX}{message.group}"
    cause = failure.cause if failure else FAILURE
    span = attempt.telemetry.tracer.start_span(
        f"dead_letter {queue}",
        context=set_span_in_context(attempt.span, Context()),
        kind=SpanKind.PRODUCER,
        attributes=semconv.delivery(
            attempt.namespace, message, attempt.worker, "dead_letter", "send"
        )
        | {
            "messaging.destination.name": queue,
            "rqretry.topic": message.topic,
            "rqretry.cause": cause,
            "rqretry.deliveries": message.attempt,
            "error.type": attempt.error or (failure.type if failure else "") or cause,
        },
        start_time=attempt.ended_ns,
    )
    span.set_status(Status(StatusCode.ERROR, failure.message if failure else cause))
    span.end()
