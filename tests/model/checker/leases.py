"""The invariants about leases: I3 to I8 and I12, from the journal and the handlers' own table.

Each is a pure function from the records of a run to what is wrong (docs/checker.md).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from rqretry.checks.snapshot import ORDER_DIGITS, message_group_of
from tests.model.checker.history import Effect
from tests.model.checker.records import Records
from tests.model.checker.report import Finding
from tests.model.checker.transitions import COUNTED, ENDS, Entity, Kind, Transition

_COUNTING_CAUSES = frozenset({"failure", "timeout", "expired", "given_back"})
"""Causes of death that use up attempts; with any other one somebody chose the dead letters."""

_SETTLES = frozenset({Kind.SUCCEED, Kind.FAIL, Kind.EXPIRE, Kind.RELEASE})


def attempts_counted(records: Records) -> list[Finding]:
    """I3: lease numbers grow, attempts count what failed, and who used them up is dead."""
    limits: dict[tuple[str, str], set[int]] = defaultdict(set)
    for step in records.transitions:
        if step.kind is Kind.LEASE:
            limits[step.topic, step.group].add(step.max_attempts)
    found = []
    for entity, steps in records.steps.items():
        known = limits[entity.topic, entity.group]  # those the group has had; 0 is none
        limit = 0 if 0 in known else max(known, default=0)
        texts = _attempts_of(steps, limit, exact=not records.expect.script_errors)
        found += [_finding("I3", entity, text) for text in texts]
    return found


def _attempts_of(steps: list[Transition], limit: int, *, exact: bool) -> Iterator[str]:
    lease_no = failed = 0
    for step in steps:
        if step.kind in {Kind.ENTER, Kind.REDRIVE}:
            failed = 0
        elif step.kind in {Kind.LEASE, Kind.CHANGE}:
            # A lease that was cut is taken back, which is a change.
            if step.lease_no <= lease_no and (exact or step.kind is Kind.LEASE):
                yield f"{step}: the lease before it had number {lease_no}"
            if exact and step.attempt != failed + 1:
                yield f"{step}: {failed} attempts were counted before"
            if limit and step.attempt > limit:
                yield f"{step}: there are at most {limit} attempts"
            lease_no = step.lease_no
        else:
            failed += step.kind in COUNTED
            yield from _used_up(step)


def _used_up(step: Transition) -> Iterator[str]:
    last = 0 < step.max_attempts <= step.attempt
    if step.kind in COUNTED and last and step.lane != "dead":
        yield f"{step}: that was the last attempt, and it is not dead"
    if step.kind is Kind.DEAD and step.cause in _COUNTING_CAUSES and not last:
        yield f"{step}: dead ({step.cause}) with attempts left"


def on_time(records: Records) -> list[Finding]:
    """I4: no retry before its time, by the ladder; no expiry before the deadline."""
    found = []
    for entity, steps in records.steps.items():
        recorded = (entity.topic, entity.group) in records.recorded_groups
        texts = _early(records, entity, steps, recorded=recorded)
        found += [_finding("I4", entity, text) for text in texts]
    limit, windows = records.expect.lateness_ms, records.expect.quiet
    if limit is not None:
        for due, step in late_leases(records):
            if step.at_ms - due > limit and any(a <= due and step.at_ms <= b for a, b in windows):
                text = f"{step}: {step.at_ms - due:.0f} ms after it was due"
                found.append(_finding("I4", step.entity, text))
    return found


def _early(
    records: Records, entity: Entity, steps: list[Transition], *, recorded: bool
) -> Iterator[str]:
    due: float = 0
    for step in steps:
        if step.kind is Kind.EXPIRE and step.at_ms < step.deadline_ms:
            yield f"{step}: {step.deadline_ms - step.at_ms:.0f} ms before its deadline"
        if step.kind in ENDS or step.kind is Kind.REDRIVE:
            due = step.until_ms
            waits = step.until_ms - step.at_ms
            chosen = not recorded or _chose(records, entity, step.lease_no)
            if step.until_ms and waits < step.ladder_ms and not chosen:
                yield f"{step}: it waits {waits:.0f} ms, the policy says {step.ladder_ms}"
        elif step.kind is Kind.PROMOTE and not records.expect.operator:
            if step.at_ms < step.deadline_ms:
                yield f"{step}: {step.deadline_ms - step.at_ms:.0f} ms before it was due"
        elif step.kind is Kind.LEASE:
            if step.at_ms < due and not records.expect.operator:
                yield f"{step}: {due - step.at_ms:.0f} ms before it was due"
            due = 0


def _chose(records: Records, entity: Entity, lease_no: int) -> bool:
    return any(effect.chosen for effect in records.leases_run.get((entity, lease_no), ()))


def late_leases(records: Records) -> Iterator[tuple[float, Transition]]:
    """Each lease behind a wait, with when it was due."""
    for steps in records.steps.values():
        due: float = 0
        for step in steps:
            if step.kind in COUNTED or step.kind in {Kind.RELEASE, Kind.REDRIVE}:
                due = step.until_ms
            elif step.kind is Kind.LEASE and due:
                yield due, step
                due = 0


def one_live_lease(records: Records) -> list[Finding]:
    """I5: between two leases of a message in a group there is the end of the first."""
    found = []
    for entity, steps in records.steps.items():
        live: Transition | None = None
        for step in steps:
            if step.kind is Kind.LEASE:
                if live is not None:
                    found.append(_finding("I5", entity, f"{step}: still leased by {live}"))
                live = step
            elif step.kind is Kind.CHANGE:
                live = step
            elif step.kind in ENDS:
                live = None
    return found


def fenced(records: Records) -> list[Finding]:
    """I6: only the newest lease settles, once, and a commit follows a handler that succeeded."""
    found = []
    for entity, steps in records.steps.items():
        recorded = (entity.topic, entity.group) in records.recorded_groups
        texts = [*_settled_by_others(steps), *_ended_twice(steps)]
        if recorded:
            texts += _without_handler(records, entity, steps)
        found += [_finding("I6", entity, text) for text in texts]
    return found


def _settled_by_others(steps: list[Transition]) -> Iterator[str]:
    live = 0
    for step in steps:
        if step.kind in {Kind.LEASE, Kind.CHANGE}:
            live = step.lease_no
        elif step.kind in _SETTLES:
            if step.lease_no != live:
                yield f"{step}: the lease that lives has number {live or 'none'}"
            live = 0
        elif step.kind in ENDS:
            live = 0


def _ended_twice(steps: list[Transition]) -> Iterator[str]:
    ended: Transition | None = None
    for step in steps:
        if step.kind in {Kind.REDRIVE, Kind.ENTER}:
            ended = None
        elif step.kind in {Kind.SUCCEED, Kind.DEAD}:
            if ended is not None:
                yield f"{step}: it had ended by {ended}"
            ended = step


def _without_handler(records: Records, entity: Entity, steps: list[Transition]) -> Iterator[str]:
    for step in steps:
        if step.kind is Kind.SUCCEED:
            ran = records.leases_run.get((entity, step.lease_no), [])
            if not any(effect.outcome == "success" for effect in ran):
                yield f"{step}: no handler has succeeded under this lease"


def in_order(records: Records) -> list[Finding]:
    """I7: in an ordered group a message group commits in order, one message at a time."""
    ordered = {
        (seen.keys.topic, group.keys.group)
        for seen in records.partitions
        for group in seen.groups
        if group.ordered
    }
    lines, found = _Lines(), []
    for step in records.transitions:
        if (step.topic, step.group) in ordered:
            found += [_finding("I7", step.entity, text) for text in lines.follow(step)]
    return found


class _Lines:
    """The message groups of ordered groups: who is out, and how far they have come."""

    def __init__(self) -> None:
        self._places: dict[Entity, tuple[str, int]] = {}
        self._last: dict[tuple[str, str, str], int] = {}
        self._out: dict[tuple[str, str, str], str] = {}

    def follow(self, step: Transition) -> Iterator[str]:
        """Go one step on, and tell what is out of order."""
        entity = step.entity
        if step.kind is Kind.ENTER and step.order:
            self._places[entity] = (message_group_of(step.order), int(step.order[:ORDER_DIGITS]))
        elif step.kind is Kind.REDRIVE:
            self._places.pop(entity, None)  # it goes to the end of its message group
        elif entity in self._places:
            name, number = self._places[entity]
            name = name if name != " " else f" {step.partition}"  # a queue of each partition
            yield from self._in_line(step, (step.topic, step.group, name), number)

    def _in_line(self, step: Transition, key: tuple[str, str, str], number: int) -> Iterator[str]:
        if step.kind is Kind.LEASE:
            if self._out.get(key, step.id) != step.id:
                yield f"{step}: {self._out[key]} is out, too"
            self._out[key] = step.id
        elif step.kind in ENDS and self._out.get(key) == step.id:
            del self._out[key]
        if step.kind in {Kind.SUCCEED, Kind.DEAD}:
            if number < self._last.get(key, 0):
                yield f"{step}: after a later one of {key[2]}"
            self._last[key] = max(number, self._last.get(key, 0))


def explained(records: Records) -> list[Finding]:
    """I8: every start has a lease of its own, and what came before it explains it."""
    found: list[Finding] = []
    if records.journal is None:
        return found
    leases: Counter[tuple[Entity, int]] = Counter()
    for step in records.transitions:
        if step.kind in {Kind.LEASE, Kind.CHANGE}:
            leases[step.entity, step.lease_no] += 1
    for (entity, lease_no), ran in records.leases_run.items():
        if not leases[entity, lease_no]:
            found.append(_finding("I8", entity, f"ran under lease {lease_no}, which never was"))
        elif len(ran) > leases[entity, lease_no]:
            text = f"started {len(ran)} times under lease {lease_no}"
            found.append(_finding("I8", entity, text))
    for entity, kind, step in duplicate_starts(records):
        if not kind:
            found.append(_finding("I8", entity, f"{step}: started again, and nothing explains it"))
    return found


def duplicate_starts(records: Records) -> Iterator[tuple[Entity, str, Transition]]:
    """Each start after the first of a message in a group, with its class ("" unexplained)."""
    killed = {
        str(operation.fields.get("pid"))
        for operation in records.history
        if operation.op == "fault" and operation.fields.get("what") == "kill"
    }
    for entity, steps in records.steps.items():
        started = False
        before: Transition | None = None
        for step in steps:
            if step.kind is Kind.LEASE:
                ran = records.leases_run.get((entity, step.lease_no), [])
                if started and ran:
                    yield entity, _class_of(records, entity, before, killed), step
                started = started or bool(ran)
                before = None
            elif step.kind in ENDS or step.kind is Kind.REDRIVE:
                before = step


def _class_of(records: Records, entity: Entity, before: Transition | None, killed: set[str]) -> str:
    """Which of the cases of docs/guarantees.md a second start is."""
    if before is None:
        return ""
    if before.kind is Kind.REDRIVE:
        return "D-i"
    if before.kind in {Kind.FAIL, Kind.RELEASE}:
        return "D-e"
    if before.kind is not Kind.EXPIRE:
        return ""
    ran = records.leases_run.get((entity, before.lease_no), [])
    if not ran:
        return "D-d"
    return _interrupted(ran[-1], killed)


def _interrupted(effect: Effect, killed: set[str]) -> str:
    if effect.ended_ns:
        return "D-b" if effect.proc in killed else "D-c"
    return "D-b" if effect.proc in killed else "D-a"


def clock_grows(records: Records) -> list[Finding]:
    """I12: logical time never goes back, and neither does a deadline under one receipt."""
    found = []
    clock: dict[tuple[str, int], int] = {}
    for step in records.transitions:
        place = (step.topic, step.partition)
        if step.at_ms < clock.get(place, 0):
            text = f"{step}: the partition's clock was at {clock[place]} ms"
            found.append(_finding("I12", step.entity, text))
        clock[place] = max(step.at_ms, clock.get(place, 0))
        if step.kind is Kind.RENEW and step.until_ms < step.deadline_ms:
            text = f"{step}: the deadline went back by {step.deadline_ms - step.until_ms:.0f} ms"
            found.append(_finding("I12", step.entity, text))
    return found


def _finding(invariant: str, entity: Entity, text: str) -> Finding:
    return Finding(invariant, f"{entity.topic}/{entity.group}/{entity.id}", text)
