"""What the verbs promise, in plain Python: the state of one partition, for two groups.

No Redis, no bytes, no scripts: it says where each message is and what each verb answers. The test
beside it compares this with what the server holds, after every step.
"""

from dataclasses import dataclass, field

MAX_ATTEMPTS = 2
DELAYS_MS = (2_000, 5_000)
ORDERED_MS = 1_500
LEVELS_MS = (1_000, 5_000, 60_000)
ID_KEPT_MS = 3_600_000
MAX_POSTPONES = 1

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
    """Its deadline in flight, its due time while it waits."""
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
    leases: dict[str, Lease] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=lambda: {READY: [], RETRY: []})

    def at(self, place: str) -> dict[str, int]:
        """Who is in a place, and until when."""
        return {id_: one.until for id_, one in self.leases.items() if one.place == place}

    def push(self, id_: str, name: str = "") -> None:
        """A new message."""
        self.leases[id_] = Lease()
        self.names.pop(id_, None)
        if name:
            self.names[id_] = name
        self.enter(id_)

    def enter(self, id_: str) -> None:
        """Ready, unless another one of its message group is out."""
        name = self.names.get(id_)
        if self.ordered and name:
            self.line.setdefault(name, []).append(id_)
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
            follower = self.heads[name] = self.line[name][0]
            self.leases[follower].place = READY
            self.lists[READY].append(follower)
        else:
            del self.heads[name], self.line[name]

    def verdict(self, id_: str, lease_no: int) -> str:
        """Does this receipt still own its lease?"""
        one = self.leases.get(id_)
        if one is None or one.place in (DONE, DEAD):
            return "GONE"
        return "OK" if one.place == INFLIGHT and one.lease_no == lease_no else "STALE"

    def lease(self, want: int, deadline: int, prefer: str) -> list[str]:
        """Take from the preferred lane, and fill up from the other."""
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
        if level == -1 or one.attempt >= MAX_ATTEMPTS:
            one.next(DEAD)
            self.leave(id_)
            return
        if self.ordered:
            delay_ms = ORDERED_MS
        if delay_ms is None and level > 0:
            delay_ms = LEVELS_MS[min(level, len(LEVELS_MS)) - 1]
        elif delay_ms is None:
            delay_ms = DELAYS_MS[min(one.attempt, len(DELAYS_MS)) - 1]
        one.next(WAITING, now + delay_ms, attempts=1)

    def expire(self, now: int) -> None:
        """Deadlines have passed."""
        overdue = sorted((until, id_) for id_, until in self.at(INFLIGHT).items() if until <= now)
        for _, id_ in overdue:
            one = self.leases[id_]
            if (self.kind == "simple" or one.expiries == 0) and one.attempt < MAX_ATTEMPTS:
                one.next(RETRY, attempts=1)
                self.lists[RETRY].append(id_)
            else:
                self.fail(id_, now)
            one.expiries += 1

    def promote(self, now: int) -> set[str]:
        """Waits are over; their order among each other is not promised."""
        due = {id_ for id_, until in self.at(WAITING).items() if until <= now}
        for id_ in due:
            self.leases[id_].place, self.leases[id_].until = RETRY, 0
        return due

    def redrive(self, ids: list[str]) -> None:
        """Dead letters start again."""
        for id_ in ids:
            one = self.leases[id_]
            one.next(READY)
            one.attempt, one.expiries, one.postpones = 1, 0, 0
            self.enter(id_)


@dataclass
class Partition:
    """One partition: what it stores, and its groups."""

    groups: dict[str, Group]
    scheduled: dict[str, int] = field(default_factory=dict)
    given: dict[str, tuple[str, int | None]] = field(default_factory=dict)
    """Ids of the caller: content, and until when they are remembered once their message is gone."""
    stored: set[str] = field(default_factory=set)
    tags: dict[str, str] = field(default_factory=dict)
    """Of what is scheduled."""
    names: dict[str, str] = field(default_factory=dict)
    """The message group of each stored message that has one."""
    shared: set[str] = field(default_factory=set)
    """What went to more than one group."""
    published: int = 0

    def publish(
        self,
        id_: str,
        content: str,
        now: int,
        *,
        given: bool,
        delay_ms: int,
        tag: str,
        name: str = "",
    ) -> str:
        """A for accepted, D for a duplicate, C for another content under the same id."""
        if given and id_ in self.given:
            known, kept_until = self.given[id_]
            if kept_until is None or now < kept_until:
                return "D" if known == content else "C"
        if given:
            self.given[id_] = (content, None)
        self.stored.add(id_)
        self.published += 1
        if delay_ms:
            self.scheduled[id_], self.tags[id_] = now + delay_ms, tag
        else:
            self.push(id_, tag, now, name)
        return "A"

    def push(self, id_: str, tag: str, now: int, name: str = "") -> None:
        """Ready for every group that takes the tag; with none of these it is gone."""
        taking = [g for g in self.groups.values() if g.takes is None or tag in g.takes]
        self.shared.discard(id_)
        for group in self.groups.values():
            group.leases.pop(id_, None)  # of a message long gone that had the same id
        for group in taking:
            group.push(id_, name)
        if name and taking:
            self.names[id_] = name
        if len(taking) > 1:
            self.shared.add(id_)
        if not taking:
            self.forget(id_, now)

    def deliver(self, now: int) -> None:
        """Scheduled and due."""
        for due, id_ in sorted((due, id_) for id_, due in self.scheduled.items()):
            if due <= now:
                del self.scheduled[id_]
                self.push(id_, self.tags.pop(id_), now)

    def finish(self, group: str, id_: str, now: int) -> None:
        """A group is done with a message; the last one deletes it."""
        self.groups[group].leave(id_)
        self.groups[group].leases[id_].place = DONE
        if not self.owing(id_):
            self.forget(id_, now)

    def forget(self, id_: str, now: int) -> None:
        """No group owes the message."""
        self.stored.discard(id_)
        self.names.pop(id_, None)
        if id_ in self.given:
            self.given[id_] = (self.given[id_][0], now + ID_KEPT_MS)

    def owing(self, id_: str) -> set[str]:
        """The groups that are not done with a message."""
        return {
            n for n, g in self.groups.items() if id_ in g.leases and g.leases[id_].place != DONE
        }
