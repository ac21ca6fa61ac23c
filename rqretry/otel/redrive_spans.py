"""Spans of redrives: each dead letter's way back, linked to the attempt that was its last."""

from collections.abc import Sequence
from typing import Any

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from rqretry.otel import semconv


class TracedRedrive:
    """Dead letters on their way back to their group."""

    def __init__(
        self, tracer: Tracer, namespace: str, group: str, letters: Sequence[Any], actor: str
    ) -> None:
        self._tracer = tracer
        self._namespace = namespace
        self._group = group
        self._actor = actor
        self._spans = [self._begin(letter) for letter in letters]
        self.traces = [semconv.spelled(span.get_span_context()) for span in self._spans]

    def done(self, sent: Sequence[bool]) -> None:
        """Which of them were sent back."""
        for span, was in zip(self._spans, sent, strict=True):
            span.set_attribute(semconv.OUTCOME, "redriven" if was else "gone")
            if not was:
                span.set_status(Status(StatusCode.ERROR, "it is not dead any more"))
            span.end()

    def _begin(self, letter: Any) -> Span:
        group = self._group
        last = next((error for error in reversed(letter.errors) if error.trace), None)
        _, publish = semconv.published_context(letter.headers)
        previous = None if last is None else semconv.read(last.trace)
        return self._tracer.start_span(
            f"redrive {semconv.DEAD_LETTER_PREFIX}{group}",
            kind=SpanKind.PRODUCER,
            attributes=semconv.destination(self._namespace, letter.topic)
            | semconv.operation("redrive", "send")
            | {
                "messaging.consumer.group.name": group,
                "messaging.message.id": letter.id,
                "messaging.client.id": self._actor,
                "rqretry.deliveries": letter.attempt,
                "rqretry.cause": letter.cause,
                "rqretry.fingerprint": letter.fingerprint,
            },
            links=semconv.links(("publish", publish), ("previous_attempt", previous)),
        )
