"""Names of spans, attributes and instruments: OpenTelemetry's messaging conventions, and ours."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from opentelemetry.baggage import get_all
from opentelemetry.context import Context
from opentelemetry.propagate import extract, get_global_textmap, inject
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)

from rqretry.core.errors import show
from rqretry.core.failure_record import formatted
from rqretry.core.message import Message
from rqretry.core.redact import redacted
from rqretry.core.traceparent import parse

SCOPE = "rqretry"
SYSTEM = "rqretry"
DEAD_LETTER_PREFIX = "%DLQ%"

ATTEMPT = "rqretry.attempt"
OUTCOME = "rqretry.outcome"
LEVEL = "rqretry.level"
NEXT_DUE = "rqretry.next_due"
NEXT_DUE_MS = "rqretry.next_due_ms"
QUEUE_WAIT_MS = "rqretry.queue_wait_ms"
"""From when a message was due to this attempt."""
DUE_MS = "rqretry.due_ms"
WORKER = "rqretry.worker"
LINKED_AS = "rqretry.link"
"""Of a link: "publish", "previous_attempt", "redrive", "receive" or "message"."""

MOST_LINKS = 128
_ROOT = Context()
_BESIDE = frozenset({"tracestate", "baggage"})


class SharedAttributes(dict[str, Any]):
    """Attributes that many spans have in common, and their bytes once they were encoded."""

    __slots__ = ("encoded",)

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        super().__init__(attributes)
        self.encoded: bytes | None = None


class SpanAttributes(dict[str, Any]):
    """A span's attributes; those of `shared`, if any, come first, unchanged."""

    __slots__ = ("shared",)

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        super().__init__(attributes)
        self.shared = attributes if type(attributes) is SharedAttributes else None


def operation(namespace: str, topic: str, name: str, type_: str) -> dict[str, Any]:
    """The attributes of every span about a topic; `type_` is "create", "send" or "process"."""
    return {
        "messaging.system": SYSTEM,
        "messaging.destination.name": topic,
        "rqretry.namespace": namespace,
        "messaging.operation.name": name,
        "messaging.operation.type": type_,
    }


def delivery(
    namespace: str, message: Message[Any], worker: str, name: str, type_: str
) -> SpanAttributes:
    """The attributes of a span about one delivery; name and type as in `operation`."""
    topic, partition, group, lease_no, id_ = message._lease  # noqa: SLF001 - no text of it is made
    found = SpanAttributes(_delivered((namespace, topic, partition, group), worker, (name, type_)))
    found["messaging.message.id"] = id_
    found[ATTEMPT] = message.attempt
    found["rqretry.fencing_token"] = lease_no
    if message.tag is not None:
        found["rqretry.tag"] = message.tag
    if message.message_group is not None:
        found["rqretry.message_group"] = message.message_group
    if message.keys:
        found["rqretry.keys"] = " ".join(message.keys)
    return found


def waited(message: Message[Any], due_ms: int | None) -> dict[str, int]:
    """How long a message waited for this attempt, by the server's clock, as far as it is known."""
    now_ms: int | None = getattr(message, "_now_ms", None)
    if due_ms is None:
        return {}
    wait = {} if now_ms is None else {QUEUE_WAIT_MS: max(0, now_ms - due_ms)}
    return {DUE_MS: due_ms} | wait


@lru_cache(1024)
def _delivered(
    place: tuple[str, str, int, str], worker: str, done: tuple[str, str]
) -> SharedAttributes:
    """The attributes that deliveries from one place to one worker share."""
    namespace, topic, partition, group = place
    return SharedAttributes(
        operation(namespace, topic, *done)
        | {
            "messaging.destination.partition.id": str(partition),
            "messaging.consumer.group.name": group,
            "messaging.client.id": worker,
            WORKER: worker,
        }
    )


def when(at_ms: int) -> dict[str, Any]:
    """When a message is due again, for machines and for people."""
    text = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return {NEXT_DUE_MS: at_ms, NEXT_DUE: text.replace("+00:00", "Z")}


def traceparent_of(context: SpanContext) -> str:
    """A span's context as a W3C traceparent; "" if it has none."""
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def read(traceparent: str) -> SpanContext | None:
    """A W3C traceparent from Redis, which anybody may have written; None if it is not one."""
    parts = parse(traceparent)
    if parts is None:
        return None
    trace_id, span_id, flags = parts
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))


def published_context(headers: Any) -> tuple[Context, SpanContext | None]:
    """The context that a message's headers carry, and its span's."""
    if not headers:
        return _ROOT, None
    carried = {name.lower(): text for name, text in headers.items()}
    if _BESIDE.isdisjoint(carried) and _by_default():
        # As most messages are; the propagators would find the same, in ten times the time.
        span = read(carried.get("traceparent", ""))
        if span is not None:
            return set_span_in_context(NonRecordingSpan(span), _ROOT), span
    context = extract(carried, Context())
    found = get_current_span(context).get_span_context()
    return context, found if found.is_valid else None


def carry(span: Span, headers: dict[str, str]) -> None:
    """Write a span's context into headers, as the configured propagators do it."""
    context = span.get_span_context()
    if context.is_valid and not context.trace_state and not get_all() and _by_default():
        headers["traceparent"] = traceparent_of(context)
    else:
        inject(headers, set_span_in_context(span))


def fail(span: Span, error: BaseException) -> None:
    """A span's call failed with this error; the span goes on."""
    record_error(span, error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, redacted(str(error))))


def record_error(span: Span, error: BaseException) -> None:
    """As record_exception of OpenTelemetry, without the secrets of its texts."""
    type_ = type(error)
    named = type_.__qualname__
    if type_.__module__ not in ("", "builtins"):
        named = f"{type_.__module__}.{named}"
    attributes = {
        "exception.type": named,
        "exception.message": redacted(_text_of(error)),
        "exception.stacktrace": formatted(error),
        "exception.escaped": "False",
    }
    span.add_event("exception", attributes)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - somebody's __str__
        return show(error)


def fail_all(spans: Sequence[Span], error: BaseException) -> None:
    """The spans that have not ended failed with this error, and end."""
    for span in spans:
        if span.is_recording():
            fail(span, error)
            span.end()


def _by_default() -> bool:
    """Whether the propagators are OpenTelemetry's defaults."""
    propagator = get_global_textmap()
    return type(propagator) is CompositePropagator and _speaks_w3c(propagator)


@lru_cache(4)
def _speaks_w3c(propagator: CompositePropagator) -> bool:
    return propagator.fields == {"traceparent", *_BESIDE}


def links(*named: tuple[str, SpanContext | None]) -> list[Link]:
    """Links to the contexts that are known, each with its name; at most 128."""
    found = [Link(context, {LINKED_AS: name}) for name, context in named if context is not None]
    return found[:MOST_LINKS]


def carrier_fields() -> set[str]:
    """The headers that the configured propagators write (OTEL_PROPAGATORS)."""
    return set(get_global_textmap().fields)
