"""What goes into one call: so many messages, bytes and entries, and of which callers; no I/O."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from rqretry.core.limits import MAX_CALL_BYTES
from rqretry.core.route import Route
from rqretry.protocol.publish import PlainMessages, Prepared

FULL_CALL = 470
"""Messages per call in bulk; a script may take 500. The server keeps the history entry of a call in
one piece of memory: 470 ids as text fit into 8 KiB (500 would take 10), and packed into 6."""
MAX_CALL_ENTRIES = 2400
"""Message keys, and places in the lines of ordered groups, in a call: each takes about 3 µs."""
_MAX_PUSHED = 40_000
"""Places in the lists of groups: each takes a tenth of a microsecond."""


class Room(NamedTuple):
    """What one call may take of messages to one partition, by the groups of its topic.

    Attributes:
        messages: How many.
        ordered: The ordered groups.
    """

    messages: int = FULL_CALL
    ordered: int = 0

    def entries(self, messages: Sequence[Prepared]) -> int:
        """How many entries of indexes these take."""
        noted = [m.noted for m in messages if m.noted]
        return sum(len(n.keys) + (self.ordered if n.message_group else 0) for n in noted)


_BY_ITSELF = Room()


def room_in(route: Route) -> Room:
    """What one call may take by this route."""
    ordered = sum(group.ordered for group in route.groups)
    return Room(min(FULL_CALL, _MAX_PUSHED // max(1, len(route.groups))), ordered)


def chunks(messages: Sequence[Prepared], room: Room = _BY_ITSELF) -> Iterator[Sequence[Prepared]]:
    """Cut messages into calls: so many messages, bytes and entries, one message at least."""
    if type(messages) is PlainMessages:
        yield from messages.cut(room.messages, MAX_CALL_BYTES)
        return
    chunk: list[Prepared] = []
    size = entries = 0
    for message in messages:
        length, more = len(message.data), room.entries([message])
        full = len(chunk) >= room.messages or size + length > MAX_CALL_BYTES
        if chunk and (full or entries + more > MAX_CALL_ENTRIES):
            yield chunk
            chunk, size, entries = [], 0, 0
        chunk.append(message)
        size, entries = size + length, entries + more
    if chunk:
        yield chunk


class Caller(Protocol):
    """Somebody who waits for a call."""

    @property
    def messages(self) -> Sequence[Prepared]:
        """What it publishes."""


C = TypeVar("C", bound=Caller)


def next_call(
    waiting: deque[C], room: Room, in_doubt: Callable[[Sequence[Prepared]], Any]
) -> list[C]:
    """Take off those who go together in the next call: in their order, one of them at least.

    Who repeats what is `in_doubt` goes alone: the answer may be as doubtful once more.
    """
    callers: list[C] = []
    count = size = entries = 0
    while waiting:
        messages = waiting[0].messages
        count += len(messages)
        size += sum(len(message.data) for message in messages)
        entries += room.entries(messages)
        full = count > room.messages or size > MAX_CALL_BYTES or entries > MAX_CALL_ENTRIES
        alone = in_doubt(messages)
        if callers and (full or alone):
            break
        callers.append(waiting.popleft())
        if alone:
            break
    return callers
