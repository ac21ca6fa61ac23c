"""What is published, as it will go over the wire: checked, encoded and cut into calls; no I/O.

The bytes of a single message are made in core/envelope.py.
"""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any, cast

from rqretry.catalog.catalog import Catalog
from rqretry.core.durability import check_durability
from rqretry.core.durations import epoch_ms, milliseconds, spell
from rqretry.core.envelope import delayed_until, digest, encode, encode_all
from rqretry.core.errors import (
    AmbiguousResult,
    NotConfirmed,
    PublishError,
    RqretryError,
    refuse,
    show,
)
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
from rqretry.core.message_id import MessageId, make_id, make_ids, partition_of
from rqretry.core.traceparent import without_trace
from rqretry.core.typed_body import PLAIN, plain
from rqretry.protocol.command import Operation
from rqretry.protocol.publish import PlainMessages, Prepared, compressed
from rqretry.transport.session import ServerClock


class SamePartition:
    """Plain messages that all go to partition 0; pairs of partition and message, made on demand."""

    def __init__(self, messages: PlainMessages) -> None:
        self.messages = messages

    def __iter__(self) -> Iterator[tuple[int, Prepared]]:
        return zip(repeat(0), self.messages)


Addressed = SamePartition | list[tuple[int, Prepared]]
"""Messages, each with its partition."""


class Encoder:
    """Checks and encodes what a client publishes.

    Args:
        catalog: The client's.
        clock: The server's time, as far as the client knows it.
        make_id: How one id is made, at a time.
        make_ids: How many are.
    """

    def __init__(
        self,
        catalog: Catalog,
        clock: ServerClock,
        make_id: Callable[[int], str] = make_id,
        make_ids: Callable[[int, int], list[str]] = make_ids,
    ) -> None:
        self.catalog = catalog
        self.clock = clock
        self.make_id = make_id
        self._make_ids = make_ids

    def prepare(self, topic: str, bodies: Iterable[Any]) -> Operation[Addressed]:
        """Check and encode bodies or OutgoingMessages; each with its partition.

        Everything is checked before the topic is created, if it has to be.

        Raises:
            InvalidArgument, MessageTooLarge, CodecError: One of them cannot be published; nothing
                was written.
        """
        items, now_ms = list(bodies), self.clock.now_ms()
        messages, asked = drafts(items, self._make_ids(len(items), now_ms), now_ms)
        levels = yield from self.catalog.open()
        record = yield from self.catalog.topics.get(topic, create=True)  # the last to be asked
        if not isinstance(messages, PlainMessages):
            for at, level in asked.items():
                messages[at] = _at_level(messages[at], levels.delay_ms(level), now_ms)
        made = compressed(messages, record.compress_from)
        if isinstance(made, PlainMessages) and record.partitions == 1:
            return SamePartition(made)
        with collector_paused():
            return [(partition_for(message, record.partitions), message) for message in made]


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector while very many objects are made, none of them garbage.

    It would scan all of them whenever their number has grown by a quarter, which took half the CPU
    of publishing in bulk. Only for code that does not wait for anything.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def check_publishable(items: Sequence[Any]) -> None:
    """Judge bodies or OutgoingMessages before a server is waited for.

    Raises:
        InvalidArgument, MessageTooLarge, CodecError: One of them cannot be published.
    """
    drafts(items, [""] * len(items), 0)


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
        now_ms: The server's time as the client estimates it; 0 if it is not known.

    Raises:
        InvalidArgument, MessageTooLarge, CodecError: It cannot be published.
    """
    if not isinstance(item, OutgoingMessage):
        return Prepared(made_id, encode(plain(item)), "", ""), 0
    delay_ms, level = _delay(item, now_ms)
    durability = check_durability(item.durability)
    body, keys = plain(item.body), check_keys(item.keys)
    tag = None if item.tag is None else check_tag(item.tag)
    headers = None if item.headers is None else check_headers(item.headers) or None
    group = None if item.message_group is None else _message_group(item, delay_ms, level)
    fields: dict[str, Any] = {"tag": tag, "keys": keys, "message_group": group}
    due_ms = _due(delay_ms, now_ms)
    data, note = (
        encode(body, headers=headers, due_ms=due_ms, **fields),
        noted(tag, keys, headers, group),
    )
    if item.id is None:
        return Prepared(made_id, data, "", delay_ms, note, durability), level
    # The digest leaves the times out: the same message published later is the same message.
    # So are two that differ in nothing but the trace they were published in.
    untraced = without_trace(headers)
    alike = untraced == headers and due_ms is None
    same = digest(data if alike else encode(body, headers=untraced, **fields))
    if now_ms:
        data = encode(body, headers=headers, born_ms=now_ms, due_ms=due_ms, **fields)
    return Prepared(check_message_id(item.id), data, same, delay_ms, note, durability), level


def _at_level(message: Prepared, delay_ms: int, now_ms: int) -> Prepared:
    """A message that asked for a delay level, with its delay."""
    data = delayed_until(message.data, now_ms + delay_ms) if now_ms else message.data
    return message._replace(delay_ms=delay_ms, data=data)


def _due(delay_ms: int | str, now_ms: int) -> int | None:
    """When a message is due, server time; None at once, or where that time is not known."""
    if isinstance(delay_ms, str):
        return int(delay_ms[1:]) if delay_ms else None
    return now_ms + delay_ms if now_ms else None


def partition_for(message: Prepared, partitions: int) -> int:
    """Where a message goes: what is in order with it goes there too."""
    return partition_of(message.message_group or message.id, partitions)


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
    """A date for the script, whose clock decides; past by all we know, it is no delay at all."""
    here = time.time_ns() // 1_000_000
    now = now_ms or here
    if date_ms - now > MAX_DELAY_MS:
        rule = f"is out of range: it must be at most {spell(MAX_DELAY_S)} ahead"
        refuse("deliver_at", item.deliver_at, rule)
    return f"@{date_ms}" if date_ms > min(now, here) else ""


# -- calls -----------------------------------------------------------------------------------------


LaneKey = tuple[int, str]
"""A partition, and a durability: what shares a lane."""


def by_lane(prepared: Addressed) -> Mapping[LaneKey, Sequence[Prepared]]:
    """The messages of each key, in their order."""
    if isinstance(prepared, SamePartition):
        return {(0, ""): prepared.messages} if prepared.messages else {}
    found: dict[LaneKey, list[Prepared]] = {}
    for partition, message in prepared:
        found.setdefault((partition, message.durability), []).append(message)
    return found


def per_message(
    calls: Sequence[Sequence[Prepared]],
    answers: Sequence[list[MessageId | Exception] | RqretryError],
) -> list[MessageId | Exception]:
    """An answer for each message; the error of a call is that of all its messages."""
    found: list[MessageId | Exception] = []
    for call, answer in zip(calls, answers, strict=True):
        found += [answer] * len(call) if isinstance(answer, RqretryError) else answer
    return found


def in_order(
    messages: Mapping[LaneKey, Sequence[Prepared]],
    answers: Sequence[list[MessageId | Exception]],
    prepared: Addressed,
) -> list[MessageId | Exception]:
    """The answers of all lanes in the order in which the messages were given."""
    if len(answers) == 1:
        return answers[0]
    if not answers:
        return []
    streams = {key: iter(part) for key, part in zip(messages, answers, strict=True)}
    return [next(streams[partition, message.durability]) for partition, message in prepared]


def ids_or_error(answers: list[MessageId | Exception], prepared: Addressed) -> list[MessageId]:
    """The ids; else a PublishError with what is stored, or a NotConfirmed with what has less."""
    if set(map(type, answers)) == {MessageId}:
        return cast("list[MessageId]", answers)
    done: list[MessageId] = []
    failed: list[str] = []
    ambiguous: list[str] = []
    unconfirmed: list[NotConfirmed] = []
    first: Exception | None = None
    for answer, (_, message) in zip(answers, prepared, strict=True):
        if isinstance(answer, MessageId):
            done.append(answer)
            continue
        if isinstance(answer, NotConfirmed):
            done.append(MessageId(message.id))
            unconfirmed.append(answer)
            continue
        (ambiguous if isinstance(answer, AmbiguousResult) else failed).append(message.id)
        first = first or answer
    if failed or ambiguous:
        error = PublishError(done, failed, ambiguous, str(first))
        error.first = first
        raise error
    if unconfirmed:
        ids = [error.id for error in unconfirmed]
        raise NotConfirmed(ids, unconfirmed[0].durability, unconfirmed[0].reason)
    return done
