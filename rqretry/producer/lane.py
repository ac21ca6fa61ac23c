"""Publishing, without I/O: messages go through lanes, in calls.

A lane is one producer's session with one partition, with at most one unresolved call
(docs/decisions/0002). A call that may have happened is remembered with its lane: publishing one of
its ids again repeats that very call, so the answer is exact; everybody else gets a fresh lane at
once.

In bulk a producer has two lanes, whose calls take turns: one is sent while the other is executed.
It names the call in front, and stores nothing unless that one was done, so that nothing overtakes a
call that was refused or lost; it is sent again by itself when that one is settled.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rqretry.catalog.catalog import Catalog
from rqretry.core.catalog_records import TopicRecord
from rqretry.core.compression import compress
from rqretry.core.durability import MEMORY
from rqretry.core.envelope import checksum, decode, digest, encode
from rqretry.core.errors import (
    AmbiguousResult,
    CodecError,
    ForgottenResult,
    MessageIdTaken,
    NotConfirmed,
    QueueFull,
    RqretryError,
    ScriptError,
    show,
)
from rqretry.core.history_notes import encode_noted
from rqretry.core.message_id import MessageId, make_id, make_producer, new_ids, partition_of
from rqretry.core.route import Route
from rqretry.core.traceparent import without_trace
from rqretry.core.typed_body import PLAIN
from rqretry.producer.unresolved import Unresolved
from rqretry.protocol.command import Command, Operation, Pause
from rqretry.protocol.keys import PartitionKeys
from rqretry.protocol.publish import (
    ON_ITS_WAY_MS,
    Front,
    PlainMessages,
    Prepared,
    Published,
    compressed,
    ids_of,
    may_be_ahead,
    publish,
    retire,
)
from rqretry.transport.session import ServerClock

LANE_TTL_MS = 3_600_000 + ON_ITS_WAY_MS
"""How long a partition remembers the last call of a silent lane: its client may repeat it for an
hour. Where the client is closed, and knows its answer, ON_ITS_WAY_MS."""
_ROUTE_CHANGES = 50
_NOT_SENT = Published("STALE_ROUTE", 0, "")
"""Nothing was sent, or nothing stored: the messages belong into other partitions by now."""


@dataclass(slots=True)
class Lane:
    """One producer's session with one partition; used by one call at a time."""

    topic: str
    partition: int
    partitions: int = 1
    """How many the topic had when its messages were addressed."""
    producer: str = field(default_factory=make_producer)
    seq: int = 0
    durability: str = ""
    """What the server must confirm for each message of the lane; '' for nothing."""
    record: str | None = None
    """What the partition keeps of the call under way once it is done; '' if nobody knows that,
    and None if none is under way."""

    def beside(self) -> "Lane":
        """Another lane into the same partition."""
        return Lane(self.topic, self.partition, self.partitions, durability=self.durability)

    def start_over(self) -> None:
        """Leave the unresolved call behind: a fresh producer cannot meet it."""
        self.producer, self.seq = make_producer(), 0


class Call(NamedTuple):
    """What one lane sends at once, and sends again as it is until it is answered."""

    topic: str
    partition: int
    producer: str
    seq: int
    messages: Sequence[Prepared]
    checksum: str
    """Over ids and bodies, of this call or of the lane up to it."""
    lane_ttl_ms: int = LANE_TTL_MS
    durability: str = ""
    partitions: int = 0
    """How many the topic had when they were addressed; 0: they stay where they are if it grows."""


class _Destination(NamedTuple):
    """Where a call goes, and the records of the catalog that this was read from."""

    record: TopicRecord | None
    noted: Route | None
    keys: PartitionKeys
    route: Route


class Publishing:
    """Sends what a client publishes, through lanes."""

    def __init__(
        self, catalog: Catalog, clock: ServerClock, make_id: Callable[[int], str] = make_id
    ) -> None:
        self.catalog = catalog
        self.clock = clock
        self.make_id = make_id
        self._unresolved: Unresolved[Call] = Unresolved()
        self._known, self._noted = catalog.store.known, catalog.store.noted
        self._destinations: dict[tuple[str, int], _Destination] = {}

    def prepare_bare(self, topic: str, body: Any) -> tuple[int, Prepared] | None:
        """What Encoder.prepare answers for one bare body, where the topic is known; else None.

        Raises:
            MessageTooLarge, CodecError: It cannot be published.
        """
        record = self._known.get(topic) if type(topic) is str else None
        if record is None or type(body) not in PLAIN or self.catalog.store.levels is None:
            return None
        id_ = self.make_id(self.clock.now_ms())
        data, least = encode(body), record.compress_from
        message = Prepared(id_, compress(data, least) if least else data, "", "")
        return partition_of(id_, record.partitions), message

    def send_in_turn(
        self, lanes: tuple[Lane, Lane], calls: Iterable[Sequence[Prepared]]
    ) -> Iterator[Operation[list[MessageId | Exception]]]:
        """The calls of a bulk through two lanes, each sent while the one in front is executed.

        Each operation is `send`, and is begun when the one in front has sent its first call.
        """
        for number, messages in enumerate(calls):
            yield self.send(lanes[number % 2], messages, front=lanes[1 - number % 2])

    def send(
        self, lane: Lane, messages: Sequence[Prepared], front: Lane | None = None
    ) -> Operation[list[MessageId | Exception]]:
        """One call through a lane; an id, or what is wrong with it, for each message.

        Args:
            lane: The lane.
            messages: At most as many as one call takes.
            front: The lane of the call in front, which may be under way: see `send_in_turn`.

        Raises:
            AmbiguousResult: It may have happened; publishing the same ids again finds out.
            StoreUnavailable, QueueFull: Nothing was stored.
        """
        known = front is not None and self._may_be_followed(lane, messages)
        if front is not None and front.record is not None and not (known and front.record):
            yield Pause(0)  # until it is answered, since nothing can be made to depend on it
        repeated = self.in_doubt(messages)
        if repeated is not None:
            asked = repeated._replace(durability=lane.durability)
            return (yield from self._resolve(asked, messages))
        lane.seq += 1
        call = Call(
            lane.topic, lane.partition, lane.producer, lane.seq, messages, _total(messages),
            LANE_TTL_MS, lane.durability, lane.partitions,
        )  # fmt: skip
        lane.record = f"{call.seq} {call.checksum}" if known else ""
        try:
            answer = yield from self._sent(call, front)
            if answer is _NOT_SENT:
                lane.record = ""
                return (yield from self._send_anew(lane.topic, lane.durability, messages))
        except AmbiguousResult as error:
            lane.start_over()
            if self._unresolved.add(call):
                raise
            raise ForgottenResult(error.operation, error.ids, error.reason) from None
        except GeneratorExit:  # cancelled: what was sent is not known
            lane.start_over()
            if len(messages) > 1:  # others may know their ids
                self._unresolved.add(call)
            raise
        finally:
            lane.record = None
        if answer.doubt and self._unresolved.add(call):  # publishing it again waits again
            lane.start_over()
        return _verdicts(messages, answer, call.durability)

    def _send_anew(
        self, topic: str, durability: str, messages: Sequence[Prepared]
    ) -> Operation[list[MessageId | Exception]]:
        """Messages of a topic that has grown since they were addressed, by lanes to the new ones.

        Those of a message group stay in their order; nobody sends to its old partition any more.
        """
        partitions = self.partitions(topic)
        found: dict[int, MessageId | Exception] = {}
        parts: dict[int, list[int]] = {}
        for at, message in enumerate(messages):
            partition = partition_of(message.message_group or message.id, partitions)
            parts.setdefault(partition, []).append(at)
        for partition, part in parts.items():
            fresh = Lane(topic, partition, partitions, durability=durability)
            try:
                answers = yield from self.send(fresh, [messages[at] for at in part])
            except RqretryError as error:
                answers = [error] * len(part)
            found.update(zip(part, answers, strict=True))
        return [found[at] for at in range(len(messages))]

    def retire(self, lanes: Iterable[Lane]) -> list[Command[int]]:
        """What to send for lanes that no call uses, when their client is closed."""
        used = [lane for lane in lanes if lane.seq]
        return [retire(self.catalog.partition(o.topic, o.partition), o.producer) for o in used]

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has, as far as this client knows; 1 of an unknown one."""
        record = self._known.get(topic)
        return record.partitions if record else 1

    def _may_be_followed(self, lane: Lane, messages: Sequence[Prepared]) -> bool:
        """Whether a call may be sent before this one is answered: its checksum alone names it."""
        if self.partitions(lane.topic) != lane.partitions:
            return False
        if lane.durability or self.in_doubt(messages):
            return False
        return self.may_be_ahead(lane.topic, lane.partition, messages)

    def may_be_ahead(self, topic: str, partition: int, messages: Sequence[Prepared]) -> bool:
        """Whether a call can be made to depend on one in front of it, by the route as it is now."""
        return may_be_ahead(self._destination(topic, partition).route, messages)

    def route(self, topic: str, partition: int) -> Route:
        """The groups of a partition, as far as this client knows."""
        return self._destination(topic, partition).route

    def _destination(self, topic: str, partition: int) -> "_Destination":
        """A partition's keys, and its route as it is now: made anew where either record changed."""
        record, noted = self._known.get(topic), self._noted.get((topic, partition))
        made = self._destinations.get((topic, partition))
        if made is None or made.record is not record or made.noted is not noted:
            keys = self.catalog.partition(topic, partition)
            route = self.catalog.topics.route(topic, partition)
            made = self._destinations[topic, partition] = _Destination(record, noted, keys, route)
        return made

    def call(self, call: Call, front: Front | None = None) -> Operation[Published]:
        """Send one call, by the route as it is now; what the partition answered.

        With a call in front nothing is stored unless that was done: the answer is LANE_GAP then.

        Raises:
            AmbiguousResult: It may have happened.
            StoreUnavailable, QueueFull: Nothing was stored.
        """
        topic, number = call.topic, call.partition
        blob = _blob(call.messages)
        answer = _NOT_SENT
        for _ in range(_ROUTE_CHANGES):
            destination = self._destination(topic, number)
            if destination.route.closed:
                yield from self.catalog.growth.wait(topic)
                destination = self._destination(topic, number)
            if destination.record and call.partitions not in (0, destination.record.partitions):
                return _NOT_SENT
            answer = yield publish(
                destination.keys,
                destination.route,
                call.messages,
                producer=call.producer,
                seq=call.seq,
                checksum=call.checksum,
                lane_ttl_ms=call.lane_ttl_ms,
                blob=blob,
                durability=call.durability,
                front=front,
            )
            if answer.status == "AGAIN":
                continue
            if answer.route is None:
                break
            front = None  # the script asks for it first, so that it was done
            yield from self.catalog.topics.note_route(topic, number, answer.route, create=True)
            if answer.route.compress_from:  # it may be new, as the route is
                messages = compressed(call.messages, answer.route.compress_from)
                call = call._replace(messages=messages)
        if answer.status == "FULL":
            raise QueueFull.of(topic, answer.stored, answer.limit)
        if answer.now_ms:
            self.clock.note(answer.now_ms)
        return answer

    def _sent(self, call: Call, front: Lane | None = None) -> Operation[Published]:
        ahead = Front(front.producer, front.record) if front and front.record else None
        answer = yield from self.call(call, ahead)
        if answer.status == "LANE_GAP":  # by now the call in front is settled
            answer = yield from self.call(call)
        if answer.status not in {"OK", "DUPLICATE"} and answer is not _NOT_SENT:
            raise ScriptError("lua/publish.lua", 0, f"unexpected answer {answer.status}")
        return answer

    def in_doubt(self, messages: Sequence[Prepared]) -> Call | None:
        """The unresolved call that one of these messages was in."""
        return self._unresolved.find(ids_of(messages)) if self._unresolved.by_id else None

    def _resolve(
        self, call: Call, messages: Sequence[Prepared]
    ) -> Operation[list[MessageId | Exception]]:
        """Repeat the unresolved call, which may hold these messages' neighbours too."""
        answer = yield from self._sent(call)
        if answer is _NOT_SENT:  # it was not done, and its topic has grown
            self._unresolved.forget(ids_of(messages))
            return (yield from self._send_anew(call.topic, call.durability, messages))
        verdicts = _verdicts(call.messages, answer, call.durability)
        found = dict(zip((m.id for m in call.messages), verdicts, strict=True))
        first = {message.id: message for message in call.messages}
        for message in messages:
            if message.id in first and not _same(message, first[message.id]):
                found[message.id] = refused(message.id, "C")
        rest = [message for message in messages if message.id not in found]
        if rest:
            lane = Lane(call.topic, call.partition, call.partitions, durability=call.durability)
            found.update(zip((m.id for m in rest), (yield from self.send(lane, rest)), strict=True))
        return [found[message.id] for message in messages]


def _total(messages: Sequence[Prepared]) -> str:
    """The checksum of a call that stands alone: over all ids, and all bodies."""
    if type(messages) is PlainMessages:
        return checksum([*messages.ids, *messages.data])
    return checksum([*[m.id for m in messages], *[m.data for m in messages]])


def _blob(messages: Sequence[Prepared]) -> bytes:
    """What the history notes of a call beside the ids; of plain messages nothing."""
    if type(messages) is PlainMessages:
        return b""
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
        return [*new_ids(ids_of(messages))]
    codes = answer.verdicts or "A" * len(messages)
    return [
        refused(message.id, code)
        if code in "CH"
        else NotConfirmed([message.id], durability, answer.doubt)
        if answer.doubt
        else MessageId(message.id, duplicate=code == "D" or again, durability=durability or MEMORY)
        for message, code in zip(messages, codes, strict=True)
    ]


def _same(repeated: Prepared, first: Prepared) -> bool:
    """Whether a message published again, by its id, is the message that it was the first time."""
    return repeated.data == first.data or repeated.digest == (
        first.digest or _content_digest(first.data)
    )


def _content_digest(data: bytes) -> str:
    """The digest of an encoded message that was given no id, as if it had been."""
    try:
        body, tag, keys, headers, group, *_ = decode(data)
    except CodecError:  # then it is what it is
        return digest(data)
    untraced = without_trace(headers)
    return digest(encode(body, tag=tag, keys=keys, headers=untraced, message_group=group))


def refused(id_: str, code: str) -> MessageIdTaken:
    """The error for an id of the caller's that a script refused, with C or H."""
    if code == "H":
        return MessageIdTaken(
            f"id {show(id_)} is the id of a message in a transaction that is not decided;"
            " decide that one, or publish under a new id"
        )
    return MessageIdTaken(
        f"id {show(id_)} is the id of another message, with other content; publish under a new id"
    )
