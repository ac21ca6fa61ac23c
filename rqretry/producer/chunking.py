"""Messages in bulk, without I/O: which go together, cut into calls, and the answers in order."""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast, overload

from rqretry.core.errors import AmbiguousResult, NotConfirmed, PublishError, RqretryError
from rqretry.core.limits import MAX_CALL_BYTES
from rqretry.core.message_id import MessageId
from rqretry.protocol.publish import PlainMessages, Prepared

FULL_CALL = 470
"""Messages per call in bulk; a script may take 500. The server keeps the history entry of a call in
one piece of memory: 470 ids as text fit into 8 KiB (500 would take 10), and packed into 6."""


class Together(Sequence[tuple[int, Prepared]]):
    """Plain messages that all go to partition 0; with that for each where somebody asks."""

    def __init__(self, messages: PlainMessages) -> None:
        self.messages = messages

    def __len__(self) -> int:
        return len(self.messages)

    @overload
    def __getitem__(self, at: int) -> tuple[int, Prepared]: ...
    @overload
    def __getitem__(self, at: slice) -> "Together": ...
    def __getitem__(self, at: int | slice) -> "tuple[int, Prepared] | Together":
        if isinstance(at, slice):
            return Together(self.messages[at])
        return 0, self.messages[at]


def chunks(messages: Sequence[Prepared], most: int = FULL_CALL) -> Iterator[Sequence[Prepared]]:
    """Cut messages into calls: at most so many messages or 1 MiB, one message at least."""
    if isinstance(messages, PlainMessages):
        yield from messages.cut(most, MAX_CALL_BYTES)
        return
    chunk: list[Prepared] = []
    size = 0
    for message in messages:
        length = len(message.data)
        if chunk and (len(chunk) >= most or size + length > MAX_CALL_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(message)
        size += length
    if chunk:
        yield chunk


Place = tuple[int, str]
"""A partition, and a durability: what shares a lane."""


def split(prepared: Sequence[tuple[int, Prepared]]) -> Mapping[Place, Sequence[Prepared]]:
    """The messages of each place, in their order."""
    if isinstance(prepared, Together):
        return {(0, ""): prepared.messages} if prepared else {}
    found: dict[Place, list[Prepared]] = {}
    for partition, message in prepared:
        found.setdefault((partition, message.durability), []).append(message)
    return found


def each(
    calls: Sequence[Sequence[Prepared]],
    answers: Sequence[list[MessageId | Exception] | RqretryError],
) -> list[MessageId | Exception]:
    """An answer for each message; the error of a call is that of all its messages."""
    found: list[MessageId | Exception] = []
    for call, answer in zip(calls, answers, strict=True):
        found += [answer] * len(call) if isinstance(answer, RqretryError) else answer
    return found


def joined(
    messages: Mapping[Place, Sequence[Prepared]],
    answers: Sequence[list[MessageId | Exception]],
    prepared: Sequence[tuple[int, Prepared]],
) -> list[MessageId | Exception]:
    """The answers of all places in the order in which the messages were given."""
    if len(answers) == 1:
        return answers[0]
    if not answers:
        return []
    streams = {place: iter(part) for place, part in zip(messages, answers, strict=True)}
    return [next(streams[partition, message.durability]) for partition, message in prepared]


def collected(
    answers: list[MessageId | Exception], prepared: Sequence[tuple[int, Prepared]]
) -> list[MessageId]:
    """The ids, or a PublishError that says what is where, or a NotConfirmed for what has less."""
    if set(map(type, answers)) == {MessageId}:
        return cast("list[MessageId]", answers)
    done: list[MessageId] = []
    failed: list[str] = []
    ambiguous: list[str] = []
    unconfirmed: list[NotConfirmed] = []
    first = ""
    for answer, (_, message) in zip(answers, prepared, strict=True):
        if isinstance(answer, MessageId):
            done.append(answer)
            continue
        if isinstance(answer, NotConfirmed):
            done.append(MessageId(message.id))
            unconfirmed.append(answer)
            continue
        (ambiguous if isinstance(answer, AmbiguousResult) else failed).append(message.id)
        first = first or str(answer)
    if failed or ambiguous:
        raise PublishError(done, failed, ambiguous, first)
    if unconfirmed:
        ids = [error.id for error in unconfirmed]
        raise NotConfirmed(ids, unconfirmed[0].durability, unconfirmed[0].reason)
    return done
