"""Repairs: what the auditor found is checked again, and made right."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rqretry.protocol.command import Command, text
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
    """A group's places of some messages agree again; `what`: see lua/repair_places.lua."""
    p = keys.partition
    touched = (
        p.meta, keys.config, keys.ready, keys.retry, keys.inflight, keys.attempts, keys.failures,
        keys.dead, keys.deaths, keys.due, keys.wake, keys.order, keys.heads, p.bodies, p.pending,
        p.message_groups, p.events, p.counters, *keys.levels,
    )  # fmt: skip
    arguments = [_bytes(id_) for id_ in ids]
    return Command(
        "repair_places", touched, (keys.group, actor, what, *arguments), _repaired, ids=tuple(ids)
    )


def repair_order(
    keys: GroupKeys, what: str, subjects: Sequence[str], *, actor: str
) -> Command[RepairReply]:
    """The lines of an ordered group go on; `what`, and what the subjects are: see the script."""
    p = keys.partition
    touched = (
        p.meta, keys.config, keys.ready, keys.retry, keys.inflight, keys.attempts, keys.dead,
        keys.wake, keys.order, keys.heads, p.bodies, p.pending, p.message_groups, p.events,
        p.counters, *keys.levels,
    )  # fmt: skip
    arguments = [_bytes(subject) for subject in subjects]
    return Command("repair_order", touched, (keys.group, actor, what, *arguments), _repaired)


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
    touched = [
        keys.meta, keys.bodies, keys.pending, keys.scheduled, keys.backlog, keys.half_of,
        keys.message_groups, keys.events,
    ]  # fmt: skip
    for group, _ in groups:
        touched += [
            group.ready,
            group.retry,
            group.inflight,
            group.dead,
            group.order,
            *group.levels,
        ]
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
    touched = (
        keys.meta, keys.bodies, keys.pending, keys.big, keys.message_groups, keys.ids,
        keys.id_expiry, keys.scheduled, keys.backlog, keys.halves, keys.half_of, keys.keyed,
        keys.message_keys,
    )  # fmt: skip
    arguments = [_bytes(subject) for subject in subjects]
    return Command(
        verb="repair_orphans",
        keys=touched,
        args=(what, *arguments),
        decode=lambda reply: RepairReply(len(subjects), [_text(id_) for id_ in reply]),
    )


def _repaired(reply: list[Any]) -> RepairReply:
    return RepairReply(int(reply[0]), [_text(id_) for id_ in reply[1]])


def _bytes(name: str) -> bytes:
    """As the auditor read it: a group's byte, or a damaged name, may be no UTF-8 (see _text)."""
    return name.encode("latin-1", errors="ignore")


def _text(name: bytes | str | int) -> str:
    return name.decode("latin-1") if isinstance(name, bytes) else text(name)
