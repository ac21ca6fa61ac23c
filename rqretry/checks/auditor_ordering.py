"""Ordered groups: does every message group have one message out, and does it go on?"""

from collections.abc import Iterator, Mapping

from rqretry.checks.findings import ERROR, WARNING, Finding, GroupSnapshot, in_line


def misplaced(message_groups: Mapping[str, str], group: GroupSnapshot) -> Iterator[Finding]:
    """What is wrong with the lines of an ordered group.

    Args:
        message_groups: The message group of each message that has one.
        group: What was read of the group.
    """
    keys, name = group.keys, group.keys.group
    out = {id_ for _, ids in group.places() for id_ in ids}
    line = [in_line(member) for member in group.line]
    for message_group, id_ in group.heads.items():
        if id_ not in out:
            text = f"group {name} waits in message group {message_group} for a message it lost"
            yield Finding(ERROR, "stuck", keys.heads, id_, text)
        elif (message_group, id_) not in line:
            text = f"the message that is out of message group {message_group} is not in its line"
            yield Finding(WARNING, "not in line", keys.order, id_, text)
    for message_group, id_ in line:
        if message_group not in group.heads:
            text = f"nothing of message group {message_group} is out; group {name} never gets it"
            yield Finding(ERROR, "stuck", keys.order, id_, text)
        if id_ not in message_groups or id_ in group.dead:
            text = "a message is in line that is not stored, or is dead; it is passed over"
            yield Finding(WARNING, "leftover", keys.order, id_, text)
    yield from _two_out(message_groups, group)


def _two_out(message_groups: Mapping[str, str], group: GroupSnapshot) -> Iterator[Finding]:
    """A message that is out beside the head; one that was sent back with a delay may wait."""
    for key, ids in (*group.lists.items(), (group.keys.inflight, group.inflight)):
        for id_ in ids:
            named = message_groups.get(id_)
            if named is not None and group.heads.get(named) != id_:
                severity = ERROR if key == group.keys.inflight else WARNING
                text = f"the message is out, but it is not the turn of it in message group {named}"
                yield Finding(severity, "out of turn", key, id_, text)
