"""What the verbs promise, in plain Python: one group's view of a partition.

No Redis, no bytes, no scripts: it says where each message is and what each verb answers. The test
beside it compares this with what the server holds, after every step.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_ATTEMPTS = 2
DELAYS_MS = (2_000, 5_000)
ORDERED_MS = 1_500
LEVELS_MS = (1_000, 5_000, 60_000)
ID_KEPT_MS = 3_600_000
MAX_POSTPONES = 1
QUEUE = " "
"""The message group of messages without one, where a group is ordered."""

READY, RETRY, INFLIGHT, WAITING, DEAD, DONE, BLOCKED = (
    "ready",
    "retry",
    "inflight",
    "waiting",
    "dead",
    "done",
    "blocked",
)


@dataclass
class Lease:
    """One message in one group: where it is, and the numbers of its current or next lease."""

    place: str = READY
    until: int = 0
    """Its deadline in flight, its due time while it waits, when it died."""
    lease_no: int = 1
    attempt: int = 1
    expiries: int = 0
    postpones: int = 0

    def next(self, place: str, until: int = 0, *, attempts: int = 0) -> None:
        """This lease is over, and the message is somewhere else."""
        self.place, self.until = place, until
        self.lease_no += 1
        self.attempt += attempts


@dataclass
class Group:
    """One group's view of the partition."""

    kind: str
    takes: frozenset[str] | None = None
    """The tags it takes; None for all messages."""
    ordered: bool = False
    names: dict[str, str] = field(default_factory=dict)
    """The message group of each message that has one."""
    line: dict[str, list[str]] = field(default_factory=dict)
    """By message group: the unfinished messages of an ordered group, in order."""
    heads: dict[str, str] = field(default_factory=dict)
    """By message group: who is out."""
    numbers: dict[str, int] = field(default_factory=dict)
    """The place of each message in its line."""
    paused: bool = False
    most: int | None = None
    """How many may be in flight."""
    leases: dict[str, Lease] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=lambda: {READY: [], RETRY: []})

    def at(self, place: str) -> dict[str, int]:
        """Who is in a place, and until when."""
        return {id_: one.until for id_, one in self.leases.items() if one.place == place}

    def push(self, id_: str, name: str, number: int) -> None:
        """A new message."""
        self.leases[id_] = Lease()
        self.names.pop(id_, None)
        if name:
            self.names[id_] = name
        self.enter(id_, number)

    def enter(self, id_: str, number: int) -> None:
        """Ready, unless another one of its message group is out."""
        name = self.names.get(id_)
        if self.ordered and name:
            self.numbers[id_] = number
            line = self.line.setdefault(name, [])
            line.append(id_)
            line.sort(key=self.numbers.__getitem__)
            if self.heads.setdefault(name, id_) != id_:
                self.leases[id_].place = BLOCKED
                return
        self.leases[id_].place = READY
        self.lists[READY].append(id_)

    def leave(self, id_: str) -> None:
        """It is out no more: the next one of its message group goes."""
        name = self.names.get(id_, "")
        if id_ not in self.line.get(name, ()):
            return
        self.line[name].remove(id_)
        if self.line[name]:
            assert self.heads[name] == id_, "only who is out leaves"
            follower = self.heads[name] = self.line[name][0]
            self.leases[follower].place = READY
            self.lists[READY].append(follower)
        else:
            del self.heads[name], self.line[name]

    @property
    def limit(self) -> int:
        """How many deliveries there are at most."""
        return MAX_ATTEMPTS

    def verdict(self, id_: str, lease_no: int) -> str:
        """Does this receipt still own its lease?"""
        one = self.leases.get(id_)
        if one is None or one.place in (DONE, DEAD):
            return "GONE"
        return "OK" if one.place == INFLIGHT and one.lease_no == lease_no else "STALE"

    def lease(self, want: int, deadline: int, prefer: str) -> list[str]:
        """Take from the preferred lane, and fill up from the other; no more than there may be."""
        if self.paused:
            return []
        if self.most is not None:
            want = min(want, max(0, self.most - len(self.at(INFLIGHT))))
        taken: list[str] = []
        for lane in (prefer, RETRY if prefer == READY else READY):
            part = self.lists[lane][: want - len(taken)]
            del self.lists[lane][: len(part)]
            taken += part
        for id_ in taken:
            self.leases[id_].place, self.leases[id_].until = INFLIGHT, deadline
        return taken

    def give_back(self, ids: list[str]) -> None:
        """To the heads of their lanes, in their order."""
        for id_ in reversed(ids):
            one = self.leases[id_]
            one.next(RETRY if one.attempt > 1 else READY)
            self.lists[one.place].insert(0, id_)

    def fail(self, id_: str, now: int, *, level: int = 0, delay_ms: int | None = None) -> None:
        """An attempt ended badly: it waits, or is dead."""
        one = self.leases[id_]
        if level == -1 or one.attempt >= self.limit:
            one.next(DEAD, now)
            self.leave(id_)
            return
        if self.ordered:
            delay_ms = ORDERED_MS
        if delay_ms is None and level > 0:
            delay_ms = LEVELS_MS[min(level, len(LEVELS_MS)) - 1]
        elif delay_ms is None:
            delay_ms = DELAYS_MS[min(one.attempt, len(DELAYS_MS)) - 1]
        one.next(WAITING, now + delay_ms, attempts=1)

    def end_by_hand(self, id_: str, now: int) -> None:
        """An operator ended it: no lease, and no attempt, was begun."""
        one = self.leases[id_]
        for listed in self.lists.values():
            if id_ in listed:
                listed.remove(id_)
        if one.place == BLOCKED:
            self.line[self.names[id_]].remove(id_)
        else:
            self.leave(id_)
        one.place, one.until, one.attempt = DEAD, now, max(one.attempt - 1, 1)

    def expire(self, now: int) -> None:
        """Deadlines have passed."""
        overdue = sorted((until, id_) for id_, until in self.at(INFLIGHT).items() if until <= now)
        for _, id_ in overdue:
            self.end_delivery(id_, now)
            self.leases[id_].expiries += 1

    def end_delivery(self, id_: str, now: int) -> None:
        """A delivery ended without a result."""
        one = self.leases[id_]
        if (self.kind == "simple" or one.expiries == 0) and one.attempt < self.limit:
            one.next(RETRY, attempts=1)
            self.lists[RETRY].append(id_)
        else:
            self.fail(id_, now)

    def promote(self, now: int) -> set[str]:
        """Waits are over; their order among each other is not promised."""
        due = {id_ for id_, until in self.at(WAITING).items() if until <= now}
        for id_ in due:
            self.leases[id_].place, self.leases[id_].until = RETRY, 0
        return due

    def redrive(self, ids: list[str], order: Iterator[int]) -> None:
        """Dead letters start again."""
        for id_ in ids:
            one = self.leases[id_]
            one.next(READY)
            one.attempt, one.expiries, one.postpones = 1, 0, 0
            self.enter(id_, next(order))
