"""Message bytes: one msgpack array [1, body, tag, keys, headers, message_group, born_ms].

The 1 is the version. A delayed message, which has no message group, has there in its place when it
is due. What is nil at the end is left out, so that the least message is
[1, body]. A body is a JSON-compatible value, or raw bytes as a whole; never pickle. It may stand
there compressed (core/compression.py).

The same rules hold in both directions, because the bytes may come from a damaged store or
from a program that is not ours: what `encode` refuses, `decode` refuses too. A body is small and
flat most of the time: `_is_flat` decides that in one short loop; for the rest `_check_body` walks
it all, and names the path to a value at fault.
"""

import hashlib
import math
import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgpack

from rqretry.core.compression import decompress
from rqretry.core.errors import CodecError, MessageTooLarge, show
from rqretry.core.limits import MAX_BODY_BYTES, MAX_BODY_DEPTH, MAX_BODY_ITEMS, MAX_HEADERS

VERSION = 1
_FIELDS = 7
_LEAST_FIELDS = 2
# Bytes up to this size cannot hold more items than allowed, as each takes a byte or more.
_SMALL_BYTES = MAX_BODY_ITEMS
_KEPT_BUFFER_BYTES = 1024 * 1024
_DIGEST_BYTES = 8
_FIXMAP, _MAP16 = 0x80, 0xDE
_SEVEN = bytes((0x90 + _FIELDS,))
"""How msgpack begins an array of all fields."""
_LEAST = bytes((0x90 + _LEAST_FIELDS, VERSION))
"""How it begins the least message: the body follows."""
_SCALARS = frozenset({str, int, bool, type(None)})
_TEXT_OR_NONE = frozenset({str, type(None)})
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_LONGEST_PATH = 120
_new = tuple.__new__


class Envelope(NamedTuple):
    """A decoded message.

    `born_ms` is None if the id itself holds the time; `due_ms` if it was published without a delay.
    """

    body: Any
    tag: str | None
    keys: tuple[str, ...]
    headers: dict[str, str]
    message_group: str | None
    born_ms: int | None
    due_ms: int | None = None


def encode(
    body: object,
    *,
    tag: str | None = None,
    keys: Iterable[str] = (),
    headers: Mapping[str, str] | None = None,
    message_group: str | None = None,
    born_ms: int | None = None,
    due_ms: int | None = None,
    limit: int = MAX_BODY_BYTES,
) -> bytes:
    """The bytes of a message; its other fields are checked by `limits` before.

    Args:
        body: None, bool, int of 64 bits, finite float, str, list, tuple or dict with str
            keys, nested to 64 levels and 100 000 items; or bytes as a whole.
        tag: The tag, or None.
        keys: The message keys.
        headers: The headers, or None.
        message_group: The message group, or None; None with a delay.
        born_ms: The time of publishing, for ids that do not hold it.
        due_ms: When a delayed message is due.
        limit: The largest body allowed, in bytes after encoding.

    Raises:
        CodecError: The body holds what cannot be sent; the error names the path to it.
        MessageTooLarge: The body takes more than `limit` bytes.
    """
    fields: list[Any] = [VERSION, body]
    group_or_due = message_group if due_ms is None else due_ms
    if tag is not None or keys or headers or group_or_due is not None or born_ms is not None:
        fields += (tag, list(keys) or None, dict(headers or ()) or None, group_or_due, born_ms)
        while fields[-1] is None and len(fields) > _LEAST_FIELDS:
            fields.pop()
    data = _packed_flat(fields) if _is_flat(body) else _packed(fields, limit)
    if len(data) > limit:
        # The whole is over it; the body alone, which the limit is for, may not be.
        alone = fields[1]
        _check_size(len(alone if isinstance(alone, bytes) else msgpack.packb(alone)), limit)
    return data


def encode_all(bodies: Iterable[object]) -> list[bytes]:
    """`encode` of many bodies without other fields; raises what it raises."""
    pack, made = _packer.pack, []
    for body in bodies:
        if _is_flat(body):
            try:
                data = _LEAST + pack(body)  # a third faster than to pack the two together
            except Exception as error:
                raise _unsendable(body, error) from error
            if len(data) <= _KEPT_BUFFER_BYTES:
                made.append(data)
                continue
            pack = _packer.pack = msgpack.Packer().pack  # as _packed_by_thread does
        made.append(encode(body))
    return made


def stamp_all(messages: Iterable[bytes], born_ms: int) -> list[bytes]:
    """What `encode` gives with a time of publishing, of what `encode_all` gave without.

    A message of two fields becomes one of seven: another first byte, and five fields behind it.
    """
    tail = msgpack.packb([None] * (_FIELDS - _LEAST_FIELDS - 1) + [born_ms])[1:]
    return [b"".join((_SEVEN, data[1:], tail)) for data in messages]


def delayed_until(data: bytes, due_ms: int) -> bytes:
    """The bytes of a message, with the time at which it is due."""
    found = decode(data)
    return encode(
        found.body, tag=found.tag, keys=found.keys, headers=found.headers, born_ms=found.born_ms,
        due_ms=due_ms,
    )  # fmt: skip


def decode(data: bytes) -> Envelope:
    """Read message bytes, whoever wrote them; raises CodecError and nothing else."""
    return _new(Envelope, decode_fields(data))


def decode_fields(data: bytes) -> tuple[Any, ...]:
    """The fields of an Envelope, for whoever does without one; raises as `decode`."""
    try:
        fields = msgpack.unpackb(data) if len(data) <= _SMALL_BYTES else _unpack_large(data)
    except CodecError:
        raise
    except Exception as error:
        raise _unreadable(str(error) or type(error).__name__) from error
    if type(fields) is not list or len(fields) < _LEAST_FIELDS or type(fields[0]) is not int:
        raise _unreadable("they are no message")
    if fields[0] != VERSION:
        raise _unreadable(
            f"version {show(fields[0])} is not {VERSION}: a newer rqretry wrote it, upgrade"
        )
    body = fields[1]
    if not _is_flat(body) and type(body) is not bytes:
        if type(body) is msgpack.ExtType:
            fields[1] = body = decode(_LEAST + decompress(body, MAX_BODY_BYTES)).body
        else:
            _check_body(body)
            _check_keys(data)
    elif type(body) is dict and not _declares_its_length(data, body):
        _check_keys(data)
    if len(fields) == _LEAST_FIELDS:
        return body, None, (), {}, None, None, None
    envelope = _with_properties(fields)
    if envelope.headers:
        _check_keys(data)
    return envelope


def checksum(parts: Iterable[bytes | str]) -> str:
    """16 hex characters over a sequence of byte strings and texts and where each one ends."""
    return digest(_packed_by_thread(list(parts)))


def digest(data: bytes) -> str:
    """16 hex characters over some bytes."""
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


def digest_all(many: Iterable[bytes]) -> list[str]:
    """`digest` of each."""
    hash_, size = hashlib.blake2b, _DIGEST_BYTES
    return [hash_(data, digest_size=size).hexdigest() for data in many]


class _Packer(threading.local):
    """A packer for each thread: making one costs as much as packing a small message."""

    def __init__(self) -> None:
        self.pack = msgpack.Packer().pack


_packer = _Packer()


def _packed_flat(fields: list[Any]) -> bytes:
    try:
        return _packed_by_thread(fields)
    except Exception as error:
        raise _unsendable(fields[1], error) from error


def _packed_by_thread(value: list[Any]) -> bytes:
    data: bytes = _packer.pack(value)
    if len(data) > _KEPT_BUFFER_BYTES:
        # The packer keeps its buffer; one large message must not hold memory for ever.
        _packer.pack = msgpack.Packer().pack
    return data


def _packed(fields: list[Any], limit: int) -> bytes:
    body = fields[1]
    if isinstance(body, bytes | bytearray | memoryview):
        _check_size(body.nbytes if isinstance(body, memoryview) else len(body), limit)
        fields[1] = bytes(body)
    else:
        _check_body(body)
    try:
        # Not the packer of the thread: a subclass of dict can run code that publishes.
        data: bytes = msgpack.packb(fields)
    except Exception as error:
        raise _unsendable(fields[1], error) from error
    return data


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise MessageTooLarge(
            f"the body takes {size} bytes and the limit is {limit}: store it elsewhere and"
            " publish a reference to it"
        )


def _unsendable(body: object, error: Exception) -> CodecError:
    """The error for a body that the packer refused: with the path to the value at fault."""
    try:
        _check_body(body, closely=True)
    except CodecError as found:
        return found
    return CodecError(f"the message cannot be encoded: {str(error) or type(error).__name__}")


def _declares_its_length(data: bytes, body: dict[Any, Any]) -> bool:
    """Whether a body's map declares as many keys as were read of it.

    One that names a key twice declares more; what `encode` would not write is checked closely.
    """
    head = data[2]
    if head & 0xF0 == _FIXMAP:
        return head & 0x0F == len(body)
    return head == _MAP16 and int.from_bytes(data[3:5]) == len(body)


def _check_keys(data: bytes) -> None:
    """Refuse a map that names a key twice, of which readers read different things."""
    if len(data) > _SMALL_BYTES:  # _unpack_large has looked
        return
    try:
        msgpack.unpackb(data, object_pairs_hook=_unique)
    except CodecError:
        raise
    except Exception as error:
        raise _unreadable(str(error) or type(error).__name__) from error


def _unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _unreadable("a map in them names a key twice")
    return fields


def _unpack_large(data: bytes) -> Any:
    """Unpack, and stop a bomb of small lists before it takes a hundred times its size."""
    left = MAX_BODY_ITEMS + _FIELDS + 2 * MAX_HEADERS

    def count(container: Any) -> Any:
        nonlocal left
        left -= len(container)
        if left < 0:
            raise _unreadable(f"they hold more than {MAX_BODY_ITEMS} values")
        return container

    return msgpack.unpackb(
        data,
        list_hook=count,
        object_pairs_hook=lambda pairs: _unique(count(pairs)),
        max_array_len=MAX_BODY_ITEMS,
        max_map_len=MAX_BODY_ITEMS,
    )


def _with_properties(fields: list[Any]) -> Envelope:
    if len(fields) > _FIELDS:
        raise _unreadable(f"they have {len(fields)} fields, not {_FIELDS}")
    fields += [None] * (_FIELDS - len(fields))
    _version, body, tag, keys, headers, message_group, born_ms = fields
    due_ms = None
    if type(message_group) is int:
        message_group, due_ms = None, message_group
    if not (
        type(tag) in _TEXT_OR_NONE
        and type(message_group) in _TEXT_OR_NONE
        and (keys is None or (type(keys) is list and all(type(key) is str for key in keys)))
        and (headers is None or _is_text_map(headers))
        and (born_ms is None or type(born_ms) is int)
    ):
        raise _unreadable("a tag, key, header, message group or time in them is malformed")
    return Envelope(body, tag, tuple(keys or ()), headers or {}, message_group, born_ms, due_ms)


def _is_text_map(value: object) -> bool:
    return type(value) is dict and all(
        type(name) is str and type(text) is str for name, text in value.items()
    )


def _unreadable(reason: str) -> CodecError:
    return CodecError(f"message bytes cannot be read: {reason}")


# -- which values a body may hold ------------------------------------------------------------------


def _is_flat(body: object) -> bool:
    """A scalar, or a dict of scalars: nothing left to check but what the packer checks."""
    if type(body) is dict:
        if len(body) > MAX_BODY_ITEMS:
            return False
        for key, value in body.items():
            type_ = type(value)
            if type(key) is not str:
                return False
            # Only a finite number minus itself is zero.
            if type_ not in _SCALARS and (type_ is not float or value - value != 0.0):
                return False
        return True
    return type(body) in _SCALARS


def _check_body(body: object, *, closely: bool = False) -> None:
    """Walk the whole body; raises CodecError with the path to the value at fault.

    `closely` also tests what the packer refuses by itself: long ints and broken text.
    """
    try:
        _walk(body, 1, closely)
    except _Fault as fault:
        raise CodecError(f"{_spelled(fault.path)} {fault.reason}") from None


class _Fault(Exception):
    """What is wrong with a value; the callers add the path on the way up."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str | int] = []


def _walk(value: object, depth: int, closely: bool) -> int:  # noqa: FBT001 - a hot path
    """Check a value; returns how many values it holds, shared ones counted each time."""
    if type(value) in _SCALARS and not closely:
        return 0
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise _Fault(f"has the key {show(key)}, which is not str: convert it")
            if closely:
                _check_text(key)
        return _walk_all(value.items(), depth, closely)
    if isinstance(value, list | tuple):
        return _walk_all(enumerate(value), depth, closely)
    _check_scalar(value)
    return 0


def _walk_all(pairs: Iterable[tuple[Any, object]], depth: int, closely: bool) -> int:  # noqa: FBT001
    if depth > MAX_BODY_DEPTH:
        raise _Fault(f"is nested more than {MAX_BODY_DEPTH} levels deep: flatten the body")
    count = 0
    for name, item in pairs:
        try:
            count += 1 + _walk(item, depth + 1, closely)
            if count > MAX_BODY_ITEMS:
                rule = f"is one of more than {MAX_BODY_ITEMS} values: split the message"
                raise _Fault(rule)  # noqa: TRY301 - the path to it is added below
        except _Fault as fault:
            fault.path.append(name)
            raise
    return count


def _check_scalar(value: object) -> None:
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, int):
        if not _INT_MIN <= value <= _INT_MAX:
            raise _Fault(f"{show(value)} does not fit into 64 bits: send it as text")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _Fault(f"is {float(value)}, which JSON does not have: send None or text")
    elif isinstance(value, bytes | bytearray | memoryview):
        raise _Fault("is raw bytes inside JSON: send them as the whole body, or as base64 text")
    elif value is not None:
        type_ = type(value).__name__
        raise _Fault(f"{show(value)} is {show(type_)[1:-1]}, no JSON value: convert it first")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        reason = "holds half of a surrogate pair, which no UTF-8 text can"
        raise _Fault(f"{show(text)} {reason}: repair the text") from None


def _spelled(path: list[str | int]) -> str:
    """The path from the outside in: body.items[3].price."""
    steps = ["body"]
    for name in reversed(path):
        if isinstance(name, str):
            steps.append(
                f".{name}" if name.isascii() and name.isidentifier() else f"[{show(name)}]"
            )
        else:
            steps.append(f"[{name}]")
    text = "".join(steps)
    return text if len(text) <= _LONGEST_PATH else f"{text[:_LONGEST_PATH]}..."
