"""Spans that are made with less than the SDK's are the SDK's to everybody who looks at them."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, DEFAULT_ON, Sampler, TraceIdRatioBased
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from rqretry.otel.otlp_encode import SpanEncoder
from rqretry.otel.sampler import FailuresKept
from rqretry.otel.semconv import SharedAttributes, SpanAttributes
from rqretry.otel.spans import OwnProcessors, QuickProvider, QuickSpan
from tests.edges.otel.test_encoding import Kept, stated

ABOUT = SharedAttributes({"messaging.system": "rqretry", "rqretry.namespace": "n"})


class Bench:
    """A provider of ours, and what is exported."""

    def __init__(self, sampler: Sampler = DEFAULT_ON, **limits: int) -> None:
        self.kept = Kept()
        processors, measure = OwnProcessors(), SpanLimits(**limits)
        self.provider = TracerProvider(
            sampler,
            Resource({"service.name": "shop"}),
            shutdown_on_exit=False,
            active_span_processor=processors,
            span_limits=measure,
        )
        export = SimpleSpanProcessor(self.kept)
        self.provider.add_span_processor(export)
        processors.settle()
        quick = QuickProvider(self.provider, measure, processors, export.on_end)
        self.tracer = quick.get_tracer("rqretry", "1.0")

    def start(self, **options: Any) -> Any:
        shown = SpanAttributes(ABOUT)
        shown["messaging.message.id"] = "0123456789abcdef"
        shown["rqretry.attempt"] = 1
        given = {"context": Context(), "attributes": shown, "kind": SpanKind.CONSUMER, **options}
        return self.tracer.start_span("process t", **given)


def parent(flags: int = 1, state: str = "") -> Context:
    entries = TraceState([("vendor", state)] if state else None)
    above = SpanContext(7, 8, is_remote=True, trace_flags=TraceFlags(flags), trace_state=entries)
    return set_span_in_context(NonRecordingSpan(above), Context())


def overwrite(span: Span) -> None:
    span.set_attribute("rqretry.namespace", "another")


def say_much(span: Span) -> None:
    for number in range(200):
        span.set_attribute(f"a{number}", number)


WHAT: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda span: None,
    "an attribute": lambda span: span.set_attribute("rqretry.outcome", "success"),
    "each kind of value": lambda span: [
        span.set_attribute(f"v{place}", value)
        for place, value in enumerate(("x", "\u00e9" * 300, 1, True, 1.5, [1, 2], {"a": 1}, None))
    ],
    "one of those in common": overwrite,
    "more than there is room for": say_much,
    "several at once": lambda span: span.set_attributes({"a": 1, "b": "c"}),
    "no key": lambda span: span.set_attribute("", 1),
    "an event": lambda span: span.add_event("seen", {"a": 1}),
    "an exception": lambda span: span.record_exception(ValueError("no")),
    "an error": lambda span: span.set_status(Status(StatusCode.ERROR, "because")),
    "a link": lambda span: span.add_link(SpanContext(1, 2, is_remote=True), {"rqretry.link": "x"}),
    "another name": lambda span: span.update_name("else"),
}


@pytest.mark.parametrize("above", ["nothing", "a remote span"])
@pytest.mark.parametrize("what", WHAT)
def test_it_is_exported_as_the_sdk_would(what: str, above: str) -> None:
    ours, theirs = Bench(), Bench()
    theirs.provider.add_span_processor(SimpleSpanProcessor(Kept()))  # so that the SDK starts it
    context = Context() if above == "nothing" else parent()
    spans = []
    for bench in (ours, theirs):
        span = bench.start(context=context, start_time=10)
        WHAT[what](span)
        span.end(20)
        span.set_attribute("late", 1)
        span.end(30)
        spans.append(span)
    assert (type(spans[0]) is QuickSpan, type(spans[1]) is QuickSpan) == (True, False)
    sent = [_spoken(bench.kept.spans) for bench in (ours, theirs)]
    assert len(sent[0]) == 1 and sent[0] == sent[1]
    flags = [span.get_span_context().trace_flags for span in spans]
    assert flags[0] == flags[1]
    assert [span.is_recording() for span in spans] == [False, False]


def _spoken(spans: list[ReadableSpan]) -> list[Any]:
    """What our encoder says, and the SDK's; but for ids and times that are never alike."""
    ours = stated(ExportTraceServiceRequest.FromString(SpanEncoder().request(spans)))
    assert ours == stated(encode_spans(spans)), "and the SDK's encoder finds the same"
    found = list(ours.values())
    for _, _, span in found:
        span.span_id = b""
        span.trace_id = b"" if not span.parent_span_id else span.trace_id
        pairs = sorted(span.attributes, key=lambda pair: pair.key)
        del span.attributes[:]
        span.attributes.extend(pairs)
        for event in span.events:
            event.time_unix_nano = 0
    return found


def test_most_spans_are_never_made_whole() -> None:
    bench = Bench()
    spans = [bench.start() for _ in range(3)]
    for span in spans:
        span.set_attribute("rqretry.outcome", "success")
        span.end()
    sent = SpanEncoder().request(bench.kept.spans)
    assert sent.count(b"0123456789abcdef") == 3
    # The first of a scope shows the official encoder what stands around them all.
    assert [span.complete for span in spans] == [True, False, False]


@pytest.mark.parametrize("sampler", [DEFAULT_ON, ALWAYS_ON, FailuresKept(DEFAULT_ON)])
def test_a_trace_that_is_not_sampled_stays_as_the_sampler_says(sampler: Sampler) -> None:
    bench = Bench(sampler)
    span = bench.start(context=parent(0), attributes={})
    span.end()
    assert type(span) is not QuickSpan
    assert len(bench.kept.spans) == (1 if sampler is ALWAYS_ON else 0)


@pytest.mark.parametrize(
    ("sampler", "limits", "options"),
    [
        (TraceIdRatioBased(1), {}, {}),
        (FailuresKept(TraceIdRatioBased(1)), {}, {}),
        (DEFAULT_ON, {"max_span_attributes": 10}, {}),
        (DEFAULT_ON, {"max_span_attribute_length": 100}, {}),
        (DEFAULT_ON, {}, {"links": [Link(SpanContext(1, 2, is_remote=True))]}),
        (DEFAULT_ON, {}, {"context": parent(1, "x")}),
    ],
    ids=["a sampler", "failures kept of one", "few attributes", "short ones", "links", "a state"],
)
def test_where_the_sdk_does_more_it_starts_the_span(
    sampler: Sampler, limits: dict[str, int], options: dict[str, Any]
) -> None:
    bench = Bench(sampler, **limits)
    span = bench.start(**options)
    span.end()
    assert type(span) is not QuickSpan
    assert len(bench.kept.spans) == 1


def test_a_processor_of_somebody_else_s_sees_every_span_from_then_on() -> None:
    bench, theirs = Bench(), Kept()
    early = bench.start()
    bench.provider.add_span_processor(SimpleSpanProcessor(theirs))
    late = bench.start()
    late.end()
    assert [span.name for span in theirs.spans] == ["process t"]
    early.end()
    assert len(bench.kept.spans) == 2


def test_threads_that_want_it_whole_at_once_find_one_span() -> None:
    for _ in range(50):
        bench = Bench()
        span, start = bench.start(), threading.Barrier(4)

        def work(number: int, span: Any = span, start: threading.Barrier = start) -> None:
            start.wait()
            span.set_attribute(f"t{number}", number)
            span.add_event(f"e{number}")

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        span.end()
        (ended,) = bench.kept.spans
        assert sorted(event.name for event in ended.events) == ["e0", "e1", "e2", "e3"]
        assert {"t0", "t1", "t2", "t3"} <= set(ended.attributes or {})
