"""Outcome-aware sampling: failed attempts are exported whatever the sampler says.

Only the end of an attempt tells whether it failed. So the spans that the sampler drops are
recorded all the same where they are attempts, and those that failed are exported; a message that
has failed once is followed from then on.
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
    """Another sampler, and every span that has to do with a failure."""

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
        """What the other says; an attempt that it drops is recorded, a later one is sampled."""
        said = self.inner.should_sample(
            parent_context, trace_id, name, kind, attributes, links, trace_state
        )
        ours = attributes or {}
        if said.decision is not Decision.DROP or ours.get("messaging.system") != semconv.SYSTEM:
            return said
        if "rqretry.deliveries" in ours or ours.get(semconv.ATTEMPT, 1) != 1:
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes, said.trace_state)
        if kind is SpanKind.CONSUMER:
            return SamplingResult(Decision.RECORD_ONLY, attributes, said.trace_state)
        return said

    def get_description(self) -> str:
        """What it is, in the SDK's style."""
        return f"FailuresKept{{{self.inner.get_description()}}}"


class KeepFailures(SpanProcessor):
    """Hands on what was sampled, and the attempts that failed although they were not."""

    def __init__(self, inner: SpanProcessor) -> None:
        self._inner = inner

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing is known yet."""
        self._inner.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Sampled, or failed."""
        context = span.context
        outcome = (span.attributes or {}).get(semconv.OUTCOME, SUCCESS)
        if context is not None and not context.trace_flags.sampled and outcome != SUCCESS:
            flags = TraceFlags(context.trace_flags | TraceFlags.SAMPLED)
            span = _with_context(span, flags)
        self._inner.on_end(span)

    def shutdown(self) -> None:
        """Export the rest."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export what is held."""
        return self._inner.force_flush(timeout_millis)


def _with_context(span: ReadableSpan, flags: TraceFlags) -> ReadableSpan:
    """The same span, said to be sampled: exporters leave out what is not."""
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
