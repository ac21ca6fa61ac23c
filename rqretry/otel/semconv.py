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
    DEFAULT_TRACE_STATE,
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
from rqretry.core.message_id import born_ms
from rqretry.core.redact import redacted
from rqretry.core.traceparent import parse
from rqretry.core.waits import Started, Waits
from rqretry.observability import observer
from rqretry.observability.observer import Server

SCOPE = "rqretry"
SYSTEM = "rqretry"
DEAD_LETTER_PREFIX = "%DLQ%"

ATTEMPT = "rqretry.attempt"
OUTCOME = "rqretry.outcome"
LEVEL = "rqretry.level"
NEXT_DUE = "rqretry.next_due"
NEXT_DUE_MS = "rqretry.next_due_ms"
DUE_MS = "rqretry.due_ms"
QUEUE_WAIT_MS = "rqretry.queue_wait_ms"
"""From when a message was due until it was leased."""
BUFFER_WAIT_MS = "rqretry.buffer_wait_ms"
"""From then until the attempt started."""
LATENESS_MS = "rqretry.lateness_ms"
"""Both together."""
PAUSED_MS, LIMITED_MS = "rqretry.paused_ms", "rqretry.limited_ms"
"""How much of the first its group was paused, or at a limit."""
WORKER = "rqretry.worker"
LINKED_AS = "rqretry.link"
"""Of a link: "publish", "previous_attempt", "redrive", "receive" or "message"."""

MOST_LINKS = 128
Named = tuple[str, SpanContext | None] | tuple[str, SpanContext | None, dict[str, Any]]
"""What a span is linked to: the name of the relation, the other span, and what else is known."""
_ROOT = Context()
_BESIDE = frozenset({"tracestate", "baggage"})


class SharedAttributes(dict[str, Any]):
    """Attributes that many spans have in common, and their bytes once they were encoded."""

    __slots__ = ("encoded",)

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        super().__init__(attributes)
        self.encoded: bytes | None = None


class SpanAttributes(dict[str, Any]):
    """A span's attributes, beside those that it has in common with others, in `shared`.

    `first` is set for a first delivery: its waits are found out when the span is exported. It is
    when the message was due, None for when its id was made, and what is known of the start.
    """

    __slots__ = ("first", "shared")

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self.shared: SharedAttributes | None = None
        if type(attributes) is SharedAttributes:
            self.shared = attributes
        else:
            super().__init__(attributes)
        self.first: tuple[int | None, Started] | None = None

    def found_waits(self) -> Waits | None:
        """How long the message of a first delivery waited; None for any other span."""
        if self.first is None:
            return None
        due_ms, started = self.first
        due_ms = due_ms or born_ms(self["messaging.message.id"])
        return None if due_ms is None else started.waits(due_ms)

    def complete(self) -> None:
        """Add the waits of a first delivery, and what is shared."""
        for name, value in (self.shared or {}).items():
            self.setdefault(name, value)
        self.shared = None
        waits, self.first = self.found_waits(), None
        if waits is not None:
            self.update(waited(waits))


def operation(namespace: str, topic: str, name: str, type_: str) -> dict[str, Any]:
    """The attributes of every span about a topic.

    `type_` is "create", "send", "receive", "process" or "settle".
    """
    return {
        "messaging.system": SYSTEM,
        "messaging.destination.name": topic,
        "rqretry.namespace": namespace,
        "messaging.operation.name": name,
        "messaging.operation.type": type_,
        **_served_by(observer.server_of(namespace)),
    }


def _served_by(server: Server | None) -> dict[str, Any]:
    if server is None:
        return {}
    address, port = server
    return {"server.address": address} | ({"server.port": port} if port else {})


@lru_cache(1024)
def shared_operation(
    namespace: str, topic: str, name: str, type_: str, _servers: int
) -> SharedAttributes:
    """The same, for many spans; `_servers` is observer.servers_known."""
    return SharedAttributes(operation(namespace, topic, name, type_))


def delivery(
    namespace: str, message: Message[Any], worker: str, name: str, type_: str
) -> SpanAttributes:
    """The attributes of a span about one delivery; name and type as in `operation`."""
    found = quick_delivery(namespace, message, worker, name, type_)
    found.complete()
    return found


def quick_delivery(
    namespace: str, message: Message[Any], worker: str, name: str, type_: str
) -> SpanAttributes:
    """The same, not complete."""
    topic, partition, group, lease_no, id_ = message._lease  # noqa: SLF001 - no text of it is made
    found = SpanAttributes(
        _delivered(
            (namespace, topic, partition, group),
            worker,
            (name, type_),
            observer.servers_known,
        )
    )
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


def waited(waits: Waits) -> dict[str, int]:
    """How long a message waited for an attempt, by the server's clock."""
    found = {
        DUE_MS: waits.due_ms,
        QUEUE_WAIT_MS: waits.queue_ms,
        BUFFER_WAIT_MS: waits.buffer_ms,
        LATENESS_MS: waits.lateness_ms,
    }
    if waits.paused_ms:
        found[PAUSED_MS] = waits.paused_ms
    if waits.limited_ms:
        found[LIMITED_MS] = waits.limited_ms
    return found


@lru_cache(1024)
def _delivered(
    place: tuple[str, str, int, str], worker: str, done: tuple[str, str], _servers: int
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
    return context_of(trace_id, span_id, flags, is_remote=True)


def _as_known() -> bool:
    """Whether a context is the tuple that `context_of` makes."""
    flags = TraceFlags(1)
    made = SpanContext(1, 2, is_remote=True, trace_flags=flags)
    return tuple(made) == (1, 2, True, flags, DEFAULT_TRACE_STATE, True)


_FLAGS = [TraceFlags(number) for number in range(256)]
_KNOWN_SHAPE = _as_known()
_new = tuple.__new__


def context_of(trace_id: int, span_id: int, flags: int, *, is_remote: bool) -> SpanContext:
    """A valid context; a third of the cost of the SDK's own constructor."""
    trace_flags = _FLAGS[flags]
    if not _KNOWN_SHAPE:
        return SpanContext(trace_id, span_id, is_remote, trace_flags)
    parts = (trace_id, span_id, is_remote, trace_flags, DEFAULT_TRACE_STATE, True)
    return _new(SpanContext, parts)


def published_context(headers: Any) -> tuple[Context, SpanContext | None]:
    """The context that a message's headers carry, and its span's."""
    if not headers:
        return _ROOT, None
    carried = headers
    if len(headers) > 1 or "traceparent" not in headers:
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
    return propagator is _default.propagator or _default.is_one(propagator)


class _Default:
    """The propagator that is known to be OpenTelemetry's default."""

    propagator: object = None

    def is_one(self, propagator: object) -> bool:
        """Whether this is one."""
        if type(propagator) is not CompositePropagator:
            return False
        if propagator.fields != {"traceparent", *_BESIDE}:
            return False
        self.propagator = propagator
        return True


_default = _Default()


def links(*named: Named) -> list[Link]:
    """Links to the contexts that are known, each with its name and more; at most 128."""
    found = [
        Link(context, {LINKED_AS: name} | (more[0] if more else {}))
        for name, context, *more in named
        if context is not None
    ]
    return found[:MOST_LINKS]


def carrier_fields() -> set[str]:
    """The headers that the configured propagators write (OTEL_PROPAGATORS)."""
    return set(get_global_textmap().fields)
