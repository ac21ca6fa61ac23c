"""The catalog's records: what is true of a topic and of a group in every partition."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from rqretry.core import retry_policy
from rqretry.core.delay_levels import DEFAULT_LEVELS, LevelTable
from rqretry.core.errors import CodecError, ConfigError, RqretryError, show
from rqretry.core.limits import DEFAULT_MAX_RETRIES, UNLIMITED, check_partitions
from rqretry.core.retry_policy import ORDERED_POLICY, RetryPolicy
from rqretry.core.route import EVERY_TAG, MAX_GROUPS, QUEUE, Route, RouteGroup

SCHEMA = 1
"""Of everything rqretry keeps in Redis. A newer one is refused at connect."""

HISTORY_BYTES = 64 * 1024 * 1024
"""How much history a topic keeps, unless an operator says otherwise."""
LEAST_HISTORY_BYTES = 64 * 1024
"""Of a partition: one entry of a large call takes more."""
KEEP_BYTES = 1024 * 1024 * 1024
"""How much a topic keeps for a replay, unless an operator says otherwise."""

PUSH, SIMPLE, BROADCAST = "push", "simple", "broadcast"


class DlqGroup(NamedTuple):
    """A group that consumes another one's dead letters."""

    name: str
    kind: str
    source: str
    """The other group."""


_DLQ_GROUP = len(DlqGroup._fields)


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic: its partitions, and its groups in the order in which they came."""

    name: str
    partitions: int
    version: int = 1
    groups: tuple[RouteGroup, ...] = ()
    next_byte: int = 1
    max_messages: int = 0
    """Over all partitions; 0 for no limit."""
    max_history_bytes: int = HISTORY_BYTES
    """Over all partitions."""
    max_history_ms: int = 0
    """0 for any age."""
    keep_ms: int = 0
    """For how long the bodies of consumed messages are kept for a replay; 0: not at all."""
    keep_bytes: int = 0
    """How much of them is kept, over all partitions."""
    deleting: bool = False
    """An operator has deleted it, and its partitions are being emptied."""
    growing: int = 0
    """Partitions that it will have; those beyond `partitions` are being made complete. 0: none."""
    dlq_groups: tuple[DlqGroup, ...] = ()
    """Groups that consume the dead letters which other groups have here; not in the route."""
    leaving: tuple[tuple[str, int], ...] = ()
    """Groups that have left, with the byte that what they held is being freed of."""

    unordered: str = QUEUE
    """What its ordered groups do with messages that have no message group."""
    compress_from: int = 0
    """From how many bytes on publishers compress a body; 0: not at all."""
    closed: int = 0
    """The version that closed it: publishers wait while it gets more partitions. 0: it is open."""
    grown_ms: int = 0
    """When it got more partitions for the last time; 0: never."""

    @property
    def all_partitions(self) -> int:
        """How many partitions there are, also those that publishers do not know yet."""
        return max(self.partitions, self.growing)

    def growing_to(self, partitions: int) -> "TopicRecord":
        """The record of a topic to which partitions are being added."""
        if partitions <= self.all_partitions or self.deleting:
            return self
        return replace(self, version=self.version + 1, growing=partitions)

    def close(self) -> "TopicRecord":
        """The record of a growing topic for whose partitions publishers wait."""
        if self.closed or self.all_partitions == self.partitions:
            return self
        return replace(self, version=self.version + 1, closed=self.version + 1)

    def open(self, closed: int, partitions: int, now_ms: int = 0) -> "TopicRecord":
        """The record that publishers may use again, if it is still closed by this version."""
        if self.closed != closed:
            return self
        growing = 0 if partitions == self.all_partitions else self.growing
        return replace(
            self, version=self.version + 1, partitions=partitions, growing=growing, closed=0,
            grown_ms=now_ms or self.grown_ms,
        )  # fmt: skip

    @property
    def route(self) -> Route:
        """What the partitions are to know."""
        per_partition = -(-self.max_messages // self.partitions)
        queues = tuple(group for group in self.groups if group.kind != BROADCAST)
        broadcast = len(queues) < len(self.groups)
        closed = bool(self.closed)
        history = max(LEAST_HISTORY_BYTES, self.max_history_bytes // self.partitions)
        return Route(
            self.version, self.partitions, queues, per_partition, broadcast, closed, history,
            self.max_history_ms, self.keep_ms, self.keep_bytes // self.partitions,
            self.unordered, self.compress_from,
        )  # fmt: skip

    def byte_of(self, group: str) -> int:
        """The byte that stands for a group in pending bytes; 0 if it is not subscribed."""
        return next((g.byte for g in self.groups if g.name == group), 0)

    def with_group(
        self,
        group: str,
        kind: str,
        tags: str = EVERY_TAG,
        ordered: bool = False,  # noqa: FBT001, FBT002 - a field of the group's
    ) -> "TopicRecord":
        """The record with this group subscribed, to these tags."""
        if self.byte_of(group):
            groups = tuple(g._replace(tags=tags) if g.name == group else g for g in self.groups)
            return self._with(groups)
        byte = self._free_byte()
        found = self._with((*self.groups, RouteGroup(group, byte, kind, tags, ordered)))
        return replace(found, next_byte=byte % MAX_GROUPS + 1)

    def _free_byte(self) -> int:
        """A byte that no group has; the one that was free for the longest time."""
        taken: set[int] = {group.byte for group in self.groups} | {byte for _, byte in self.leaving}
        for byte in chain(range(self.next_byte, MAX_GROUPS + 1), range(1, self.next_byte)):
            if byte not in taken:
                return byte
        raise ConfigError(
            f"topic {show(self.name)} has {len(taken)} groups, which is the most;"
            " unsubscribe one that is not needed any more"
        )

    def without_group(self, group: str, byte: int) -> "TopicRecord":
        """The record with this group gone, if that is its byte; free once `freed` says so."""
        rest = self._with(tuple(g for g in self.groups if (g.name, g.byte) != (group, byte)))
        if rest is not self:
            rest = replace(rest, leaving=(*self.leaving, (group, byte)))
        kept = tuple(other for other in self.dlq_groups if other.name != group)
        if kept == self.dlq_groups:
            return rest
        return replace(rest, version=rest.version + 1, dlq_groups=kept)

    def freed(self, group: str, byte: int) -> "TopicRecord":
        """The record when nothing is left of what a group held that has left."""
        kept = tuple(other for other in self.leaving if other != (group, byte))
        return self if kept == self.leaving else replace(self, leaving=kept)

    def with_dlq_group(self, group: DlqGroup) -> "TopicRecord":
        """The record with a group that consumes another one's dead letters here."""
        if group in self.dlq_groups:
            return self
        groups = (*self.dlq_groups, group)
        return replace(self, version=self.version + 1, dlq_groups=groups)

    @property
    def members(self) -> tuple[RouteGroup, ...]:
        """Its groups, and those that consume dead letters (with byte 0)."""
        return self.groups + tuple(RouteGroup(g.name, 0, g.kind) for g in self.dlq_groups)

    def _with(self, groups: tuple[RouteGroup, ...]) -> "TopicRecord":
        if groups == self.groups:
            return self
        return replace(self, version=self.version + 1, groups=groups)

    def encode(self) -> str:
        """As the catalog keeps it."""
        stored = _values(self)
        stored["groups"] = [group.encode() for group in self.groups]
        stored["views"] = stored.pop("dlq_groups")
        return _dump(stored)

    @staticmethod
    def decode(name: str, stored: str) -> "TopicRecord":
        """Read what `encode` wrote. Raises CodecError if it is damaged."""
        try:
            found = json.loads(stored.encode())
            found["groups"] = tuple(RouteGroup.decode(group) for group in found["groups"])
            found["dlq_groups"] = tuple(
                DlqGroup(*group[:_DLQ_GROUP]) for group in found.get("views", ())
            )
            found["leaving"] = tuple(
                (str(name), int(byte)) for name, byte in found.get("leaving", ())
            )
            record = TopicRecord(name, **_known(TopicRecord, found, "version", "next_byte"))
            check_partitions(record.partitions)
            check_partitions(record.all_partitions)
        except (ValueError, TypeError, KeyError, AttributeError, RqretryError) as error:
            raise CodecError(f"the catalog's record of topic {show(name)} is damaged") from error
        else:
            return record


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A consumer group: one truth for all its instances."""

    name: str
    kind: str
    max_retries: int = DEFAULT_MAX_RETRIES
    """-1 is unlimited."""
    policy: RetryPolicy = RetryPolicy.rocketmq()  # noqa: RUF009 - frozen
    topics: tuple[str, ...] = ()
    version: int = 1
    changed_by: str = ""
    changed_at_ms: int = 0
    paused: bool = False
    pinned: tuple[str, ...] = ()
    """Names of fields that an operator has set for good; a starting worker does not change them."""
    leaving: tuple[str, ...] = ()
    """Topics that it has left, and where what it held is being freed."""
    tags: tuple[tuple[str, str], ...] = ()
    """(topic, what it takes of it), of each topic that it does not take everything of."""
    tags_by: str = ""
    tags_at_ms: int = 0
    """Who changed what it takes of a topic that it had joined before, and when; 0 for nobody."""
    catching_up: tuple[str, ...] = ()
    """Topics where it gets what was stored before it came; it is paused there until it has it."""
    begins_ms: int = 0
    """Where it catches up: since when it also gets what was consumed; 0: it does not."""
    replaying: tuple[int, ...] = ()
    """Since when, and until when, what it had consumed is being delivered again; () for no time."""
    max_inflight: int = 0
    """Under a lease at once, over all partitions; 0 for no limit."""
    rate_limit: str = ""
    """Leases per time over all workers, such as "100/s"; "" for no limit."""
    dlq_retention_ms: int = 0
    """How long a dead letter is kept; 0 for ever."""
    source: str = ""
    """The group whose dead letters it consumes; "" for a group that consumes topics."""
    ordered: bool = False
    """One message of a message group at a time, in order; it never changes."""

    @staticmethod
    def new(name: str, kind: str, *, ordered: bool = False) -> "GroupRecord":
        """A group for which nobody has named a setting: an ordered one retries for ever."""
        record = GroupRecord(name, kind)
        if not ordered:
            return record
        return replace(record, ordered=True, policy=ORDERED_POLICY, max_retries=UNLIMITED)

    def tags_of(self, topic: str) -> str:
        """What the group takes of a topic: "*", or tags such as "a || b"."""
        return dict(self.tags).get(topic, EVERY_TAG)

    def with_tags(self, topics: Iterable[str], tags: str) -> tuple[tuple[str, str], ...]:
        """Its subscriptions, with other tags for these topics."""
        kept = {topic: taken for topic, taken in self.tags if topic not in topics}
        if tags != EVERY_TAG:
            kept |= dict.fromkeys(topics, tags)
        return tuple(sorted(kept.items()))

    def configuration(
        self, levels: LevelTable, byte: int, topic: str, share: int = 0
    ) -> Mapping[str, str | int | bytes]:
        """What the scripts in a partition of a topic need to know of the group.

        `share` is the partition's part of `max_inflight`.
        """
        compiled = retry_policy.compiled(self.policy, levels.ms)
        catching_up = topic in self.catching_up
        ordered = {"ordered": 1} if self.ordered else {}
        return {
            **ordered,
            "kind": self.kind,
            "max_retries": self.max_retries,
            "paused": int(self.paused or catching_up),
            "catching_up": int(catching_up),
            "delays": " ".join(map(str, compiled.delays_ms)),
            "levels": levels.encode(),
            "jitter": str(compiled.jitter),
            "byte": bytes((byte,)) if byte else b"",
            "max_inflight": share or "",
            "rate": self.rate_limit,
            "dlq_retention_ms": self.dlq_retention_ms or "",
            "view": int(bool(self.source)),
        }

    def changed(self, by: str, at_ms: int, **fields: Any) -> "GroupRecord":
        """The record with other fields and the next version; itself if nothing differs.

        Raises InvalidArgument if an ordered group would get a policy that is not fixed.
        """
        if self.ordered and "policy" in fields:
            retry_policy.check_ordered(fields["policy"])
        if replace(self, **fields) == self:
            return self
        version = self.version + 1
        return replace(self, version=version, changed_by=by, changed_at_ms=at_ms, **fields)

    def encode(self) -> str:
        """As the catalog keeps it."""
        return _dump(
            {**_values(self), "policy": retry_policy.encoded(self.policy), "tags": dict(self.tags)}
        )

    @staticmethod
    def decode(name: str, stored: str) -> "GroupRecord":
        """Read what `encode` wrote. Raises CodecError if it is damaged."""
        try:
            found = json.loads(stored.encode())
            found["policy"] = retry_policy.decoded(found["policy"])
            found["tags"] = tuple(sorted(found.get("tags", {}).items()))
            needed = ("max_retries", "topics", "version", "changed_by")
            return GroupRecord(name, **_known(GroupRecord, found, *needed))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CodecError(f"the catalog's record of group {show(name)} is damaged") from error


def _values(record: TopicRecord | GroupRecord) -> dict[str, Any]:
    """The fields of a record, all but the name that the catalog keeps it under."""
    return {f.name: getattr(record, f.name) for f in fields(record) if f.name != "name"}


def _known(kind: type[Any], found: dict[str, Any], *needed: str) -> dict[str, Any]:
    """What was stored of a record's fields; a newer version may have stored more. KeyError."""
    types = _TYPES[kind]
    values = {name: found[name] for name in (*needed, *found) if name in types}
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    for name, value in values.items():
        if not isinstance(value, types[name]):
            raise TypeError(name)
    return values


_TYPES = {
    kind: {f.name: f.type if isinstance(f.type, type) else tuple for f in fields(kind)}
    for kind in (TopicRecord, GroupRecord)
}
"""What a record is read with: asking dataclasses each time takes longer than the rest."""


def settings_of(old: str, levels: LevelTable) -> str:
    """A namespace's settings: new ones for "", else the old ones, of this schema or a newer one."""
    if not old:
        return json.dumps({"schema": SCHEMA, "delay_levels": levels.encode()})
    schema, _ = schema_and_levels(old)
    return old if schema >= SCHEMA else json.dumps({**json.loads(old), "schema": SCHEMA})


def schema_and_levels(settings: str) -> tuple[int, LevelTable]:
    """What a namespace's settings say; of a newer schema not the levels. Raises ConfigError."""
    try:
        found = json.loads(settings.encode())
        schema = int(found["schema"])
        return schema, LevelTable.decode(
            found["delay_levels"]
        ) if schema <= SCHEMA else DEFAULT_LEVELS
    except (ValueError, TypeError, KeyError, AttributeError, RqretryError) as error:
        raise ConfigError(
            f"the settings of the namespace are damaged: {show(settings)}; restore them from a"
            " backup of the field `settings` of the hash `settings`"
        ) from error


Record = TypeVar("Record", bound=TopicRecord | GroupRecord)


def raised(old: Record, record: Record, least: int) -> Record:
    """A record as it was changed; its version, if it has a new one, is at least so high."""
    if record.version == old.version:
        return record
    version = max(record.version, least)
    if isinstance(record, TopicRecord) and record.closed == record.version:
        return replace(record, version=version, closed=version)
    return replace(record, version=version)


def with_unknown(stored: str, known: str, changed: str) -> str:
    """A changed record, with what another version stored in it and this one does not know.

    Args:
        stored: The record as it was.
        known: What this version reads of that, and would write.
        changed: What this version writes now.
    """
    if stored == known:
        return changed
    return _dump(_with_unknown(json.loads(stored), json.loads(known), json.loads(changed)))


def _with_unknown(stored: Any, known: Any, changed: Any) -> Any:
    if changed == known:
        return stored
    if isinstance(stored, dict) and isinstance(changed, dict):
        both = {name: stored[name] for name in stored if name not in known} | changed
        shared = known.keys() & stored.keys() & changed.keys()
        return both | {
            name: _with_unknown(stored[name], known[name], changed[name]) for name in shared
        }
    if isinstance(stored, list) and isinstance(changed, list):
        return [stored[known.index(item)] if item in known else item for item in changed]
    return changed


def _dump(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True)
