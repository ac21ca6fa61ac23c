"""Spans that cost less to start than the SDK's: what most of them never need is made on demand.

The SDK gives each span two locks, three bounded containers and a copy of itself at its end, and
checks each attribute. A span of ours is a few fields; code that asks for more (an event, a link, a
status, what a processor or another exporter reads) completes it into one of the SDK's spans, by the
SDK's own constructor. Where the SDK would do more than that (another sampler, limits, another
processor) the SDK itself starts the spans.
"""

import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import (
    ReadableSpan,
    SpanLimits,
    SpanProcessor,
    SynchronousMultiSpanProcessor,
    TracerProvider,
)
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.sdk.trace import Tracer as SdkTracer
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, DEFAULT_ON, Sampler
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
    Tracer,
    get_current_span,
)
from opentelemetry.util.types import Attributes

from rqretry.core.settings import variable
from rqretry.otel.sampler import FailuresKept
from rqretry.otel.semconv import SpanAttributes, context_of

_MOST_ATTRIBUTES = 64
"""Of a span that is not completed; the SDK's own limit is 128."""
_SIMPLE = frozenset({str, int, bool, float})
"""Types of values that the SDK takes unchanged."""
_guard = threading.Lock()
"""For all spans: it is held for a few instructions only."""


def _renew() -> None:
    global _guard  # noqa: PLW0603 - a thread that is not in the child may have held it
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_renew)


class QuickSpan(SdkSpan):
    """One of the SDK's spans, completed only when its other parts are asked for.

    Attributes:
        maker: The tracer.
        label: Its name.
        own_context: Its context.
        parent_context: Its parent's.
        role: Its kind.
        own_attributes: Its attributes.
        began_ns, ended_ns: Its times; None for not yet.
        complete: It is one of the SDK's; from then on the fields above are not read.
    """

    __slots__ = (
        "began_ns", "complete", "ended_ns", "label", "maker", "own_attributes", "own_context",
        "parent_context", "role",
    )  # fmt: skip

    def __init__(  # the SDK's is called by _complete
        self,
        maker: "QuickTracer",
        label: str,
        own_context: SpanContext,
        parent_context: SpanContext | None,
        role: SpanKind,
        own_attributes: SpanAttributes,
        began_ns: int,
    ) -> None:
        self.maker = maker
        self.label = label
        self.own_context = own_context
        self.parent_context = parent_context
        self.role = role
        self.own_attributes = own_attributes
        self.began_ns = began_ns
        self.ended_ns: int | None = None
        self.complete = False

    def __getattr__(self, name: str) -> Any:
        """A field that the SDK's code asks for."""
        if self.complete or name.startswith("__"):
            raise AttributeError(name)
        self._complete()
        return object.__getattribute__(self, name)

    def get_span_context(self) -> SpanContext:
        """Its context."""
        return self.own_context

    @property
    def context(self) -> SpanContext:
        """Its context."""
        return self.own_context

    def is_recording(self) -> bool:
        """Whether it has not ended."""
        return self.ended_ns is None

    def set_attribute(self, key: str, value: Any) -> None:
        """Set an attribute."""
        if type(value) in _SIMPLE and type(key) is str and key:
            with _guard:
                if self._takes(key):
                    self.own_attributes[key] = value
                    return
        super().set_attribute(key, value)

    def end(self, end_time: int | None = None) -> None:
        """End it, and export it."""
        with _guard:
            first = self.ended_ns is None
            if first:
                self.ended_ns = time.time_ns() if end_time is None else end_time
            alone = first and not self.complete
        if alone:
            self.maker.take(self)
        else:
            super().end(self.ended_ns)  # which warns if it had ended

    def _takes(self, key: str) -> bool:
        found = self.own_attributes
        if self.complete or self.ended_ns is not None or len(found) >= _MOST_ATTRIBUTES:
            return False
        return found.shared is None or key not in found.shared

    def _complete(self) -> None:
        """Complete it; its own fields keep their values."""
        with _guard:
            if self.complete:
                return
            tracer = self.maker.inner
            self.own_attributes.complete()
            super().__init__(
                name=self.label,
                context=self.own_context,
                parent=self.parent_context,
                sampler=tracer.sampler,
                resource=tracer.resource,
                attributes=self.own_attributes,
                kind=self.role,
                span_processor=tracer.span_processor,
                instrumentation_info=tracer.instrumentation_info,
                limits=self.maker.limits,
                instrumentation_scope=self.maker.scope,
            )
            self._start_time = self.began_ns
            self._end_time = self.ended_ns
            self.complete = True


class OwnProcessors(SynchronousMultiSpanProcessor):
    """The processors of a provider.

    Attributes:
        alone: No processor was added after `settle`.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alone = True
        self._settled = False

    def settle(self) -> None:
        """Processors that are added from now on are not ours."""
        self._settled = True

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        """Add one; it gets the spans that start from now on."""
        super().add_span_processor(span_processor)
        self.alone = self.alone and not self._settled


class QuickTracer(Tracer):
    """A tracer that starts quick spans where the result is the same, and else asks the SDK's."""

    quick = True

    def __init__(self, inner: SdkTracer, provider: "QuickProvider") -> None:
        self.inner = inner
        self.limits = provider.limits
        sample = inner.start_span("", Context())
        assert isinstance(sample, ReadableSpan)
        self.scope = sample.instrumentation_scope
        self.take = provider.take
        self._processors = provider.processors
        self._root_flags = _flags_of_a_root()

    @property
    def origin(self) -> tuple[Resource, InstrumentationScope | None]:
        """The resource and scope of its spans; a fork changes the resource."""
        return self.inner.resource, self.scope

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,  # noqa: FBT001, FBT002 - the API's
        set_status_on_exception: bool = True,  # noqa: FBT001, FBT002
    ) -> Span:
        """Start a span; it is exported when it ends."""
        parent = get_current_span(context).get_span_context()
        root = not parent.is_valid
        sampled = root or (parent.trace_flags & TraceFlags.SAMPLED and not parent.trace_state)
        if links or not sampled or not self._processors.alone:
            if type(attributes) is SpanAttributes:
                attributes.complete()
            return self.inner.start_span(
                name, context, kind, attributes, links, start_time,
                record_exception, set_status_on_exception,
            )  # fmt: skip
        flags = self._root_flags if root else self._root_flags & parent.trace_flags
        trace_id = _random_id(128) if root else parent.trace_id
        return QuickSpan(
            self,
            name,
            context_of(trace_id, _random_id(64), flags, is_remote=False),
            None if root else parent,
            kind,
            attributes if type(attributes) is SpanAttributes else SpanAttributes(attributes or {}),
            time.time_ns() if start_time is None else start_time,
        )

    def start_as_current_span(self, *args: Any, **options: Any) -> Any:
        """As the SDK does it."""
        return self.inner.start_as_current_span(*args, **options)


@dataclass
class QuickProvider(trace.TracerProvider):
    """A provider of the SDK's tracers, quick ones where possible.

    Args:
        inner: The SDK's.
        limits: Of its spans.
        processors: Its processors.
        take: What these processors do with a span at its end.
    """

    inner: TracerProvider
    limits: SpanLimits
    processors: OwnProcessors
    take: Callable[[ReadableSpan], None]

    def get_tracer(self, *args: Any, **options: Any) -> Tracer:
        """A tracer for a scope."""
        tracer: Tracer = self.inner.get_tracer(*args, **options)
        measured = (variable("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED") or "").lower() == "true"
        if measured or not isinstance(tracer, SdkTracer) or not _wide(self.limits):
            return tracer
        return QuickTracer(tracer, self) if _always(tracer.sampler) else tracer


def _always(sampler: Sampler) -> bool:
    """Whether each span is sampled whose parent, if it has one, is."""
    if isinstance(sampler, FailuresKept):
        return _always(sampler.inner)
    return sampler is ALWAYS_ON or sampler is DEFAULT_ON


def _wide(limits: SpanLimits) -> bool:
    """Whether no quick span can reach its limits."""
    most = limits.max_span_attributes
    few = most is not None and most < 2 * _MOST_ATTRIBUTES
    return not few and limits.max_span_attribute_length is None


def _flags_of_a_root() -> TraceFlags:
    """The flags that the installed SDK gives a new trace."""
    provider = TracerProvider(ALWAYS_ON, shutdown_on_exit=False)
    return provider.get_tracer("rqretry").start_span("", Context()).get_span_context().trace_flags


def _random_id(bits: int) -> int:
    return random.getrandbits(bits) or 1
