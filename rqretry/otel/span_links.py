"""Parents of attempt spans: the publish, or none but links to it and the previous attempt."""

from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import SpanContext

from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.failure_record import AttemptError
from rqretry.core.message import Message
from rqretry.otel import semconv

Named = list[tuple[str, SpanContext | None]]
"""What a span is linked to, each with the name of the relation."""

Delivered = Message[Any] | DeadLetterRecord


def origin(
    message: Delivered, before: AttemptError | None, *, one_trace: bool
) -> tuple[Context, Named]:
    """The parent of an attempt, and what it is linked to.

    Args:
        message: The message, or the dead letter, that was delivered.
        before: The last record of an attempt of it; None for none.
        one_trace: The publish is the parent of all attempts, not of the first one alone.
    """
    published, publish = semconv.published_context(message.headers)
    if message.attempt == 1 and before is None:
        return published, []
    previous = semconv.read(before.trace) if before is not None and before.trace else None
    name = "redrive" if before is not None and before.attempt == 0 else "previous_attempt"
    if one_trace:
        return published, [(name, previous)]
    return Context(), [("publish", publish), (name, previous)]
