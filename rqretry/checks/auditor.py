"""The read-only auditor behind `rqretry fsck`: whether indexes, bodies and states agree.

It reads one partition in bounded pages and judges what it read. A busy partition changes meanwhile,
so it is read again where something is wrong, and only what is wrong both times counts.
"""

from collections.abc import Iterable, Iterator, Sequence

from rqretry.checks.auditor_ordering import misplaced
from rqretry.checks.auditor_pages import read_hash, read_list, read_scores
from rqretry.checks.defect import ERROR, WARNING, Defect
from rqretry.checks.snapshot import GroupSnapshot, Snapshot
from rqretry.protocol.command import Operation, Pause, batches
from rqretry.protocol.keys import GroupKeys, NamespaceKeys, PartitionKeys
from rqretry.protocol.publish import id_of_member
from rqretry.protocol.transaction import Record, read_many

__all__ = [
    "ERROR", "WARNING", "Defect", "GroupSnapshot", "Snapshot", "audit", "examine", "judge", "read",
]  # fmt: skip

SECOND_READ_SECONDS = 0.2


def audit(keys: PartitionKeys, groups: Sequence[GroupKeys]) -> Operation[list[Defect]]:
    """Read one partition and return what is wrong in it; nothing is written.

    Args:
        keys: The partition.
        groups: Every group that is subscribed to the topic: one left out looks unknown.
    """
    defects, _ = yield from examine(keys, groups)
    return defects


def examine(
    keys: PartitionKeys, groups: Sequence[GroupKeys]
) -> Operation[tuple[list[Defect], Snapshot]]:
    """The same, and what was read last."""
    seen = yield from read(keys, groups)
    defects = judge(seen)
    if not defects:
        return [], seen
    yield Pause(SECOND_READ_SECONDS)
    seen = yield from read(keys, groups)
    again = set(judge(seen))
    return [defect for defect in defects if defect in again], seen


def read(keys: PartitionKeys, groups: Sequence[GroupKeys]) -> Operation[Snapshot]:
    """Read a partition: indexes before bodies, so that a moving message is seen in one."""
    seen = Snapshot(keys)
    seen.halves = yield from read_scores(keys.halves)
    scheduled = yield from read_scores(keys.scheduled)
    seen.scheduled = {id_of_member(member): due for member, due in scheduled.items()}
    seen.scheduled_members = {id_of_member(member): member for member in scheduled}
    seen.backlog = yield from read_list(keys.backlog)
    for group in groups:
        seen.groups.append((yield from _read_group(group)))
    seen.slots = yield from read_hash(keys.message_groups)
    indexed = yield from read_scores(keys.message_keys)
    seen.message_keys = {(key, id_) for key, _, id_ in (m.partition("\0") for m in indexed)}
    seen.keyed = yield from read_hash(keys.keyed)
    seen.pending = yield from read_hash(keys.pending)
    seen.big = set((yield from read_hash(keys.big)))
    incoming = yield from read_hash(keys.incoming)
    seen.unadopted = incoming.keys() - seen.big
    seen.half_of = yield from read_hash(keys.half_of)
    seen.bodies = set((yield from read_hash(keys.bodies, with_values=False)))
    seen.id_expiry = yield from read_scores(keys.id_expiry)
    seen.ids = set((yield from read_hash(keys.ids)))
    seen.unknown_transactions = yield from _unknown(keys.namespace, seen.half_of.values())
    return seen


def _unknown(namespace: str, members: Iterable[str]) -> Operation[set[str]]:
    """The transactions that half messages name but that have no record."""
    catalog, named = NamespaceKeys(namespace), {member.partition(" ")[0] for member in members}
    found: set[str] = set()
    for batch in batches(sorted(named)):
        records: list[Record] = yield read_many(catalog, batch)
        found |= set(batch) - {record.id for record in records}
    return found


def judge(seen: Snapshot) -> list[Defect]:
    """What is wrong in a snapshot, errors first."""
    defects = [*_bodies(seen), *_pending(seen), *_partition(seen), *_halves(seen)]
    for group in seen.groups:
        if group.keys.source:
            defects += _view(group)
        else:
            defects += _listed_twice(seen, group)
            defects += _leftovers_of_group(group)
        defects += _due(group)
        defects += misplaced(seen, group) if group.ordered else ()
    return sorted(set(defects))


def _read_group(keys: GroupKeys) -> Operation[GroupSnapshot]:
    seen = GroupSnapshot(keys)
    config = yield from read_hash(keys.config)
    seen.byte, seen.ordered = config.get("byte", ""), config.get("ordered") == "1"
    seen.order = list((yield from read_scores(keys.order)))
    for key in keys.lists:
        seen.lists[key] = yield from read_list(key)
    seen.heads = yield from read_hash(keys.heads)
    seen.due = yield from read_scores(keys.due)
    for key in keys.levels:
        seen.levels[key] = yield from read_scores(key)
    seen.inflight = yield from read_scores(keys.inflight)
    if keys.source:  # of another group, and read there
        seen.dead_letters = set((yield from read_scores(keys.dead)))
    else:
        seen.dead = yield from read_scores(keys.dead)
    seen.attempts = set((yield from read_hash(keys.attempts)))
    seen.failures = set((yield from read_hash(keys.failures, with_values=False)))
    seen.deaths = yield from read_hash(keys.deaths)
    seen.fingerprints = set((yield from read_scores(keys.fingerprints)))
    return seen


def _each(ids: Iterable[str], severity: str, kind: str, key: str, text: str) -> Iterator[Defect]:
    return (Defect(severity, kind, key, id_, text) for id_ in ids)


def _leftovers(ids: Iterable[str], key: str, text: str) -> Iterator[Defect]:
    return _each(ids, WARNING, "leftover entry", key, text)


def _bodies(seen: Snapshot) -> Iterator[Defect]:
    held = {*seen.scheduled, *seen.backlog, *seen.half_of}.union(
        *(group.held() for group in seen.groups)
    )
    left = seen.unadopted & seen.bodies
    text = "a body is stored that no group has and nothing will deliver"
    yield from _each(seen.bodies - held - left, ERROR, "orphan body", seen.keys.bodies, text)
    text = "a large body was written whose message was not published"
    yield from _each(left, WARNING, "unadopted body", seen.keys.incoming, text)
    lists: list[tuple[str, Iterable[str]]] = [
        (seen.keys.scheduled, seen.scheduled),
        (seen.keys.backlog, seen.backlog),
        (seen.keys.half_of, seen.half_of),
    ]
    for group in seen.groups:
        if not group.keys.source:  # whose dead letter may be gone: see _view
            lists += group.ids_by_key()
    text = "a message is listed whose body is not stored"
    for key, ids in lists:
        yield from _each(set(ids) - seen.bodies, ERROR, "missing body", key, text)


def _pending(seen: Snapshot) -> Iterator[Defect]:
    known = {group.byte: group for group in seen.groups if group.byte}
    held = {byte: group.held() for byte, group in known.items()}
    key = seen.keys.pending
    for id_, owed in seen.pending.items():
        if id_ not in seen.bodies:
            text = "groups owe a message whose body is not stored"
            yield Defect(ERROR, "missing body", key, id_, text)
        for byte in owed:
            if byte not in known:
                text = f"group byte {ord(byte)} owes the message, but no group has that byte"
                yield Defect(ERROR, "unknown group", key, id_, text)
            elif id_ in seen.bodies and id_ not in held[byte]:
                text = f"group {known[byte].keys.group} owes the message but does not have it"
                yield Defect(ERROR, "not delivered", key, id_, text)
    text = "several groups have the message, none is recorded: the first to finish deletes it"
    unowed = (_shared(seen) & seen.bodies) - seen.pending.keys()
    yield from _each(unowed, ERROR, "unowed", key, text)


def _shared(seen: Snapshot) -> set[str]:
    """The messages that more than one group has."""
    once: set[str] = set()
    again: set[str] = set()
    for group in seen.groups:
        if not group.keys.source:
            held = group.held()
            again |= once & held
            once |= held
    return again


def _partition(seen: Snapshot) -> Iterator[Defect]:
    keys = seen.keys
    text = "the size of a body is recorded that is not stored"
    yield from _leftovers(seen.big - seen.bodies, keys.big, text)
    text = "the message group of a message is kept whose body is not stored"
    yield from _leftovers(seen.slots.keys() - seen.bodies, keys.message_groups, text)
    yield from _message_keys(seen)
    text = "an id has an expiry time but is not remembered"
    yield from _leftovers(set(seen.id_expiry) - seen.ids, keys.id_expiry, text)


def _message_keys(seen: Snapshot) -> Iterator[Defect]:
    keys = seen.keys
    text = "the keys of a message are kept whose body is not stored"
    yield from _leftovers(set(seen.keyed) - seen.bodies, keys.keyed, text)
    noted = seen.noted_keys()
    for key, id_ in seen.message_keys - noted:
        text = f"the index has the message under key {key}, which it does not have"
        yield Defect(WARNING, "leftover entry", keys.message_keys, id_, text)
    for key, id_ in noted - seen.message_keys:
        text = f"the index lacks the message under its key {key}"
        yield Defect(WARNING, "not indexed", keys.message_keys, id_, text)


def _halves(seen: Snapshot) -> Iterator[Defect]:
    keys = seen.keys
    for id_, member in seen.half_of.items():
        transaction = member.partition(" ")[0]
        if member not in seen.halves:
            text = f"transaction {transaction} does not list it and would forget it when decided"
            yield Defect(ERROR, "lost half", keys.half_of, id_, text)
        if transaction in seen.unknown_transactions:
            text = f"it waits for transaction {transaction}, which has no record"
            yield Defect(ERROR, "orphan half", keys.half_of, id_, text)
    text = "a transaction lists a message that is not part of it"
    unknown = seen.halves.keys() - set(seen.half_of.values())
    yield from _each(unknown, WARNING, "leftover", keys.halves, text)


def _listed_twice(seen: Snapshot, group: GroupSnapshot) -> Iterator[Defect]:
    name = group.keys.group
    firm: dict[str, str] = {}
    for key, ids in group.ids_by_key():
        if key in group.lists:
            continue
        for id_ in ids:
            if id_ in firm:
                text = f"group {name} has the message here and in {firm[id_]}"
                yield Defect(ERROR, "double booking", key, id_, text)
            firm.setdefault(id_, key)
    listed: dict[str, str] = {}
    for key, ids in group.lists.items():
        for id_ in ids:
            elsewhere = firm.get(id_) or listed.get(id_)
            if elsewhere:
                text = f"group {name} also has the message in {elsewhere}; a lease skips it"
                yield Defect(WARNING, "leftover", key, id_, text)
            listed.setdefault(id_, key)
    for id_ in group.held() & seen.bodies:
        owed = seen.pending.get(id_)
        if owed is not None and group.byte not in owed:
            text = f"group {name} has the message here, but has finished with it"
            yield Defect(WARNING, "leftover", firm.get(id_) or listed[id_], id_, text)


def _view(group: GroupSnapshot) -> Iterator[Defect]:
    """A group that consumes another one's dead letters: it has a mark for each that it owes."""
    keys, held = group.keys, group.held()
    text = f"group {keys.group} owes a dead letter of {keys.source} but does not have it"
    owed = group.deaths.keys() & group.dead_letters
    yield from _each(owed - held, ERROR, "not delivered", keys.deaths, text)


def _leftovers_of_group(group: GroupSnapshot) -> Iterator[Defect]:
    keys, held = group.keys, group.held()
    text = f"group {keys.group} has a delivery state or failures of a message it lacks"
    for key, ids in ((keys.attempts, group.attempts), (keys.failures, group.failures)):
        yield from _leftovers(ids - held, key, text)
    text = "a cause of death is recorded for a message that is not dead"
    yield from _leftovers(group.deaths.keys() - group.dead.keys(), keys.deaths, text)
    text = "a dead letter has no cause of death"
    yield from _each(group.dead.keys() - group.deaths.keys(), WARNING, "no cause", keys.dead, text)
    noted = group.noted_fingerprints()
    for member in group.fingerprints - noted.keys():
        text = "the counts by fingerprint have a dead letter that is not there, or died otherwise"
        id_ = member.rpartition("\0")[2]
        yield Defect(WARNING, "leftover entry", keys.fingerprints, id_, text)
    text = "the counts by fingerprint lack a dead letter"
    lacking = (id_ for member, id_ in noted.items() if member not in group.fingerprints)
    yield from _each(lacking, WARNING, "not indexed", keys.fingerprints, text)


def _due(group: GroupSnapshot) -> Iterator[Defect]:
    for number, key in enumerate(group.keys.levels, start=1):
        waiting = group.levels[key]
        if not waiting:
            continue
        first = min(waiting, key=lambda id_: (waiting[id_], id_))
        noted = group.due.get(str(number))
        if noted is None or noted > waiting[first]:
            text = "a message of this level is due before the index says; it would be promoted late"
            yield Defect(ERROR, "late index", key, first, text)
