"""Spans as OTLP bytes, several times cheaper than by building the protobufs of each in Python.

The attributes of an attempt's span mostly repeat those of the one before: each attribute is encoded
once and its bytes are cached. A span with more (events, links, an error, nested values) is encoded
by OpenTelemetry's own encoder; those are rare. Encodings of a repeated field can be
concatenated, so one request holds both.
"""

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

from rqretry.core.message_id import born_ms
from rqretry.otel.semconv import (
    BUFFER_WAIT_MS,
    DUE_MS,
    LATENESS_MS,
    QUEUE_WAIT_MS,
    SpanAttributes,
    waited,
)
from rqretry.otel.spans import QuickSpan

_LIMIT = 4096
"""Of the cache: names and values from closed sets. Past it the cache is cleared."""
_MOST_BYTES = 512
"""Of one attribute that is cached."""
_KEPT_TYPES = (str, int)
_EVER_NEW = frozenset({"messaging.message.id"})
"""Attributes not worth caching: no two messages have the same value."""
_ONE_BYTE, _TWO_BYTES = 0x80, 0x4000
_INT64 = 1 << 63
# Tags, as in opentelemetry/proto: field number * 8 + wire type.
_REQUEST_RESOURCE_SPANS, _RESOURCE_SCOPE_SPANS, _SCOPE_SPANS = b"\x0a", b"\x12", b"\x12"
_IDS, _SPAN_ID, _PARENT_ID = b"\x0a\x10", b"\x12\x08", b"\x22\x08"
_NAME, _KIND, _ATTRIBUTE, _NO_STATUS = b"\x2a", b"\x30", b"\x4a", b"\x7a\x00"
_TIMES_AND_FLAGS = Struct("<BQBQBBI")
_START, _END, _FLAGS = 0x39, 0x41, (0x85, 0x01)
_KEY, _VALUE = b"\x0a", b"\x12"
_TEXT, _BOOL, _INT, _DOUBLE = b"\x0a", b"\x10", b"\x18", b"\x21"
_DOUBLE_VALUE = Struct("<d")
_TWO_MORE, _DUE_BYTES, _TIME_LENGTH = Struct("<H"), 6, 7
"""Of a number as a varint two bytes with more behind them, of a time in ms all, of an id its time:
how they are packed, and how many they are."""
_KNOWN_IF_REMOTE, _REMOTE = 0x100, 0x200


class SpanEncoder:
    """Encodes spans for one exporter; used by one thread at a time, as exporters are.

    It encodes batches; encoding each span when it ends was measured to cost a tenth more.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[str | int, bytes]] = {}
        self._kept = 0
        self._heads: dict[str, tuple[SpanKind, bytes]] = {}
        self._frames: dict[tuple[int, int], _Frame] = {}
        self._born: dict[str, int] = {}
        """By the beginning of an id, when it was made."""
        self._high: dict[int, bytes] = {}
        self._known_waits: dict[tuple[str, int], bytes] = {}

    def request(self, spans: Iterable[ReadableSpan]) -> bytes:
        """An ExportTraceServiceRequest with these spans."""
        others: list[ReadableSpan] = []
        scopes: dict[_Frame, list[bytes]] = {}
        for span in spans:
            if type(span) is QuickSpan and not span.complete:
                encoded, scope = self._quick(span), span.maker.origin
            else:
                encoded, scope = self._plain(span), (span.resource, span.instrumentation_scope)
            if encoded is None:
                others.append(span)
            else:
                scopes.setdefault(self._frame(scope, span), []).append(encoded)
        request = [frame.around(encoded) for frame, encoded in scopes.items()]
        if others:
            request.append(encode_spans(others).SerializeToString())
        return b"".join(request)

    def _frame(self, around: tuple[Any, Any], span: ReadableSpan) -> "_Frame":
        key = (id(around[0]), id(around[1]))
        frame = self._frames.get(key)
        if frame is None:
            _room_in(self._frames)
            frame = self._frames[key] = _Frame(around, span)
        return frame

    def _quick(self, span: QuickSpan) -> bytes | None:
        """A span that was never completed; it has attributes only."""
        found = span.own_attributes
        shared = found.shared
        attributes = self._attributes(found.items())
        if shared is not None:
            if shared.encoded is None:
                shared.encoded = self._attributes(shared.items())
            if attributes is not None and shared.encoded is not None:
                attributes = shared.encoded + attributes
            else:
                attributes = None
        if attributes is None or span.ended_ns is None:
            return None
        if found.first is not None:
            attributes += self._waits(found)
        head = self._head(span.label, span.role)
        return _encoded_span(
            span.own_context, span.parent_context, head, (span.began_ns, span.ended_ns), attributes
        )

    def _waits(self, found: SpanAttributes) -> bytes:
        """What semconv.waited gives of a first delivery, in a fifth of the time."""
        assert found.first is not None
        due_ms, started = found.first
        leased_at, started_at, (now_ms, now), refusals = started
        if due_ms is None:
            id_ = found["messaging.message.id"]
            due_ms = self._born.get(id_[:_TIME_LENGTH])
            if due_ms is None:
                _room_in(self._born)
                due_ms = born_ms(id_)
                if due_ms is None:
                    return b""
                self._born[id_[:_TIME_LENGTH]] = due_ms
        if refusals:
            spelled = waited(started.waits(due_ms))
            return b"".join([_int(name, value) for name, value in spelled.items()])
        queue_ms = max(0, now_ms + round((leased_at - now) * 1000) - due_ms)
        buffer_ms = max(0, round((started_at - leased_at) * 1000))
        # The last four bytes of the time change every 16 s.
        high = self._high.get(due_ms >> 14) or self._new_high(due_ms >> 14)
        low = _TWO_MORE.pack(0x8080 | due_ms & 0x7F | (due_ms & 0x3F80) << 1)
        waits = self._known_waits
        return b"".join((
            _BEFORE_DUE, low, high,
            waits.get((QUEUE_WAIT_MS, queue_ms)) or self._wait(QUEUE_WAIT_MS, queue_ms),
            waits.get((BUFFER_WAIT_MS, buffer_ms)) or self._wait(BUFFER_WAIT_MS, buffer_ms),
            waits.get((LATENESS_MS, queue_ms + buffer_ms))
            or self._wait(LATENESS_MS, queue_ms + buffer_ms),
        ))  # fmt: skip

    def _new_high(self, number: int) -> bytes:
        _room_in(self._high)
        self._high[number] = found = _varint(number)
        return found

    def _wait(self, name: str, milliseconds: int) -> bytes:
        _room_in(self._known_waits)
        found = self._known_waits[name, milliseconds] = _int(name, milliseconds)
        return found

    def _plain(self, span: ReadableSpan) -> bytes | None:
        """A span as a field of its scope; None where OpenTelemetry's encoder must do it."""
        context = span.context
        if context is None or context.trace_state or span.events or span.links:
            return None
        if span.status.status_code is not StatusCode.UNSET or span.dropped_attributes:
            return None
        bounded: Any = span.attributes  # its copy is a dict, which iterates much faster
        attributes = self._attributes(bounded.copy().items()) if bounded else b""
        if attributes is None or span.start_time is None or span.end_time is None:
            return None
        head = self._head(span.name, span.kind)
        return _encoded_span(
            context, span.parent, head, (span.start_time, span.end_time), attributes
        )

    def _head(self, name: str, kind: SpanKind) -> bytes:
        """Name, kind and an unset status."""
        known = self._heads.get(name)
        if known is None or known[0] is not kind:
            _room_in(self._heads)
            number = kind.value + 1  # 0 is "unspecified" on the wire
            head = _sized(_NAME, name.encode()) + _KIND + _varint(number) + _NO_STATUS
            known = self._heads[name] = (kind, head)
        return known[1]

    def _attributes(self, attributes: Iterable[tuple[str, Any]]) -> bytes | None:
        """Attributes as fields of their span; None if one has an unusual type."""
        known = self._known
        parts: list[bytes] = []
        for name, value in attributes:
            encoded: bytes | None = None
            type_ = type(value)
            if (type_ is str or type_ is int) and (values := known.get(name)) is not None:
                encoded = values.get(value)
            if encoded is None:
                encoded = self._attribute(name, value)
                if encoded is None:
                    return None
            parts.append(encoded)
        return b"".join(parts)

    def _attribute(self, name: str, value: Any) -> bytes | None:
        try:
            if name in _EVER_NEW and type(value) is str and value.isascii():
                return _before_text(name, len(value)) + value.encode()
            encoded_value = _value(value)
            if encoded_value is None:
                return None
            pair = _sized(_KEY, name.encode()) + _sized(_VALUE, encoded_value)
        except UnicodeEncodeError:
            return None
        encoded = _sized(_ATTRIBUTE, pair)
        if len(encoded) <= _MOST_BYTES and type(value) in _KEPT_TYPES and name not in _EVER_NEW:
            if self._kept >= _LIMIT:
                self._known.clear()
                self._kept = 0
            self._known.setdefault(name, {})[value] = encoded
            self._kept += 1
        return encoded


class _Frame:
    """The messages around the spans of one resource and one scope."""

    def __init__(self, around: tuple[Any, Any], span: ReadableSpan) -> None:
        self._same = around  # keeps their ids from being reused
        (resource,) = encode_spans([span]).resource_spans
        (scope,) = resource.scope_spans
        del scope.spans[:]
        self._scope = scope.SerializeToString()
        del resource.scope_spans[:]
        self._resource = resource.SerializeToString()

    def around(self, spans: Iterable[bytes]) -> bytes:
        """The spans as a field of the request."""
        scope = _sized(_RESOURCE_SCOPE_SPANS, b"".join((self._scope, *spans)))
        return _sized(_REQUEST_RESOURCE_SPANS, self._resource + scope)


def _encoded_span(
    context: SpanContext,
    parent: SpanContext | None,
    head: bytes,
    times: tuple[int, int],
    attributes: bytes,
) -> bytes:
    """A span as a field of its scope."""
    ids = _IDS + context.trace_id.to_bytes(16, "big") + _SPAN_ID
    ids += context.span_id.to_bytes(8, "big")
    flags = _KNOWN_IF_REMOTE
    if parent is not None:
        ids += _PARENT_ID + parent.span_id.to_bytes(8, "big")
        flags |= _REMOTE if parent.is_remote else 0
    began, ended = times
    encoded = ids + head + _TIMES_AND_FLAGS.pack(_START, began, _END, ended, *_FLAGS, flags)
    return _SCOPE_SPANS + _varint(len(encoded) + len(attributes)) + encoded + attributes


def _int(name: str, value: int) -> bytes:
    """An attribute from 0 on."""
    digits = _varint(value)
    return _before_int(name, len(digits)) + digits


@lru_cache(256)
def _before_int(name: str, size: int) -> bytes:
    """An attribute without its number, which is its last bytes, so many."""
    value = _sized(_VALUE, _INT + bytes(size))
    whole = _sized(_ATTRIBUTE, _sized(_KEY, name.encode()) + value)
    return whole[: len(whole) - size]


def _room_in(kept: dict[Any, Any]) -> None:
    if len(kept) >= _LIMIT:
        kept.clear()


@lru_cache(256)
def _before_text(name: str, size: int) -> bytes:
    """An attribute without its text, which is its last bytes, so many."""
    value = _sized(_TEXT, bytes(size))
    whole = _sized(_ATTRIBUTE, _sized(_KEY, name.encode()) + _sized(_VALUE, value))
    return whole[: len(whole) - size]


def _value(value: Any) -> bytes | None:
    """An AnyValue; None for a type that the official encoder must handle."""
    type_ = type(value)
    if type_ is str:
        return _sized(_TEXT, value.encode())
    if type_ is bool:
        return _BOOL + (b"\x01" if value else b"\x00")
    if type_ is int and -_INT64 <= value < _INT64:
        return _INT + _varint(value % (2 * _INT64))
    if type_ is float:
        return _DOUBLE + _DOUBLE_VALUE.pack(value)
    return None


def _sized(tag: bytes, data: bytes) -> bytes:
    return b"%b%b%b" % (tag, _varint(len(data)), data)


def _varint(number: int) -> bytes:
    """A whole number from 0 on, seven bits a byte, the low ones first."""
    if number < _ONE_BYTE:
        return _SMALL[number]
    if number < _TWO_BYTES:
        return bytes((number & 0x7F | _ONE_BYTE, number >> 7))
    encoded = bytearray()
    while number >= _ONE_BYTE:
        encoded.append(number & 0x7F | _ONE_BYTE)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_SMALL = [bytes((number,)) for number in range(_ONE_BYTE)]
_BEFORE_DUE = _before_int(DUE_MS, _DUE_BYTES)
