"""The only place that spells a Redis key.

Everything of one partition carries one hash tag, `{topic:partition}`, so that one script can touch
all of it on a cluster; the catalog of a namespace carries the tag `{namespace}`. Names come here
checked (see limits.py): their alphabets hold none of `:{}`, so no two keys can meet.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from rqretry.protocol.signatures import ScriptKeys

ROOT = "rqretry"
STORED_AS = {"deaths": "graves", "order": "line", "exit_records": "last_words"}
"""Keys that end otherwise than their attribute is called: a stored name does not change."""
_APART = ("base", "lane", "levels", "scripts")
"""Attributes that are not one key, named after them."""


@dataclass(frozen=True, slots=True)
class NamespaceKeys:
    """The catalog: what belongs to the whole namespace."""

    namespace: str
    meta: str = field(init=False)
    topics: str = field(init=False)
    groups: str = field(init=False)
    settings: str = field(init=False)
    workers: str = field(init=False)
    worker_details: str = field(init=False)
    audit: str = field(init=False)
    exit_records: str = field(init=False)
    transactions: str = field(init=False)
    open_transactions: str = field(init=False)
    unfinished_transactions: str = field(init=False)
    parked_transactions: str = field(init=False)
    finished_transactions: str = field(init=False)
    scripts: ScriptKeys = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Spell the keys."""
        object.__setattr__(self, "scripts", ScriptKeys(self))
        _spell(self, f"{ROOT}:{self.namespace}:{{{self.namespace}}}:")

    def checks(self, producer_group: str) -> str:
        """The open transactions of a producer group, by when they are to be checked."""
        return f"{ROOT}:{self.namespace}:{{{self.namespace}}}:checks:{producer_group}"


@dataclass(frozen=True, slots=True)
class PartitionKeys:
    """One partition of a topic: bodies, route, history, and what is not any group's."""

    namespace: str
    topic: str
    partition: int
    # What follows is spelled from the three above, and left out when keys are compared and hashed.
    base: str = field(init=False, compare=False)
    meta: str = field(init=False, compare=False)
    route: str = field(init=False, compare=False)
    bodies: str = field(init=False, compare=False)
    big: str = field(init=False, compare=False)
    pending: str = field(init=False, compare=False)
    ids: str = field(init=False, compare=False)
    id_expiry: str = field(init=False, compare=False)
    scheduled: str = field(init=False, compare=False)
    backlog: str = field(init=False, compare=False)
    halves: str = field(init=False, compare=False)
    half_of: str = field(init=False, compare=False)
    closed: str = field(init=False, compare=False)
    message_groups: str = field(init=False, compare=False)
    keyed: str = field(init=False, compare=False)
    message_keys: str = field(init=False, compare=False)
    broadcast: str = field(init=False, compare=False)
    events: str = field(init=False, compare=False)
    counters: str = field(init=False, compare=False)
    lane: Callable[[str], str] = field(init=False, compare=False, repr=False)
    """Where a producer's last call into this partition is remembered."""
    scripts: ScriptKeys = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Spell the keys."""
        base = f"{ROOT}:{self.namespace}:{{{self.topic}:{self.partition}}}:"
        object.__setattr__(self, "base", base)
        object.__setattr__(self, "lane", f"{base}lane:".__add__)
        object.__setattr__(self, "scripts", ScriptKeys(self))
        _spell(self, base)

    def everything(self) -> tuple[str, ...]:
        """Every key that is not a group's; a lane forgets itself."""
        return tuple(getattr(self, name) for name in _names(self))

    def group(self, name: str, levels: int, source: str = "") -> "GroupKeys":
        """The keys of a consumer group in this partition, with `levels` delay levels.

        `source` is the group whose dead letters it consumes; "" for any other group.
        """
        return group_keys(self, name, levels, source)


@dataclass(frozen=True, slots=True)
class GroupKeys:
    """One consumer group in one partition."""

    partition: PartitionKeys
    group: str
    level_count: int
    source: str = ""
    """The group whose dead letters this one consumes: `dead` is that one's set of them."""
    config: str = field(init=False, compare=False)
    ready: str = field(init=False, compare=False)
    retry: str = field(init=False, compare=False)
    inflight: str = field(init=False, compare=False)
    attempts: str = field(init=False, compare=False)
    failures: str = field(init=False, compare=False)
    tracebacks: str = field(init=False, compare=False)
    dead: str = field(init=False, compare=False)
    deaths: str = field(init=False, compare=False)
    due: str = field(init=False, compare=False)
    wake: str = field(init=False, compare=False)
    order: str = field(init=False, compare=False)
    heads: str = field(init=False, compare=False)
    levels: tuple[str, ...] = field(init=False, compare=False)
    scripts: ScriptKeys = field(init=False, compare=False, repr=False)

    @property
    def lists(self) -> tuple[str, str]:
        """The keys that are lists; the others that hold messages are sorted sets."""
        return self.ready, self.retry

    @property
    def origins(self) -> str:
        """The failure records of the group whose dead letters this one consumes."""
        return f"{self._source_base}failures"

    @property
    def _source_base(self) -> str:
        return f"{self.partition.base}group:{self.source}:"

    @property
    def bucket(self) -> str:
        """The tokens of the group's rate limit; not in the partition's slot."""
        return bucket_key(self.partition.namespace, self.group)

    def __post_init__(self) -> None:
        """Spell the keys."""
        base = f"{self.partition.base}group:{self.group}:"
        _spell(self, base)
        if self.source:
            object.__setattr__(self, "dead", f"{self._source_base}dead")
        levels = tuple(f"{base}delay:{level}" for level in range(1, self.level_count + 1))
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "scripts", ScriptKeys(self, self.partition))


@lru_cache(maxsize=4096)
def bucket_key(namespace: str, group: str) -> str:
    """The tokens of a group's rate limit, in a slot of their own: all partitions draw from it."""
    return f"{ROOT}:{namespace}:{{{namespace}/{group}}}:bucket"


@lru_cache(maxsize=4096)
def partition_keys(namespace: str, topic: str, partition: int) -> PartitionKeys:
    """The keys of one partition; spelled once."""
    return PartitionKeys(namespace, topic, partition)


@lru_cache(maxsize=4096)
def group_keys(partition: PartitionKeys, group: str, levels: int, source: str = "") -> GroupKeys:
    """The keys of one group in one partition; spelled once."""
    return GroupKeys(partition, group, levels, source)


def _names(keys: Any) -> list[str]:
    """The attributes that are one key each, spelled after its own name."""
    return [f.name for f in fields(keys) if not f.init and f.name not in _APART]


def _spell(keys: Any, base: str) -> None:
    for name in _names(keys):
        object.__setattr__(keys, name, base + STORED_AS.get(name, name))
