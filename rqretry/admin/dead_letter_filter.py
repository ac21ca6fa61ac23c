"""The filter that selects dead letters, the same everywhere, and reading the selected ones."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from rqretry.catalog.store import Place
from rqretry.core.dead_letter import DeadLetterRecord, read_dead_letter
from rqretry.core.durations import epoch_ms
from rqretry.core.errors import InvalidArgument, refuse, show
from rqretry.core.failure_record import AttemptError
from rqretry.core.limits import check_message_id, check_topic
from rqretry.protocol.command import Operation
from rqretry.protocol.inspect import DeadPage, dead_letters

_IDS_LISTED = 20


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Selects dead letters; all given conditions must hold.

    Attributes:
        ids: These ids.
        topic: Of this original topic.
        fingerprint: With this fingerprint of the last error.
        error: Whose last error's text contains this.
        since: Dead at or after this time (an aware datetime, or seconds since the epoch).
        before: Dead before this time.
        all: All of them; required to move messages without another condition.
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
            listed = [self.ids] if isinstance(self.ids, str) else list(self.ids)
            object.__setattr__(self, "ids", frozenset(map(check_message_id, listed)))
        if self.topic is not None:
            check_topic(self.topic)
        for name, time in (("since", self.since), ("before", self.before)):
            if time is not None:
                object.__setattr__(self, name, epoch_ms(name, time))

    @property
    def says_something(self) -> bool:
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
        others = (self.ids, self.fingerprint, self.error, self.since, self.before)
        return not any(condition is not None for condition in others)

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
            refuse("filter", name, f"is not one of {', '.join(sorted(known))}")
    if filter_ is not None and given:
        raise InvalidArgument("give a filter or its fields as keywords, not both")
    wanted = DeadLetterFilter(**given) if filter_ is None else filter_
    if not isinstance(wanted, DeadLetterFilter):
        refuse("filter", wanted, "must be a DeadLetterFilter")
    if not default_all and not wanted.says_something:
        raise InvalidArgument(
            f"which dead letters? {show(wanted)} selects nothing in particular: give ids, topic,"
            " fingerprint, error, since or before, or all=True"
        )
    return wanted


def read_dead_letters(
    place: Place, wanted: DeadLetterFilter, *, with_bodies: bool
) -> Operation[list[DeadLetterRecord]]:
    """The selected dead letters of one place, page by page."""
    found: list[DeadLetterRecord] = []
    offset = 0
    while page := (yield from read_page(place, offset, with_bodies=with_bodies)):
        offset += len(page)
        found += filter(wanted.matches, page)
    return found


def read_page(place: Place, offset: int, *, with_bodies: bool) -> Operation[list[DeadLetterRecord]]:
    """One page of the dead letters of one place, oldest first; none at the end."""
    page: DeadPage = yield dead_letters(place.keys, offset=offset, with_bodies=with_bodies)
    bodies = page.data or [b""] * len(page.ids)
    rows = zip(page.ids, page.since_ms, page.deaths, page.failures, bodies, strict=True)
    return [read_dead_letter(place.topic, place.keys.group, *row) for row in rows]
