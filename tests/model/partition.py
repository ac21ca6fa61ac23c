"""What the verbs promise of one partition: what it stores, shows and owes to its groups."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from tests.model.model import DONE, QUEUE, Group

ID_KEPT_MS = 3_600_000
CLOSED_MS = 600_000
CAST_KEPT_MS = 600_000
CAST_OVERHEAD, CAST_SEGMENTS = 64, 64
COMMIT_SPREAD_MS, COMMIT_STEPS = 8, 1024


class Half(NamedTuple):
    """A message of a transaction that is not decided, or whose decision is not carried out."""

    transaction: str
    number: int
    tag: str
    name: str

    def member(self, id_: str) -> str:
        """As the partition lists it."""
        return f"{self.transaction} {self.number:08} {id_} {self.tag} {self.name}"


class Entry(NamedTuple):
    """The messages of one call, as broadcast groups are shown them."""

    at: int
    first: int
    ids: tuple[str, ...]
    size: int


@dataclass
class Cast:
    """What a partition shows to broadcast groups."""

    limit: int | None = None
    """In bytes; so small that every entry is counted on its own."""
    shown: list[str] = field(default_factory=list)
    """All messages there ever were, in order."""
    entries: list[Entry] = field(default_factory=list)

    def show(self, now: int, bodies: dict[str, str]) -> None:
        """One entry more; what is too old, or too much, goes."""
        size = CAST_OVERHEAD + sum(len(id_) + len(body) for id_, body in bodies.items())
        self.entries.append(Entry(now, len(self.shown), tuple(bodies), size))
        self.shown += bodies
        self.entries = [entry for entry in self.entries if entry.at >= now - CAST_KEPT_MS]
        if self.limit is not None:
            room = self.limit - self.limit / CAST_SEGMENTS
            while len(self.entries) > 1 and sum(entry.size for entry in self.entries) > room:
                del self.entries[0]


@dataclass
class Partition:
    """One partition: what it stores, and its groups."""

    groups: dict[str, Group]
    cast: Cast | None = None
    scheduled: dict[str, float] = field(default_factory=dict)
    given: dict[str, tuple[str, int | None]] = field(default_factory=dict)
    """Ids of the caller: content, and until when they are remembered once their message is gone."""
    stored: dict[str, str] = field(default_factory=dict)
    """By id, the content."""
    tags: dict[str, str] = field(default_factory=dict)
    """Of what is scheduled."""
    names: dict[str, str] = field(default_factory=dict)
    """The message group of each stored message that has one, but for halves."""
    keyed: dict[str, str] = field(default_factory=dict)
    """The message keys of each stored message that has some."""
    halves: dict[str, Half] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)
    """Transactions that are decided, and until when that is remembered."""
    numbers: dict[str, int] = field(default_factory=dict)
    """The places in line of committed messages that are not delivered."""
    order: Iterator[int] = field(default_factory=count)
    shared: set[str] = field(default_factory=set)
    """What went to more than one group."""

    def known(self, id_: str, now: int) -> str | None:
        """The content of a message with an id that the caller gave."""
        content, kept_until = self.given.get(id_, (None, 0))
        return content if kept_until is None or now < kept_until else None

    # -- publishing ----------------------------------------------------------------------------

    def publish(
        self,
        id_: str,
        content: str,
        now: int,
        *,
        given: bool,
        delay_ms: float,
        tag: str,
        name: str,
        keys: tuple[str, ...] = (),
    ) -> str:
        """A for accepted, D for a duplicate, C for another content under the id, H for a half."""
        if given and id_ in self.halves:
            return "H"
        known = self.known(id_, now) if given else None
        if known is not None:
            return "D" if known == content else "C"
        if given:
            self.given[id_] = (content, None)
        self.stored[id_] = content
        if keys:
            self.keyed[id_] = " ".join(keys)
        if delay_ms:
            self.scheduled[id_], self.tags[id_] = now + delay_ms, tag
        else:
            self.push(id_, tag, now, name, next(self.order))
        return "A"

    def push(self, id_: str, tag: str, now: int, name: str, number: int) -> None:
        """Ready for every group that takes the tag; with none of these it is gone."""
        taking = [g for g in self.groups.values() if g.takes is None or tag in g.takes]
        if taking and any(group.ordered for group in self.groups.values()):
            name = name or QUEUE
        self.shared.discard(id_)
        for group in self.groups.values():
            group.leases.pop(id_, None)  # of a message long gone that had the same id
        for group in taking:
            group.push(id_, name, number)
        if name and taking:
            self.names[id_] = name
        if len(taking) > 1:
            self.shared.add(id_)
        if not taking:
            self.forget(id_, now)

    def deliver(self, now: int) -> None:
        """Scheduled and due."""
        due = [
            id_ for _, id_ in sorted((at, id_) for id_, at in self.scheduled.items() if at <= now)
        ]
        if due and self.cast:
            self.cast.show(now, {id_: self.stored[id_] for id_ in due})
        for id_ in due:
            del self.scheduled[id_]
            name, number = self.names.get(id_, ""), self.numbers.pop(id_, None)
            number = next(self.order) if number is None else number
            self.push(id_, self.tags.pop(id_), now, name, number)

    def recall(self, id_: str, now: int) -> str:
        """Scheduled and not due to gone."""
        if id_ not in self.stored:
            return "LATE" if id_ in self.given else "GONE"
        if self.scheduled.get(id_, 0) <= now:
            return "LATE"
        del self.scheduled[id_], self.tags[id_]
        self.forget(id_, now)
        self.given.pop(id_, None)
        return "OK"

    # -- transactions --------------------------------------------------------------------------

    def prepare(
        self,
        id_: str,
        content: str,
        now: int,
        half: Half,
        *,
        given: bool,
        keys: tuple[str, ...] = (),
    ) -> str:
        """A for accepted (or this very half), and as publish."""
        there = self.halves.get(id_)
        if there == half:
            return "A"
        if there and there.transaction != half.transaction:
            return "H"
        known = self.known(id_, now) if given else None
        if known is not None:
            return "D" if known == content else "C"
        if given:
            self.given[id_] = (content, None)
        self.stored[id_], self.halves[id_] = content, half
        if keys:
            self.keyed[id_] = " ".join(keys)
        return "A"

    def halves_of(self, transaction: str) -> list[str]:
        """Ids, in the order in which they were published."""
        found = [(h.number, id_) for id_, h in self.halves.items() if h.transaction == transaction]
        return [id_ for _, id_ in sorted(found)]

    def commit(self, transaction: str, decided: int, now: int) -> int:
        """Halves to scheduled and due."""
        ids = self.halves_of(transaction)
        for id_ in ids:
            half = self.halves.pop(id_)
            self.tags[id_] = half.tag
            self.scheduled[id_] = min(decided, now) - COMMIT_SPREAD_MS + half.number / COMMIT_STEPS
            if half.name:
                self.names[id_], self.numbers[id_] = half.name, next(self.order)
        self.close(transaction, now)
        return len(ids)

    def rollback(self, transaction: str, now: int) -> int:
        """Halves to gone; their ids are free."""
        ids = self.halves_of(transaction)
        for id_ in ids:
            del self.halves[id_], self.stored[id_]
            self.given.pop(id_, None)
            self.keyed.pop(id_, None)
        self.close(transaction, now)
        return len(ids)

    def close(self, transaction: str, now: int) -> None:
        """Whatever of the transaction still comes is refused."""
        self.closed[transaction] = now + CLOSED_MS
        self.closed = {tx: until for tx, until in self.closed.items() if until > now}

    # -- ending --------------------------------------------------------------------------------

    def finish(self, group: str, id_: str, now: int) -> None:
        """A group is done with a message; the last one deletes it."""
        self.groups[group].leave(id_)
        self.groups[group].leases[id_].place = DONE
        if not self.owing(id_):
            self.forget(id_, now)

    def forget(self, id_: str, now: int) -> None:
        """No group owes the message."""
        del self.stored[id_]
        self.names.pop(id_, None)
        self.keyed.pop(id_, None)
        if id_ in self.given:
            self.given[id_] = (self.given[id_][0], now + ID_KEPT_MS)

    def owing(self, id_: str) -> set[str]:
        """The groups that are not done with a message."""
        if id_ in self.halves or id_ in self.scheduled:
            return set()
        return {
            n for n, g in self.groups.items() if id_ in g.leases and g.leases[id_].place != DONE
        }
