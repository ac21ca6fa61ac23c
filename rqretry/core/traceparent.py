"""The parts of the W3C traceparent header that rqretry itself reads."""

import re
from collections.abc import Mapping

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
HEADERS = frozenset(
    {
        "traceparent", "tracestate", "baggage", "uber-trace-id", "b3", "x-b3-traceid",
        "x-b3-spanid", "x-b3-parentspanid", "x-b3-sampled", "x-b3-flags",
    }
)  # fmt: skip
"""Headers of trace context. They are not part of the content: the same message published again in
another trace is a duplicate."""


def parse(traceparent: str) -> tuple[int, int, int] | None:
    """Trace id, span id and flags of a traceparent; None if it is not one."""
    found = _matched(traceparent)
    return None if found is None else (int(found[1], 16), int(found[2], 16), int(found[3], 16))


def trace_id_of(traceparent: str) -> str | None:
    """The trace id of a traceparent; None if it is not one."""
    found = _matched(traceparent)
    return found and found[1]


def ids_of(traceparent: str) -> tuple[str, str] | None:
    """The trace id and the span id of a traceparent; None if it is not one."""
    found = _matched(traceparent)
    return found and (found[1], found[2])


def _matched(traceparent: str) -> re.Match[str] | None:
    found = _TRACEPARENT.fullmatch(traceparent)
    return found if found and found[1] != _NO_TRACE and found[2] != _NO_SPAN else None


def without_trace(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    """The headers that are part of the content."""
    if not headers:
        return None
    kept = {name: text for name, text in headers.items() if name.lower() not in HEADERS}
    return kept or None
