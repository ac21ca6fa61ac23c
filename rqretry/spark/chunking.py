"""Messages cut into calls, so that the cuts depend on nothing but the messages and their order.

A task that runs again may get its rows in batches of another size, and has to make the same calls.
"""

from collections.abc import Iterator, Sequence

from rqretry.core.message_id import partition_of
from rqretry.producer.chunk import Room, chunks
from rqretry.producer.encode import partition_for
from rqretry.protocol.publish import PlainMessages, Prepared

Call = tuple[int, Sequence[Prepared]]
"""A partition, and the messages of one call to it."""


class Cutter:
    """Keeps what does not fill a call until there is more."""

    def __init__(self, partitions: int, most: int) -> None:
        self._room = Room(most)
        self._rest: list[Sequence[Prepared]] = [()] * partitions

    def add(self, messages: Sequence[Prepared]) -> Iterator[Call]:
        """The calls that these, behind what was kept, fill."""
        for partition, mine in enumerate(_parts(messages, len(self._rest))):
            if mine:
                *full, rest = chunks(_joined(self._rest[partition], mine), self._room)
                self._rest[partition] = rest
                for chunk in full:
                    yield partition, chunk

    def rest(self) -> Iterator[Call]:
        """What fills no call."""
        for partition, messages in enumerate(self._rest):
            if messages:
                yield partition, messages


def _parts(messages: Sequence[Prepared], partitions: int) -> list[Sequence[Prepared]]:
    """The messages of each partition, in their order."""
    if partitions == 1:
        return [messages]
    indexes: list[list[int]] = [[] for _ in range(partitions)]
    if isinstance(messages, PlainMessages):
        for index, id_ in enumerate(messages.ids):
            indexes[partition_of(id_, partitions)].append(index)
        return [messages.at(mine) for mine in indexes]
    for index, message in enumerate(messages):
        indexes[partition_for(message, partitions)].append(index)
    return [[messages[index] for index in mine] for mine in indexes]


def _joined(first: Sequence[Prepared], then: Sequence[Prepared]) -> Sequence[Prepared]:
    if not first:
        return then
    if isinstance(first, PlainMessages) and isinstance(then, PlainMessages):
        return first.followed_by(then)
    return [*first, *then]
