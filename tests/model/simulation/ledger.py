"""What is promised of one partition, for any order of calls: the model of tests/model, with routes
that change, settings that change, and a backlog.

Lists are sets here: which of the ready messages a lease takes first is promised nowhere, but for
ordered groups, whose lines the model keeps in order.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rqretry.core.route import Route
from tests.model.model import (
    BLOCKED,
    DEAD,
    DONE,
    INFLIGHT,
    QUEUE,
    READY,
    RETRY,
    WAITING,
    Group,
    Lease,
)  # fmt: skip
from tests.model.partition import Partition
from tests.model.simulation.keeping import Keep

UNLIMITED = 1 << 30


@dataclass
class Ledger(Group):
    """One group's view of a partition, by the settings it has there."""

    name: str = ""
    letter: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    most_attempts: int = 0
    """The highest limit there ever was: a message that waits is still delivered once."""
    redriven: set[str] = field(default_factory=set)
    """Ids that were dead, and may come after what came later."""
    purged: set[str] = field(default_factory=set)
    """Ids that an operator removed."""
    published: dict[str, int] = field(default_factory=dict)
    """By id, its number in line as it was published; a redrive gives it another one."""
    counted: Counter[str] = field(default_factory=Counter)
    """By id, the deliveries that count, since it came or came back from the dead letters."""
    released: Counter[str] = field(default_factory=Counter)
    """By id, those since then that do not count."""
    floor: int = 1
    """The number of leases without an entry, and the least of those that have one."""
    least_limit: int = UNLIMITED
    """The lowest limit there ever was."""

    def push(self, id_: str, name: str, number: int) -> None:
        """A new message, maybe under the id of an earlier one."""
        del self.counted[id_], self.released[id_]
        self.published[id_] = number
        super().push(id_, name, number)

    def come_again(self, id_: str, lease_no: int) -> None:
        """A message that was consumed is new, in line where it was when it was published."""
        self.leases[id_] = Lease(lease_no=lease_no)
        del self.counted[id_], self.released[id_]
        self.enter(id_, self.published.get(id_, 0))

    def configure(self, version: int, fields: Mapping[str, str]) -> bool:
        """Newer wins; whether it was."""
        if version <= int(self.settings.get("version", 0)):
            return False
        self.settings.update(fields, version=str(version))
        self.paused = self.settings.get("paused") == "1"
        self.kind = self.settings["kind"]
        most = self.settings.get("max_inflight", "")
        self.most = int(most) if most else None
        self.most_attempts = max(self.most_attempts, self.limit)
        self.least_limit = min(self.least_limit, self.limit)
        return True

    @property
    def limit(self) -> int:
        """How many deliveries there are at most."""
        retries = int(self.settings.get("max_retries", 16))
        return UNLIMITED if retries < 0 else retries + 1

    @property
    def delays(self) -> list[int]:
        """The waits of the policy."""
        return [int(word) for word in self.settings["delays"].split()]

    @property
    def levels(self) -> list[int]:
        """The times of the levels."""
        return [int(word) for word in self.settings["levels"].split()]

    def listed(self) -> set[str]:
        """Who can be leased."""
        return {i for i, one in self.leases.items() if one.place in (READY, RETRY)}

    def unfinished(self) -> set[str]:
        """Who is neither done nor dead."""
        return {i for i, one in self.leases.items() if one.place not in (DONE, DEAD)}

    def moved(self, id_: str, place: str, until: int = 0) -> None:
        """It is somewhere else, and in no list but the one that is named."""
        for ids in self.lists.values():
            if id_ in ids:
                ids.remove(id_)
        self.leases[id_].place, self.leases[id_].until = place, until
        if place in self.lists:
            self.lists[place].append(id_)

    def leased(self, id_: str, deadline: int) -> Lease:
        """It goes out."""
        self.moved(id_, INFLIGHT, deadline)
        return self.leases[id_]

    def fail(self, id_: str, now: int, *, level: int = 0, delay_ms: int | None = None) -> None:
        """An attempt ended badly: it waits, or is dead."""
        one = self.leases[id_]
        if level == -1 or one.attempt >= self.limit:
            one.next(DEAD, now)
            self.leave(id_)
            return
        if self.ordered:
            level, delay_ms = 0, None
        if delay_ms is None and level > 0:
            delay_ms = self.levels[min(level, len(self.levels)) - 1]
        elif delay_ms is None:
            delay_ms = self.delays[min(one.attempt, len(self.delays)) - 1]
        one.next(WAITING, now + delay_ms, attempts=1)

    def waiting_for(self, name: str) -> set[str]:
        """The unfinished messages of a message group, without those that lost their turn."""
        mine = {id_ for id_ in self.unfinished() if self.names.get(id_) == name}
        return mine - self.redriven

    def overdue(self, now: int) -> int:
        """How many deadlines have passed."""
        return sum(until <= now for until in self.at(INFLIGHT).values())

    def wake(self, id_: str, number: int) -> None:
        """A wait is over: a head goes on, who was sent back goes to the end of its line."""
        name = self.names.get(id_, "")
        if self.ordered and name and self.heads.get(name) != id_:
            self.enter(id_, number)
        if self.leases[id_].place != BLOCKED:
            self.moved(id_, RETRY)


class Place(Partition):
    """One partition as its scripts have made it."""

    def __init__(self, topic: str) -> None:
        super().__init__({})
        self.topic = topic
        self.route: Route = Route()
        self.backlog: list[str] = []
        self.lanes: dict[str, tuple[int, str, str]] = {}
        self.ever: dict[str, int] = {}
        """By id, how often it was stored."""
        self.gone: set[str] = set()
        """Recalled, rolled back or purged."""
        self.keep = Keep()
        self.floor = 1
        """The lowest number for a new lease, as far as one was given out."""
        self.observed = False
        """A script was cut here: where its messages are is not known any more."""

    def ledger(self, name: str) -> Ledger:
        """A group here."""
        found = self.groups[name]
        assert isinstance(found, Ledger)
        return found

    def install(self, route: Route) -> bool:
        """Newer wins. Whether it was."""
        if route.version <= self.route.version:
            return False
        self.route = route
        for group in route.groups:
            takes = None if group.tags == "*" else frozenset(group.tags.split(" || "))
            known = self.groups.get(group.name)
            if known is None:
                known = self.groups[group.name] = Ledger(group.kind, name=group.name)
            assert isinstance(known, Ledger)
            known.takes, known.ordered, known.letter = takes, group.ordered, chr(group.byte)
        return True

    def settings_of(self, name: str) -> Ledger:
        """A group that is told its settings, maybe before it is in the route."""
        return self.groups.setdefault(name, Ledger("push", name=name))  # type: ignore[return-value]

    def routed(self) -> list[Ledger]:
        """The groups of the route."""
        return [self.ledger(group.name) for group in self.route.groups]

    def push(self, id_: str, tag: str, now: int, name: str, number: int) -> None:
        """Ready for the groups of the route; without any it waits for the first."""
        if not self.route.groups:
            self.backlog.append(id_)
            self.tags[id_], self.numbers[id_] = tag, number
            if name:
                self.names[id_] = name
            return
        everyone, self.groups = self.groups, {g.name: g for g in self.routed()}
        super().push(id_, tag, now, name, number)
        self.groups = everyone

    def take_backlog(self, name: str, count: int) -> None:
        """The first group gets what was there before it."""
        taken, self.backlog = self.backlog[:count], self.backlog[count:]
        for id_ in taken:
            self.tags.pop(id_, None)
            number = self.numbers.pop(id_, 0)
            if self.ledger(name).ordered and id_ not in self.names:
                self.names[id_], number = QUEUE, next(self.order)
            self.ledger(name).push(id_, self.names.get(id_, ""), number)

    def owing(self, id_: str) -> set[str]:
        """The groups that are not done with a message."""
        if id_ in self.halves or id_ in self.scheduled or id_ in self.backlog:
            return {"-"}
        return super().owing(id_)

    def rollback(self, transaction: str, now: int) -> int:
        """Halves to gone."""
        self.gone |= set(self.halves_of(transaction))
        return super().rollback(transaction, now)

    def succeed(self, group: str, ids: Sequence[str], now: int) -> None:
        """A group is done with these as it should be; a replay may bring them back."""
        last = [i for i in ids if self.owing(i) == {group}]
        details = [(i, self.stored[i], self.names.get(i, "")) for i in last]
        self.keep.consume(group, ids, now, details)
        for id_ in ids:
            self.finish(group, id_, now)

    def purge(self, group: str, id_: str, now: int) -> None:
        """An operator removed it from a group; after the last one its id is free at once."""
        ledger = self.ledger(group)
        if ledger.leases[id_].place == BLOCKED:
            ledger.line[self.names[id_]].remove(id_)
        ledger.moved(id_, DONE)
        ledger.purged.add(id_)
        self.finish(group, id_, now)
        self.gone.add(id_)
        if id_ not in self.stored:
            self.given.pop(id_, None)

    def replay(
        self, group: str, since: int, upto: int, now: int, limit: int, *, kept: bool
    ) -> tuple[int, int]:
        """What a group, or any, consumed in this time is its own now: how many of how many."""
        ledger, keep, given = self.ledger(group), self.keep, []
        page = keep.since(since)[:limit] if kept else keep.page(group, since, upto, limit)
        for id_ in page:
            dropped = self.keep.kept.pop(id_, None)
            if id_ in self.stored:
                given += [id_] if id_ in self.shared and group not in self.owing(id_) else []
            elif dropped is not None:
                self.stored[id_] = dropped.content
                if dropped.name:
                    self.names[id_] = dropped.name
                given.append(id_)
        if given:
            self.floor = max(now, self.floor, ledger.floor) + 1
        for id_ in sorted(given, key=lambda i: ledger.published.get(i, 0)):
            self.shared.add(id_)
            ledger.come_again(id_, self.floor)
        return len(page), len(given)

    def catch_up(self, group: str, owed: set[str], shared: set[str], now: int) -> tuple[int, int]:
        """What is stored is a group's own, too: how many are, and how many were one group's."""
        ledger = self.ledger(group)
        given = [i for i in owed if i not in ledger.leases or ledger.leases[i].place == DONE]
        marked = {i for i in shared if i not in self.shared or not self.owing(i)}
        self.shared |= shared
        for id_ in given:
            ledger.come_again(id_, now)
        return len(given), len(marked)

    def missed(self, group: str, since: int) -> set[str]:
        """What a group should have that has caught up with all since then, and has not."""
        others = {*self.scheduled, *self.halves, *self.backlog}
        mine = {i for i, one in self.ledger(group).leases.items() if one.place != DONE}
        return {*self.stored, *self.keep.since(since)} - others - mine - self.ledger(group).purged

    def keeps_time(self) -> bool:
        """Whether something here falls due, so that somebody looks at the time."""
        due = (INFLIGHT, WAITING)
        held = (one for ledger in self.routed() for one in ledger.leases.values())
        return bool(self.scheduled) or any(one.place in due for one in held)

    def unfinished(self) -> set[str]:
        """What somebody still has to see to."""
        waiting = {*self.scheduled, *self.backlog, *self.halves}
        return waiting.union(*(ledger.unfinished() for ledger in self.routed()))


def flat(request_parts: Iterable[Any]) -> dict[str, str]:
    """Names and values in turn, as a dict."""
    listed = [
        word.decode("latin-1") if isinstance(word, bytes) else str(word) for word in request_parts
    ]
    return dict(zip(listed[::2], listed[1::2], strict=True))
