"""A body or OutgoingMessage as it will go over the wire: checked and encoded, before any I/O."""

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rqretry.core.delay_levels import LevelTable
from rqretry.core.durability import check_durability
from rqretry.core.durations import epoch_ms, milliseconds, spell
from rqretry.core.envelope import decode, digest, encode, encode_all
from rqretry.core.errors import CodecError, refuse, show
from rqretry.core.history_notes import noted
from rqretry.core.limits import (
    MAX_DELAY_MS,
    MAX_DELAY_S,
    check_headers,
    check_keys,
    check_message_group,
    check_message_id,
    check_tag,
)
from rqretry.core.message import OutgoingMessage
from rqretry.core.message_id import partition_of
from rqretry.core.traceparent import without_trace
from rqretry.core.typed_body import PLAIN, plain
from rqretry.protocol.publish import PlainMessages, Prepared


@contextmanager
def collector_paused() -> Iterator[None]:
    """Make very many objects, of which none is garbage, without being searched for garbage.

    Python looks through all of them again whenever their number has grown by a quarter, which took
    half the CPU of publishing in bulk. Only for code that does not wait for anything.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


Draft = tuple[Prepared, int]
"""A message, and the delay level it asks for; 0 for none."""


def drafts(
    items: Sequence[Any], made: list[str], now_ms: int
) -> tuple[list[Prepared] | PlainMessages, dict[int, int]]:
    """Check and encode many; the delay levels that some ask for are by index.

    Raises:
        InvalidArgument, MessageTooLarge, CodecError: One of them cannot be published.
    """
    if PLAIN.issuperset(map(type, items)):  # bare bodies, as most are
        with collector_paused():
            return PlainMessages(made, encode_all(items)), {}
    found = [draft(item, id_, now_ms) for item, id_ in zip(items, made, strict=True)]
    return [message for message, _ in found], {
        at: level for at, (_, level) in enumerate(found) if level
    }


def draft(item: Any, made_id: str, now_ms: int) -> Draft:
    """Check and encode one body or OutgoingMessage.

    Args:
        item: What publish was given.
        made_id: The id it gets if it brings none.
        now_ms: The server's time as the client estimates it; 0 where it is not known.

    Raises:
        InvalidArgument, MessageTooLarge, CodecError: It cannot be published.
    """
    if not isinstance(item, OutgoingMessage):
        return Prepared(made_id, encode(plain(item)), "", ""), 0
    delay_ms, level = _delay(item, now_ms)
    durability = check_durability(item.durability)
    body, keys = plain(item.body), check_keys(item.keys)
    tag = None if item.tag is None else check_tag(item.tag)
    headers = check_headers(item.headers) if item.headers else None
    group = None if item.message_group is None else _message_group(item, delay_ms, level)
    fields: dict[str, Any] = {"tag": tag, "keys": keys, "message_group": group}
    data, note = encode(body, headers=headers, **fields), noted(tag, keys, headers, group)
    if item.id is None:
        return Prepared(made_id, data, "", delay_ms, note, durability), level
    # The digest leaves the born time out: the same message published later is the same message.
    # So are two that differ in nothing but the trace they were published in.
    said = without_trace(headers)
    same = digest(data if said == headers else encode(body, headers=said, **fields))
    if now_ms:
        data = encode(body, headers=headers, born_ms=now_ms, **fields)
    return Prepared(check_message_id(item.id), data, same, delay_ms, note, durability), level


def content_digest(data: bytes) -> str:
    """The digest of an encoded message that was given no id, as if it had been."""
    try:
        body, tag, keys, headers, group, _ = decode(data)
    except CodecError:  # then it is what it is
        return digest(data)
    said = without_trace(headers)
    if said == (headers or None):
        return digest(data)
    return digest(encode(body, tag=tag, keys=keys, headers=said, message_group=group))


def partition_for(message: Prepared, partitions: int) -> int:
    """Where a message goes: what is in order with it goes there too."""
    return partition_of(message.message_group or message.id, partitions)


def on_level(message: Prepared, level: int, levels: LevelTable) -> Prepared:
    """The message with the delay of its level."""
    return message._replace(delay_ms=levels.delay_ms(level)) if level else message


def _message_group(item: OutgoingMessage, delay_ms: int | str, level: int) -> str:
    group = check_message_group(item.message_group)
    if delay_ms or level:
        rule = "cannot be given with a delay: the messages behind it would have to wait too"
        refuse("message_group", group, rule)
    return group


def _delay(item: OutgoingMessage, now_ms: int) -> tuple[int | str, int]:
    level: object = item.delay_level
    _check_one(item)
    if item.delay is not None:
        return milliseconds(item.delay, name="delay", maximum=MAX_DELAY_S) or "", 0
    if item.deliver_at is not None:
        return _until(epoch_ms("deliver_at", item.deliver_at), item, now_ms), 0
    if level is None:
        return "", 0
    if isinstance(level, bool) or not isinstance(level, int) or level < 1:
        refuse("delay_level", level, "must be 1 or more")
    return "", level


def _check_one(item: OutgoingMessage) -> None:
    ways = {"delay": item.delay, "deliver_at": item.deliver_at, "delay_level": item.delay_level}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        first, second = given[:2]
        refuse(second, ways[second], f"cannot be given with {first}={show(ways[first])}")


def _until(date_ms: int, item: OutgoingMessage, now_ms: int) -> str:
    """A date for the script, whose clock decides; one that is past is no delay at all."""
    now = now_ms or time.time_ns() // 1_000_000
    if date_ms - now > MAX_DELAY_MS:
        rule = f"is out of range: it must be at most {spell(MAX_DELAY_S)} ahead"
        refuse("deliver_at", item.deliver_at, rule)
    return f"@{date_ms}" if date_ms > now else ""
