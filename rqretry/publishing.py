"""Publishing, without I/O: messages are checked and encoded, go into lanes, and lanes into calls.

A lane is one producer's line into one partition with at most one unresolved call (decisions 3). A
call that may have happened is remembered with its lane: publishing one of its ids again repeats
that very call, so the answer is exact; everybody else gets a fresh lane at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from rqretry.catalog import Catalog
from rqretry.codec import checksum, encode
from rqretry.command import Operation
from rqretry.commands.producing import Prepared, Published, publish
from rqretry.durability import MEMORY
from rqretry.errors import (
    AmbiguousResult,
    InvalidArgument,
    NotConfirmed,
    PublishError,
    QueueFull,
    ScriptError,
    show,
)
from rqretry.ids import MessageId, make_id, make_ids, make_producer, new_ids, partition_of
from rqretry.limits import (
    MAX_CALL_BYTES,
)
from rqretry.noted import encode_noted
from rqretry.preparing import (
    collector_paused,
    content_digest,
    drafts,
    on_level,
    partition_for,
)
from rqretry.typed import PLAIN
from rqretry.wire import ServerClock

LANE_TTL_MS = 3_600_000
"""How long a partition remembers a silent lane's last call."""
FULL_CALL = 470
"""Messages per call in bulk; a script may take 500. The server keeps the history entry of a call in
one piece of memory: 470 ids as text fit into 8 KiB (500 would take 10), and packed into 6."""
_UNRESOLVED_KEPT = 1000
_ROUTE_CHANGES = 50
_NOT_SENT = Published("STALE_ROUTE", 0, "")


@dataclass(slots=True)
class Lane:
    """One producer's line into one partition; used by one call at a time."""

    topic: str
    partition: int
    producer: str = field(default_factory=make_producer)
    seq: int = 0
    durability: str = ""
    """What the server must confirm for each message of the lane; '' for nothing."""

    def start_over(self) -> None:
        """Leave the unresolved call behind: a fresh producer cannot meet it."""
        self.producer, self.seq = make_producer(), 0


class Call(NamedTuple):
    """What one lane sends at once, and sends again as it is until it is answered."""

    topic: str
    partition: int
    producer: str
    seq: int
    messages: tuple[Prepared, ...]
    checksum: str
    """Over ids and bodies, of this call or of the lane up to it."""
    lane_ttl_ms: int = LANE_TTL_MS
    durability: str = ""


class Publishing:
    """The publishing half of a client."""

    def __init__(self, catalog: Catalog, clock: ServerClock) -> None:
        self.catalog = catalog
        self.clock = clock
        self._unresolved: dict[str, Call] = {}

    def prepare(self, topic: str, bodies: Iterable[Any]) -> Operation[list[tuple[int, Prepared]]]:
        """Check and encode bodies or OutgoingMessages; each with its partition.

        Everything is checked before the topic is created, if it has to be.

        Raises:
            InvalidArgument, MessageTooLarge, CodecError: One of them cannot be published; nothing
                was written.
        """
        items, now_ms = list(bodies), self.clock.now_ms()
        made = make_ids(len(items), now_ms)
        messages, asked = drafts(items, made, now_ms)
        record = yield from self.catalog.topic(topic, create=True)
        levels = yield from self.catalog.open()
        for at, level in asked.items():
            messages[at] = on_level(messages[at], level, levels)
        with collector_paused():
            if record.partitions == 1:
                return [(0, message) for message in messages]
            return [(partition_for(message, record.partitions), message) for message in messages]

    def prepared(self, topic: str, body: Any) -> tuple[int, Prepared] | None:
        """What `prepare` answers for one bare body, where the topic is known; None elsewhere.

        Raises:
            MessageTooLarge, CodecError: It cannot be published.
        """
        record = self.catalog.known_topic(topic)
        if record is None or type(body) not in PLAIN:
            return None
        id_ = make_id(self.clock.now_ms())
        message = Prepared(id_, encode(body), "", "")
        return partition_of(id_, record.partitions), message

    def send(
        self, lane: Lane, messages: Sequence[Prepared]
    ) -> Operation[list[MessageId | Exception]]:
        """One call through a lane; an id, or what is wrong with it, for each message.

        Raises:
            AmbiguousResult: It may have happened; publishing the same ids again finds out.
            StoreUnavailable, QueueFull: Nothing was stored.
        """
        repeated = self._repeated(messages)
        if repeated is not None:
            return (yield from self._resolve(repeated, messages))
        lane.seq += 1
        total = checksum([*[m.id for m in messages], *[m.data for m in messages]])
        call = Call(
            lane.topic, lane.partition, lane.producer, lane.seq, tuple(messages), total,
            LANE_TTL_MS, lane.durability,
        )  # fmt: skip
        try:
            answer = yield from self._sent(call)
        except AmbiguousResult:
            self._remember(call)
            lane.start_over()
            raise
        except GeneratorExit:  # cancelled: what was sent is not known
            lane.start_over()
            raise
        return _verdicts(messages, answer, call.durability)

    def call(self, call: Call) -> Operation[Published]:
        """Send one call, by the route as it is now; what the partition answered.

        Raises:
            AmbiguousResult: It may have happened.
            StoreUnavailable, QueueFull: Nothing was stored.
        """
        topic, number = call.topic, call.partition
        blob = _blob(call.messages)
        answer = _NOT_SENT
        for _ in range(_ROUTE_CHANGES):
            answer = yield publish(
                self.catalog.partition(topic, number),
                self.catalog.route(topic, number),
                call.messages,
                producer=call.producer,
                seq=call.seq,
                checksum=call.checksum,
                lane_ttl_ms=call.lane_ttl_ms,
                blob=blob,
                durability=call.durability,
            )
            if answer.route is None:
                break
            yield from self.catalog.note_route(topic, number, answer.route, create=True)
        if answer.status == "FULL":
            raise full(topic, answer.stored, answer.limit)
        if answer.now_ms:
            self.clock.note(answer.now_ms)
        return answer

    def _sent(self, call: Call) -> Operation[Published]:
        answer = yield from self.call(call)
        if answer.status not in {"OK", "DUPLICATE"}:
            raise ScriptError("lua/publish.lua", 0, f"unexpected answer {answer.status}")
        return answer

    def _repeated(self, messages: Sequence[Prepared]) -> Call | None:
        if not self._unresolved:
            return None
        return next((self._unresolved[m.id] for m in messages if m.id in self._unresolved), None)

    def _resolve(
        self, call: Call, messages: Sequence[Prepared]
    ) -> Operation[list[MessageId | Exception]]:
        """Repeat the unresolved call, which may hold these messages' neighbours too."""
        answer = yield from self._sent(call)
        verdicts = _verdicts(call.messages, answer, call.durability)
        found = dict(zip((m.id for m in call.messages), verdicts, strict=True))
        first = {message.id: message for message in call.messages}
        for message in messages:
            if message.id in first and not _same(message, first[message.id]):
                found[message.id] = refused(message.id, "C")
        for message in call.messages:
            self._unresolved.pop(message.id, None)
        rest = [message for message in messages if message.id not in found]
        if rest:
            lane = Lane(call.topic, call.partition, durability=call.durability)
            found.update(zip((m.id for m in rest), (yield from self.send(lane, rest)), strict=True))
        return [found[message.id] for message in messages]

    def _remember(self, call: Call) -> None:
        for message in call.messages:
            self._unresolved[message.id] = call
        while len(self._unresolved) > _UNRESOLVED_KEPT:
            self._unresolved.pop(next(iter(self._unresolved)))


def chunks(messages: Sequence[Prepared]) -> Iterable[list[Prepared]]:
    """Cut messages into calls: at most FULL_CALL messages or 1 MiB, one message at least."""
    chunk: list[Prepared] = []
    size = 0
    for message in messages:
        length = len(message.data)
        if chunk and (len(chunk) >= FULL_CALL or size + length > MAX_CALL_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(message)
        size += length
    if chunk:
        yield chunk


Place = tuple[int, str]
"""A partition, and a durability: what shares a lane."""


def split(prepared: Sequence[tuple[int, Prepared]]) -> dict[Place, list[Prepared]]:
    """The messages of each place, in their order."""
    found: dict[Place, list[Prepared]] = {}
    for partition, message in prepared:
        found.setdefault((partition, message.durability), []).append(message)
    return found


def joined(
    messages: Mapping[Place, Sequence[Prepared]],
    answers: Sequence[list[MessageId | Exception]],
    prepared: Sequence[tuple[int, Prepared]],
) -> list[MessageId | Exception]:
    """The answers of all places in the order in which the messages were given."""
    if len(answers) == 1:
        return answers[0]
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


def _blob(messages: Sequence[Prepared]) -> bytes:
    """What the history notes of a call beside the ids; of plain messages nothing."""
    notes = [message.noted for message in messages]
    if notes.count(None) == len(notes):
        return b""
    chosen = any(message.digest for message in messages)  # such an id may be refused or known
    return encode_noted([message.id for message in messages], notes, partial=chosen)


def _verdicts(
    messages: Sequence[Prepared], answer: Published, durability: str
) -> list[MessageId | Exception]:
    again = answer.status == "DUPLICATE"
    if not (again or answer.verdicts or durability):
        return [*new_ids([message.id for message in messages])]
    letters = answer.verdicts or "A" * len(messages)
    return [
        refused(message.id, letter)
        if letter in "CH"
        else NotConfirmed([message.id], durability, answer.doubt)
        if answer.doubt
        else MessageId(
            message.id, duplicate=letter == "D" or again, durability=durability or MEMORY
        )
        for message, letter in zip(messages, letters, strict=True)
    ]


def full(topic: str, stored: int, limit: int) -> QueueFull:
    """The error for a partition that may not store more."""
    return QueueFull(
        f"topic {show(topic)} is full: a partition stores {stored} of at most"
        f" {limit} messages; nothing was stored. Let consumers drain it, or raise its limit"
        " (max_messages)"
    )


def _same(repeated: Prepared, first: Prepared) -> bool:
    """Whether a message published again, by its id, is the message that it was the first time."""
    return repeated.data == first.data or repeated.digest == (
        first.digest or content_digest(first.data)
    )


def refused(id_: str, letter: str) -> InvalidArgument:
    """The error for an id of the caller's that a script refused, with C or H."""
    if letter == "H":
        return InvalidArgument(
            f"id {show(id_)} is the id of a message in a transaction that is not decided;"
            " decide that one, or publish under a new id"
        )
    return InvalidArgument(
        f"id {show(id_)} is the id of another message, with other content; publish under a new id"
    )
