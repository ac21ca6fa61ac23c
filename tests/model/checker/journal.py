"""The server's own record of a run: every transition of every message, in total order.

It is read from the append-only file, so the scripts are as in production. Each block is replayed
into a model of the keys; what the keys say before and after is the transition, and the history
entry of the block, where it has one, says which verb it was.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rqretry.checks.snapshot import in_order
from rqretry.core.message_id import spell_ids
from rqretry.protocol.keys import partition_keys
from rqretry.protocol.publish import id_of_member
from tests.model.checker.aof import Block, read_blocks
from tests.model.checker.keyspace import Keyspace
from tests.model.checker.places import DELAY, Place, place_of
from tests.model.checker.reading import Change, NoEntry, VerbEntry, steps_of
from tests.model.checker.transitions import Entity, Kind, Transition

TOKEN = re.compile(r"ct-[0-9a-f]{16}")
"""What a recorded publisher puts into a header: it names a message whose id it never learned."""

_HOLDING = frozenset({"inflight", "dead", DELAY, "ready", "retry", "order", "attempts"})
_LISTS = frozenset({"ready", "retry"})

Owner = tuple[str, int, str, str]


class Partition(NamedTuple):
    """Topic and number."""

    topic: str
    number: int


@dataclass
class Journal:
    """What the server did.

    Attributes:
        transitions: In the order in which it did it.
        final: The keys at the end, by replaying.
        blocks: How many blocks there were.
        published: (topic, id) of all that was accepted, stored or not: a message that no group
            wants is counted and gone.
        views: (topic, group) of groups that consume dead letters; their messages are others'.
    """

    transitions: list[Transition] = field(default_factory=list)
    final: Keyspace = field(default_factory=Keyspace)
    blocks: int = 0
    published: set[tuple[str, str]] = field(default_factory=set)
    views: set[tuple[str, str]] = field(default_factory=set)
    doubled: dict[Entity, int] = field(default_factory=dict)
    """Messages that a group has had in two places at once, with the first block behind which."""


def read_journal(directory: Path, namespace: str) -> Journal:
    """Read the append-only file under a server's directory.

    Raises:
        FileNotFoundError: There is none.
        ValueError: It is damaged, or holds what this reader does not know.
    """
    return follow(read_blocks(directory), namespace)


def follow(blocks: Iterable[Block], namespace: str) -> Journal:
    """Read blocks from wherever they come."""
    journal = Journal()
    for block in blocks:
        journal.final.forget()
        for request_parts in block.commands:
            journal.final.apply(request_parts)
        if block.number:
            journal.blocks += 1
            _report(journal, block, namespace)
    return journal


class _Touched:
    """What a block touched: bodies by partition, messages by group, and what was there before."""

    def __init__(self, space: Keyspace, namespace: str) -> None:
        self.bodies: dict[Partition, dict[str, Any]] = defaultdict(dict)
        self.owners: dict[Owner, dict[str, Any]] = defaultdict(dict)
        for (key, member), old in space.before.items():
            place = place_of(key, namespace)
            if place is None:
                continue
            if place.name == "bodies" and not place.group:
                self.bodies[Partition(place.topic, place.partition)][member] = old
            elif place.group and place.name in _HOLDING:
                _note(self.owners, place, member, old, space.now(key, member))

    def add_purged(self, entries: dict[Partition, VerbEntry]) -> None:
        """Messages purged from the middle of a line, which is nobody's place."""
        for partition, entry in entries.items():
            for id_ in entry.ids if entry.verb == "purge" else ():
                self.owners.setdefault((*partition, entry.group, id_), {})


def _report(journal: Journal, block: Block, namespace: str) -> None:
    space = journal.final
    entries = _entries(block, namespace)
    touched = _Touched(space, namespace)
    touched.add_purged(entries)
    for partition, entry in entries.items():
        if entry.verb in {"publish", "prepare"}:
            journal.published.update((partition.topic, id_) for id_ in entry.ids)
    stated = _BodySteps(space, namespace, block.number, entries)
    journal.transitions += stated.stored(touched.bodies)
    for owner, pairs in touched.owners.items():
        partition = Partition(owner[0], owner[1])
        change = Change(space, namespace, owner, pairs, entries.get(partition, NoEntry))
        if change.is_view:
            journal.views.add((owner[0], owner[2]))
        if change.places() > 1:
            journal.doubled.setdefault(Entity(owner[0], owner[2], owner[3]), block.number)
        journal.transitions += steps_of(change, block.number, stated.mark(partition))
    journal.transitions += stated.deleted(touched.bodies)


def _note(
    owners: dict[Owner, dict[str, Any]], place: Place, member: str, old: Any, new: Any
) -> None:
    """What is under a name, before and after, of the message that a member of it names."""
    if place.name in _LISTS:  # how often it is there; of a list that has not got it, 0
        old, new = old or None, new or None
    id_ = in_order(member)[1] if place.name == "order" else id_of_member(member)
    touched = owners[place.topic, place.partition, place.group, id_]
    if place.name == DELAY and place.name in touched:
        was, now = touched[DELAY]
        touched[DELAY] = (was if old is None else old, now if new is None else new)
    else:
        touched[place.name] = (old, new)


def _entries(block: Block, namespace: str) -> dict[Partition, VerbEntry]:
    """The history entries of a block; one of each partition."""
    found = {}
    for request_parts in block.commands:
        if request_parts[0].upper() != "XADD":
            continue
        place = place_of(request_parts[1], namespace)
        if place is not None and place.name == "events":
            fields = dict(zip(request_parts[3::2], request_parts[4::2], strict=True))
            ids = frozenset(fields["i"].split() or _packed(fields["b"]))
            entry = VerbEntry(fields["e"], fields["g"], fields["w"], ids)
            found[Partition(place.topic, place.partition)] = entry
    return found


def _packed(blob: str) -> list[str]:
    return spell_ids(blob.encode("latin-1")).decode().split()


class _BodySteps:
    """The transitions of messages as a whole."""

    def __init__(
        self,
        space: Keyspace,
        namespace: str,
        number: int,
        entries: dict[Partition, VerbEntry],
    ) -> None:
        self._space, self._namespace = space, namespace
        self._number, self._entries = number, entries

    def mark(self, partition: Partition) -> int:
        """Logical time of a partition behind the block."""
        keys = partition_keys(self._namespace, *partition)
        return int(float(self._space.hash(keys.meta).get("mark", "0")))

    def stored(self, bodies: dict[Partition, dict[str, Any]]) -> Iterator[Transition]:
        """Bodies that are new, or others."""
        for partition, id_, old, body in self._changed(bodies):
            if body is not None:
                token = TOKEN.search(body)
                kind = Kind.CREATE if old is None else Kind.OVERWRITE
                yield self._step(kind, partition, id_, token[0] if token else "")

    def deleted(self, bodies: dict[Partition, dict[str, Any]]) -> Iterator[Transition]:
        """Bodies that are gone."""
        for partition, id_, old, body in self._changed(bodies):
            if body is None and old is not None:
                yield self._step(Kind.REMOVE, partition, id_)

    def _changed(
        self, bodies: dict[Partition, dict[str, Any]]
    ) -> Iterator[tuple[Partition, str, Any, Any]]:
        for partition, touched in bodies.items():
            key = partition_keys(self._namespace, *partition).bodies
            for id_, old in touched.items():
                body = self._space.now(key, id_)
                if body != old:
                    yield partition, id_, old, body

    def _step(self, kind: Kind, partition: Partition, id_: str, token: str = "") -> Transition:
        return Transition(
            block=self._number, at_ms=self.mark(partition), kind=kind, topic=partition.topic,
            partition=partition.number, id=id_, token=token,
            verb=self._entries.get(partition, NoEntry).verb,
        )  # fmt: skip
