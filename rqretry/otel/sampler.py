"""Outcome-aware sampling: failed attempts are exported whatever the sampler decides.

Whether an attempt failed is known only at its end. So attempts that the sampler drops are still
recorded, and those that failed are exported; a message that has failed once is sampled from then
on.
"""

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.util.types import Attributes

from rqretry.observability.observer import SUCCESS
from rqretry.otel import semconv


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
        if result.decision is not Decision.DROP or ours.get("messaging.system") != semconv.SYSTEM:
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
    """Passes on what was sampled, and failed attempts that were not."""

    def on_end(self, span: ReadableSpan) -> None:
        """Pass it on if it is sampled or failed."""
        context = span.context
        outcome = (span.attributes or {}).get(semconv.OUTCOME, SUCCESS)
        if context is not None and not context.trace_flags.sampled and outcome != SUCCESS:
            flags = TraceFlags(context.trace_flags | TraceFlags.SAMPLED)
            span = _with_context(span, flags)
        self._inner.on_end(span)


def _with_context(span: ReadableSpan, flags: TraceFlags) -> ReadableSpan:
    """The same span with the sampled flag: exporters skip spans without it."""
    old = span.context
    assert old is not None
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
