"""The W3C traceparent header, as far as rqretry itself looks at it."""

import re
from collections.abc import Mapping

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_NONE = "0" * 32
HEADERS = frozenset(
    {
        "traceparent", "tracestate", "baggage", "uber-trace-id", "b3", "x-b3-traceid",
        "x-b3-spanid", "x-b3-parentspanid", "x-b3-sampled", "x-b3-flags",
    }
)  # fmt: skip
"""Headers that tell where a message comes from. They are no part of what it says: the same message
published again, in another trace, is the same message."""


def trace_id_of(traceparent: str) -> str | None:
    """The trace that a traceparent names; None where it is not one."""
    found = _TRACEPARENT.fullmatch(traceparent)
    return found[1] if found and found[1] != _NONE else None


def without_trace(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    """The headers that are part of what a message says."""
    if not headers:
        return None
    kept = {name: text for name, text in headers.items() if name.lower() not in HEADERS}
    return kept or None
