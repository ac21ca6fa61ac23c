"""Repairs: what the auditor found is checked again, and made right."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rqretry.protocol.command import Command, call, text
from rqretry.protocol.keys import GroupKeys, PartitionKeys
from rqretry.protocol.publish import scheduled_member


class RepairReply(NamedTuple):
    """What a call answered."""

    looked: int
    """How many of those that were named it looked at; the others are for the next call."""
    repaired: list[str]
    """Those that it changed."""


class Orphan(NamedTuple):
    """A message of which the groups that owe it are to be found."""

    id: str
    tag: str
    """"" for none, or where the body cannot be read."""
    targets: bytes
    """The bytes of the groups that its tag is for."""


def repair_places(
    keys: GroupKeys, what: str, ids: Sequence[str], *, actor: str
) -> Command[RepairReply]:
    """Repair the lists of a group for some messages; `what`: see lua/repair_places.lua."""
    arguments = [_bytes(id_) for id_ in ids]
    return call(
        keys.scripts, "repair_places", (keys.group, actor, what, *arguments), _repaired, tuple(ids)
    )


def repair_order(
    keys: GroupKeys, what: str, subjects: Sequence[str], *, actor: str
) -> Command[RepairReply]:
    """Repair the order of an ordered group; `what` and the subjects: see lua/repair_order.lua."""
    arguments = [_bytes(subject) for subject in subjects]
    return call(keys.scripts, "repair_order", (keys.group, actor, what, *arguments), _repaired)


def repair_owners(
    keys: PartitionKeys,
    groups: Sequence[tuple[GroupKeys, str]],
    orphans: Sequence[Orphan],
    *,
    actor: str,
) -> Command[RepairReply]:
    """Who owes these messages agrees with who has them.

    Args:
        keys: The partition.
        groups: Every group that owns messages there, with its byte.
        orphans: The messages.
        actor: Who asks.
    """
    touched = [*keys.scripts["repair_owners"]]
    for g, _ in groups:
        touched += (g.ready, g.retry, g.inflight, g.dead, g.order, *g.levels)
    levels = groups[0][0].level_count if groups else 0
    bytes_ = [_bytes(byte) for _, byte in groups]
    arguments = [
        argument
        for o in orphans
        for argument in (_bytes(o.id), scheduled_member(o.id, o.tag).encode(), o.targets)
    ]
    return Command(
        verb="repair_owners",
        keys=tuple(touched),
        args=(actor, levels, len(groups), *bytes_, *arguments),
        decode=lambda reply: RepairReply(int(reply[0]), [_text(id_) for id_ in reply[2]]),
        ids=tuple(orphan.id for orphan in orphans),
    )


def repair_orphans(keys: PartitionKeys, what: str, subjects: Sequence[str]) -> Command[RepairReply]:
    """What a partition keeps of messages that are not there goes; `what`: see the script."""
    arguments = [_bytes(subject) for subject in subjects]
    return call(keys.scripts, "repair_orphans", (what, *arguments), _repaired)


def _repaired(reply: list[Any]) -> RepairReply:
    return RepairReply(int(reply[0]), [_text(id_) for id_ in reply[1]])


def _bytes(name: str) -> bytes:
    """As the auditor read it: a group's byte, or a damaged name, may be no UTF-8 (see _text)."""
    return name.encode("latin-1", errors="ignore")


def _text(name: bytes | str | int) -> str:
    return name.decode("latin-1") if isinstance(name, bytes) else text(name)
