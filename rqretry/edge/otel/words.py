"""Names of spans, attributes and instruments: OpenTelemetry's messaging conventions, and ours."""

from datetime import UTC, datetime
from typing import Any

from opentelemetry.context import Context
from opentelemetry.propagate import extract, get_global_textmap
from opentelemetry.trace import Link, SpanContext, TraceFlags, get_current_span

from rqretry.message import Message

SCOPE = "rqretry"
SYSTEM = "rqretry"
DEAD_LETTER_PREFIX = "%DLQ%"

ATTEMPT = "rqretry.attempt"
OUTCOME = "rqretry.outcome"
LEVEL = "rqretry.level"
NEXT_DUE = "rqretry.next_due"
NEXT_DUE_MS = "rqretry.next_due_ms"
WORKER = "rqretry.worker"
LINKED_AS = "rqretry.link"
"""Of a link: "publish", "previous_attempt", "redrive", "receive" or "message"."""

_TRACEPARENT_PARTS = 4
_MOST_LINKS = 128


def destination(namespace: str, topic: str) -> dict[str, Any]:
    """What every span about a topic says."""
    return {
        "messaging.system": SYSTEM,
        "messaging.destination.name": topic,
        "rqretry.namespace": namespace,
    }


def operation(name: str, kind: str) -> dict[str, Any]:
    """What is done; `kind` is one of the convention's: create, send, process."""
    return {"messaging.operation.name": name, "messaging.operation.type": kind}


def delivery(message: Message[Any], worker: str) -> dict[str, Any]:
    """What a span of an attempt says of its message."""
    handle = message.receipt_handle.split("/")
    said: dict[str, Any] = {
        "messaging.destination.partition.id": handle[1],
        "messaging.consumer.group.name": message.group,
        "messaging.message.id": message.id,
        "messaging.client.id": worker,
        ATTEMPT: message.attempt,
        "rqretry.fencing_token": message.fencing_token,
        WORKER: worker,
    }
    if message.max_retries is not None:
        said["rqretry.max_retries"] = message.max_retries
    if message.tag is not None:
        said["rqretry.tag"] = message.tag
    return said


def when(at_ms: int) -> dict[str, Any]:
    """When a message is due again, for machines and for people."""
    text = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return {NEXT_DUE_MS: at_ms, NEXT_DUE: text.replace("+00:00", "Z")}


def spelled(context: SpanContext) -> str:
    """A span's context as a W3C traceparent; "" where it has none."""
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def read(traceparent: str) -> SpanContext | None:
    """A W3C traceparent from Redis, which anybody may have written; None where it is not one."""
    parts = traceparent.split("-")
    if len(parts) != _TRACEPARENT_PARTS:
        return None
    try:
        trace_id, span_id, flags = (int(part, 16) for part in parts[1:])
    except ValueError:
        return None
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags & 1))
    return context if context.is_valid else None


def published_context(headers: Any) -> tuple[Context, SpanContext | None]:
    """The context that a message's headers carry, and its span's."""
    if not headers:
        return Context(), None
    context = extract({name.lower(): text for name, text in headers.items()}, Context())
    span = get_current_span(context).get_span_context()
    return context, span if span.is_valid else None


def links(*named: tuple[str, SpanContext | None]) -> list[Link]:
    """Links to those that are known, each saying what it is; at most 128."""
    found = [Link(context, {LINKED_AS: name}) for name, context in named if context is not None]
    return found[:_MOST_LINKS]


def carrier_fields() -> set[str]:
    """The headers that the configured propagators write (OTEL_PROPAGATORS)."""
    return set(get_global_textmap().fields)
