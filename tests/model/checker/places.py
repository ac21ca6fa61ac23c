"""Which key is which: the reverse of rqretry.protocol.keys, for reading journals and snapshots."""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from rqretry.checks.snapshot import GroupSnapshot, Snapshot
from rqretry.core.catalog_records import TopicRecord
from rqretry.core.delay_levels import LevelTable
from rqretry.protocol.keys import ROOT, STORED_AS, NamespaceKeys, PartitionKeys, partition_keys
from rqretry.protocol.publish import id_of_member
from tests.model.checker.keyspace import Keyspace

DELAY = "delay"
DEFAULT_LEVELS = 18

_PARTITION = re.compile(rf"{ROOT}:([^:]+):\{{([^:{{}}]+):(\d+)\}}:(.+)", re.DOTALL)
_GROUP = re.compile(r"group:([^:]+):([a-z_]+)(?::(\d+))?")
_NAMES = {stored: name for name, stored in STORED_AS.items()}


class Place(NamedTuple):
    """Where a key of a partition belongs."""

    topic: str
    partition: int
    group: str
    """"" for what is the partition's own."""
    name: str
    """As the attribute of PartitionKeys or GroupKeys; "delay" for the key of a level."""
    level: int = 0


@lru_cache(maxsize=65536)
def place_of(key: str, namespace: str) -> Place | None:
    """The place of a key; None for what is not a partition's of that namespace."""
    match = _PARTITION.fullmatch(key)
    if match is None or match[1] != namespace:
        return None
    topic, partition, rest = match[2], int(match[3]), match[4]
    group = _GROUP.fullmatch(rest)
    if group is None:
        return Place(topic, partition, "", rest.partition(":")[0])
    return Place(topic, partition, group[1], _NAMES.get(group[2], group[2]), int(group[3] or 0))


def partitions_in(space: Keyspace, namespace: str) -> Iterator[PartitionKeys]:
    """Every partition that has a key."""
    found = set()
    for key in space.values:
        place = place_of(key, namespace)
        if place is not None:
            found.add((place.topic, place.partition))
    for topic, partition in sorted(found):
        yield partition_keys(namespace, topic, partition)


def seen_in(space: Keyspace, keys: PartitionKeys) -> Snapshot:
    """A partition as the auditor sees it, so that its judgement can be asked."""
    seen = Snapshot(keys)
    seen.bodies = set(space.hash(keys.bodies))
    seen.pending = dict(space.hash(keys.pending))
    seen.big = set(space.hash(keys.big))
    seen.unadopted = set(space.hash(keys.incoming)) - seen.big
    seen.ids = set(space.hash(keys.ids))
    seen.id_expiry = dict(space.scores(keys.id_expiry))
    scheduled = space.scores(keys.scheduled)
    seen.scheduled = {id_of_member(member): due for member, due in scheduled.items()}
    seen.backlog = space.listed(keys.backlog)
    seen.slots = dict(space.hash(keys.message_groups))
    seen.keyed = dict(space.hash(keys.keyed))
    indexed = (member.partition("\0") for member in space.scores(keys.message_keys))
    seen.message_keys = {(key, id_) for key, _, id_ in indexed}
    seen.halves = dict(space.scores(keys.halves))
    seen.half_of = dict(space.hash(keys.half_of))
    transactions = space.hash(NamespaceKeys(keys.namespace).transactions)
    named_by = {member.partition(" ")[0] for member in seen.half_of.values()}
    seen.unknown_transactions = named_by - transactions.keys()
    seen.groups = [_group_in(space, keys, name) for name in _groups_in(space, keys)]
    return seen


def _groups_in(space: Keyspace, keys: PartitionKeys) -> list[str]:
    places = (place_of(key, keys.namespace) for key in space.values)
    here = (keys.topic, keys.partition)
    return sorted({p.group for p in places if p and p.group and (p.topic, p.partition) == here})


def _group_in(space: Keyspace, partition: PartitionKeys, name: str) -> GroupSnapshot:
    catalog = NamespaceKeys(partition.namespace)
    settings = space.hash(catalog.settings).get("settings", "")
    levels = DEFAULT_LEVELS
    if settings:
        levels = len(LevelTable.decode(json.loads(settings)["delay_levels"]))
    topic = space.hash(catalog.topics).get(partition.topic, "")
    views = TopicRecord.decode(partition.topic, topic).dlq_groups if topic else ()
    sources = {view.name: view.source for view in views}
    keys = partition.group(name, levels, sources.get(name, ""))
    config = space.hash(keys.config)
    seen = GroupSnapshot(keys, config.get("byte", ""))
    seen.ordered = config.get("ordered") == "1"
    seen.order = list(space.scores(keys.order))
    seen.lists = {key: space.listed(key) for key in (keys.ready, keys.retry)}
    seen.heads = dict(space.hash(keys.heads))
    seen.due = dict(space.scores(keys.due))
    seen.levels = {key: dict(space.scores(key)) for key in keys.levels}
    seen.inflight = dict(space.scores(keys.inflight))
    if keys.source:
        seen.dead_letters = set(space.scores(keys.dead))
    else:
        seen.dead = dict(space.scores(keys.dead))
    seen.attempts = set(space.hash(keys.attempts))
    seen.failures = set(space.hash(keys.failures))
    seen.deaths = dict(space.hash(keys.deaths))
    seen.fingerprints = set(space.scores(keys.fingerprints))
    return seen
