"""Parents of attempt spans: the publish, or none but links to it and the previous attempt."""

from typing import Any

from opentelemetry.context import Context

from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.failure_record import AttemptError
from rqretry.core.message import Message
from rqretry.otel import semconv
from rqretry.otel.semconv import Named

Delivered = Message[Any] | DeadLetterRecord


def origin(
    message: Delivered, before: AttemptError | None, *, one_trace: bool
) -> tuple[Context, list[Named]]:
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
    last: Named = name, previous, {} if before is None else how_it_ended(before)
    if one_trace:
        return published, [last]
    return Context(), [("publish", publish), last]


def how_it_ended(before: AttemptError) -> dict[str, Any]:
    """How an attempt ended, for a link to it; of a redrive nothing."""
    if before.attempt == 0:
        return {}
    found = {
        semconv.ATTEMPT: before.attempt,
        "rqretry.cause": before.cause,
        "rqretry.reason": before.message,
        "error.type": before.type or before.cause,
        semconv.WORKER: before.worker,
    }
    return {name: value for name, value in found.items() if value != ""}


def previous_end(before: AttemptError | None) -> dict[str, Any]:
    """The same for the span itself, where no span is left to link to: the process was killed."""
    if before is None or before.trace:
        return {}
    ended = how_it_ended(before)
    return {name.replace("rqretry.", "rqretry.previous."): ended[name] for name in ended
            if name != "error.type"}  # fmt: skip
