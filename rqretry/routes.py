"""A partition's route: the groups that its messages go to, versioned (decisions 5).

The client fans out: it knows the route, passes the keys of all groups, and is told when the route
has changed. A group is named in the pending bytes of a message by one byte.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

MAX_GROUPS = 250


class RouteGroup(NamedTuple):
    """One subscribed group."""

    name: str
    byte: int
    """1..250, the group's letter in pending bytes; never 0."""
    kind: str
    """"push" or "simple"."""


@dataclass(frozen=True, slots=True)
class Route:
    """The groups of a topic at a version; the first one takes the backlog."""

    version: int = 0
    partitions: int = 1
    groups: tuple[RouteGroup, ...] = ()
    max_messages: int = 0
    """Of one partition, 0 for no limit; told to the partitions and unknown to publishers."""

    def encode(self) -> str:
        """The table as the partitions keep it, without the version."""
        table = {"p": self.partitions, "g": [list(group) for group in self.groups]}
        return json.dumps(table, separators=(",", ":"))

    @staticmethod
    def decode(version: int, table: bytes | str) -> "Route":
        """Read what `encode` wrote; an empty table is a topic without groups."""
        return _decode(version, table if isinstance(table, str) else table.decode())


NO_ROUTE = Route()


@lru_cache(maxsize=1024)
def _decode(version: int, table: str) -> Route:
    if not table:
        return Route(version)
    fields = json.loads(table)
    groups = tuple(RouteGroup(name, byte, kind) for name, byte, kind in fields["g"])
    return Route(version, fields["p"], groups)
