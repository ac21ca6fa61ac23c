"""Ordered groups: does every message group have one message whose turn it is?"""

from collections.abc import Iterator

from rqretry.checks.defect import ERROR, WARNING, Defect
from rqretry.checks.snapshot import (
    GroupSnapshot,
    Snapshot,
    in_order,
    message_group_of,
    order_member,
)


def misplaced(seen: Snapshot, group: GroupSnapshot) -> Iterator[Defect]:
    """What is wrong with the message groups of an ordered group."""
    keys, name = group.keys, group.keys.group
    out = {id_ for _, ids in group.ids_by_key() for id_ in ids}
    order = {in_order(member) for member in group.order}
    for message_group, id_ in group.heads.items():
        if id_ not in out:
            text = f"group {name} waits in message group {message_group} for a message it lost"
            yield Defect(ERROR, "stuck", keys.heads, id_, text)
        elif (message_group, id_) not in order:
            text = f"the head of message group {message_group} is not in its order"
            yield Defect(WARNING, "not in line", keys.order, id_, text)
    for member in group.order:
        message_group, id_ = in_order(member)
        if message_group not in group.heads:
            text = f"message group {message_group} has no head; group {name} never gets the message"
            yield Defect(ERROR, "stuck", keys.order, id_, text)
        if _is_over(seen, group, id_):
            text = "the order has a message that is not stored, or that the group is done with"
            yield Defect(WARNING, "leftover", keys.order, id_, text)
        elif order_member(seen.slots[id_], id_, group.byte) != member:
            text = "the order has the message under a number that it does not have"
            yield Defect(WARNING, "leftover", keys.order, id_, text)
    yield from _two_out(seen, group)


def _is_over(seen: Snapshot, group: GroupSnapshot, id_: str) -> bool:
    ended = group.byte not in seen.pending.get(id_, group.byte)
    return id_ not in seen.slots or id_ in group.dead or ended


def _two_out(seen: Snapshot, group: GroupSnapshot) -> Iterator[Defect]:
    """A message that is delivered out of turn; one that was redriven with a delay may wait."""
    for key, ids in (*group.lists.items(), (group.keys.inflight, group.inflight)):
        for id_ in ids:
            named = message_group_of(seen.slots[id_]) if id_ in seen.slots else None
            if named is not None and group.heads.get(named) != id_:
                severity = ERROR if key == group.keys.inflight else WARNING
                text = f"the message is delivered, but it is not the head of message group {named}"
                yield Defect(severity, "out of turn", key, id_, text)
