"""Spans of simple consumers: one for each message received, and one for each that is settled.

The conventions call these `receive` and `settle` and make them client spans: only the program
knows when it works on a message, so there is no `process` span.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.context import Context, get_current
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanKind,
    Status,
    StatusCode,
    get_current_span,
    set_span_in_context,
)

from rqretry.core.failure_record import AttemptError, read_attempt_record
from rqretry.core.message import Message
from rqretry.observability.observer import STALE, SUCCESS, Leased
from rqretry.otel import semconv
from rqretry.otel.meters import Telemetry
from rqretry.otel.semconv import Named
from rqretry.otel.span_links import origin, previous_end

RECEIVED = "received"


def trace_received(
    telemetry: Telemetry,
    namespace: str,
    messages: Sequence[Message[Any]],
    client: str,
    asked_ns: int,
) -> None:
    """A span for each message that a receive answered; the message remembers its span."""
    for message in messages:
        before = read_attempt_record(message._error)  # noqa: SLF001 - also a redrive
        parent, linked = _parent_and_links(message, before, one_trace=telemetry.one_trace)
        span = telemetry.tracer.start_span(
            f"receive {message.topic}",
            context=parent,
            kind=SpanKind.CLIENT,
            attributes=semconv.delivery(namespace, message, client, "receive", "receive")
            | {semconv.OUTCOME: RECEIVED}
            | previous_end(before)
            | ({"messaging.batch.message_count": len(messages)} if len(messages) > 1 else {}),
            links=semconv.links(*linked),
            start_time=asked_ns,
        )
        context = span.get_span_context()
        if context.is_valid:
            message._trace_id = f"{context.trace_id:032x}"  # noqa: SLF001 - of this attempt
            message._span = context  # noqa: SLF001
        span.end()


def _parent_and_links(
    message: Message[Any], before: AttemptError | None, *, one_trace: bool
) -> tuple[Context, list[Named]]:
    """A child of the current span, linked to the publish; without one as any attempt is."""
    current = get_current()
    if not get_current_span(current).get_span_context().is_valid:
        return origin(message, before, one_trace=one_trace)
    _, linked = origin(message, before, one_trace=False)
    if not linked:
        linked = [("publish", semconv.published_context(message.headers)[1])]
    return current, linked


@dataclass
class TracedSettling:
    """An ack, a change of the invisible duration, or a release: a span for each message.

    It is a child of the current span, linked to the receive; without one a child of the receive.
    """

    _telemetry: Telemetry
    _namespace: str
    _verb: str
    _items: Sequence[Leased]
    _client: str

    def __post_init__(self) -> None:
        self._began = time.perf_counter()
        self._spans = [self._begin(item) for item in self._items]

    def done(self, refused: Iterable[str]) -> None:
        """Each span gets whether its lease had ended."""
        ended = set(refused)
        for span, (handle, _) in zip(self._spans, self._items, strict=True):
            if handle.id in ended:
                span.set_attributes({semconv.OUTCOME: STALE, "error.type": "InvalidReceiptHandle"})
                span.set_status(Status(StatusCode.ERROR, "the lease had ended"))
            else:
                span.set_attribute(semconv.OUTCOME, SUCCESS)
            span.end()
        self._count(None)

    def failed(self, error: BaseException) -> None:
        """The call failed as a whole."""
        semconv.fail_all(self._spans, error)
        self._count(error)

    def _count(self, error: BaseException | None) -> None:
        seconds = time.perf_counter() - self._began
        for topic in {handle.topic for handle, _ in self._items}:
            self._telemetry.meters.operated(topic, self._verb, seconds, error)

    def _begin(self, item: Leased) -> Span:
        handle, message = item
        received = None if message is None else getattr(message, "_span", None)
        parent, linked = get_current(), semconv.links(("receive", received))
        if received is not None and not get_current_span(parent).get_span_context().is_valid:
            parent, linked = set_span_in_context(NonRecordingSpan(received), parent), []
        attributes: dict[str, Any] = {
            "messaging.destination.partition.id": str(handle.partition),
            "messaging.consumer.group.name": handle.group,
            "messaging.message.id": handle.id,
            "messaging.client.id": self._client,
            "rqretry.fencing_token": handle.lease_no,
        }
        if message is not None:
            attributes[semconv.ATTEMPT] = message.attempt
        return self._telemetry.tracer.start_span(
            f"{self._verb} {handle.topic}",
            context=parent,
            kind=SpanKind.CLIENT,
            attributes=semconv.operation(self._namespace, handle.topic, self._verb, "settle")
            | attributes,
            links=linked,
        )
