"""How each defect that the auditor found is repaired, or what a person can do about it. No I/O."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rqretry.checks.defect import Defect
from rqretry.checks.snapshot import GroupSnapshot, Snapshot, in_order, message_group_of
from rqretry.core.errors import show

STEPS = {
    "tidy bodies": "its records are removed: there is no body to deliver",
    "tidy keys": "the index has it under the keys that it has, and no others",
    "tidy memory": "the record of its id is removed",
    "tidy scheduled": "it is no longer scheduled: there is no body",
    "tidy backlog": "it is removed from the backlog: there is no body to deliver",
    "tidy half": "its transaction lists it again",
    "tidy halves": "its transaction no longer lists it",
    "adopt": "its groups are recorded; what no group has is delivered to the groups of its tag",
    "repair lost": "it is removed from every key of the group: there is no body to deliver",
    "reorder turn": "it gets the turn if no message has it, else it waits for its turn",
    "repair put_back": "it is put back: at the end of ready, or in its message group's order",
    "repair settle": "it stays in one key: the first of dead, in flight, latest due time, list",
    "reorder pass": "it is removed from the order, or its message group is recorded again",
    "reorder go_on": "the message group continues: one message has the turn",
    "repair cause": "the cause of death is recorded as unknown, or removed",
    "repair clusters": "the counts by fingerprint have each dead letter once",
    "repair index": "the index gets the earliest due time of the level",
    "repair numbers": "its delivery state and failures are removed",
}
"""Each repair, in the order in which they are made, and what it does."""

_PARTITION = {
    ("orphan body", "bodies"): "adopt",
    ("unowed", "pending"): "adopt",
    ("unknown group", "pending"): "adopt",
    ("not delivered", "pending"): "repair put_back",
    ("missing body", "pending"): "tidy bodies",
    ("leftover entry", "big"): "tidy bodies",
    ("leftover entry", "message_groups"): "tidy bodies",
    ("leftover entry", "keyed"): "tidy bodies",
    ("leftover entry", "message_keys"): "tidy keys",
    ("not indexed", "message_keys"): "tidy keys",
    ("leftover entry", "id_expiry"): "tidy memory",
    ("missing body", "scheduled"): "tidy scheduled",
    ("missing body", "backlog"): "tidy backlog",
    ("lost half", "half_of"): "tidy half",
    ("leftover", "halves"): "tidy halves",
}
_GROUP = {
    "double booking": "repair settle",
    "leftover": "repair settle",
    "missing body": "repair lost",
    "no cause": "repair cause",
    "not indexed": "repair clusters",
    "late index": "repair index",
    "out of turn": "reorder turn",
    "not in line": "reorder go_on",
    "stuck": "reorder go_on",
    "not delivered": "repair put_back",
}
_ADVICE = {
    "unadopted body": (
        "nothing need be done: a worker or `rqretry reaper` deletes it within a minute or two"
    ),
    "orphan half": (
        "whether its transaction was to be committed is unknown: see it with `rqretry message"
        " ID`, and publish it again if it was"
    ),
    "missing body": "roll its transaction back: `rqretry transaction rollback ID`",
    "out of turn": "its worker is processing it: check again when its lease has ended",
    "unknown group": "a group is leaving this topic: check again when it has left",
}


class Task(NamedTuple):
    """One repair of one subject."""

    step: str
    group: str
    """The group whose keys it is in; "" for the partition."""
    subject: str
    """An id, a member of a set, or a message group: see the scripts."""
    id: str


def step_of(seen: Snapshot, defect: Defect, *, leaving: bool = False) -> str:
    """The repair of a defect, one of STEPS; "" if a person must decide.

    Args:
        seen: The partition as it was seen.
        defect: What was found in it.
        leaving: A group is leaving the topic, and what it held is being freed.
    """
    group, name = _key_of(seen, defect.key)
    if group is None:
        if defect.kind == "unknown group" and leaving:
            return ""
        return _PARTITION.get((defect.kind, name), "")
    if defect.kind == "leftover entry":
        steps = {"graves": "repair cause", "fingerprints": "repair clusters"}
        return steps.get(name, "repair numbers")
    if name == "line" and defect.kind == "leftover":
        return "reorder pass"
    if name == "inflight" and defect.kind == "out of turn":
        taken = message_group_of(seen.slots.get(defect.id, "")) in group.heads
        return "" if taken else "reorder turn"
    return _GROUP.get(defect.kind, "")


def advice_of(defect: Defect) -> str:
    """What a person can do about a defect that has no repair."""
    return _ADVICE.get(defect.kind, f"no advice exists for {show(defect.kind)}")


def tasks_of(seen: Snapshot, defect: Defect, step: str) -> Iterator[Task]:
    """The tasks of a step for a defect."""
    group, _ = _key_of(seen, defect.key)
    if step == "repair put_back" and group is None:
        for owner in _owners(seen, defect.id):
            yield Task(step, owner.keys.group, defect.id, defect.id)
        return
    for subject in _subjects(seen, group, defect, step):
        yield Task(step, group.keys.group if group else "", subject, defect.id)


def _key_of(seen: Snapshot, key: str) -> tuple[GroupSnapshot | None, str]:
    """The group whose key it is, and the last part of the key."""
    for group in seen.groups:
        base = f"{seen.keys.base}group:{group.keys.group}:"
        if key.startswith(base):
            return group, key.removeprefix(base).partition(":")[0]
    return None, key.removeprefix(seen.keys.base)


def _subjects(
    seen: Snapshot, group: GroupSnapshot | None, defect: Defect, step: str
) -> Iterable[str]:
    if step == "reorder go_on" and group:
        return _message_groups(group, defect.id)
    if step == "reorder pass" and group:
        return [member for member in group.order if in_order(member)[1] == defect.id]
    if step == "tidy keys":
        pairs = seen.message_keys | seen.noted_keys()
        return [f"{key}\0{id_}" for key, id_ in sorted(pairs) if id_ == defect.id]
    if step == "repair clusters" and group:
        ids = {member: member.rpartition("\0")[2] for member in group.fingerprints}
        ids |= group.noted_fingerprints()
        return [member for member, id_ in sorted(ids.items()) if id_ == defect.id]
    if step == "tidy scheduled":
        return [seen.scheduled_members.get(defect.id, defect.id)]
    return [defect.id]


def _owners(seen: Snapshot, id_: str) -> Iterator[GroupSnapshot]:
    owed = seen.pending.get(id_, "")
    return (group for group in seen.groups if group.byte and group.byte in owed)


def _message_groups(group: GroupSnapshot, id_: str) -> set[str]:
    named = {name for name, head in group.heads.items() if head == id_}
    return named | {name for name, other in map(in_order, group.order) if other == id_}
