"""What the history records about published messages beside their ids: one blob per call.

Only publish writes it, and only if a message has a tag, keys, a message group or a trace, so that a
plain message costs nothing (docs/decisions/0025-history.md). It is a msgpack array [1, ids, tags,
keys, groups, traces]; each is nil, or a list with one item per message of the call. The history
names only the messages that were accepted: `ids` is given if that may be fewer than were sent.
"""

from collections.abc import Mapping, Sequence
from math import isnan
from struct import unpack_from
from typing import Any, NamedTuple

import msgpack

from rqretry.core.traceparent import trace_id_of

VERSION = 1
_LISTS = 5
TIMES_WIDTH = 4
"""Bytes of each message in what lease.encode_times makes."""


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
    """The blob of one call; b"" if nothing is to be noted.

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


class NotedColumns(NamedTuple):
    """The same of the messages of an entry, in step with them; None if nothing is noted."""

    tag: list[str | None] | None = None
    keys: list[list[str] | None] | None = None
    message_group: list[str | None] | None = None
    trace_id: list[str | None] | None = None


def decode_columns(blob: bytes, ids: Sequence[str]) -> NotedColumns:
    """What is noted of the messages of a history entry; nothing of a blob that cannot be read."""
    try:
        version, sent, *columns = msgpack.unpackb(blob)
        if version != VERSION or len(columns) != _LISTS - 1:
            return NotedColumns()
        tags, keys, groups, traces = (_in_step(column, sent, ids) for column in columns)
        keys = keys and [[*names] or None if names else None for names in keys]
        traces = traces and [trace.hex() if trace else None for trace in traces]
    except (ValueError, TypeError, AttributeError, msgpack.UnpackException):
        return NotedColumns()
    return NotedColumns(tags, keys, groups, traces)


def decode_noted(blob: bytes, ids: Sequence[str]) -> list[Noted]:
    """The same, message by message."""
    found, nothing = decode_columns(blob, ids), [None] * len(ids)
    columns: list[list[Any]] = [column or nothing for column in found]
    return [
        Noted(tag, tuple(names or ()), group, trace)
        for tag, names, group, trace in zip(*columns, strict=True)
    ]


def decode_times(times: bytes, count: int, index: int) -> tuple[float, float] | None:
    """When the handler of one message of `count` ran; None where that is not known.

    Seconds from its lease to the start of the handler, and how long this ran (lease.encode_times).
    """
    if len(times) != TIMES_WIDTH * count:
        return None
    waited, ran = unpack_from("<2e", times, TIMES_WIDTH * index)
    return None if isnan(ran) else (waited, ran)


def _in_step(column: list[Any] | None, sent: list[str] | None, ids: Sequence[str]) -> Any:
    """A column of the messages that were sent, as one of those that were accepted."""
    if column is None:
        return None
    if len(column) != len(ids if sent is None else sent):
        raise ValueError(column)
    if sent is None:
        return column
    by_id = dict(zip(sent, column, strict=True))
    return [by_id.get(id_) for id_ in ids]
