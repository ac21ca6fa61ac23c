"""A partition's route: the groups that its messages go to, versioned (docs/decisions/0004).

The client fans out: it knows the route, passes the keys of all groups, and learns from the reply
when the route has changed. One byte stands for a group in the pending bytes of a message.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

MAX_GROUPS = 250
EVERY_TAG = "*"
QUEUE, PARALLEL = UNORDERED = ("queue", "parallel")
"""What ordered groups do with messages without a message group: handle them in the order of their
partition, one at a time, or all at once."""


class RouteGroup(NamedTuple):
    """One subscribed group."""

    name: str
    byte: int
    """1..250, the group's byte in the pending bytes of a message; never 0."""
    kind: str
    """"push", "simple" or "broadcast"."""
    tags: str = EVERY_TAG
    """What it takes of the topic: "*", or tags such as "a || b"."""
    ordered: bool = False
    """One message of a message group at a time, in order."""
    more: str = ""
    """What a newer version has stored behind that, as JSON; "" for nothing."""

    def takes(self, tag: str) -> bool:
        """Whether a message with this tag ("" for none) is for this group."""
        return self.tags == EVERY_TAG or tag in _tags(self.tags)

    def encode(self) -> list[Any]:
        """As records and tables keep it; what is usual at the end is left out."""
        fields: list[Any] = list(self[:-1])
        if self.more:
            return fields + list(json.loads(self.more))
        while len(fields) > _LEAST_FIELDS and fields[-1] == _USUAL[len(fields) - 1]:
            fields.pop()
        return fields

    @staticmethod
    def decode(fields: Sequence[Any]) -> "RouteGroup":
        """Read what `encode` wrote."""
        if len(fields) <= _KNOWN_FIELDS:
            return RouteGroup(*fields)
        more = json.dumps(fields[_KNOWN_FIELDS:], separators=(",", ":"))
        return RouteGroup(*fields[:_KNOWN_FIELDS])._replace(more=more)


_LEAST_FIELDS, _KNOWN_FIELDS = 3, 5
_USUAL = RouteGroup("", 0, "")


@dataclass(frozen=True, slots=True)
class Route:
    """The groups of a topic at a version; the first one takes the backlog."""

    version: int = 0
    partitions: int = 1
    groups: tuple[RouteGroup, ...] = ()
    max_messages: int = 0
    """Of one partition, 0 for no limit; known to the partitions and not to publishers."""
    broadcast: bool = False
    """Whether there is a broadcast group; it is not one of `groups`, which own their messages."""
    closed: bool = False
    """Whether publishers have to wait, since the topic is being given more partitions."""
    history_bytes: int = 0
    """How much history a partition keeps, 0 for its own limit; known to the partitions alone."""
    history_ms: int = 0
    """For how long, 0 for any time; known to the partitions alone."""
    keep_ms: int = 0
    """How long what was consumed is kept, 0 for not at all; known to the partitions alone."""
    keep_bytes: int = 0
    """How many bytes of it; known to the partitions alone."""
    unordered: str = QUEUE
    """What ordered groups do with messages that have no message group: one of UNORDERED."""
    compress_from: int = 0
    """From how many bytes on publishers compress a body; 0: not at all."""
    filtered: bool = field(init=False)
    """Whether a group takes only some tags."""
    queued: bool = field(init=False)
    """Whether a group orders messages without a message group."""

    def __post_init__(self) -> None:
        """Look once, since every publish asks."""
        filtered = any(group.tags != EVERY_TAG for group in self.groups)
        object.__setattr__(self, "filtered", filtered)
        ordered = any(group.ordered for group in self.groups)
        object.__setattr__(self, "queued", ordered and self.unordered == QUEUE)

    def targets(self, tag: str) -> bytes:
        """The bytes of the groups that take a message with this tag ("" for none)."""
        return _targets(self.groups, tag)

    def encode(self) -> str:
        """The table as the partitions keep it, without the version."""
        table: dict[str, Any] = {
            "p": self.partitions,
            "g": [group.encode() for group in self.groups],
        }
        if self.broadcast:
            table["b"] = 1
        if self.closed:
            table["c"] = 1
        if self.unordered != QUEUE:
            table["u"] = self.unordered
        if self.compress_from:
            table["z"] = self.compress_from
        return json.dumps(table, separators=(",", ":"))

    @staticmethod
    def decode(version: int, table: bytes | str) -> "Route":
        """Read what `encode` wrote; an empty table is a topic without groups."""
        return _decode(version, table if isinstance(table, str) else table.decode())


@lru_cache(maxsize=1024)
def _decode(version: int, table: str) -> Route:
    if not table:
        return Route(version)
    fields = json.loads(table)
    groups = tuple(RouteGroup.decode(group) for group in fields["g"])
    return Route(
        version, fields["p"], groups, broadcast="b" in fields, closed="c" in fields,
        unordered=fields.get("u", QUEUE), compress_from=fields.get("z", 0),
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _tags(text: str) -> frozenset[str]:
    return frozenset(tag.strip() for tag in text.split("||"))


@lru_cache(maxsize=4096)
def _targets(groups: tuple[RouteGroup, ...], tag: str) -> bytes:
    return bytes(group.byte for group in groups if group.takes(tag))
