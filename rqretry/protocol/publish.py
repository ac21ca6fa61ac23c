"""publish, scheduled and deliver: how messages become ready."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import accumulate, chain
from typing import Any, NamedTuple, overload

from rqretry.core.compression import compress
from rqretry.core.durability import confirmation, doubt
from rqretry.core.history_notes import NOTHING, Noted
from rqretry.core.message_id import pack_ids
from rqretry.core.route import Route
from rqretry.protocol.command import Argument, Command, number, text, texts
from rqretry.protocol.keys import PartitionKeys
from rqretry.protocol.large_body import LARGE, write_ahead

_NAMED, _FILTERED = "named", "filtered"
"""Modes of publish_with_options.lua."""
_BEHIND_LANE = 2
"""Of the keys of both publish scripts, those behind the lane are the same for every producer."""
_PACKED = 32
"""At this many plain messages the history packs their ids, into 12 bytes each in place of 17."""
_BARE = ("", "", None)
"""Digest, delay and notes of a message that has none of them."""


ON_ITS_WAY_MS = 60_000
"""How long a call that was answered, or given up, may still reach the server a second time."""


class Prepared(NamedTuple):
    """A message as it goes over the wire."""

    id: str
    data: bytes
    """The envelope (codec.py)."""
    digest: str
    """Of the envelope, for an id that the caller gave; else ''."""
    delay_ms: int | str
    """Milliseconds to wait, '@' and a date in ms of server time, or ''."""
    noted: Noted | None = None
    """Its tag, keys and message group, as the history notes them."""
    durability: str = ""
    """What must have it before publish returns; '' for the primary's memory."""

    @property
    def tag(self) -> str:
        """What subscriptions filter by; '' for none."""
        return (self.noted.tag if self.noted else None) or ""

    @property
    def message_group(self) -> str:
        """What it is in order with; '' for nothing."""
        return (self.noted.message_group if self.noted else None) or ""

    @property
    def keys(self) -> str:
        """Its message keys, with blanks between; '' for none."""
        return " ".join(self.noted.keys) if self.noted else ""


class PlainMessages(Sequence[Prepared]):
    """Very many messages of which each is a bare body under an id.

    They are kept as lists, and none is made alone until somebody asks for it: objects for each
    cost more than the rest of publishing it.

    Attributes:
        ids: Their ids.
        data: Their envelopes, in step.
        digests: Of ids that the caller gave; None if the client made them.
    """

    __slots__ = ("data", "digests", "ids")

    def __init__(self, ids: list[str], data: list[bytes], digests: list[str] | None = None) -> None:
        self.ids = ids
        self.data = data
        self.digests = digests

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, at: int) -> Prepared: ...
    @overload
    def __getitem__(self, at: slice) -> "PlainMessages": ...
    def __getitem__(self, at: int | slice) -> "Prepared | PlainMessages":
        digests = self.digests
        if isinstance(at, slice):
            chosen = None if digests is None else digests[at]
            return PlainMessages(self.ids[at], self.data[at], chosen)
        return Prepared(self.ids[at], self.data[at], "" if digests is None else digests[at], "")

    def cut(self, most: int, most_bytes: int) -> Iterator["PlainMessages"]:
        """Parts of up to `most` messages and `most_bytes` of bodies, at least one message each."""
        at = 0
        while at < len(self.ids):
            ends = list(accumulate(map(len, self.data[at : at + most])))
            count = max(1, bisect_right(ends, most_bytes))
            yield self[at : at + count]
            at += count

    def at(self, indexes: Sequence[int]) -> "PlainMessages":
        """The messages at these indexes."""
        ids, data, digests = self.ids, self.data, self.digests
        return PlainMessages(
            [ids[index] for index in indexes],
            [data[index] for index in indexes],
            None if digests is None else [digests[index] for index in indexes],
        )

    def followed_by(self, others: "PlainMessages") -> "PlainMessages":
        """These and the others, which are of the same kind: both have digests, or none."""
        digests = None if self.digests is None else [*self.digests, *(others.digests or [])]
        return PlainMessages(self.ids + others.ids, self.data + others.data, digests)

    def pairs(self) -> list[Argument]:
        """The id and the envelope of each."""
        made: list[Argument] = [""] * (2 * len(self.ids))
        made[::2] = self.ids
        made[1::2] = self.data
        return made


def ids_of(messages: Sequence[Prepared]) -> list[str]:
    """The ids of messages."""
    # isinstance takes three times as long, since this is a Sequence by an abstract class.
    if type(messages) is PlainMessages:
        return messages.ids
    return [message.id for message in messages]


def compressed(messages: Sequence[Prepared], least: int) -> Sequence[Prepared]:
    """Messages with their bodies compressed as their topic says: from `least` bytes on, 0 never."""
    if not least:
        return messages
    if isinstance(messages, PlainMessages):
        data = [compress(data, least) for data in messages.data]
        return PlainMessages(messages.ids, data, messages.digests)
    return [message._replace(data=compress(message.data, least)) for message in messages]


class Published(NamedTuple):
    """What a publish call answered.

    Attributes:
        status: "OK", "DUPLICATE" (this very call was done before), "STALE_ROUTE" (nothing was
            written; `route` is the partition's), "FULL" (nothing was written; `stored` and
            `limit` say why), "LANE_GAP" (nothing was written: the call in front was not done),
            "AGAIN" (nothing was written, and it is to be made again) or "LANE_CONFLICT" (a bug:
            a lane used twice).
        now_ms: The server's time, 0 if nothing was written.
        verdicts: One code per message, A accepted, D duplicate, C another body has this id,
            H a half of an undecided transaction has it.
        route: The partition's route, where the one sent was stale.
        stored: Messages in the partition, where it is full.
        limit: How many it may hold, where it is full.
        doubt: Why the durability that was asked for is not confirmed; "" if it is.
    """

    status: str
    now_ms: int
    verdicts: str
    route: Route | None = None
    stored: int = 0
    limit: int = 0
    doubt: str = ""


class Front(NamedTuple):
    """A call to the same partition that is under way.

    Attributes:
        producer: Its lane.
        record: What the lane holds once it is done, up to its verdicts.
    """

    producer: str
    record: str


def publish(
    keys: PartitionKeys,
    route: Route,
    messages: Sequence[Prepared],
    *,
    producer: str,
    seq: int,
    checksum: str,
    lane_ttl_ms: int,
    blob: bytes = b"",
    durability: str = "",
    front: Front | None = None,
) -> Command[Published]:
    """Nothing to ready (or scheduled): store the messages for every group of the route.

    Args:
        keys: The partition.
        route: Its groups, as far as the caller knows.
        messages: What to publish.
        producer: The lane.
        seq: The number of the call in its lane.
        checksum: What tells the call from another one of that number.
        lane_ttl_ms: How long the lane is remembered.
        blob: What the history notes of the messages.
        durability: What is to be confirmed; "" for nothing.
        front: A call that is not answered, and without which nothing may be stored; only for
            messages of which `may_be_ahead` says so.
    """
    mode = _mode(route, messages)
    bare = mode is None
    ids = tuple(ids_of(messages))
    if bare and len(messages) >= _PACKED:
        blob = pack_ids(ids)
    touched, groups = _targets(keys, route, bare=bare)
    ahead: tuple[tuple[Argument, ...], ...] = ()
    if not bare and not route.broadcast and _has_large(messages):
        ahead, taken = write_ahead(keys.incoming, keys.bodies, [m[:2] for m in messages])
        messages = [m._replace(data=data) for m, data in zip(messages, taken, strict=True)]
    args: list[Any] = [
        route.version, seq, checksum, lane_ttl_ms, producer, blob, front.record if front else "",
        len(route.groups), len(messages), *(() if bare else (f"{mode}+" if ahead else mode,)),
        *groups, *_pairs(messages),
    ]  # fmt: skip
    if not bare:
        args += _options_of_each(route, messages, mode)
    if front is not None:
        assert bare or mode == _NAMED, "only bare bodies may be sent ahead"
        touched = (*touched, keys.lane(front.producer))
    command = Command(
        verb="publish" if bare else "publish_with_options",
        keys=(keys.meta, keys.lane(producer), *touched),
        args=tuple(args),
        decode=_published,
        ids=ids,
        ahead=ahead,
    )
    if not durability:
        return command
    confirmed = partial(_confirmed, durability)
    return replace(command, confirm=confirmation(durability), confirmed=confirmed)


def retire(keys: PartitionKeys, producer: str) -> Command[int]:
    """A lane makes no more calls, and none of its is in doubt: remember it for a minute."""
    lane = keys.lane(producer)
    return Command("retire", (lane,), (), int, arguments=("PEXPIRE", lane, ON_ITS_WAY_MS))


def may_be_ahead(route: Route, messages: Sequence[Prepared]) -> bool:
    """Whether a call can depend on one in front: it has bare bodies, and no more than their ids."""
    return _mode(route, messages) in (None, _NAMED)


def _pairs(messages: Sequence[Prepared]) -> Iterable[Any]:
    if type(messages) is PlainMessages:
        return messages.pairs()
    return chain.from_iterable([message[:2] for message in messages])


def _options_of_each(
    route: Route, messages: Sequence[Prepared], mode: str | None
) -> Iterable[Argument]:
    if type(messages) is PlainMessages and messages.digests and mode != _FILTERED:
        return messages.digests
    if mode == _NAMED:
        return [message.digest for message in messages]
    return [_options(route, message, filtered=mode == _FILTERED) for message in messages]


def _options(route: Route, message: Prepared, *, filtered: bool) -> Argument:
    _, _, digest, delay_ms, noted, _ = message
    if noted is None and delay_ms == "" and not filtered:
        return digest
    tag, keys, name, _ = noted or NOTHING
    fields = f"{digest}\t{delay_ms}\t{name or ''}\t{' '.join(keys)}\t"
    if delay_ms == "" and filtered:
        return fields.encode() + route.targets(tag or "")
    return fields if delay_ms == "" or not tag else fields + tag


@lru_cache(maxsize=1024)
def _targets(
    keys: PartitionKeys, route: Route, *, bare: bool
) -> tuple[tuple[str, ...], tuple[Argument, ...]]:
    """The keys behind the lane's, and the arguments about the groups: the same for every call."""
    script = "publish" if bare else "publish_with_options"
    own = keys.scripts.completed(script, lane="*")[_BEHIND_LANE:]
    return (*own, *_keys_of_groups(keys, route, bare=bare)), tuple(_names_of_groups(route))


def _mode(route: Route, messages: Sequence[Prepared]) -> str | None:
    """None if all are bare and small, as most are: for publish.lua. Else the other script's."""
    if route.filtered:
        return _FILTERED
    if route.broadcast or route.queued or _has_large(messages):
        return ""
    if type(messages) is PlainMessages:
        if messages.digests is None:
            return None
        return _NAMED if _differ(messages.ids) else ""
    for message in messages:
        if message[2:5] != _BARE:
            break
    else:
        return None
    named = all(message.digest and message[3:5] == _BARE[1:] for message in messages)
    return _NAMED if named and _differ([message.id for message in messages]) else ""


def _has_large(messages: Sequence[Prepared]) -> bool:
    data = messages.data if type(messages) is PlainMessages else [m[1] for m in messages]
    return max(map(len, data), default=0) > LARGE


def _differ(ids: list[str]) -> bool:
    return len(set(ids)) == len(ids)


def _keys_of_groups(keys: PartitionKeys, route: Route, *, bare: bool = False) -> Iterator[str]:
    groups = [(keys.group(group.name, 0), group.ordered and not bare) for group in route.groups]
    for group, _ in groups:
        yield from (group.ready, group.wake)
    for group, ordered in groups:
        if ordered:
            yield from (group.order, group.heads)
    if route.broadcast:
        yield keys.broadcast


def _names_of_groups(route: Route) -> Iterator[Argument]:
    order = b"q" if route.queued else b"o"
    for group in route.groups:
        yield group.name
        yield bytes((group.byte,)) + (order if group.ordered else b"")


def scheduled_member(id_: str, tag: str) -> str:
    """How a message with a delay is named while it waits; neither part has a blank."""
    return f"{id_} {tag}" if tag else id_


def id_of_member(member: str) -> str:
    """The message that a member of `scheduled` names."""
    return member.partition(" ")[0]


def due_members(keys: PartitionKeys, *, limit: int) -> Command[tuple[list[str], int | None]]:
    """What is scheduled and due, and when the next one is due, in ms from now; reads only."""
    return Command(
        verb="scheduled",
        keys=keys.scripts["scheduled"],
        args=(limit,),
        decode=lambda reply: (texts(reply[0]), number(reply[1])),
    )


def deliver(
    keys: PartitionKeys,
    route: Route,
    *,
    worker: str,
    limit: int,
    members: Sequence[str] = (),
    expected_ms: int | None = None,
    hold_ms: int = 0,
) -> Command[tuple[str, int, int | None, Route | None]]:
    """Scheduled and due to ready; answers status, messages moved, next due in ms, newer route.

    A filtered route needs the `members` that are due (`due_members`); these alone are moved.
    `expected_ms` and `hold_ms` are those of `expire`.
    """
    args: list[Any] = [route.version, worker, limit, "" if expected_ms is None else expected_ms,
                       hold_ms, len(route.groups), *_names_of_groups(route)]  # fmt: skip
    for member in members:
        args += (member, route.targets(member.partition(" ")[2]))
    touched = (*keys.scripts["deliver"], *_keys_of_groups(keys, route))
    return Command("deliver", touched, tuple(args), _delivered)


def _published(reply: list[Any]) -> Published:
    if reply[0] == b"OK" and not reply[2]:  # as nearly always
        return Published("OK", reply[1], "")
    status = text(reply[0])
    if status == "STALE_ROUTE":
        return Published(status, 0, "", Route.decode(int(reply[1]), reply[2]))
    if status == "FULL":
        return Published(status, 0, "", stored=int(reply[1]), limit=int(reply[2]))
    if status in {"LANE_CONFLICT", "LANE_GAP", "AGAIN"}:
        return Published(status, 0, "")
    return Published(status, int(reply[1]), text(reply[2]))


def _confirmed(durability: str, answer: Published, reply: Any) -> Published:
    return answer._replace(doubt=doubt(durability, reply))


def _delivered(reply: list[Any]) -> tuple[str, int, int | None, Route | None]:
    if reply[0] == b"STALE_ROUTE":
        return "STALE_ROUTE", 0, None, Route.decode(int(reply[1]), reply[2])
    return "OK", int(reply[2]), number(reply[3]), None
