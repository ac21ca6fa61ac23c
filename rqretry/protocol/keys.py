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
"""Attributes whose stored name differs: attributes may be renamed, stored names never are."""
HOUR_RING, SPAN_RING = 25, 29
"""Hashes of an hour by the minute, and of six hours by ten minutes, with the one begun."""
_APART = ("base", "lane", "levels", "rings", "scripts")
"""Attributes that are not one key, named after them."""


@dataclass(frozen=True, slots=True)
class NamespaceKeys:
    """The catalog: what belongs to the whole namespace."""

    namespace: str
    meta: str = field(init=False)
    """Hash: the logical time of the namespace's slot."""
    topics: str = field(init=False)
    """Hash: topic -> its record."""
    groups: str = field(init=False)
    """Hash: group -> its record."""
    settings: str = field(init=False)
    """Hash: the delay levels, and the first version of a new topic."""
    workers: str = field(init=False)
    """Sorted set: worker by when its registration expires."""
    worker_details: str = field(init=False)
    """Hash: worker -> since when it runs, and what it consumes."""
    audit: str = field(init=False)
    """Stream, bounded: one entry for each change an operator made."""
    exit_records: str = field(init=False)
    """Stream, bounded: how worker processes ended unexpectedly."""
    transactions: str = field(init=False)
    """Hash: transaction -> its record."""
    open_transactions: str = field(init=False)
    """Sorted set: undecided transaction by when it was opened."""
    unfinished_transactions: str = field(init=False)
    """Sorted set: decided transaction by when another client may carry it out."""
    parked_transactions: str = field(init=False)
    """Sorted set: transaction that was checked too often, by when it was parked."""
    finished_transactions: str = field(init=False)
    """Sorted set: finished transaction by when its record is deleted."""
    schedules: str = field(init=False)
    """Hash: schedule -> its record."""
    series: str = field(init=False)
    """Hash: topic/group -> counters as they were in the last minute that was recorded."""
    rings: tuple[str, ...] = field(init=False)
    """Hashes: topic/group -> records of an hour by the minute, then of six by ten minutes."""
    scripts: ScriptKeys = field(init=False, compare=False, repr=False)
    """The KEYS of each script that works on the namespace."""

    def __post_init__(self) -> None:
        """Spell the keys."""
        object.__setattr__(self, "scripts", ScriptKeys(self))
        base = f"{ROOT}:{self.namespace}:{{{self.namespace}}}:"
        _spell(self, base)
        hours = [f"{base}series:minutes:{number}" for number in range(HOUR_RING)]
        spans = [f"{base}series:tens:{number}" for number in range(SPAN_RING)]
        object.__setattr__(self, "rings", (*hours, *spans))

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
    """What the other keys begin with."""
    meta: str = field(init=False, compare=False)
    """Hash: logical time, the last number in `order`, the sizes of `broadcast` and `events`; and
    the topic's route: its version, its table of groups and how many messages it may hold."""
    bodies: str = field(init=False, compare=False)
    """Hash: id -> message bytes."""
    big: str = field(init=False, compare=False)
    """Hash: id -> size of a body over 8 KiB."""
    incoming: str = field(init=False, compare=False)
    """Hash: id -> checksum of a large body that is written, and is no message yet."""
    pending: str = field(init=False, compare=False)
    """Hash: id -> one byte per group that still owes it; with more than one group only."""
    ids: str = field(init=False, compare=False)
    """Hash: id that a caller chose -> digest of its message."""
    id_expiry: str = field(init=False, compare=False)
    """Sorted set: such an id by when it is forgotten, once its message is gone."""
    scheduled: str = field(init=False, compare=False)
    """Sorted set: id, or id, blank and tag, by due time."""
    backlog: str = field(init=False, compare=False)
    """List: ids published before there was a group."""
    halves: str = field(init=False, compare=False)
    """Sorted set, by member: transaction, number, id, tag and message group of each half."""
    half_of: str = field(init=False, compare=False)
    """Hash: id -> its member of `halves`."""
    closed: str = field(init=False, compare=False)
    """Sorted set: decided transaction by when it is forgotten."""
    message_groups: str = field(init=False, compare=False)
    """Hash: id -> 16 digits of its number and its message group."""
    keyed: str = field(init=False, compare=False)
    """Hash: id -> its message keys, separated by blanks."""
    message_keys: str = field(init=False, compare=False)
    """Sorted set, by member: message key, zero byte and id; the index of `keyed`."""
    broadcast: str = field(init=False, compare=False)
    """Stream: what broadcast groups get, one entry per call."""
    kept: str = field(init=False, compare=False)
    """Sorted set: id that is kept for a replay, by when the last group had finished with it."""
    kept_bodies: str = field(init=False, compare=False)
    """Hash: such an id -> message bytes; zero byte and id -> its fields of `message_groups` and
    `keyed`, a tab between, where it has one."""
    events: str = field(init=False, compare=False)
    """Stream: the history, one entry per call."""
    counters: str = field(init=False, compare=False)
    """Hash: verb, or verb:group -> how often."""
    lane: Callable[[str], str] = field(init=False, compare=False, repr=False)
    """String, of each producer: its last call into this partition."""
    scripts: ScriptKeys = field(init=False, compare=False, repr=False)
    """The KEYS of each script that works on the partition."""

    def __post_init__(self) -> None:
        """Spell the keys."""
        base = f"{ROOT}:{self.namespace}:{{{self.topic}:{self.partition}}}:"
        object.__setattr__(self, "base", base)
        object.__setattr__(self, "lane", f"{base}lane:".__add__)
        object.__setattr__(self, "scripts", ScriptKeys(self))
        _spell(self, base)

    def __str__(self) -> str:
        """As a log names it."""
        return f"partition {self.partition} of {self.topic}"

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
    """Hash: the group's settings, as scripts need them."""
    ready: str = field(init=False, compare=False)
    """List: ids of new messages."""
    retry: str = field(init=False, compare=False)
    """List: ids of messages to be tried again now."""
    inflight: str = field(init=False, compare=False)
    """Sorted set: id by the end of its lease."""
    attempts: str = field(init=False, compare=False)
    """Hash: id -> delivery state, lease_no:attempt:expiries:postpones; none at first."""
    failures: str = field(init=False, compare=False)
    """Hash: id -> failure record, a line for each attempt kept."""
    tracebacks: str = field(init=False, compare=False)
    """Hash: fingerprint of a failure -> traceback."""
    dead: str = field(init=False, compare=False)
    """Sorted set: dead letter by when it died."""
    deaths: str = field(init=False, compare=False)
    """Hash: dead letter -> deliveries, cause, fingerprint; of a view: each that it still owes."""
    fingerprints: str = field(init=False, compare=False)
    """Sorted set, by member: fingerprint, zero byte, 16 digits of when it died, zero byte and id of
    each dead letter."""
    due: str = field(init=False, compare=False)
    """Sorted set: delay level by its earliest due time."""
    consumed: str = field(init=False, compare=False)
    """Sorted set: id by when the group had finished with it; where bodies are kept for a replay."""
    positions: str = field(init=False, compare=False)
    """Hash: name of a broadcast consumer -> the last entry that it is done with, and messages."""
    wake: str = field(init=False, compare=False)
    """Sorted set: one member if there may be something to lease; consumers block on it."""
    order: str = field(init=False, compare=False)
    """Sorted set, by member: message group, zero byte, 16 digits and id, of what is unfinished."""
    heads: str = field(init=False, compare=False)
    """Hash: message group -> the id that is out (ready, in flight or waiting)."""
    levels: tuple[str, ...] = field(init=False, compare=False)
    """Sorted sets, one per delay level: id by due time."""
    scripts: ScriptKeys = field(init=False, compare=False, repr=False)
    """The KEYS of each script that works on the group."""

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

    def __str__(self) -> str:
        """As a log names it."""
        return f"group {self.group} in {self.partition}"


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
