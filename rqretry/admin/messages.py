"""The messages of a group that are not done, by state: page by page, with why they wait.

A page looks at so many messages at most, whatever it selects (docs/decisions/0099).
"""

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypedDict, Unpack

from rqretry.admin.context import AdminContext
from rqretry.admin.results import ListedMessage, MessagePage
from rqretry.admin.timeline import holders_of
from rqretry.catalog.store import Place
from rqretry.core.catalog_records import GroupRecord
from rqretry.core.dead_letter import born
from rqretry.core.durations import Duration, milliseconds, spell
from rqretry.core.envelope import Envelope, decode
from rqretry.core.errors import CodecError, refuse
from rqretry.core.failure_record import read_attempt_record
from rqretry.core.limits import (
    check_count,
    check_group,
    check_keys,
    check_options,
    check_part,
    check_tag,
    check_topic,
)
from rqretry.core.route import RouteGroup
from rqretry.maintenance.quiet import any_key, holding
from rqretry.protocol import transaction
from rqretry.protocol.command import MAX_BATCH, Operation, query
from rqretry.protocol.operate import Browsed, BrowsedPage, browse

STATES = ("inflight", "waiting_retry", "ready", "blocked", "scheduled", "parked")
"""In the order in which they are listed."""
_TO_COME = ("scheduled", "parked")
_ALSO = {"in_flight": "inflight", "retry": "waiting_retry"}
_LOOKED_AT = 10_000
"""Messages that one page looks at, and so calls of 500 of them."""
_MOST_PARKED = 1000
_UNREADABLE = Envelope(None, None, (), {}, None, None)


_ANY = (None, None, None, None, 0)
_CURSOR = (str, str, int, int, str, str, str)


class _Cursor(NamedTuple):
    """Where a page ended."""

    state: str
    topic: str
    partition: int
    number: int
    name: str
    position: str
    after: str

    def spelled(self) -> str:
        """As text that stands for itself in a URL."""
        return base64.urlsafe_b64encode(json.dumps(self, separators=(",", ":")).encode()).decode()

    @classmethod
    def read(cls, text: str) -> Self:
        """Raises InvalidArgument."""
        try:
            cursor = cls(*json.loads(base64.urlsafe_b64decode(text)))
            float(cursor.position or 0)
            cursor.after.encode()
            if tuple(map(type, cursor)) == _CURSOR:
                return cursor
        except (ValueError, TypeError, AttributeError):
            pass
        return refuse("after", text, "is not what a page named as its next one")


class _Source(NamedTuple):
    """One list or sorted set that holds messages in a state."""

    state: str
    place: Place
    key: str
    group: RouteGroup
    number: int = 0
    name: str = ""
    """The transaction of halves."""
    reason: str = ""

    def cursor(self, position: str, after: str) -> _Cursor:
        """That names what is behind a message here."""
        topic, partition, _ = self.place
        return _Cursor(self.state, topic, partition, self.number, self.name, position, after)

    @property
    def mark(self) -> tuple[str | int, ...]:
        """What those of one state are read in the order of."""
        return self.cursor("", "")[1:5]

    @property
    def structure(self) -> str:
        """As `browse` takes it."""
        is_list = self.key in self.place.keys.lists
        return {"blocked": "order", "parked": "halves"}.get(
            self.state, "list" if is_list else "zset"
        )


class MessageConditions(TypedDict, total=False):
    """What `messages` selects: all that is given must hold.

    Attributes:
        state: "inflight", "waiting_retry", "ready" (also retries that can run now), "blocked"
            (behind another message of its message group), "scheduled" (published with a delay) or
            "parked" (of a transaction that waits for an operator); default any.
        topic: Of this topic; default any.
        fingerprint: Of the last error; default any.
        error: A part of the last error, as `why` shows it; default any.
        tag: With this tag; default any.
        key: A message key; default any.
        older_than: Published so long ago, or longer, as a Duration; default any.
    """

    state: str | None
    topic: str | None
    fingerprint: str | None
    error: str | None
    tag: str | None
    key: str | None
    older_than: Duration | None


class _Wanted:
    """The conditions, checked."""

    def __init__(self, given: MessageConditions) -> None:
        check_options(given, MessageConditions, "messages")
        get: Callable[[str], Any] = given.get
        state, topic, tag, key, older = map(get, ("state", "topic", "tag", "key", "older_than"))
        self.state: str | None = _ALSO.get(state or "", state)
        if self.state not in (None, *STATES):
            refuse("state", state, f"is not one of {', '.join(STATES)}")
        self.topic = None if topic is None else check_topic(topic)
        self._fingerprint = check_part("fingerprint", get("fingerprint"))
        self._error = check_part("error", get("error"))
        self._tag = None if tag is None else check_tag(tag)
        self._key = None if key is None else check_keys(key if isinstance(key, str) else [key])[0]
        self._older_ms = 0 if older is None else milliseconds(older, name="older_than")

    @property
    def narrows(self) -> bool:
        """Whether it selects some of what is in a state."""
        return (self._fingerprint, self._error, self._tag, self._key, self._older_ms) != _ANY

    def matches(self, message: ListedMessage, source: _Source, now_ms: int) -> bool:
        """Whether it is selected, and for the group: nobody has chosen yet for what is to come."""
        published = message.published_ms or now_ms
        if source.state in _TO_COME and not source.group.takes(message.tag or ""):
            return False
        return (
            self._fingerprint in (None, message.fingerprint)
            and (self._error is None or self._error in message.why)
            and self._tag in (None, message.tag)
            and (self._key is None or self._key in message.keys)
            and now_ms - published >= self._older_ms
        )


@dataclass(slots=True)
class _Page:
    """A page as it fills."""

    room: int
    looked: int = 0
    found: list[ListedMessage] = field(default_factory=list)

    def is_full(self) -> bool:
        """Whether it has enough, or has looked at enough."""
        return len(self.found) >= self.room or self.looked >= _LOOKED_AT


def messages(
    context: AdminContext,
    group: str,
    *,
    after: str | None = None,
    count: int = MAX_BATCH,
    **conditions: Unpack[MessageConditions],
) -> Operation[MessagePage]:
    """A page of the messages that a group has not finished with, and why each of them waits.

    By state: in flight, waiting for a retry, ready, blocked, scheduled, parked; then by topic and
    partition, and there by deadline, due time, or in their order. A page has looked at 10,000
    messages at most: so it may have less than `count`, or none, where it selects few. Messages that
    move meanwhile may be on two pages, or on none.

    Args:
        group: The group's name.
        after: `next` of the page before; default the first page.
        count: The most that the page has, 1 to 500; default 500.
        conditions: state=, topic=, fingerprint= and error= (a part of its text) of the last error,
            tag=, key=, older_than= (published so long ago); all that are given must hold. States
            are "inflight", "waiting_retry", "ready" (also retries that can run now), "blocked"
            (behind another message of its message group), "scheduled" (published with a delay) and
            "parked" (of a transaction that waits for an operator); "in_flight" and "retry" mean the
            first two.

    Returns:
        The page; its `next` is None at the end.

    Raises:
        GroupNotFound: There is no such group.
        InvalidArgument: There is no such state, or a value is outside its limits.
    """
    wanted = _Wanted(conditions)
    page = _Page(check_count(count, name="count", maximum=MAX_BATCH))
    states = [state for state in STATES if wanted.state in (None, state)]
    begin = None if after is None else _Cursor.read(after)
    if begin is not None:
        if begin.state not in states:
            refuse("after", after, "is of a page of another state")
        states = states[states.index(begin.state) :]
    record = yield from context.catalog.groups.get(check_group(group))
    places = yield from context.places_now(record, wanted.topic, promote=True)
    for state in states:
        for source in (yield from _sources(context, record, places, state)):
            at = None
            if begin is not None and begin.state == state:
                if source.mark < begin[1:5]:
                    continue
                at = begin if source.mark == begin[1:5] else None
            stopped = yield from _read(source, at, wanted, page)
            if stopped is not None:
                return MessagePage(tuple(page.found), page.looked, stopped.spelled())
    return MessagePage(tuple(page.found), page.looked, None)


def _sources(
    context: AdminContext, record: GroupRecord, places: Sequence[Place], state: str
) -> Operation[list[_Source]]:
    """Where messages in this state are; not what is empty."""
    groups: dict[str, RouteGroup] = {}
    for name in {place.topic for place in places}:
        topic = yield from context.catalog.topics.get(name)
        unknown = RouteGroup(record.name, 0, record.kind)
        groups[name] = next((g for g in topic.members if g.name == record.name), unknown)
    found = []
    if state == "parked":
        found = yield from _parked(context, places, groups)
    else:

        def keys_of(place: Place) -> Sequence[str]:
            return _keys_of(place, state)

        for place in (yield from holding(places, any_key(keys_of), 1)):
            keys = keys_of(place)
            there = yield [query(bool, "EXISTS", key) for key in keys]
            group = groups[place.topic]
            found += [
                _Source(state, place, key, group, number)
                for number, key in enumerate(keys)
                if there[number]
            ]
    return sorted(found, key=lambda source: source.mark)


def _keys_of(place: Place, state: str) -> Sequence[str]:
    keys = place.keys
    return {
        "inflight": (keys.inflight,),
        "waiting_retry": keys.levels,
        "ready": (keys.retry, keys.ready),
        "blocked": (keys.order,),
        "scheduled": (keys.partition.scheduled,),
    }[state]


def _parked(
    context: AdminContext, places: Sequence[Place], groups: Mapping[str, RouteGroup]
) -> Operation[list[_Source]]:
    keys = context.catalog.keys
    ids = yield transaction.page(keys.parked_transactions, 0, _MOST_PARKED)
    records = (yield transaction.read_many(keys, ids)) if ids else []
    here = {(place.topic, place.partition): place for place in places}
    found = []
    for one in records:
        for place in (here[where] for where in one.partitions if where in here):
            key, group = place.keys.partition.halves, groups[place.topic]
            found.append(_Source("parked", place, key, group, 0, one.id, one.reason))
    return found


def _read(
    source: _Source, at: _Cursor | None, wanted: _Wanted, page: _Page
) -> Operation[_Cursor | None]:
    """Add what is selected of one list or sorted set; where it stopped, None at its end."""
    position, after = at[5:] if at else ("", f"{source.name} " if source.name else "")
    more = True
    while more:
        if page.is_full():
            return source.cursor(position, after)
        count = MAX_BATCH if wanted.narrows else page.room - len(page.found)
        read: BrowsedPage = yield browse(
            source.place.keys,
            source.key,
            source.structure,
            position=position,
            after=after,
            count=count,
        )
        leased = [row.id for row in read.messages] if source.state == "inflight" else []
        holders = yield from holders_of(source.place.keys.partition, source.group.name, leased)
        more = read.more
        for row in read.messages:
            if page.is_full():
                return source.cursor(position, after)
            position, after = repr(row.score), row.member
            page.looked += 1
            message = _listed(source, row, holders.get(row.id))
            if row.head != row.id and wanted.matches(message, source, read.now_ms):
                page.found.append(message)
    return None


def _listed(source: _Source, row: Browsed, lease: tuple[str, int] | None) -> ListedMessage:
    try:
        envelope = decode(row.body)
    except CodecError:
        envelope = _UNREADABLE
    error = read_attempt_record(row.failure)
    published_ms = born(row.id, envelope)
    state, why, due_ms = source.state, str(error or ""), None
    since_ms = published_ms if error is None else error.at_ms
    holder = row.head or source.name
    if state == "inflight":
        holder, since_ms = lease or ("", None)
    if state in ("inflight", "waiting_retry", "scheduled"):
        due_ms = math.ceil(row.score)
    if state == "scheduled":
        since_ms, why = published_ms, _why_scheduled(row.score, published_ms)
    if state == "parked":
        why = f"its transaction is parked: {source.reason or 'no checker answered'}"
    return ListedMessage(
        row.id, source.place.topic, source.place.partition, state, row.attempt, why,
        error.fingerprint if error else "", since_ms, due_ms, holder, envelope.tag,
        envelope.keys, envelope.message_group, published_ms,
    )  # fmt: skip


def _why_scheduled(score: float, published_ms: int | None) -> str:
    """What a fraction of a score says is in lua/include/logical.lua."""
    by_date = not score.is_integer()
    how = "published for a date" if by_date else "published with a delay"
    if published_ms is None:
        return how
    after = f"{spell(max(0, math.ceil(score) - published_ms) / 1000)} after it was published"
    return f"{how}, {after}" + (", by the publisher's clock" if by_date else "")
