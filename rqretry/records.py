"""The catalog's records: what is true of a topic and of a group in every partition."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rqretry.errors import CodecError, ConfigError, show
from rqretry.levels import LevelTable
from rqretry.limits import DEFAULT_MAX_RETRIES
from rqretry.policy import RetryPolicy
from rqretry.routes import MAX_GROUPS, Route, RouteGroup

SCHEMA = 1
"""Of everything rqretry keeps in Redis. A newer one is refused at connect."""

PUSH, SIMPLE = "push", "simple"


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic: its partitions, and its groups in the order in which they came."""

    name: str
    partitions: int
    version: int = 1
    groups: tuple[RouteGroup, ...] = ()
    next_byte: int = 1

    @property
    def route(self) -> Route:
        """What the partitions are told."""
        return Route(self.version, self.partitions, self.groups)

    def byte_of(self, group: str) -> int:
        """The group's letter in pending bytes; 0 if it is not subscribed."""
        return next((g.byte for g in self.groups if g.name == group), 0)

    def with_group(self, group: str, kind: str) -> "TopicRecord":
        """The record with this group subscribed."""
        if self.byte_of(group):
            return self
        if self.next_byte > MAX_GROUPS:
            raise ConfigError(
                f"topic {show(self.name)} has had {MAX_GROUPS} groups, which is the most"
            )
        return replace(
            self,
            version=self.version + 1,
            groups=(*self.groups, RouteGroup(group, self.next_byte, kind)),
            next_byte=self.next_byte + 1,
        )

    def encode(self) -> str:
        """As the catalog keeps it."""
        return _dump(
            {
                "partitions": self.partitions,
                "version": self.version,
                "groups": [list(group) for group in self.groups],
                "next_byte": self.next_byte,
            }
        )

    @staticmethod
    def decode(name: str, stored: str) -> "TopicRecord":
        """Read what `encode` wrote. Raises CodecError where it is damaged."""
        try:
            fields = json.loads(stored)
            groups = tuple(RouteGroup(*group) for group in fields["groups"])
            return TopicRecord(
                name, fields["partitions"], fields["version"], groups, fields["next_byte"]
            )
        except (ValueError, TypeError, KeyError) as error:
            raise CodecError(f"the catalog's record of topic {show(name)} is damaged") from error


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A consumer group: one truth for all its instances (semantics.md section 4)."""

    name: str
    kind: str
    max_retries: int = DEFAULT_MAX_RETRIES
    """-1 is unlimited."""
    policy: RetryPolicy = RetryPolicy.rocketmq()  # noqa: RUF009 - frozen
    topics: tuple[str, ...] = ()
    version: int = 1
    changed_by: str = ""

    def configuration(self, levels: LevelTable, byte: int) -> Mapping[str, str | int | bytes]:
        """What the scripts in a partition need to know of the group."""
        compiled = self.policy.compile(levels)
        return {
            "kind": self.kind,
            "max_retries": self.max_retries,
            "delays": " ".join(map(str, compiled.delays_ms)),
            "levels": levels.encode(),
            "jitter": str(compiled.jitter),
            "byte": bytes((byte,)),
        }

    def changed(self, by: str, **fields: Any) -> "GroupRecord":
        """The record with other fields and the next version; itself if nothing differs."""
        if replace(self, **fields) == self:
            return self
        return replace(self, version=self.version + 1, changed_by=by, **fields)

    def encode(self) -> str:
        """As the catalog keeps it."""
        return _dump(
            {
                "kind": self.kind,
                "max_retries": self.max_retries,
                "policy": self.policy.encode(),
                "topics": list(self.topics),
                "version": self.version,
                "changed_by": self.changed_by,
            }
        )

    @staticmethod
    def decode(name: str, stored: str) -> "GroupRecord":
        """Read what `encode` wrote. Raises CodecError where it is damaged."""
        try:
            fields = json.loads(stored)
            return GroupRecord(
                name,
                fields["kind"],
                fields["max_retries"],
                RetryPolicy.decode(fields["policy"]),
                tuple(fields["topics"]),
                fields["version"],
                fields["changed_by"],
            )
        except (ValueError, TypeError, KeyError) as error:
            raise CodecError(f"the catalog's record of group {show(name)} is damaged") from error


def _dump(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True)
