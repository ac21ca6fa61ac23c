"""Spans of messages that died because their lease ran out: no attempt tells of that."""

from typing import Any

from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer

from rqretry.otel import semconv
from rqretry.otel.span_links import origin

_REASON = "the lease ended before the worker told a result"


def trace_buried(
    tracer: Tracer, namespace: str, letter: Any, worker: str, *, one_trace: bool
) -> None:
    """A span for the way of one message (DeadLetterRecord) into the dead-letter queue.

    It hangs where the attempt would that was never told of: below the publish where that was the
    first, else linked to the publish and to the last attempt that ended.
    """
    queue = f"{semconv.DEAD_LETTER_PREFIX}{letter.group}"
    told = next((error for error in reversed(letter.errors) if error.trace), None)
    parent, linked = origin(letter.headers, letter.attempt, told, one_trace=one_trace)
    span = tracer.start_span(
        f"dead_letter {queue}",
        context=parent,
        kind=SpanKind.PRODUCER,
        attributes=semconv.destination(namespace, queue)
        | semconv.operation("dead_letter", "send")
        | {
            "messaging.consumer.group.name": letter.group,
            "messaging.message.id": letter.id,
            "messaging.client.id": worker,
            semconv.WORKER: worker,
            semconv.ATTEMPT: letter.attempt,
            "rqretry.topic": letter.topic,
            "rqretry.cause": letter.cause,
            "rqretry.deliveries": letter.attempt,
            "rqretry.fingerprint": letter.fingerprint,
            "error.type": letter.cause or "expired",
        },
        links=semconv.links(*linked),
    )
    span.set_status(Status(StatusCode.ERROR, _REASON))
    span.end()
