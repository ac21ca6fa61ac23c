"""Spans that cost less to start than the SDK's: what most of them never need is made on demand.

The SDK gives each span two locks, three containers with limits and a copy of itself at its end, and
looks at each attribute. A span of ours is a few fields; somebody who asks for more (an event, a
link, a status, what a processor or another exporter reads) finds a whole span of the SDK's in its
place, made by the SDK's own constructor. Where the SDK would do more than that (another sampler,
limits, a processor of somebody else's) spans are started by the SDK itself.
"""

import os
import random
import threading
import time
from collections.abc import Callable, Sequence
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
from rqretry.otel.attributes import Said
from rqretry.otel.sampler import FailuresKept

_MOST_ATTRIBUTES = 64
"""Of a span that is not a whole one; the SDK's own limit is 128."""
_SIMPLE = frozenset({str, int, bool, float})
"""Values that the SDK takes as they are."""
_guard = threading.Lock()
"""For all spans: it is held for a few instructions only."""


def _renew() -> None:
    global _guard  # noqa: PLW0603 - a thread that is not in the child may have held it
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_renew)


class QuickSpan(SdkSpan):
    """A span of the SDK's whose parts are made when they are asked for.

    Attributes:
        maker: The tracer.
        label: Its name.
        where: Its context.
        above: Its parent's.
        role: Its kind.
        said: Its attributes.
        began_ns, over_ns: When; None for not yet.
        whole: It is made; from then on the fields above are not looked at.
    """

    __slots__ = (
        "above", "began_ns", "label", "maker", "over_ns", "role", "said", "where", "whole",
    )  # fmt: skip

    def __init__(  # the SDK's is called by _make
        self,
        maker: "QuickTracer",
        label: str,
        where: SpanContext,
        above: SpanContext | None,
        role: SpanKind,
        said: Said,
        began_ns: int,
    ) -> None:
        self.maker = maker
        self.label = label
        self.where = where
        self.above = above
        self.role = role
        self.said = said
        self.began_ns = began_ns
        self.over_ns: int | None = None
        self.whole = False

    def __getattr__(self, name: str) -> Any:
        """A field that the SDK's code looks for."""
        if self.whole or name.startswith("__"):
            raise AttributeError(name)
        self._make()
        return object.__getattribute__(self, name)

    def get_span_context(self) -> SpanContext:
        """Its context."""
        return self.where

    @property
    def context(self) -> SpanContext:
        """Its context."""
        return self.where

    def is_recording(self) -> bool:
        """Whether it has not ended."""
        return self.over_ns is None

    def set_attribute(self, key: str, value: Any) -> None:
        """Say one thing more."""
        if type(value) in _SIMPLE and type(key) is str and key:
            with _guard:
                if self._takes(key):
                    self.said[key] = value
                    return
        super().set_attribute(key, value)

    def end(self, end_time: int | None = None) -> None:
        """It is over, and goes to be exported."""
        with _guard:
            first = self.over_ns is None
            if first:
                self.over_ns = time.time_ns() if end_time is None else end_time
            alone = first and not self.whole
        if alone:
            self.maker.take(self)
        else:
            super().end(self.over_ns)  # which warns where it is not the first

    def _takes(self, key: str) -> bool:
        said = self.said
        if self.whole or self.over_ns is not None or len(said) >= _MOST_ATTRIBUTES:
            return False
        return said.shared is None or key not in said.shared

    def _make(self) -> None:
        """Make it a whole one; its own fields stay what they were."""
        with _guard:
            if self.whole:
                return
            tracer = self.maker.inner
            super().__init__(
                name=self.label,
                context=self.where,
                parent=self.above,
                sampler=tracer.sampler,
                resource=tracer.resource,
                attributes=self.said,
                kind=self.role,
                span_processor=tracer.span_processor,
                instrumentation_info=tracer.instrumentation_info,
                limits=self.maker.limits,
                instrumentation_scope=self.maker.scope,
            )
            self._start_time = self.began_ns
            self._end_time = self.over_ns
            self.whole = True


class OwnProcessors(SynchronousMultiSpanProcessor):
    """The processors of a provider.

    Attributes:
        alone: There is none but those that were there at first, by `settle`.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alone = True
        self._settled = False

    def settle(self) -> None:
        """Whatever comes from now on is somebody else's."""
        self._settled = True

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        """One more; spans that start from now on are its, too."""
        super().add_span_processor(span_processor)
        self.alone = self.alone and not self._settled


class QuickTracer(Tracer):
    """A tracer that starts quick spans where the SDK's would come to the same, and else asks it."""

    def __init__(
        self,
        inner: SdkTracer,
        limits: SpanLimits,
        processors: OwnProcessors,
        take: Callable[[ReadableSpan], None],
    ) -> None:
        self.inner = inner
        self.limits = limits
        sample = inner.start_span("", Context())
        assert isinstance(sample, ReadableSpan)
        self.scope = sample.instrumentation_scope
        self.take = take
        self._processors = processors
        self._root_flags = _flags_of_a_root()

    @property
    def place(self) -> tuple[Resource, InstrumentationScope | None]:
        """What its spans have around them; a fork changes the resource."""
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
        above = get_current_span(context).get_span_context()
        root = not above.is_valid
        sampled = root or (above.trace_flags & TraceFlags.SAMPLED and not above.trace_state)
        if links or not sampled or not self._processors.alone:
            return self.inner.start_span(
                name, context, kind, attributes, links, start_time,
                record_exception, set_status_on_exception,
            )  # fmt: skip
        flags = self._root_flags
        if not root:
            flags = TraceFlags(flags & above.trace_flags)
        trace_id = _some(128) if root else above.trace_id
        return QuickSpan(
            self,
            name,
            SpanContext(trace_id, _some(64), False, flags),  # noqa: FBT003 - not remote
            None if root else above,
            kind,
            attributes if type(attributes) is Said else Said(attributes or {}),
            time.time_ns() if start_time is None else start_time,
        )

    def start_as_current_span(self, *args: Any, **options: Any) -> Any:
        """As the SDK does it."""
        return self.inner.start_as_current_span(*args, **options)


class QuickProvider(trace.TracerProvider):
    """Gives the SDK's tracers, quick where that can be.

    Args:
        inner: The SDK's.
        limits: Of its spans.
        processors: Its processors.
        take: What those that are there now do with a span at its end.
    """

    def __init__(
        self,
        inner: TracerProvider,
        limits: SpanLimits,
        processors: OwnProcessors,
        take: Callable[[ReadableSpan], None],
    ) -> None:
        self._inner = inner
        self._limits = limits
        self._processors = processors
        self._take = take

    def get_tracer(self, *args: Any, **options: Any) -> Tracer:
        """A tracer for a scope."""
        tracer: Tracer = self._inner.get_tracer(*args, **options)
        measured = (variable("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED") or "").lower() == "true"
        if measured or not isinstance(tracer, SdkTracer) or not _wide(self._limits):
            return tracer
        if not _always(tracer.sampler):
            return tracer
        return QuickTracer(tracer, self._limits, self._processors, self._take)


def _always(sampler: Sampler) -> bool:
    """Whether each span is sampled whose parent, if it has one, is."""
    if isinstance(sampler, FailuresKept):
        return _always(sampler.inner)
    return sampler is ALWAYS_ON or sampler is DEFAULT_ON


def _wide(limits: SpanLimits) -> bool:
    """Whether no quick span can come to its limits."""
    most = limits.max_span_attributes
    few = most is not None and most < 2 * _MOST_ATTRIBUTES
    return not few and limits.max_span_attribute_length is None


def _flags_of_a_root() -> TraceFlags:
    """What the installed SDK says of a trace that begins here."""
    provider = TracerProvider(ALWAYS_ON, shutdown_on_exit=False)
    return provider.get_tracer("rqretry").start_span("", Context()).get_span_context().trace_flags


def _some(bits: int) -> int:
    return random.getrandbits(bits) or 1
