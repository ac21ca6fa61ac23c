"""Ordered groups: does every message group have one message whose turn it is?"""

from collections.abc import Iterator, Mapping

from rqretry.checks.defect import ERROR, WARNING, Defect
from rqretry.checks.snapshot import GroupSnapshot, in_order


def misplaced(message_groups: Mapping[str, str], group: GroupSnapshot) -> Iterator[Defect]:
    """What is wrong with the message groups of an ordered group.

    Args:
        message_groups: The message group of each message that has one.
        group: What was read of the group.
    """
    keys, name = group.keys, group.keys.group
    out = {id_ for _, ids in group.ids_by_key() for id_ in ids}
    order = [in_order(member) for member in group.order]
    for message_group, id_ in group.heads.items():
        if id_ not in out:
            text = f"group {name} waits in message group {message_group} for a message it lost"
            yield Defect(ERROR, "stuck", keys.heads, id_, text)
        elif (message_group, id_) not in order:
            text = f"the head of message group {message_group} is not in its order"
            yield Defect(WARNING, "not in line", keys.order, id_, text)
    for message_group, id_ in order:
        if message_group not in group.heads:
            text = f"message group {message_group} has no head; group {name} never gets the message"
            yield Defect(ERROR, "stuck", keys.order, id_, text)
        if id_ not in message_groups or id_ in group.dead:
            text = "the order has a message that is not stored, or is dead; it is skipped"
            yield Defect(WARNING, "leftover", keys.order, id_, text)
    yield from _two_out(message_groups, group)


def _two_out(message_groups: Mapping[str, str], group: GroupSnapshot) -> Iterator[Defect]:
    """A message that is delivered out of turn; one that was redriven with a delay may wait."""
    for key, ids in (*group.lists.items(), (group.keys.inflight, group.inflight)):
        for id_ in ids:
            named = message_groups.get(id_)
            if named is not None and group.heads.get(named) != id_:
                severity = ERROR if key == group.keys.inflight else WARNING
                text = f"the message is delivered, but it is not the head of message group {named}"
                yield Defect(severity, "out of turn", key, id_, text)
