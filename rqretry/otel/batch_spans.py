"""Spans of batches: one for each call of a batch handler, linked to what its messages come from."""

import time
from collections.abc import Sequence
from typing import Any

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, set_span_in_context

from rqretry.core.consume_result import HandlerSignal
from rqretry.core.failure_record import AttemptError, read_attempt_record
from rqretry.core.message import Message
from rqretry.observability.observer import DEAD_LETTER, SUCCESS, BatchCall
from rqretry.otel import semconv
from rqretry.otel.attempt_spans import failure_attributes, trace_death
from rqretry.otel.meters import Telemetry
from rqretry.otel.span_links import origin, previous_end


class TracedBatch:
    """One call of a batch handler. Its span ends when the server knows of all messages."""

    def __init__(
        self, telemetry: Telemetry, namespace: str, messages: Sequence[Message[Any]], worker: str
    ) -> None:
        self.telemetry = telemetry
        self.namespace = namespace
        self.worker = worker
        self.error = ""
        """The type of what the handler raised."""
        self.ended_ns: int | None = None
        self._began = time.perf_counter()
        self._seconds = 0.0
        self._open = len(messages)
        self._failed: list[str] = []
        """How those ended that did not succeed."""
        topics = {message.topic for message in messages}
        self._topic = topics.pop() if len(topics) == 1 else ""
        self._group = messages[0].group
        self.span: Span = telemetry.tracer.start_span(
            f"process {self._topic}".rstrip(),
            context=Context(),
            kind=SpanKind.CONSUMER,
            attributes=self._attributes(messages),
            links=_links(messages),
        )
        context = self.span.get_span_context()
        for message in messages if context.is_valid else ():
            message._trace_id = f"{context.trace_id:032x}"  # noqa: SLF001 - of this attempt
        self.messages = [TracedMessage(self, message) for message in messages]

    def _attributes(self, messages: Sequence[Message[Any]]) -> dict[str, Any]:
        attributes = semconv.operation(self.namespace, self._topic, "process", "process") | {
            "messaging.consumer.group.name": self._group,
            "messaging.client.id": self.worker,
            semconv.WORKER: self.worker,
            "messaging.batch.message_count": len(messages),
            semconv.ATTEMPT: max(message.attempt for message in messages),
            **self._longest_wait(messages),
        }
        if not self._topic:
            del attributes["messaging.destination.name"]
        return attributes

    def _longest_wait(self, messages: Sequence[Message[Any]]) -> dict[str, int]:
        """The waits of the message that is latest, of those of which that is known."""
        found = [
            self.telemetry.due.waits(message, read_attempt_record(message._error))  # noqa: SLF001 - also a redrive
            for message in messages
        ]
        known = [waits for waits in found if waits is not None]
        return semconv.waited(max(known, key=lambda w: w.lateness_ms)) if known else {}

    def around(self, call: BatchCall) -> BatchCall:
        """The handler's call with the span as its current one."""

        async def traced() -> Any:
            token = attach(set_span_in_context(self.span, Context()))
            try:
                return await call()
            except HandlerSignal:
                raise
            except BaseException as error:
                self.error = type(error).__qualname__
                semconv.record_error(self.span, error)
                raise
            finally:
                self._seconds = time.perf_counter() - self._began
                self.ended_ns = time.time_ns()
                detach(token)

        return traced

    def settled(self, message: Message[Any], outcome: str, error: str) -> None:
        """The outcome of one message, and what it failed with; with the last one the span ends."""
        self._open -= 1
        if outcome != SUCCESS:
            self._failed.append(outcome)
        seconds = self._seconds or time.perf_counter() - self._began
        last = seconds if self._open == 0 else None
        meters = self.telemetry.meters
        meters.attempted(message.topic, message.group, outcome, last, error)
        if self._open == 0:
            self.span.set_attribute(semconv.OUTCOME, (*self._failed, SUCCESS)[0])
            if self._failed:
                count = f"{len(self._failed)} of {len(self.messages)} messages did not succeed"
                self.span.set_status(Status(StatusCode.ERROR, count))
            self.span.end(self.ended_ns)


class TracedMessage:
    """One message of a batch: an event of the batch's span if it did not succeed."""

    __slots__ = ("_batch", "_message", "_over")

    def __init__(self, batch: TracedBatch, message: Message[Any]) -> None:
        self._batch = batch
        self._message = message
        self._over = False

    @property
    def trace(self) -> str:
        """The batch's W3C traceparent."""
        return semconv.traceparent_of(self._batch.span.get_span_context())

    def settled(
        self, outcome: str, *, record: str = "", level: int = 0, due_ms: int | None = None
    ) -> None:
        """The outcome of the attempt."""
        if self._over:
            return
        self._over = True
        batch, message = self._batch, self._message
        failure = read_attempt_record(f"{message.attempt} 0 {record}") if record else None
        if outcome != SUCCESS:
            batch.span.add_event(f"rqretry.{outcome}", self._event(failure, level, due_ms))
        error = "" if failure is None else batch.error or failure.type or failure.cause
        batch.settled(message, outcome, error)
        if outcome == DEAD_LETTER:
            trace_death(batch, message, failure)

    def _event(
        self, failure: AttemptError | None, level: int, due_ms: int | None
    ) -> dict[str, Any]:
        event: dict[str, Any] = {"messaging.message.id": self._message.id}
        event[semconv.ATTEMPT] = self._message.attempt
        if level:
            event[semconv.LEVEL] = level
        if due_ms is not None:
            event |= semconv.when(due_ms)
            if failure is None:
                self._batch.telemetry.due.note(self._message, due_ms)
        if failure is not None:
            event |= failure_attributes(failure)
        return event


def _links(messages: Sequence[Message[Any]]) -> list[Link]:
    """To the publish of each message, and to the attempt before; at most 128."""
    found: list[Link] = []
    for message in messages:
        before = read_attempt_record(message._error)  # noqa: SLF001 - also before a redrive
        _, linked = origin(message, before, one_trace=False)
        named = linked or [("publish", semconv.published_context(message.headers)[1])]
        about = {"messaging.message.id": message.id, **previous_end(before)}
        found += [
            Link(link.context, {**(link.attributes or {}), **about})
            for link in semconv.links(*named)
        ]
    return found[: semconv.MOST_LINKS]
