"""The short ways of reading and writing a trace context say what the configured propagators say."""

from typing import Any

import pytest
from opentelemetry import baggage
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context, attach, detach
from opentelemetry.propagate import extract, get_global_textmap, inject, set_global_textmap
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    TraceState,
    get_current_span,
    set_span_in_context,
)

from rqretry.otel import semconv

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{SPAN}-01"
CARRIED: list[dict[str, str]] = [
    {},
    {"a": "b"},
    {"traceparent": GOOD},
    {"TraceParent": GOOD, "a": "b"},
    {"traceparent": f"00-{TRACE}-{SPAN}-00"},
    {"traceparent": f"00-{TRACE}-{SPAN}-03"},
    {"traceparent": f"01-{TRACE}-{SPAN}-01"},
    {"traceparent": f"01-{TRACE}-{SPAN}-01-more"},
    {"traceparent": f"00-{TRACE}-{SPAN}-01-more"},
    {"traceparent": f"ff-{TRACE}-{SPAN}-01"},
    {"traceparent": f" {GOOD} "},
    {"traceparent": GOOD.upper()},
    {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
    {"traceparent": f"00-{TRACE}-{'0' * 16}-01"},
    {"traceparent": f"00-{TRACE[:-2]}+1-{SPAN}-01"},
    {"traceparent": "x" * 600},
    {"traceparent": ""},
    {"traceparent": GOOD, "tracestate": "vendor=1"},
    {"traceparent": GOOD, "tracestate": ",".join(f"v{n}=1" for n in range(33))},
    {"traceparent": GOOD, "baggage": "user=ada"},
    {"traceparent": GOOD, "baggage": "x" * 10_000},
    {"baggage": "user=ada"},
]


@pytest.mark.parametrize("headers", CARRIED)
def test_headers_are_read_as_the_propagators_read_them(headers: dict[str, str]) -> None:
    read, found = semconv.published_context(headers)
    theirs = extract({name.lower(): text for name, text in headers.items()}, Context())
    expected = get_current_span(theirs).get_span_context()
    assert found == (expected if expected.is_valid else None)
    assert get_current_span(read).get_span_context() == expected
    assert baggage.get_all(read) == baggage.get_all(theirs)
    if found is not None:
        assert found.is_remote


@pytest.mark.parametrize("flags", [0, 1, 3])
@pytest.mark.parametrize("state", [None, "vendor"])
@pytest.mark.parametrize("carried", [None, "ada"])
def test_headers_are_written_as_the_propagators_write_them(
    flags: int, state: str | None, carried: str | None
) -> None:
    entries = None if state is None else TraceState([(state, "1")])
    span = NonRecordingSpan(SpanContext(7, 8, False, TraceFlags(flags), entries))
    current = Context() if carried is None else baggage.set_baggage("user", carried, Context())
    token = attach(current)
    try:
        ours: dict[str, str] = {"a": "b"}
        theirs: dict[str, str] = {"a": "b"}
        semconv.carry(span, ours)
        inject(theirs, set_span_in_context(span))
    finally:
        detach(token)
    assert ours == theirs
    assert ("baggage" in ours, "tracestate" in ours) == (carried is not None, state is not None)


def test_other_propagators_are_obeyed() -> None:
    before = get_global_textmap()
    set_global_textmap(CompositePropagator([W3CBaggagePropagator()]))
    try:
        assert semconv.published_context({"traceparent": GOOD})[1] is None
        headers: dict[str, Any] = {}
        semconv.carry(NonRecordingSpan(SpanContext(7, 8, is_remote=False)), headers)
    finally:
        set_global_textmap(before)
    assert headers == {}
