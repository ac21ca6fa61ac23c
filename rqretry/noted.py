"""What the history notes of published messages beside their ids: one blob for a call.

Only publish writes it, and only where a message has a tag, keys, a message group or a trace, so
that a plain message costs nothing (decisions 29). It is a msgpack array [1, ids, tags, keys,
groups, traces]; each is nil, or a list in step with the messages of the call. The script notes only
the messages that it accepted: `ids` is there where that may be fewer than were sent.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgpack

from rqretry.traceparent import trace_id_of

VERSION = 1
_LISTS = 5


class Noted(NamedTuple):
    """What of one message goes into the history."""

    tag: str | None = None
    keys: tuple[str, ...] = ()
    message_group: str | None = None
    trace_id: str | None = None
    """32 hexadecimal digits."""


NOTHING = Noted()


def noted(
    tag: str | None,
    keys: tuple[str, ...],
    headers: Mapping[str, str] | None,
    message_group: str | None = None,
) -> Noted | None:
    """What to note of a message; None if there is nothing."""
    trace_id = trace_id_of(headers.get("traceparent", "")) if headers else None
    found = Noted(tag, keys, message_group, trace_id)
    return None if found == NOTHING else found


def encode_noted(ids: Sequence[str], notes: Sequence[Noted | None], *, partial: bool) -> bytes:
    """The blob of one call; b"" where nothing is to be noted.

    Args:
        ids: The ids of the messages sent.
        notes: What to note of each, in step.
        partial: Fewer messages than these may be accepted.
    """
    if not any(notes):
        return b""
    listed = [note or NOTHING for note in notes]
    tags, keys, groups = [n.tag for n in listed], [n.keys for n in listed], [n[2] for n in listed]
    traces = [n.trace_id and bytes.fromhex(n.trace_id) for n in listed]
    columns = [column if any(column) else None for column in (tags, keys, groups, traces)]
    blob: bytes = msgpack.packb([VERSION, list(ids) if partial else None, *columns])
    return blob


def decode_noted(blob: bytes, ids: Sequence[str]) -> list[Noted]:
    """What is noted of the messages of a history entry; a blob that cannot be read says nothing."""
    nothing = [NOTHING] * len(ids)
    try:
        version, sent, *columns = msgpack.unpackb(blob)
        if version != VERSION or len(columns) != _LISTS - 1:
            return nothing
        notes = _rows(columns, len(ids if sent is None else sent))
    except (ValueError, TypeError, AttributeError, msgpack.UnpackException):
        return nothing
    if sent is None:
        return notes if len(notes) == len(ids) else nothing
    by_id = dict(zip(sent, notes, strict=False))
    return [by_id.get(id_, NOTHING) for id_ in ids]


def _rows(columns: Sequence[Any], count: int) -> list[Noted]:
    tags, keys, groups, traces = (column or [None] * count for column in columns)
    return [
        Noted(tag, tuple(names or ()), group, trace.hex() if trace else None)
        for tag, names, group, trace in zip(tags, keys, groups, traces, strict=True)
    ]
