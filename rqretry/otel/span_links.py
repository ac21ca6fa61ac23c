"""Parents of attempt spans: the publish, or none but links to it and the previous attempt."""

from collections.abc import Mapping

from opentelemetry.context import Context
from opentelemetry.trace import SpanContext

from rqretry.core.failure_record import AttemptError
from rqretry.otel import semconv

Named = list[tuple[str, SpanContext | None]]
"""What a span is linked to, each with the name of the relation."""


def origin(
    headers: Mapping[str, str], attempt: int, before: AttemptError | None, *, one_trace: bool
) -> tuple[Context, Named]:
    """The parent of an attempt, and what it is linked to.

    Args:
        headers: The message's.
        attempt: Which delivery it is.
        before: The last record of an attempt of it; None for none.
        one_trace: The publish is the parent of all attempts, not of the first one alone.
    """
    published, publish = semconv.published_context(headers)
    if attempt == 1 and before is None:
        return published, []
    previous = semconv.read(before.trace) if before is not None and before.trace else None
    name = "redrive" if before is not None and before.attempt == 0 else "previous_attempt"
    if one_trace:
        return published, [(name, previous)]
    return Context(), [("publish", publish), (name, previous)]
