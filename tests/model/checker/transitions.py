"""What can happen to a message, as the journal records it (docs/checker.md)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """One word per transition; those of a message as a whole first, then those in a group."""

    CREATE = "create"
    """Its body is stored."""
    OVERWRITE = "overwrite"
    """Another body is stored under its id."""
    REMOVE = "remove"
    """Its body is deleted."""
    ENTER = "enter"
    """The group has it from here on."""
    LEASE = "lease"
    RENEW = "renew"
    CHANGE = "change"
    """A new receipt for a lease that goes on: an end and a beginning."""
    SUCCEED = "succeed"
    FAIL = "fail"
    EXPIRE = "expire"
    RELEASE = "release"
    DEAD = "dead"
    """Behind the FAIL or EXPIRE that it follows from."""
    PROMOTE = "promote"
    REDRIVE = "redrive"
    PURGE = "purge"
    LEFTOVER = "leftover"
    """It was in flight although it was finished before: what a script that was cut left."""


ENDS = frozenset({Kind.SUCCEED, Kind.FAIL, Kind.EXPIRE, Kind.RELEASE, Kind.PURGE, Kind.LEFTOVER})
"""What ends a lease; also CHANGE, which begins another one."""

COUNTED = frozenset({Kind.FAIL, Kind.EXPIRE})
"""What makes the next delivery another attempt."""


class Entity(NamedTuple):
    """A message in a group."""

    topic: str
    group: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One step of one message, in the order of the journal.

    Attributes:
        block: The number of the journal's block.
        at_ms: Logical server time of the partition; 0 where the block does not say.
        kind, topic, partition, id: What happened to which message.
        group: In which group; "" for the message as a whole.
        lease_no, attempt: Of the lease that begins, goes on or ends.
        until_ms: The deadline of the lease (LEASE, RENEW, CHANGE), or when the message is due
            (FAIL, EXPIRE, RELEASE into a delay level; REDRIVE later); 0 for none.
        deadline_ms: The deadline of the lease that ends here (EXPIRE and other ends), or the due
            time of what is promoted.
        lane: Where it lies then: "ready", "retry", "delay", "dead", "inflight" or "".
        verb, worker: As the server's own history has it; "" where it has no entry.
        cause: Of a death.
        max_attempts: The group's limit at that time; 0 for none.
        ladder_ms: The least wait that the group's policy has for this attempt; -1 unknown.
        order: Of a message with a message group, its number and name; "" for none.
        token: What the publisher of a CREATE put into its headers; "" for nothing.
    """

    block: int
    at_ms: int = 0
    kind: Kind
    topic: str = "t"
    partition: int = 0
    group: str = ""
    id: str
    lease_no: int = 0
    attempt: int = 0
    until_ms: float = 0
    deadline_ms: float = 0
    lane: str = ""
    verb: str = ""
    worker: str = ""
    cause: str = ""
    max_attempts: int = 0
    ladder_ms: int = -1
    order: str = ""
    token: str = ""

    @property
    def entity(self) -> Entity:
        """The message in its group."""
        return Entity(self.topic, self.group, self.id)

    def __str__(self) -> str:
        where = f"{self.topic}/{self.group}" if self.group else self.topic
        lease = f" lease {self.lease_no} attempt {self.attempt}" if self.lease_no else ""
        return f"block {self.block}: {self.kind} {self.id} in {where}{lease} at {self.at_ms} ms"
