"""The invariants about messages as a whole: I1, I1b, I1c, I2, I9, I10, I11 and I13.

Each is a pure function from the records of a run to what is wrong (docs/checker.md); those about
leases are in leases.py.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import fields

from rqretry.checks.defect import WARNING
from rqretry.protocol.keys import ROOT, STORED_AS, GroupKeys, NamespaceKeys, PartitionKeys
from tests.model.checker.history import FAIL, INFO, OK, Operation
from tests.model.checker.places import DELAY, place_of
from tests.model.checker.records import MessageName, Records
from tests.model.checker.report import Finding
from tests.model.checker.transitions import Entity, Kind

ID_KEPT_MS = 3_600_000
"""How long a given id is remembered after its message is gone (docs/decisions/0003)."""

_ENDING_VERBS = frozenset({"succeed", "purge", "recall", "rollback", "deliver"})
_OVER = frozenset({Kind.SUCCEED, Kind.PURGE})
_BEGUN = frozenset({Kind.ENTER, Kind.REDRIVE})
_DOUBLE = frozenset({"double booking", "leftover"})
_COUNTED_KINDS = {
    Kind.LEASE: "lease", Kind.SUCCEED: "succeed", Kind.FAIL: "fail", Kind.EXPIRE: "expire",
    Kind.DEAD: "dead", Kind.PROMOTE: "promote", Kind.REDRIVE: "redrive", Kind.PURGE: "purge",
}  # fmt: skip


def conserved(records: Records) -> list[Finding]:
    """I1: what was accepted is committed, dead, still queued or purged; nothing else is there."""
    lost = lost_messages(records)
    found = [_about("I1", name, "was accepted, and is nowhere") for name in lost]
    found += [
        _in_group("I1", entity, "the group had it, never finished with it, and has it no more")
        for entity in _lost_in_groups(records)
        if MessageName(entity.topic, entity.id) not in lost
    ]
    return found + list(_uninvited(records))


def lost_messages(records: Records) -> dict[MessageName, Operation]:
    """Accepted at a tier that the faults do not exceed, and gone without having ended."""
    gone = uncommitted_and_gone(records)
    return {name: op for name, op in gone.items() if records.expect.covers(tier_of(op))}


def uncommitted_and_gone(records: Records) -> dict[MessageName, Operation]:
    """Accepted at whatever tier, and gone without having ended."""
    ended = ended_messages(records)
    there = {MessageName(entity.topic, entity.id) for entity in records.held} | records.unrouted
    return {
        name: operation
        for name, operation in records.accepted.items()
        if name not in there and name not in ended and not _unwanted(records, name)
    }


def tier_of(operation: Operation) -> str:
    """What confirmed an accepted publish."""
    return str(operation.fields.get("tier_confirmed", "memory"))


def ended_messages(records: Records) -> set[MessageName]:
    """Whose end is recorded: by the journal, or else by handlers and acknowledgements.

    A script that was cut may have ended a message, and not have noted what it was.
    """
    removed = {
        MessageName(step.topic, step.id)
        for step in records.transitions
        if step.kind is Kind.REMOVE and step.verb in _ENDING_VERBS
    }
    if records.journal is not None and not records.expect.script_errors:
        return removed
    handled = removed | {
        MessageName(e.topic, e.id) for e in records.effects if e.outcome == "success"
    }
    return handled | {
        MessageName(operation.topic, operation.id)
        for operation in records.history
        if operation.op == "ack" and operation.outcome != FAIL
    }


def _unwanted(records: Records, name: MessageName) -> bool:
    """No group wanted it: it was accepted, counted, and not stored."""
    journal = records.journal
    return journal is not None and name in journal.published and name not in records.created


def _lost_in_groups(records: Records) -> Iterator[Entity]:
    views = records.journal.views if records.journal else set()
    handled = set()
    if records.expect.script_errors:  # a settle that was cut may not have noted what it was
        handled = {Entity(e.topic, e.group, e.id) for e in records.effects if e.outcome}
    for entity, steps in records.steps.items():
        if entity in records.held or entity in handled or (entity.topic, entity.group) in views:
            continue
        over = False
        for step in steps:
            over = (over or step.kind in _OVER) and step.kind not in _BEGUN
        operation = records.accepted.get(MessageName(entity.topic, entity.id))
        if not over and (operation is None or records.expect.covers(tier_of(operation))):
            yield entity


def _uninvited(records: Records) -> Iterator[Finding]:
    topics = {operation.topic for operation in records.history if operation.op == "publish"}
    refused = {name for _, name in records.published(FAIL)}
    invited = records.accepted.keys() | records.ambiguous
    for name in records.created.keys() - invited:
        if name in refused:
            yield _about("I1", name, "was stored, though its publish failed definitely")
        elif name.topic in topics:
            yield _about("I1", name, "was stored, and nobody published it")


def one_place(records: Records) -> list[Finding]:
    """I1b: a message is in one place of a group, once: at the end, and behind every block."""
    found = [
        Finding("I1b", finding.id, f"{finding.text} ({finding.key})")
        for finding in records.auditor
        if finding.kind in _DOUBLE and not _excused(records, finding.severity)
    ]
    if records.journal is not None and not records.expect.script_errors:
        doubled = records.journal.doubled.items()
        found += [
            _in_group("I1b", who, f"was in two places behind block {n}") for who, n in doubled
        ]
    return found


def bodies_match(records: Records) -> list[Finding]:
    """I1c: bodies and indexes agree, and no key is there that keys.py does not spell."""
    found = [
        Finding("I1c", finding.id, f"{finding.text} ({finding.key})")
        for finding in records.auditor
        if finding.kind not in _DOUBLE and not _excused(records, finding.severity)
    ]
    strays = (key for key in records.final.values if not _is_known(key, records.namespace))
    return found + [Finding("I1c", key, "is a key that nothing here writes") for key in strays]


def _excused(records: Records, severity: str) -> bool:
    return records.expect.script_errors and severity == WARNING


def _is_known(key: str, namespace: str) -> bool:
    place = place_of(key, namespace)
    if place is not None:
        kind, more = (GroupKeys, DELAY) if place.group else (PartitionKeys, "lane")
        return place.name == more or place.name in {field.name for field in fields(kind)}
    base = f"{ROOT}:{namespace}:{{{namespace}"
    _, _, name = key.removeprefix(base).rpartition("}:")
    names = {field.name for field in fields(NamespaceKeys)} - {"namespace"}
    catalog = {STORED_AS.get(name, name) for name in names}
    return key.startswith(base) and (
        name in catalog or name.startswith(("checks:", "series:")) or name == "bucket"
    )


def created_once(records: Records) -> list[Finding]:
    """I2: a message is stored once, however often its publish is repeated, and never changed."""
    found = [
        _about("I2", MessageName(step.topic, step.id), f"{step}: another body was stored")
        for step in records.transitions
        if step.kind is Kind.OVERWRITE
    ]
    given = given_by_callers(records)
    tried = Counter(name for how in (OK, INFO) for _, name in records.published(how))
    removed = defaultdict(list)
    for step in records.transitions:
        if step.kind is Kind.REMOVE:
            removed[MessageName(step.topic, step.id)].append(step)
    for name, created in records.created.items():
        if len(created) > tried[name] > 0:
            text = f"was stored {len(created)} times and published {tried[name]} times"
            found.append(_about("I2", name, text))
        for again, gone in zip(created[1:], removed[name], strict=False):
            rolled_back = gone.verb == "rollback"  # the same ids may be published again
            if name in given and not rolled_back and again.at_ms < gone.at_ms + ID_KEPT_MS:
                found.append(_about("I2", name, f"{again}: it was stored before, in {created[0]}"))
    return found


def given_by_callers(records: Records) -> set[MessageName]:
    """Messages whose first publish named their id, so that it is remembered."""
    first: dict[MessageName, Operation] = {}
    for outcome in (OK, INFO):
        for operation, name in records.published(outcome):
            if name not in first or operation.began_ns < first[name].began_ns:
                first[name] = operation
    return {name for name, operation in first.items() if operation.fields.get("given")}


def idempotent(records: Records) -> list[Finding]:
    """I9: repeating an operation has the effect of doing it once and says what the first did."""
    found, fresh = [], Counter[MessageName]()
    given = given_by_callers(records)
    for operation, name in records.published(OK):
        if operation.fields.get("duplicate"):
            if records.journal is not None and not (
                name in records.created or name in records.journal.published
            ):
                found.append(_about("I9", name, "was called a duplicate of nothing"))
        elif name in given:
            fresh[name] += 1
    last = [op for op in records.history if op.op == "publish" and op.ended_ns]
    short = not last or max(o.ended_ns for o in last) - last[0].began_ns < ID_KEPT_MS * 1_000_000
    if short:
        found += [
            _about("I9", name, f"was published as new {count} times")
            for name, count in fresh.items()
            if count > 1
        ]
    return found + list(_acknowledged(records))


def _acknowledged(records: Records) -> Iterator[Finding]:
    if records.journal is None:
        return
    committed = {
        (step.entity, step.lease_no) for step in records.transitions if step.kind is Kind.SUCCEED
    }
    tried: dict[tuple[Entity, int], list[str]] = defaultdict(list)
    for op in records.history:
        if op.op == "ack":
            entity = Entity(op.topic, str(op.fields["group"]), op.id)
            tried[entity, int(op.fields["lease_no"])].append(op.outcome)
    for (entity, lease_no), outcomes in tried.items():
        times, done = outcomes.count(OK), (entity, lease_no) in committed
        if times > 1:
            yield _in_group("I9", entity, f"lease {lease_no} was acknowledged {times} times")
        if times and not done:
            yield _in_group("I9", entity, f"ack of lease {lease_no} said OK, and did not commit")
        if done and outcomes == [FAIL]:
            yield _in_group("I9", entity, f"the ack of lease {lease_no} was refused, and committed")


def drained(records: Records) -> list[Finding]:
    """I10: with time to end, everything has ended."""
    if not records.expect.drained:
        return []
    waiting = sorted(records.held - records.dead)
    found = [_in_group("I10", entity, "is still ready, waiting or in flight") for entity in waiting]
    still = sorted(records.unrouted)
    return found + [_about("I10", name, "has reached no group") for name in still]


def honest(records: Records) -> list[Finding]:
    """I11: what was said to be stored is, and no more was confirmed than was asked and given."""
    found = []
    journal = records.journal
    for operation, name in records.published(OK):
        if journal and name not in records.created and name not in journal.published:
            found.append(_about("I11", name, "was accepted, and the server never stored it"))
        wanted = str(operation.fields.get("tier_wanted", "memory"))
        raised = "error" in operation.fields  # NotConfirmed, or a PublishError that says so
        if wanted != tier_of(operation) and wanted != "memory" and not raised:
            text = f"{wanted} was asked for, {tier_of(operation)} was given, and nothing was raised"
            found.append(_about("I11", name, text))
    return found


def counted(records: Records) -> list[Finding]:
    """I13: the counters of each group are what the journal counts."""
    if records.journal is None or records.expect.script_errors:
        return []
    counts: Counter[tuple[str, int, str]] = Counter()
    views = records.journal.views
    for step in records.transitions:
        word = _COUNTED_KINDS.get(step.kind)
        if word is not None and step.group:
            counts[step.topic, step.partition, f"{word}:{step.group}"] += 1
        elif step.kind is Kind.RELEASE and step.verb == "release":
            counts[step.topic, step.partition, f"release:{step.group}"] += 1
    found = []
    for seen in records.partitions:
        stored = records.final.hash(seen.keys.counters)
        for group in (g.keys.group for g in seen.groups):
            if (seen.keys.topic, group) in views:
                continue
            for word in _COUNTED_KINDS.values():
                name = f"{word}:{group}"
                here = counts[seen.keys.topic, seen.keys.partition, name]
                if here != int(stored.get(name, 0)):
                    text = f"counter {name} is {stored.get(name, 0)}, the journal has {here}"
                    found.append(Finding("I13", seen.keys.topic, text))
    return found


def _about(invariant: str, name: MessageName, text: str) -> Finding:
    return Finding(invariant, f"{name.topic}/{name.id}", text)


def _in_group(invariant: str, entity: Entity, text: str) -> Finding:
    return Finding(invariant, f"{entity.topic}/{entity.group}/{entity.id}", text)
