"""Statistics: one read-only call per group and partition, added up; what is due is moved first."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from typing import Any

from rqretry.admin.views import Blocker, GroupStats, Stats, TopicStats, Waiting
from rqretry.catalog.catalog import Catalog
from rqretry.core.catalog_records import TopicRecord
from rqretry.core.compression import uncompressed_size
from rqretry.core.errors import RqretryError, StoreUnavailable
from rqretry.core.route import RouteGroup
from rqretry.core.worker_info import About, groups_of
from rqretry.maintenance.due import Due
from rqretry.protocol.audit_log import now
from rqretry.protocol.command import Each, Operation, batches, side_by_side
from rqretry.protocol.inspect import (
    Blocking,
    blockers,
    kept,
    kept_bytes,
    read_body,
    read_size,
    sample_ids,
    stats,
)
from rqretry.protocol.inspect import Stats as Part
from rqretry.protocol.keys import GroupKeys, NamespaceKeys, PartitionKeys
from rqretry.protocol.memory import memory, server_memory
from rqretry.protocol.transaction import first_time, size

_MOST_BLOCKERS = 10
_SAMPLED = 32
"""Messages of a partition whose sizes are compared."""
_SAMPLED_PARTITIONS, _SAMPLED_BYTES = 8, 4 * 1024 * 1024
_NO_GROUP = RouteGroup("-", 0, "")
MoveDue = Callable[[Sequence[Due], Sequence[PartitionKeys]], Operation[bool]]


class Live:
    """What the live workers registered, counted once for all groups."""

    def __init__(self, abouts: Sequence[str]) -> None:
        known = [groups_of(about) for about in abouts]
        self._by_group: dict[str, list[About]] = {}
        for about in known:
            for name in about.consumed:
                self._by_group.setdefault(name, []).append(about)
        self.workers = Counter(chain.from_iterable(set(about.groups) for about in known))
        self.refused = [reason for about in known for reason in about.refused]
        self.slots: Counter[str] = Counter()
        self.busy: Counter[str] = Counter()
        self.rates: dict[tuple[str, str], float] = {}
        for about in known:
            for group, (busy, slots) in about.slots.items():
                self.busy[group] += busy
                self.slots[group] += slots
            for place, rate in about.rates.items():
                self.rates[place] = self.rates.get(place, 0.0) + rate
        self._tags: dict[tuple[str, str], list[str]] = {}
        for group, topic, tags in chain.from_iterable(about.tags for about in known):
            self._tags.setdefault((topic, group), []).append(tags)

    def serves(self, group: str, topic: str) -> bool:
        """Whether a worker consumes the topic for the group."""
        return any(about.serves(group, topic) for about in self._by_group.get(group, ()))

    def other_tags(self, topic: str, group: RouteGroup) -> tuple[str, ...]:
        """What they named at their start for this group, and it does not take."""
        named = self._tags.get((topic, group.name), ())
        return tuple(sorted(tags for tags in named if tags != group.tags))


def gather_stats(
    catalog: Catalog,
    topics: Sequence[TopicRecord],
    group: str | None,
    workers: Sequence[str],
    move: MoveDue,
    *,
    sampled: bool = False,
) -> Operation[Stats]:
    """Read every partition of these topics, and add up; move what nobody who lives will move.

    `sampled`: look into messages, too, for how far they are compressed.
    """
    yield from catalog.open()
    live = Live(workers)
    rows = yield from side_by_side([_topic(catalog, topic, group, live, move) for topic in topics])
    server = yield from _server()
    own = catalog.keys
    unfinished, parked = yield [size(own.open_transactions), size(own.parked_transactions)]
    if sampled:
        ratios = yield from side_by_side([_ratio(catalog, topic) for topic in topics])
        rows = [
            (replace(row, compression_ratio=ratio), refused)
            for (row, refused), ratio in zip(rows, ratios, strict=True)
        ]
    parked_s = (yield from _parked_for(own)) if parked else None
    memory = server.get("used_memory"), server.get("maxmemory")
    refused = chain(live.refused, *(reasons for _, reasons in rows))
    unique = tuple(dict.fromkeys(refused))
    found = tuple(row for row, _ in rows)
    return Stats(catalog.namespace, found, *memory, unfinished, parked, unique, parked_s)


def _parked_for(own: NamespaceKeys) -> Operation[float | None]:
    first_ms, now_ms = yield [first_time(own.parked_transactions), now(own)]
    return None if first_ms is None else max(0, now_ms - first_ms) / 1000


def _topic(
    catalog: Catalog, topic: TopicRecord, group: str | None, live: Live, move: MoveDue
) -> Operation[tuple[TopicStats, list[str]]]:
    """One topic, and why some of its places cannot be read."""
    groups = [g for g in topic.members if group in (None, g.name)] or [_NO_GROUP]
    parts: dict[str, list[Part]] = {g.name: [] for g in groups}
    refused: list[str] = []
    names_of: dict[bool, list[str]] = {True: [], False: []}
    for one in groups:
        names_of[live.serves(one.name, topic.name)].append(one.name)
    for served, names in names_of.items():
        keys = [
            catalog.group_keys(topic.name, n, g) for g in names for n in range(topic.partitions)
        ]
        for batch in batches(keys):
            answers = yield from _read(batch, None if served else move)
            refused += _sort_out(batch, answers, parts)
    any_group = parts[groups[0].name]
    held, takes = yield from _kept(catalog, topic)
    blocked = yield from _blocked(catalog, topic, groups)
    levels = (yield from catalog.open()).ms
    row = TopicStats(
        topic=topic.name,
        partitions=topic.partitions,
        stored=sum(part.bodies for part in any_group),
        scheduled=sum(part.scheduled for part in any_group),
        backlog=sum(part.backlog for part in any_group),
        groups=tuple(
            _add_up(
                g,
                parts[g.name],
                levels,
                workers=live.workers[g.name],
                other_tags=live.other_tags(topic.name, g),
                busy=live.busy[g.name],
                slots=live.slots[g.name],
                done_per_s=live.rates.get((topic.name, g.name), 0.0),
                **blocked.get(g.name, {}),
            )
            for g in groups
            if g is not _NO_GROUP
        ),
        max_messages=topic.max_messages or None,
        bytes=(yield from _bytes(catalog, topic)),
        history_bytes=sum(part.history_bytes for part in any_group),
        keep_s=topic.keep_ms / 1000 or None,
        kept=held,
        kept_bytes=takes,
        compress_from=topic.compress_from or None,
    )
    return row, refused


def _blocked(
    catalog: Catalog, topic: TopicRecord, groups: Sequence[RouteGroup]
) -> Operation[dict[str, dict[str, Any]]]:
    """What statistics say of ordered groups alone: which message groups are blocked."""
    found: dict[str, dict[str, Any]] = {}
    for group in groups:
        if not group.ordered:
            continue
        keys = [catalog.group_keys(topic.name, n, group.name) for n in range(topic.partitions)]
        answers: list[tuple[int, list[Blocking]] | RqretryError] = []
        for batch in batches(keys):
            answers += yield Each([blockers(key, _MOST_BLOCKERS) for key in batch], seconds=None)
        # What a place refuses is mentioned with its numbers.
        read = [(n, a) for n, a in enumerate(answers) if not isinstance(a, RqretryError)]
        shown = [_blocker(number, one) for number, (_, those) in read for one in those]
        shown.sort(key=lambda blocker: -blocker.blocked_s)
        found[group.name] = {
            "unordered": topic.unordered,
            "blocked_groups": sum(count for _, (count, _) in read),
            "blockers": tuple(shown[:_MOST_BLOCKERS]),
        }
    return found


def _blocker(partition: int, found: Blocking) -> Blocker:
    name, seconds = found.message_group.strip() or None, found.blocked_ms / 1000
    return Blocker(found.id, name, partition, found.attempt, seconds, found.behind)


def _read(keys: Sequence[GroupKeys], move: MoveDue | None) -> Operation[list[Part | RqretryError]]:
    """The numbers of these places, behind what was due there."""
    asked = Each([stats(key) for key in keys], seconds=None)
    answers: list[Part | RqretryError] = yield asked
    if move is None:
        return answers
    due, scheduled = [], []
    for key, part in zip(keys, answers, strict=True):
        if isinstance(part, Part):
            waits = any(level.due for level in part.levels)
            due += [Due(key, waits, part.overdue > 0)] if waits or part.overdue else []
            scheduled += [key.partition] if part.scheduled else []
    if not (due or scheduled) or not (yield from move(due, scheduled)):
        return answers
    moved: list[Part | RqretryError] = yield asked
    return [
        now._replace(late_ms=was.late_ms)
        if isinstance(now, Part) and isinstance(was, Part)
        else now
        for now, was in zip(moved, answers, strict=True)
    ]


def _sort_out(
    keys: Sequence[GroupKeys],
    answers: Sequence[Part | RqretryError],
    found: Mapping[str, list[Part]],
) -> Iterator[str]:
    """Add the answers to those found; why some places cannot be read."""
    for key, answer in zip(keys, answers, strict=True):
        if isinstance(answer, StoreUnavailable):
            raise answer
        if isinstance(answer, RqretryError):
            yield f"{key} cannot be read: {answer}"
        else:
            found[key.group].append(answer)


def _bytes(catalog: Catalog, topic: TopicRecord) -> Operation[int | None]:
    """Memory of the bodies; None if this user may not read it."""
    keys = [catalog.partition(topic.name, number) for number in range(topic.partitions)]
    try:
        return sum((yield [memory(key) for key in keys]))
    except RqretryError:
        return None


def _ratio(catalog: Catalog, topic: TopicRecord) -> Operation[float | None]:
    """How many times smaller a topic's messages are compressed, by a sample; None if unknown."""
    if not topic.compress_from:
        return None
    try:
        bodies = yield from _sample(catalog, topic)
    except RqretryError:  # this user may not read them
        return None
    known = [(len(data), uncompressed_size(data)) for data in bodies if data]
    takes = sum(size for size, full in known if full)
    return sum(full for _, full in known if full) / takes if takes else None


def _sample(catalog: Catalog, topic: TopicRecord) -> Operation[list[bytes | None]]:
    """Some of the messages of a topic."""
    numbers = range(min(topic.partitions, _SAMPLED_PARTITIONS))
    keys = [catalog.partition(topic.name, number) for number in numbers]
    ids = yield [sample_ids(key, _SAMPLED) for key in keys]
    pairs = [(key, id_) for key, found in zip(keys, ids, strict=True) for id_ in found]
    sizes = yield [read_size(*pair) for pair in pairs]
    ends = zip(pairs, accumulate(sizes), strict=True)
    some = [pair for pair, end in ends if end <= _SAMPLED_BYTES] or pairs[:1]
    return (yield [read_body(*pair) for pair in some])  # type: ignore[no-any-return]


def _kept(catalog: Catalog, topic: TopicRecord) -> Operation[tuple[int, int]]:
    """Messages that are kept for a replay, and their bytes."""
    if not topic.keep_ms:
        return 0, 0
    keys = [catalog.partition(topic.name, number) for number in range(topic.partitions)]
    counts = yield [kept(key) for key in keys]
    sizes = yield [kept_bytes(key) for key in keys]
    return sum(counts), sum(sizes)


def _server() -> Operation[dict[str, int]]:
    try:
        return (yield server_memory())  # type: ignore[no-any-return]
    except RqretryError:
        return {}


def _add_up(
    group: RouteGroup, parts: Sequence[Part], levels_ms: Sequence[int], **known: Any
) -> GroupStats:
    """The numbers of a group; `known`: those that are not in its partitions."""
    due = sum(level.due for part in parts for level in part.levels)
    overdue = sum(part.overdue for part in parts)
    ages = _oldest_ages(parts)
    return GroupStats(
        group=group.name,
        kind=group.kind,
        ready=sum(part.ready + part.blocked for part in parts),
        retry=sum(part.retry for part in parts) + due + overdue,
        inflight=sum(part.inflight for part in parts) - overdue,
        waiting=tuple(_waiting(parts, len(levels_ms))),
        dead=sum(part.dead for part in parts),
        oldest_age_s=max(ages.values(), default=None),
        oldest_ages_s=ages,
        paused=any(part.paused for part in parts),
        max_inflight=_summed([part.max_inflight for part in parts]),
        rate_limit=next((part.rate for part in parts if part.rate), None),
        counters=_counters(group.name, parts),
        tags=group.tags,
        ordered=group.ordered,
        blocked=sum(part.blocked for part in parts),
        late_s=max((part.late_ms for part in parts), default=0) / 1000,
        **known,
    )


def _summed(shares: Sequence[int | None]) -> int | None:
    known = [share for share in shares if share is not None]
    return sum(known) if known else None


def _waiting(parts: Sequence[Part], levels: int) -> list[Waiting]:
    rows = []
    waits = [part.levels[:levels] for part in parts if part.levels]
    for number, here in enumerate(zip(*waits, strict=True), 1):
        count = sum(level.waiting - level.due for level in here)
        if count:
            nexts = [level.next_due_ms for level in here if level.next_due_ms is not None]
            rows.append(Waiting(number, count, min(nexts)))
    return rows


def _oldest_ages(parts: Sequence[Part]) -> dict[str, float]:
    """The age of the oldest message in each state; by the clock of its partition."""
    ages: dict[str, float] = {}
    for part in parts:
        for state, at_ms in part.born_ms:
            ages[state] = max(ages.get(state, 0.0), (part.now_ms - at_ms) / 1000)
    return ages


def _counters(group: str, parts: Sequence[Part]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        for name, value in part.counters.items():
            verb, _, owner = name.partition(":")
            if owner == group:
                total[verb] += int(value)
    return dict(total)
