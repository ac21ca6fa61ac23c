"""Spans of publishing: one producer span for each message, its context in the message's headers."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from opentelemetry.context import Context, get_current
from opentelemetry.trace import Span, SpanContext, SpanKind, get_current_span

from rqretry.core.durations import epoch_ms, milliseconds
from rqretry.core.errors import RqretryError
from rqretry.core.limits import MAX_DELAY_S, MAX_HEADERS, MAX_HEADERS_BYTES
from rqretry.core.message import OutgoingMessage
from rqretry.observability import observer
from rqretry.otel import semconv
from rqretry.otel.meters import Telemetry

_ROOM_BYTES = 2048
"""For a traceparent, a tracestate and a little baggage; with less left, none is added."""
_ROOM_HEADERS = 4
_MOST_BYTES = 4
"""Of one character in UTF-8."""


class TracedPublication:
    """One publish, or one publish_many: a span for each message, and one for the whole call."""

    def __init__(
        self,
        telemetry: Telemetry,
        namespace: str,
        topic: str,
        items: Sequence[Any],
        *,
        batch: bool,
        transaction: str = "",
    ) -> None:
        self._telemetry = telemetry
        self._topic = topic
        done = ("create", "create") if batch else ("publish", "send")
        self._each: Mapping[str, Any] = semconv.shared_operation(
            namespace, topic, *done, observer.servers_known
        )
        self._publish = semconv.operation(namespace, topic, "publish", "send")
        if transaction:
            self._publish["rqretry.transaction"] = transaction
            self._each = dict(self._each) | {"rqretry.transaction": transaction}
        self._name = f"{'create' if batch else 'publish'} {topic}"
        self._started = time.perf_counter()
        self._whole: Span | None = None
        self._spans: list[Span] = []
        self.items = [self._traced(item) for item in items]
        if batch:
            self._whole = self._begin_whole()

    @property
    def traces(self) -> list[str]:
        """Of each message, the W3C traceparent of its span."""
        return [semconv.traceparent_of(span.get_span_context()) for span in self._spans]

    def done(self, answers: Sequence[Any]) -> None:
        """Each span gets its message's id, or its error."""
        failed: BaseException | None = None
        for span, answer in zip(self._spans, answers, strict=True):
            if isinstance(answer, BaseException):
                failed = failed or answer
                semconv.fail(span, answer)
            else:
                span.set_attribute("messaging.message.id", str(answer))
                if getattr(answer, "duplicate", False):
                    span.set_attribute("rqretry.duplicate", True)  # noqa: FBT003 - an attribute
            span.end()
        self._end(failed)

    def failed(self, error: BaseException) -> None:
        """The call failed as a whole."""
        semconv.fail_all(self._spans, error)
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if self._whole is not None:
            if error is not None:
                semconv.fail(self._whole, error)
            self._whole.end()
        seconds = time.perf_counter() - self._started
        self._telemetry.meters.published(self._topic, len(self._spans), seconds, error)

    def _traced(self, item: Any) -> Any:
        """The same message with its span's context in its headers."""
        given_more = isinstance(item, OutgoingMessage)
        given = item.headers if given_more else None
        span = self._telemetry.tracer.start_span(
            self._name,
            context=_parent(given),
            kind=SpanKind.PRODUCER,
            attributes=_about(self._each, item) if given_more else self._each,
        )
        self._spans.append(span)
        if not _has_room(given):
            return item
        headers = dict(given or {})
        semconv.carry(span, headers)
        if given_more:
            return replace(item, headers=headers)
        return OutgoingMessage(body=item, headers=headers)

    def _begin_whole(self) -> Span:
        contexts: list[tuple[str, SpanContext | None]] = [
            ("message", span.get_span_context()) for span in self._spans[:128]
        ]
        return self._telemetry.tracer.start_span(
            f"publish {self._topic}",
            kind=SpanKind.CLIENT,
            attributes=self._publish | {"messaging.batch.message_count": len(self._spans)},
            links=semconv.links(*contexts),
        )


def _about(each: Mapping[str, Any], item: OutgoingMessage) -> dict[str, Any]:
    """What a message has beside its body; what cannot be published is left to publish to refuse."""
    found = dict(each)
    if isinstance(item.tag, str):
        found["rqretry.tag"] = item.tag
    if isinstance(item.message_group, str):
        found["rqretry.message_group"] = item.message_group
    if item.keys:
        found["rqretry.keys"] = (
            item.keys if isinstance(item.keys, str) else " ".join(map(str, item.keys))
        )
    with suppress(RqretryError):
        if item.delay is not None:
            found["rqretry.delay_ms"] = milliseconds(item.delay, name="delay", maximum=MAX_DELAY_S)
        elif item.deliver_at is not None:
            found[semconv.DUE_MS] = epoch_ms("deliver_at", item.deliver_at)
        elif type(item.delay_level) is int:
            found[semconv.LEVEL] = item.delay_level
    return found


def _parent(headers: Any) -> Context:
    """The current span; else the one that the caller's headers name."""
    current = get_current()
    if get_current_span(current).get_span_context().is_valid or not isinstance(headers, Mapping):
        return current
    if not semconv.carrier_fields() & {str(name).lower() for name in headers}:
        return current
    context, span = semconv.published_context(headers)
    return current if span is None else context


def _has_room(headers: object) -> bool:
    """Whether the header limits leave room: tracing must not make a message too large."""
    if not isinstance(headers, Mapping):
        return headers is None  # publish refuses anything else, with a better error
    size = sum(len(str(name)) + len(str(text)) for name, text in headers.items())
    few = len(headers) <= MAX_HEADERS - _ROOM_HEADERS
    return few and _MOST_BYTES * size <= MAX_HEADERS_BYTES - _ROOM_BYTES
