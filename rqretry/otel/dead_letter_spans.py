"""Spans of messages that died because their lease expired: no attempt reported that."""

from typing import Any

from opentelemetry.trace import SpanKind, Status, StatusCode

from rqretry.otel import semconv
from rqretry.otel.meters import Telemetry
from rqretry.otel.span_links import origin

_REASON = "the lease ended before the worker reported a result"


def trace_dead_letter(telemetry: Telemetry, namespace: str, dead_letter: Any, worker: str) -> None:
    """A span for the move of one message (DeadLetterRecord) to the dead-letter queue.

    It takes the position of the attempt that was never reported: a child of the publish if that was
    the first attempt, else linked to the publish and to the last attempt that ended.
    """
    queue = f"{semconv.DEAD_LETTER_PREFIX}{dead_letter.group}"
    traced = next((error for error in reversed(dead_letter.errors) if error.trace), None)
    parent, linked = origin(dead_letter, traced, one_trace=telemetry.one_trace)
    span = telemetry.tracer.start_span(
        f"dead_letter {queue}",
        context=parent,
        kind=SpanKind.PRODUCER,
        attributes=semconv.operation(namespace, queue, "dead_letter", "send")
        | {
            "messaging.consumer.group.name": dead_letter.group,
            "messaging.message.id": dead_letter.id,
            "messaging.client.id": worker,
            semconv.WORKER: worker,
            semconv.ATTEMPT: dead_letter.attempt,
            "rqretry.topic": dead_letter.topic,
            "rqretry.cause": dead_letter.cause,
            "rqretry.deliveries": dead_letter.attempt,
            "rqretry.fingerprint": dead_letter.fingerprint,
            "error.type": dead_letter.cause or "expired",
        },
        links=semconv.links(*linked),
    )
    span.set_status(Status(StatusCode.ERROR, _REASON))
    span.end()
