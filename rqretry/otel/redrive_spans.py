"""Spans of redrives: one for each dead letter, linked to its last attempt."""

from collections.abc import Sequence
from typing import Any

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from rqretry.otel import semconv


class TracedRedrive:
    """Dead letters that are being sent back to their group."""

    def __init__(
        self, tracer: Tracer, namespace: str, group: str, dead_letters: Sequence[Any], actor: str
    ) -> None:
        self._tracer = tracer
        self._namespace = namespace
        self._group = group
        self._actor = actor
        self._spans = [self._begin(dead_letter) for dead_letter in dead_letters]
        self.traces = [semconv.traceparent_of(span.get_span_context()) for span in self._spans]

    def done(self, sent: Sequence[bool]) -> None:
        """Which of them were sent back."""
        for span, redriven in zip(self._spans, sent, strict=True):
            span.set_attribute(semconv.OUTCOME, "redriven" if redriven else "gone")
            if not redriven:
                span.set_status(Status(StatusCode.ERROR, "it is no longer dead"))
            span.end()

    def _begin(self, dead_letter: Any) -> Span:
        group = self._group
        last = next((error for error in reversed(dead_letter.errors) if error.trace), None)
        _, publish = semconv.published_context(dead_letter.headers)
        previous = None if last is None else semconv.read(last.trace)
        return self._tracer.start_span(
            f"redrive {semconv.DEAD_LETTER_PREFIX}{group}",
            kind=SpanKind.PRODUCER,
            attributes=semconv.operation(self._namespace, dead_letter.topic, "redrive", "send")
            | {
                "messaging.consumer.group.name": group,
                "messaging.message.id": dead_letter.id,
                "messaging.client.id": self._actor,
                "rqretry.deliveries": dead_letter.attempt,
                "rqretry.cause": dead_letter.cause,
                "rqretry.fingerprint": dead_letter.fingerprint,
            },
            links=semconv.links(("publish", publish), ("previous_attempt", previous)),
        )
