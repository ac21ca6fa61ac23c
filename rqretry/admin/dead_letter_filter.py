"""The filter that selects dead letters, the same everywhere, and reading the selected ones."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from heapq import heappop, heappush
from typing import Any

from rqretry.admin.views import Cluster
from rqretry.catalog.store import Place
from rqretry.core.dead_letter import DeadLetterRecord, read_dead_letter
from rqretry.core.durations import epoch_ms
from rqretry.core.errors import InvalidArgument, refuse, show
from rqretry.core.failure_record import AttemptError
from rqretry.core.limits import check_flag, check_message_id, check_part, check_topic
from rqretry.core.public_call import hinted_fields
from rqretry.core.suggestion import did_you_mean
from rqretry.maintenance.process_exits import with_exits
from rqretry.protocol.command import MAX_BATCH, Command, Operation
from rqretry.protocol.inspect import DeadPage, count_dead, dead_clusters, dead_letters
from rqretry.protocol.keys import GroupKeys, NamespaceKeys

Found = list[tuple[DeadLetterRecord, GroupKeys]]

_IDS_LISTED = 20
_IN_MEMORY, _FEWEST = 20_000, 20
"""Dead letters that are read ahead, of all places and at least of one."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A message that is not dead, as a filter matches it."""

    id: str
    topic: str
    failure: AttemptError | None
    dead_since_ms: int = 0

    @property
    def fingerprint(self) -> str:
        """The fingerprint of its last failure; "" for none."""
        return self.failure.fingerprint if self.failure else ""

    @property
    def error(self) -> str:
        """Its last failure in one line; "" for none."""
        return str(self.failure or "")


Matchable = DeadLetterRecord | Candidate
"""What a filter can match."""


@hinted_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Selects dead letters; all given conditions must hold.

    Attributes:
        ids: These ids; default any.
        topic: Of this original topic; default any.
        fingerprint: With this fingerprint of the last error; default any.
        error: Whose last error's text contains this; default any.
        since: Dead at or after this time (an aware datetime, or seconds since the epoch); default
            any.
        before: Dead before this time, written as `since`; default any.
        all: All of them; required to move messages without another condition.

    Raises:
        InvalidArgument: A condition means nothing.
    """

    ids: Sequence[str] | None = None
    topic: str | None = None
    fingerprint: str | None = None
    error: str | None = None
    since: datetime | float | None = None
    before: datetime | float | None = None
    all: bool = False

    def __post_init__(self) -> None:
        """Check every condition. Raises InvalidArgument."""
        if self.ids is not None:
            listed = [self.ids] if isinstance(self.ids, str) else self.ids
            if not isinstance(listed, Iterable):
                refuse("ids", listed, "must be a list of message ids")
            object.__setattr__(self, "ids", frozenset(map(check_message_id, listed)))
        if self.topic is not None:
            check_topic(self.topic)
        check_part("fingerprint", self.fingerprint)
        check_part("error", self.error)
        check_flag("all", self.all)
        for name, time in (("since", self.since), ("before", self.before)):
            if time is not None:
                object.__setattr__(self, name, epoch_ms(name, time))

    @property
    def narrows(self) -> bool:
        """Whether any condition is given."""
        return any(value not in (None, False) for _, value in self._values())

    def given(self) -> dict[str, Any]:
        """The conditions that are given, for the audit record."""
        given = {name: value for name, value in self._values() if value not in (None, False)}
        if self.ids is not None:
            listed = sorted(self.ids)
            given["ids"] = listed if len(listed) <= _IDS_LISTED else f"{len(listed)} ids"
        return given

    @property
    def takes_all(self) -> bool:
        """Whether there is no condition but the topic."""
        return self.fingerprint is None and self.takes_all_of_kind

    @property
    def takes_all_of_kind(self) -> bool:
        """Whether there is no condition but the topic and the fingerprint."""
        others = (self.ids, self.error, self.since, self.before)
        return type(self) is DeadLetterFilter and all(condition is None for condition in others)

    def _values(self) -> Iterator[tuple[str, Any]]:
        return ((field.name, getattr(self, field.name)) for field in fields(self))

    def matches(self, dead_letter: Matchable) -> bool:
        """Whether this message is selected."""
        return (
            (self.ids is None or dead_letter.id in self.ids)
            and self.topic in (None, dead_letter.topic)
            and self.fingerprint in (None, dead_letter.fingerprint)
            and (self.error is None or self.error in dead_letter.error)
            and (self.since is None or dead_letter.dead_since_ms >= self.since)  # type: ignore[operator]
            and (self.before is None or dead_letter.dead_since_ms < self.before)  # type: ignore[operator]
        )


def chosen(
    filter_: DeadLetterFilter | None, given: Mapping[str, Any], *, default_all: bool
) -> DeadLetterFilter:
    """The filter of a call: the object, or its fields as keywords."""
    known = {field.name for field in fields(DeadLetterFilter)}
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known)
            refuse("filter", name, f"is not one of {', '.join(sorted(known))}{hint}")
    if filter_ is not None and given:
        raise InvalidArgument("give a filter or its fields as keywords, not both")
    wanted = DeadLetterFilter(**given) if filter_ is None else filter_
    if not isinstance(wanted, DeadLetterFilter):
        refuse("filter", wanted, "must be a DeadLetterFilter")
    if not default_all and not wanted.narrows:
        raise InvalidArgument(
            f"which dead letters? {show(wanted)} selects nothing in particular: give ids, topic,"
            " fingerprint, error, since or before, or all=True"
        )
    return wanted


class DeadLetterPages:
    """The selected dead letters of one place, a page at a time, oldest first.

    What dies after the first page is not among them, so what is sent back meanwhile, and dies
    again, does not come twice. Ids and a fingerprint are looked up, and nothing else is read.
    """

    def __init__(
        self, place: Place, wanted: DeadLetterFilter, *, with_bodies: bool, count: int = MAX_BATCH
    ) -> None:
        self.place = place
        self._wanted = wanted
        self._with_bodies, self._count = with_bodies, count
        self._rest = None if wanted.ids is None else sorted(wanted.ids)
        since, before = wanted.since, wanted.before
        self._after = (0 if since is None else int(since), "")  # type: ignore[arg-type]
        self._upto_ms = None if before is None else int(before) - 1  # type: ignore[arg-type]

    def next(self) -> Operation[list[DeadLetterRecord] | None]:
        """The selected ones of the next page, which may be none; None at the end."""
        if self.ended:
            return None
        return self.read((yield self.ask()))

    @property
    def ended(self) -> bool:
        """Whether all ids that were named have been looked up."""
        return self._rest is not None and not self._rest

    def ask(self) -> Command[DeadPage]:
        """What asks for the next page."""
        return dead_letters(
            self.place.keys,
            count=self._count,
            with_bodies=self._with_bodies,
            after=self._after,
            upto_ms=self._upto_ms,
            fingerprint=self._wanted.fingerprint or "",
            ids=() if self._rest is None else self._rest[: self._count],
        )

    def read(self, page: DeadPage) -> list[DeadLetterRecord] | None:
        """The selected ones of it; None at the end."""
        if not page.looked:
            return None
        if self._rest is not None:
            self._rest = self._rest[page.looked :]
        else:
            self._after = page.since_ms[-1], page.ids[-1]
            self._upto_ms = page.now_ms if self._upto_ms is None else self._upto_ms
        bodies = page.data or [b""] * len(page.ids)
        rows = zip(page.ids, page.since_ms, page.deaths, page.failures, bodies, strict=True)
        read = (read_dead_letter(self.place.topic, self.place.keys.group, *row) for row in rows)
        return list(filter(self._wanted.matches, read))


class DeadLettersInOrder:
    """The selected dead letters of many places, oldest first; a page of each is in memory."""

    def __init__(
        self, places: Sequence[Place], wanted: DeadLetterFilter, *, with_bodies: bool
    ) -> None:
        count = max(_FEWEST, min(MAX_BATCH, _IN_MEMORY // max(1, len(places))))
        self._sources = [
            DeadLetterPages(place, wanted, with_bodies=with_bodies, count=count) for place in places
        ]
        self._pages: list[Iterator[DeadLetterRecord]] = [iter(()) for _ in places]
        self._heads: list[tuple[int, str, int, DeadLetterRecord]] | None = None

    def take(self, count: int) -> Operation[Found]:
        """The next ones, so many at most, each with the keys of its group; none at the end."""
        if self._heads is None:
            self._heads = []
            yield from self._read_first()
            for at in range(len(self._sources)):
                yield from self._read(self._heads, at)
        found: Found = []
        while self._heads and len(found) < count:
            _, _, at, dead_letter = heappop(self._heads)
            found.append((dead_letter, self._sources[at].place.keys))
            yield from self._read(self._heads, at)
        return found

    def _read_first(self) -> Operation[None]:
        """The first page of each place, all in one step."""
        asked = [] if any(source.ended for source in self._sources) else self._sources
        answers = (yield [source.ask() for source in asked]) if asked else []
        for at, page in enumerate(answers):
            self._pages[at] = iter(asked[at].read(page) or ())

    def _read(
        self, heads: list[tuple[int, str, int, DeadLetterRecord]], at: int
    ) -> Operation[None]:
        while (dead_letter := next(self._pages[at], None)) is None:
            page = yield from self._sources[at].next()
            if page is None:
                return
            self._pages[at] = iter(page)
        heappush(heads, (dead_letter.dead_since_ms, dead_letter.id, at, dead_letter))


def count_dead_letters(places: Sequence[Place], wanted: DeadLetterFilter) -> Operation[int]:
    """How many dead letters are selected."""
    count = 0
    for place in places:
        if wanted.takes_all_of_kind:
            count += yield count_dead(place.keys, wanted.fingerprint)
            continue
        pages = DeadLetterPages(place, wanted, with_bodies=False)
        while (page := (yield from pages.next())) is not None:
            count += len(page)
    return count


def dead_letter_clusters(places: Sequence[Place]) -> Operation[list[Cluster]]:
    """The dead letters of these places by fingerprint, the most frequent first; all are counted."""
    found: dict[str, Cluster] = {}
    for topic, _, keys in places:
        after: str | None = None
        while page := (yield dead_clusters(keys, after=after)):
            newest = [
                read_dead_letter(topic, keys.group, id_, last_ms, death, record, b"")
                for _, _, _, last_ms, id_, death, record in page
            ]
            samples = yield from with_exits(NamespaceKeys(keys.partition.namespace), newest)
            for (fingerprint, count, first_ms, last_ms, *_), sample in zip(
                page, samples, strict=True
            ):
                row = Cluster(fingerprint, sample.error, count, first_ms, last_ms, sample.id)
                known = found.get(fingerprint)
                found[fingerprint] = row if known is None else known.with_more(row)
            after = page[-1].fingerprint
    return sorted(found.values(), key=lambda row: (-row.count, row.fingerprint))
