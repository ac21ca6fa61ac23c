"""Messages between the protocol and ours."""

import hashlib
import json
import zlib
from typing import Any

from rqretry.core.envelope import Envelope
from rqretry.core.errors import show
from rqretry.core.limits import (
    MAX_BODY_BYTES,
    MAX_HEADERS,
    MAX_HEADERS_BYTES,
    check_headers,
    check_keys,
    check_message_group,
    check_message_id,
    check_tag,
)
from rqretry.core.message import Message, OutgoingMessage
from rqretry.core.traceparent import trace_id_of
from rqretry.gateway.codes import Code, Refused, checked
from rqretry.gateway.protocol import seconds_of, set_seconds, v2

BORN_HOST, DELIVER_AT = "rocketmq-born-host", "rocketmq-deliver-at"
TRACE_CONTEXT = "rocketmq-trace-context"
"""A trace context of a client that is no W3C traceparent."""
_OWN = (BORN_HOST, DELIVER_AT, TRACE_CONTEXT)
"""Headers that are system properties of the protocol."""
_TRACE = "traceparent"
"""A user property as well: there OpenTelemetry's Java agent writes it, and looks for it."""
Type = v2.MessageType
_PLAIN = (v2.Encoding.ENCODING_UNSPECIFIED, v2.Encoding.IDENTITY)
TYPES = (Type.NORMAL, Type.FIFO, Type.DELAY, Type.TRANSACTION)


def outgoing(message: Any) -> OutgoingMessage:
    """A message of a SendMessage as one to publish. Raises Refused with the field's own code."""
    system = message.system_properties
    if not system.message_id:
        raise Refused(Code.ILLEGAL_MESSAGE_ID, "message id '' is empty: give one to each message")
    keys = checked(Code.ILLEGAL_MESSAGE_KEY, check_keys, tuple(system.keys))
    return OutgoingMessage(
        body=_body(message),
        id=checked(Code.ILLEGAL_MESSAGE_ID, check_message_id, system.message_id),
        tag=checked(Code.ILLEGAL_MESSAGE_TAG, check_tag, system.tag) if system.tag else None,
        keys=keys,
        headers=_headers(message),
        message_group=_message_group(system),
        deliver_at=_deliver_at(system),
    )


def type_of(message: Any) -> int:
    """The type of a message of a SendMessage. Raises Refused if it conflicts with the rest."""
    system = message.system_properties
    kind = int(system.message_type) or int(Type.NORMAL)
    if kind not in TYPES:
        name = Type.Name(kind) if kind in Type.values() else str(kind)
        raise Refused(Code.UNSUPPORTED, f"messages of type {name} are not supported")
    found = {
        Type.FIFO: bool(system.message_group),
        Type.DELAY: system.HasField("delivery_timestamp"),
    }
    if any(has is not (kind == one) for one, has in found.items()):
        raise Refused(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"a message of type {Type.Name(kind)} has a message group if it is FIFO and a delivery"
            " time if it is DELAY, and neither otherwise",
        )
    return kind


def incoming(message: Message[Any], invisible_s: float) -> Any:
    """One delivery as the protocol spells it."""
    made = stored(message.topic, message.id, message)
    system = made.system_properties
    system.receipt_handle = message.receipt_handle
    system.delivery_attempt = message.attempt
    system.queue_id = partition_of_handle(message)
    system.queue_offset = 0
    set_seconds(system.invisible_duration, invisible_s)
    if message.published_at:
        set_seconds(system.born_timestamp, message.published_at.timestamp())
        set_seconds(system.store_timestamp, message.published_at.timestamp())
    return made


def stored(topic: str, id_: str, fields: Message[Any] | Envelope) -> Any:
    """What a message is, however it is delivered."""
    made = v2.Message(body=_bytes(fields.body))
    made.topic.name = topic
    system, headers = made.system_properties, fields.headers
    made.user_properties.update({n: text for n, text in headers.items() if n not in _OWN})
    system.message_id = id_
    system.message_type = Type.FIFO if fields.message_group else Type.NORMAL
    system.keys.extend(fields.keys)
    system.body_encoding = v2.Encoding.IDENTITY
    # As RocketMQ's proxy does: with CRC32 the Node.js client takes every body for corrupted.
    system.body_digest.type = v2.DigestType.MD5
    digest = hashlib.md5(made.body, usedforsecurity=False)
    system.body_digest.checksum = digest.hexdigest().upper()
    if fields.tag:
        system.tag = fields.tag
    if fields.message_group:
        system.message_group = fields.message_group
    system.born_host = headers.get(BORN_HOST, "")
    if traced := headers.get(TRACE_CONTEXT) or headers.get(_TRACE):
        system.trace_context = traced
    if headers.get(DELIVER_AT, "").isdecimal():
        system.message_type = Type.DELAY
        set_seconds(system.delivery_timestamp, int(headers[DELIVER_AT]) / 1000)
    return made


def partition_of_handle(message: Message[Any]) -> int:
    """The partition that a delivery came from."""
    return int(message.receipt_handle.split("/")[1])


def _bytes(body: Any) -> bytes:
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _body(message: Any) -> bytes:
    """The bytes; what a client has compressed is stored as it was before."""
    body, encoding = bytes(message.body), message.system_properties.body_encoding
    if encoding == v2.Encoding.GZIP:
        body = _unpacked(body)
    elif encoding not in _PLAIN:
        raise Refused(Code.UNSUPPORTED, f"body encoding {encoding} is not supported: use GZIP")
    if len(body) > MAX_BODY_BYTES:
        raise Refused(
            Code.MESSAGE_BODY_TOO_LARGE,
            f"the body has more than {MAX_BODY_BYTES} bytes: store it elsewhere and send its name",
        )
    return body


def _unpacked(body: bytes) -> bytes:
    """What was compressed; of more than a body may have, one byte more."""
    unpack = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    try:
        found = unpack.decompress(body, MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise Refused(Code.MESSAGE_CORRUPTED, f"the body is no gzip: {error}") from None
    if len(found) <= MAX_BODY_BYTES and (not unpack.eof or unpack.unused_data):
        raise Refused(Code.MESSAGE_CORRUPTED, "the body is not one whole gzip stream")
    return found


def _headers(message: Any) -> dict[str, str]:
    system, found = message.system_properties, dict(message.user_properties)
    for name in _OWN:
        if name in found:
            rule = "is a system property of the gateway: choose another name"
            raise Refused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property {show(name)} {rule}")
    if system.born_host:
        found[BORN_HOST] = system.born_host
    if system.HasField("delivery_timestamp"):
        found[DELIVER_AT] = str(round(seconds_of(system.delivery_timestamp) * 1000))
    if system.trace_context and trace_id_of(found.get(_TRACE, "")) is None:
        is_w3c = trace_id_of(system.trace_context) is not None
        found[_TRACE if is_w3c else TRACE_CONTEXT] = system.trace_context
    code = Code.ILLEGAL_MESSAGE_PROPERTY_KEY
    size = sum(len(name.encode()) + len(text.encode()) for name, text in found.items())
    if size > MAX_HEADERS_BYTES or len(found) > MAX_HEADERS:
        code = Code.MESSAGE_PROPERTIES_TOO_LARGE
    return checked(code, check_headers, found)


def _message_group(system: Any) -> str | None:
    if not system.message_group:
        return None
    return checked(Code.ILLEGAL_MESSAGE_GROUP, check_message_group, system.message_group)


def _deliver_at(system: Any) -> float | None:
    if not system.HasField("delivery_timestamp"):
        return None
    return seconds_of(system.delivery_timestamp)
