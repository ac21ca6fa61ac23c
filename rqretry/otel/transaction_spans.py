"""Spans of decisions: a transaction is committed or rolled back.

The decision is a child of the current span, else of the first publish, and linked to all of them. A
publish that is rolled back ended long before; so it gets a child that says so.
"""

import time
from collections.abc import Sequence
from typing import Any

from opentelemetry.context import get_current
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    get_current_span,
    set_span_in_context,
)

from rqretry.observability.observer import Published
from rqretry.otel import semconv
from rqretry.otel.meters import Telemetry

_VERBS = {"committed": "commit", "rolled_back": "rollback"}
TRANSACTION = "rqretry.transaction"


class TracedDecision:
    """One decision; `published` are the messages, as far as they are known."""

    def __init__(
        self,
        telemetry: Telemetry,
        namespace: str,
        transaction: str,
        decision: str,
        published: Sequence[Published],
    ) -> None:
        self._telemetry = telemetry
        self._verb = _VERBS[decision]
        self._decision = decision
        self._namespace = namespace
        self._transaction = transaction
        self._began = time.perf_counter()
        read = ((topic, semconv.read(trace)) for topic, trace in published)
        self._published = [(topic, context) for topic, context in read if context is not None]
        parent = get_current()
        self._topic = published[0][0] if published else ""
        if self._published and not get_current_span(parent).get_span_context().is_valid:
            parent = set_span_in_context(NonRecordingSpan(self._published[0][1]), parent)
        self._span = telemetry.tracer.start_span(
            f"{self._verb} {self._topic}".rstrip(),
            context=parent,
            kind=SpanKind.CLIENT,
            attributes=self._attributes(self._topic),
            links=semconv.links(*(("publish", context) for _, context in self._published)),
        )

    def done(self, *, decided: bool) -> None:
        """It is decided; `decided`: by this call, and not before."""
        outcome = self._decision if decided else f"already_{self._decision}"
        self._span.set_attribute(semconv.OUTCOME, outcome)
        if decided and self._verb == "rollback":
            for topic, context in self._published[: semconv.MOST_LINKS]:
                self._mark(topic, context)
        self._end(None)

    def failed(self, error: BaseException) -> None:
        """It is not known to be decided."""
        semconv.fail(self._span, error)
        self._end(error)

    def _mark(self, topic: str, publish: SpanContext) -> None:
        """Say in the trace of a publish that nobody got its message."""
        decision = self._span.get_span_context()
        self._telemetry.tracer.start_span(
            f"rolled_back {topic}",
            context=set_span_in_context(NonRecordingSpan(publish)),
            kind=SpanKind.INTERNAL,
            attributes=self._attributes(topic) | {semconv.OUTCOME: self._decision},
            links=semconv.links(("decision", decision)),
        ).end()

    def _attributes(self, topic: str) -> dict[str, Any]:
        attributes = semconv.operation(self._namespace, topic, self._verb, "send")
        if not topic:
            del attributes["messaging.destination.name"]
        return attributes | {TRANSACTION: self._transaction}

    def _end(self, error: BaseException | None) -> None:
        self._span.end()
        seconds = time.perf_counter() - self._began
        self._telemetry.meters.operated(self._topic, self._verb, seconds, error)
