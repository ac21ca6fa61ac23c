"""What the auditor read of one partition, and of each group in it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rqretry.protocol.inspect import dead_letter_member
from rqretry.protocol.keys import GroupKeys, PartitionKeys

ORDER_DIGITS = 16
"""Digits of a message's number in its group's order.

The number stands before the message group in `message_groups`, and before the id in `order`. Where
a redrive gave a message another number, a zero byte, the group's byte and that follow.
"""


@dataclass(slots=True)
class GroupSnapshot:
    """What was read of one group; ids and their scores or values."""

    keys: GroupKeys
    byte: str = ""
    lists: dict[str, list[str]] = field(default_factory=dict)
    inflight: dict[str, float] = field(default_factory=dict)
    dead: dict[str, float] = field(default_factory=dict)
    levels: dict[str, dict[str, float]] = field(default_factory=dict)
    due: dict[str, float] = field(default_factory=dict)
    attempts: set[str] = field(default_factory=set)
    failures: set[str] = field(default_factory=set)
    deaths: dict[str, str] = field(default_factory=dict)
    fingerprints: set[str] = field(default_factory=set)
    """The index of the dead letters: its members."""
    ordered: bool = False
    order: list[str] = field(default_factory=list)
    heads: dict[str, str] = field(default_factory=dict)
    dead_letters: set[str] = field(default_factory=set)
    """The dead letters of the other group, where this one consumes them."""

    def ids_by_key(self) -> Iterator[tuple[str, Iterable[str]]]:
        """Each key that holds messages, with the ids in it."""
        yield from self.lists.items()
        yield self.keys.inflight, self.inflight
        yield self.keys.dead, self.dead
        yield from self.levels.items()

    def blocked(self) -> Iterator[str]:
        """Messages in the order that are waiting for their turn."""
        out = set(self.heads.items())
        return (id_ for name, id_ in map(in_order, self.order) if (name, id_) not in out)

    def noted_fingerprints(self) -> dict[str, str]:
        """What the index of the dead letters should hold, and the id of each."""
        return {
            dead_letter_member(self.deaths.get(id_, ""), since, id_): id_
            for id_, since in self.dead.items()
        }

    def held(self) -> set[str]:
        """Every message that the group has."""
        return {id_ for _, ids in self.ids_by_key() for id_ in ids}.union(self.blocked())


@dataclass(slots=True)
class Snapshot:
    """What was read of one partition."""

    keys: PartitionKeys
    bodies: set[str] = field(default_factory=set)
    pending: dict[str, str] = field(default_factory=dict)
    big: set[str] = field(default_factory=set)
    unadopted: set[str] = field(default_factory=set)
    """What calls have left behind: large bodies that are no message's."""
    ids: set[str] = field(default_factory=set)
    id_expiry: dict[str, float] = field(default_factory=dict)
    scheduled: dict[str, float] = field(default_factory=dict)
    scheduled_members: dict[str, str] = field(default_factory=dict)
    """The member for each id: with the tag, if it has one."""
    backlog: list[str] = field(default_factory=list)
    slots: dict[str, str] = field(default_factory=dict)
    """What `message_groups` keeps of each message that has a message group."""
    keyed: dict[str, str] = field(default_factory=dict)
    """The message keys of each message that has some, separated by blanks."""
    message_keys: set[tuple[str, str]] = field(default_factory=set)
    """The index: message key and id."""
    halves: dict[str, float] = field(default_factory=dict)
    half_of: dict[str, str] = field(default_factory=dict)
    unknown_transactions: set[str] = field(default_factory=set)
    groups: list[GroupSnapshot] = field(default_factory=list)

    def noted_keys(self) -> set[tuple[str, str]]:
        """What the index should hold: message key and id."""
        return {(key, id_) for id_, names in self.keyed.items() for key in names.split(" ")}


def message_group_of(slot: str) -> str:
    """The message group of what `message_groups` keeps of a message."""
    return slot[ORDER_DIGITS:].partition("\0")[0]


def order_member(slot: str, id_: str, byte: str) -> str:
    """The member that a group has in its order, given what `message_groups` keeps of a message."""
    name, *redriven = slot[ORDER_DIGITS:].split("\0")
    digits = next((one[1:] for one in redriven if one[:1] == byte), slot[:ORDER_DIGITS])
    return f"{name}\0{digits}{id_}"


def in_order(member: str) -> tuple[str, str]:
    """The message group and the id that a member of an order names."""
    name, _, rest = member.partition("\0")
    return name, rest[ORDER_DIGITS:]
