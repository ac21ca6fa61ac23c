"""What the namespace promises of transactions: who has decided, and who is asked when."""

from dataclasses import dataclass, field

FINISHED_MS = 600_000
AFTER_MS, EVERY_MS, MOST_CHECKS = 6_000, 30_000, 2
FINISH_LEASE_MS = 15_000
OPEN, PARKED = "open", "parked"
UNDECIDED = (OPEN, PARKED)


@dataclass
class Record:
    """One transaction."""

    due: int
    """When it is checked, or taken up by somebody else after its decision."""
    state: str = OPEN
    checks: int = 0
    claim: int = 0
    decided: int = 0
    places: list[int] = field(default_factory=list)
    """In the order in which they were enlisted, which is that of the server's record."""


@dataclass
class Transactions:
    """All of them, of one producer group."""

    records: dict[str, Record] = field(default_factory=dict)
    finished: dict[str, int] = field(default_factory=dict)
    """Until when each is known."""

    def enlist(self, id_: str, place: int, now: int, *, known: bool) -> str:
        """Open it, or note one place more."""
        record = self.records.get(id_)
        if record is None and known:
            return "GONE"
        if record is not None and record.state not in UNDECIDED:
            return record.state
        record = self.records.setdefault(id_, Record(now + AFTER_MS))
        if place not in record.places:
            record.places.append(place)
        for old in [old for old, until in self.finished.items() if until <= now]:
            del self.finished[old], self.records[old]
        return "OK"

    def decide(self, id_: str, decision: str, now: int, claim: int | None = None) -> str:
        """Once and for all."""
        record = self.records.get(id_)
        if record is None:
            return "GONE"
        if record.state == decision:
            return "ALREADY"
        if record.state not in UNDECIDED:
            return "CONFLICT"
        if claim is not None and record.claim != claim:
            return "STALE"
        record.state, record.decided, record.due = decision, now, now + FINISH_LEASE_MS
        return "OK"

    def claim(self, now: int, lease_ms: int) -> tuple[dict[str, tuple[str, int]], list[str]]:
        """Those that need somebody, with state and claim; and those that are parked now."""
        taken, parked = {}, []
        for id_, record in self.records.items():
            if record.due > now or record.state == PARKED or id_ in self.finished:
                continue
            if record.state == OPEN and record.checks >= MOST_CHECKS:
                record.state = PARKED
                parked.append(id_)
                continue
            if record.state == OPEN:
                record.checks, record.claim = record.checks + 1, record.claim + 1
            record.due = now + lease_ms
            taken[id_] = (record.state, record.claim)
        return taken, parked

    def defer(self, id_: str, claim: int, now: int) -> str:
        """A checker does not know."""
        record = self.records.get(id_)
        if record is None or record.state != OPEN or record.claim != claim:
            return "STALE"
        if record.checks >= MOST_CHECKS:
            record.state = PARKED
            return "PARKED"
        record.due = now + EVERY_MS
        return "OK"

    def finish(self, id_: str, now: int) -> None:
        """The decision is carried out everywhere."""
        self.records[id_].places.clear()
        self.finished[id_] = now + FINISHED_MS
