"""Outcome-aware sampling: failed attempts are exported whatever the sampler decides.

Whether an attempt failed is known only at its end. So attempts that the sampler drops are still
recorded, with what their handlers create below them, and those that failed are exported; a message
that has failed once is sampled from then on. Its publish ended long before, in another process: it
is written once more, from what the message tells.
"""

import threading
from collections.abc import Iterator, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    TraceFlags,
    TraceState,
    get_current_span,
)
from opentelemetry.util.types import Attributes

from rqretry.core.message_id import born_ms
from rqretry.observability.observer import SUCCESS
from rqretry.otel import semconv

_MOST_HELD, _MOST_SIBLINGS = 4096, 128
"""Spans that wait for how their attempt ends: so many parents, and below each so many."""
_OF_THE_MESSAGE = (
    "messaging.system", "messaging.destination.name", "messaging.destination.partition.id",
    "messaging.message.id", "rqretry.namespace", "rqretry.tag", "rqretry.keys",
    "rqretry.message_group", "server.address", "server.port",
)  # fmt: skip


class FailuresKept(Sampler):
    """Wraps a sampler and adds every span that belongs to a failure."""

    def __init__(self, inner: Sampler) -> None:
        self.inner = inner

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """As the wrapped sampler decides, but attempts it drops are recorded, retries sampled."""
        result = self.inner.should_sample(
            parent_context, trace_id, name, kind, attributes, links, trace_state
        )
        ours = attributes or {}
        if result.decision is not Decision.DROP:
            return result
        parent = get_current_span(parent_context)
        if parent.is_recording() and not parent.get_span_context().trace_flags.sampled:
            return SamplingResult(Decision.RECORD_ONLY, attributes, result.trace_state)
        if ours.get("messaging.system") != semconv.SYSTEM:
            return result
        if "rqretry.deliveries" in ours or ours.get(semconv.ATTEMPT, 1) != 1:
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes, result.trace_state)
        if kind is SpanKind.CONSUMER:
            return SamplingResult(Decision.RECORD_ONLY, attributes, result.trace_state)
        return result

    def get_description(self) -> str:
        """Its description, in the SDK's style."""
        return f"FailuresKept{{{self.inner.get_description()}}}"


class WrappedProcessor(SpanProcessor):
    """Passes everything on to another processor."""

    def __init__(self, inner: SpanProcessor) -> None:
        self._inner = inner

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """A span has begun."""
        self._inner.on_start(span, parent_context)

    def shutdown(self) -> None:
        """Export the rest."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export what is buffered."""
        return self._inner.force_flush(timeout_millis)


class KeepFailures(WrappedProcessor):
    """Passes on what was sampled, and failed attempts that were not, with what is below them.

    A span below an attempt ends before it, mostly, and waits here for how the attempt ends.
    """

    def __init__(self, inner: SpanProcessor) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self._below: dict[int, list[ReadableSpan]] = {}
        """By parent's span id, what has ended; at most _MOST_HELD parents."""
        self._failed: dict[int, None] = {}
        """Spans below which everything is passed on; the last ones."""

    def on_end(self, span: ReadableSpan) -> None:
        """Pass it on if it is sampled or failed, or below one that is."""
        with self._lock:
            passed = list(self._passed(span))
        for each in passed:
            self._inner.on_end(each)

    def _passed(self, span: ReadableSpan) -> Iterator[ReadableSpan]:
        context, attributes = span.context, span.attributes or {}
        ours = attributes.get("messaging.system") == semconv.SYSTEM
        if context is None or context.trace_flags.sampled:
            yield span
        elif span.kind is SpanKind.CONSUMER and ours:
            yield from self._ended(span, failed=attributes.get(semconv.OUTCOME) != SUCCESS)
        elif span.parent is not None and span.parent.span_id in self._failed:
            yield from self._ended(span, failed=True)
        elif span.parent is not None:
            self._hold(span.parent.span_id, span)
        if ours and (publish := _unsampled_publish(span)) is not None:
            yield publish

    def _ended(self, span: ReadableSpan, *, failed: bool) -> Iterator[ReadableSpan]:
        """A span and what is below it; nothing where it did not fail."""
        assert span.context is not None
        if failed:
            yield _sampled(span)
            self._failed[span.context.span_id] = None
            if len(self._failed) > _MOST_HELD:
                del self._failed[next(iter(self._failed))]
        for child in self._below.pop(span.context.span_id, ()):
            yield from self._ended(child, failed=failed)

    def _hold(self, parent: int, span: ReadableSpan) -> None:
        siblings = self._below.setdefault(parent, [])
        if len(siblings) < _MOST_SIBLINGS:
            siblings.append(span)
        if len(self._below) > _MOST_HELD:
            del self._below[next(iter(self._below))]


def _unsampled_publish(span: ReadableSpan) -> ReadableSpan | None:
    """The publish of a message whose first exported attempt this is; None where it was sampled."""
    attributes, context = span.attributes or {}, span.context
    sampled = context is not None and context.trace_flags.sampled
    if span.kind is not SpanKind.CONSUMER:
        return None
    if attributes.get(semconv.OUTCOME) == SUCCESS and not sampled:
        return None
    named = {(link.attributes or {}).get(semconv.LINKED_AS): link.context for link in span.links}
    publish = span.parent or named.get("publish")
    if publish is None or publish.trace_flags.sampled or "previous_attempt" in named:
        return None
    if "messaging.message.id" not in attributes:  # a batch
        return None
    kept = {name: attributes[name] for name in _OF_THE_MESSAGE if name in attributes}
    topic = str(attributes["messaging.destination.name"])
    at = born_ms(str(attributes["messaging.message.id"]))
    at_ns = span.start_time if at is None else at * 1_000_000
    return ReadableSpan(
        name=f"publish {topic}",
        context=SpanContext(
            publish.trace_id,
            publish.span_id,
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        ),
        resource=span.resource,
        attributes=kept
        | {
            "messaging.operation.name": "publish",
            "messaging.operation.type": "send",
            "rqretry.reconstructed": True,
        },
        kind=SpanKind.PRODUCER,
        start_time=at_ns,
        end_time=at_ns,
        instrumentation_scope=span.instrumentation_scope,
    )


def _sampled(span: ReadableSpan) -> ReadableSpan:
    """The same span with the sampled flag: exporters skip spans without it."""
    old = span.context
    assert old is not None
    flags = TraceFlags(old.trace_flags | TraceFlags.SAMPLED)
    context = SpanContext(old.trace_id, old.span_id, old.is_remote, flags, old.trace_state)
    return ReadableSpan(
        name=span.name,
        context=context,
        parent=span.parent,
        resource=span.resource,
        attributes=span.attributes,
        events=span.events,
        links=span.links,
        kind=span.kind,
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
