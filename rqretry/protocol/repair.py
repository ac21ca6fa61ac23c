"""mend, realign, adopt, tidy: what the auditor found is looked at again, and made right."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rqretry.protocol.command import Command, text
from rqretry.protocol.keys import GroupKeys, PartitionKeys
from rqretry.protocol.publish import scheduled_member


class Mended(NamedTuple):
    """What a call answered."""

    looked: int
    """How many of those that were named it looked at; the others are for the next call."""
    mended: list[str]
    """Those that it changed."""


class Orphan(NamedTuple):
    """A message of which the groups that owe it are to be found."""

    id: str
    tag: str
    """"" for none, or where the body cannot be read."""
    targets: bytes
    """The bytes of the groups that its tag is for."""


def mend(keys: GroupKeys, what: str, ids: Sequence[str], *, actor: str) -> Command[Mended]:
    """A group's places of some messages agree again; `what`: see lua/mend.lua."""
    p = keys.partition
    touched = (
        p.meta, keys.config, keys.ready, keys.retry, keys.inflight, keys.attempts, keys.failures,
        keys.dead, keys.graves, keys.due, keys.wake, keys.line, keys.heads, p.bodies, p.pending,
        p.message_groups, p.events, p.counters, *keys.levels,
    )  # fmt: skip
    words = [_bytes(id_) for id_ in ids]
    return Command("mend", touched, (keys.group, actor, what, *words), _mended, ids=tuple(ids))


def realign(keys: GroupKeys, what: str, subjects: Sequence[str], *, actor: str) -> Command[Mended]:
    """The lines of an ordered group go on; `what`, and what the subjects are: see the script."""
    p = keys.partition
    touched = (
        p.meta, keys.config, keys.ready, keys.retry, keys.inflight, keys.attempts, keys.dead,
        keys.wake, keys.line, keys.heads, p.bodies, p.pending, p.message_groups, p.events,
        p.counters, *keys.levels,
    )  # fmt: skip
    words = [_bytes(subject) for subject in subjects]
    return Command("realign", touched, (keys.group, actor, what, *words), _mended)


def adopt(
    keys: PartitionKeys,
    groups: Sequence[tuple[GroupKeys, str]],
    orphans: Sequence[Orphan],
    *,
    actor: str,
) -> Command[Mended]:
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
        touched += [group.ready, group.retry, group.inflight, group.dead, group.line, *group.levels]
    levels = groups[0][0].level_count if groups else 0
    bytes_ = [_bytes(byte) for _, byte in groups]
    words = [
        word
        for o in orphans
        for word in (_bytes(o.id), scheduled_member(o.id, o.tag).encode(), o.targets)
    ]
    return Command(
        verb="adopt",
        keys=tuple(touched),
        args=(actor, levels, len(groups), *bytes_, *words),
        decode=lambda reply: Mended(int(reply[0]), [_text(id_) for id_ in reply[2]]),
        ids=tuple(orphan.id for orphan in orphans),
    )


def tidy(keys: PartitionKeys, what: str, subjects: Sequence[str]) -> Command[Mended]:
    """What a partition keeps of messages that are not there goes; `what`: see lua/tidy.lua."""
    touched = (
        keys.meta, keys.bodies, keys.pending, keys.big, keys.message_groups, keys.ids,
        keys.id_expiry, keys.scheduled, keys.backlog, keys.halves, keys.half_of, keys.keyed,
        keys.message_keys,
    )  # fmt: skip
    words = [_bytes(subject) for subject in subjects]
    return Command(
        "tidy",
        touched,
        (what, *words),
        lambda reply: Mended(len(subjects), [_text(id_) for id_ in reply]),
    )


def _mended(reply: list[Any]) -> Mended:
    return Mended(int(reply[0]), [_text(id_) for id_ in reply[1]])


def _bytes(word: str) -> bytes:
    """As the auditor read it: a group's byte, or a damaged name, may be no UTF-8 (see _text)."""
    return word.encode("latin-1", errors="ignore")


def _text(word: bytes | str | int) -> str:
    return word.decode("latin-1") if isinstance(word, bytes) else text(word)
