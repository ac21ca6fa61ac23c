"""Our OTLP encoder says what OpenTelemetry's own says, of every span that there can be."""

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from rqretry.core.message_id import make_id
from rqretry.core.waits import Refusal, Started
from rqretry.observability.trace_settings import TraceSettings
from rqretry.otel import otlp_encode
from rqretry.otel.export_http import HttpExporter
from rqretry.otel.otlp_encode import SpanEncoder
from rqretry.otel.semconv import SpanAttributes
from rqretry.otel.setup import Tracing

MOST = (1 << 63) - 1
texts = st.text(st.characters(codec="utf-8"), max_size=200)
names = st.text("abcdef.\u00e9", min_size=1, max_size=8)
values = st.one_of(
    texts,
    st.booleans(),
    st.integers(-MOST - 1, MOST),
    st.floats(allow_nan=False),
    st.binary(max_size=5),
    st.lists(texts, max_size=3),
)
kinds = st.sampled_from(list(SpanKind))


class Kept(SpanExporter):
    """Keeps spans."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        return SpanExportResult.SUCCESS


class Bench:
    """Makes spans with the SDK."""

    def __init__(self, **resource: str) -> None:
        self.kept = Kept()
        self.provider = TracerProvider(resource=Resource(resource), shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.kept))

    def span(self, name: str = "s", scope: str = "rqretry", **options: Any) -> None:
        tracer = self.provider.get_tracer(scope, "1.0", attributes={"a": scope})
        tracer.start_span(name, **options).end()


def stated(request: ExportTraceServiceRequest) -> dict[bytes, tuple[Any, Any, Any]]:
    """Each span with what stands around it."""
    found = {}
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                found[span.span_id] = (resource.resource, scope.scope, span)
    return found


def same(encoder: SpanEncoder, spans: Sequence[ReadableSpan]) -> bool:
    ours = ExportTraceServiceRequest.FromString(encoder.request(spans))
    return stated(ours) == stated(encode_spans(spans)) and len(stated(ours)) == len(spans)


def remote(*, is_remote: bool, state: str = "") -> Any:
    entries = [("vendor", state)] if state else None
    context = SpanContext(7, 8, is_remote, TraceFlags(1), TraceState(entries))
    return set_span_in_context(NonRecordingSpan(context))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(names, kinds, st.dictionaries(names, values, max_size=5)), max_size=6))
def test_it_says_the_same_of_whatever_is_reported(
    shown: Iterable[tuple[str, SpanKind, dict[str, Any]]],
) -> None:
    bench, encoder = Bench(service="shop"), SpanEncoder()
    for name, kind, attributes in shown:
        bench.span(name, kind=kind, attributes=attributes)
    assert same(encoder, bench.kept.spans)
    assert same(encoder, bench.kept.spans), "also of what it has kept"


def test_values_that_python_takes_for_equal_stay_apart() -> None:
    bench, encoder = Bench(), SpanEncoder()
    for value in (1, True, 1.0, "1", 0, False, 0.0, -0.0, -1, MOST, -MOST - 1, "", 127, 128):
        bench.span(attributes={"v": value})
        assert same(encoder, bench.kept.spans)


@pytest.mark.parametrize("parent", ["none", "remote", "local", "with a state"])
@pytest.mark.parametrize("what", ["plain", "links", "events", "error", "ok", "too many attributes"])
def test_it_says_the_same_of_every_kind_of_span(parent: str, what: str) -> None:
    bench, encoder = Bench(service="shop"), SpanEncoder()
    options: dict[str, Any] = {"attributes": {"a": 1}, "kind": SpanKind.CONSUMER}
    if parent != "none":
        state = "x" if parent == "with a state" else ""
        options["context"] = remote(is_remote=parent == "remote", state=state)
    if what == "links":
        options["links"] = [Link(SpanContext(1, 2, is_remote=True), {"rqretry.link": "publish"})]
    if what == "too many attributes":
        options["attributes"] = {f"a{number}": number for number in range(200)}
    span = bench.provider.get_tracer("rqretry").start_span("process t", **options)
    if what == "events":
        span.record_exception(ValueError("no"))
    if what in ("error", "ok"):
        code = StatusCode.ERROR if what == "error" else StatusCode.OK
        span.set_status(Status(code, "because" if what == "error" else None))
    span.end()
    bench.span("beside")
    assert same(encoder, bench.kept.spans)


def test_spans_of_several_scopes_and_resources_stay_with_theirs() -> None:
    first, second, encoder = Bench(service="one"), Bench(service="two"), SpanEncoder()
    for scope in ("rqretry", "shop", "rqretry"):
        first.span(scope=scope)
        second.span(scope=scope, attributes={"x": [1]})
    spans = [*first.kept.spans, *second.kept.spans]
    random.Random(1).shuffle(spans)
    assert same(encoder, spans)


def test_text_that_is_no_unicode_loses_nothing_but_itself() -> None:
    bench, encoder = Bench(), SpanEncoder()
    bench.span(attributes={"good": "a", "bad": "\ud800"})
    assert same(encoder, bench.kept.spans)


def test_what_is_kept_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_encode, "_LIMIT", 10)
    bench, encoder = Bench(), SpanEncoder()
    for number in range(100):
        bench.span(f"s{number}", f"scope{number}", attributes={"n": number, f"t{number}": "x"})
    assert same(encoder, bench.kept.spans)
    assert sum(len(values) for values in encoder._known.values()) == encoder._kept <= 10
    assert max(len(encoder._heads), len(encoder._frames)) <= 10


def test_a_message_s_id_is_not_kept() -> None:
    bench, encoder = Bench(), SpanEncoder()
    for number in range(9):
        bench.span(attributes={"messaging.message.id": f"id{number}", "messaging.system": "x"})
    assert same(encoder, bench.kept.spans)
    assert list(encoder._known) == ["messaging.system"]


def test_the_exporter_of_the_installed_opentelemetry_takes_our_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert HttpExporter("http://127.0.0.1:1")._send is not None
    monkeypatch.setenv("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED", "true")
    assert HttpExporter("http://127.0.0.1:1")._send is None, "only its own way counts"


@pytest.mark.parametrize("refusals", [(), (Refusal("paused", 0.0, 99.0),)])
@pytest.mark.parametrize("late_ms", [0, 1, 127, 128, 20_000, 10**8])
def test_waits_are_encoded_as_they_are_spelled(
    late_ms: int, refusals: tuple[Refusal, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    tracing = Tracing(TraceSettings(None, "test"))
    tracer: Any = tracing.observer._telemetry.tracer
    taken: list[Any] = []
    tracer.take = taken.append
    now_ms, encoder = 1_800_000_000_000, SpanEncoder()
    for due_ms in (None, now_ms - late_ms):
        found = SpanAttributes({"messaging.message.id": make_id(now_ms - late_ms)})
        found.first = due_ms, Started(100.0, 100.25, (now_ms, 100.0), refusals)
        tracer.start_span("process t", attributes=found).end()
    for span in taken:
        quick = stated(ExportTraceServiceRequest.FromString(encoder.request([span])))
        assert span.attributes["rqretry.lateness_ms"] == late_ms + 250
        assert quick == stated(encode_spans([span])), "which completes it"
    tracing.stop()
