"""Read only: stats, peek, dead letters, history, and the records of the catalog.

What changes the records is in catalog.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rqretry.core.message_id import born_at_end, born_ms
from rqretry.protocol.command import (
    MAX_BATCH,
    MAX_BATCH_BYTES,
    Command,
    Operation,
    call,
    number,
    pairs,
    query,
    text,
    texts,
)
from rqretry.protocol.history import unpack_entry
from rqretry.protocol.keys import GroupKeys, PartitionKeys

_PAGE, _PAGES = 1000, 50
LOOKED_AT = 100_000
"""How many entries of lists peek searches."""


class LevelStats(NamedTuple):
    """One rung of the ladder."""

    waiting: int
    due: int
    next_due_ms: int | None
    """Server time in ms when the first one is due."""


_NONE_WAITS = LevelStats(0, 0, None)


class Stats(NamedTuple):
    """One group in one partition, at one moment of server time."""

    now_ms: int
    ready: int
    retry: int
    inflight: int
    overdue: int
    dead: int
    scheduled: int
    backlog: int
    bodies: int
    oldest_id: str
    paused: bool
    levels: list[LevelStats]
    """Of each level; none at all where nothing waits."""
    counters: dict[str, str]
    history_bytes: int = 0
    max_inflight: int | None = None
    """The partition's part of it; None for no limit."""
    rate: str = ""
    blocked: int = 0
    """Behind another message of their message group."""
    in_message_groups: int = 0
    """Messages of the partition that have a message group, for whichever group."""
    born_ms: tuple[tuple[str, int], ...] = ()
    """States, and when a message in it was published: the oldest of those looked at."""
    late_ms: int = 0
    """For how long what is due has not been moved."""

    @property
    def held(self) -> int:
        """Messages of the group, in all its lists."""
        waiting = sum(level.waiting for level in self.levels)
        return self.ready + self.blocked + self.retry + self.inflight + self.dead + waiting


class Blocking(NamedTuple):
    """A message that has failed, and holds up its message group."""

    id: str
    message_group: str
    """" " for messages without one."""
    attempt: int
    blocked_ms: int
    behind: int


class Peeked(NamedTuple):
    """Where one message is, for one group; None or "" wherever it is not."""

    now_ms: int
    body: bytes
    owed: bytes
    byte: bytes
    delivery_state: str
    deadline_ms: int | None
    dead_since_ms: int | None
    death: str
    failures: str
    scheduled_ms: int | None
    in_ready: int | None
    in_retry: int | None
    in_backlog: int | None
    paused: bool
    waiting: list[tuple[int, int]]
    """(level, due in server ms) of each level that holds it."""
    stored: bool
    inflight: int = 0
    """Messages under a lease here."""
    max_inflight: int | None = None
    rate: str = ""
    head: str = ""
    """Who is out of its message group, if the group is ordered."""
    ahead: int | None = None
    """How many unfinished messages of its message group are before it."""


class DeadPage(NamedTuple):
    """One page of dead letters, oldest first."""

    now_ms: int
    looked: int
    """How many of the ids that were named the page is about; without any, its length."""
    ids: list[str]
    since_ms: list[int]
    deaths: list[str]
    failures: list[str]
    data: list[bytes]


class DeadCluster(NamedTuple):
    """The dead letters of one fingerprint; the sample is the newest."""

    fingerprint: str
    size: int
    first_ms: int
    last_ms: int
    sample_id: str
    death: str
    failures: str


def read_record(records: str, name: str) -> Command[str]:
    """One record of the catalog; "" if there is none."""
    return query(_optional_text, "HGET", records, name)


def read_these(records: str, names: Sequence[str]) -> Command[list[str]]:
    """Some records of the catalog, or fields of any hash; "" for one that is not there."""
    return query(lambda reply: [_optional_text(item) for item in reply], "HMGET", records, *names)


def read_records(records: str) -> Command[dict[str, str]]:
    """All records of one kind."""
    return query(_records, "HGETALL", records)


def read_body(keys: PartitionKeys, id_: str) -> Command[bytes | None]:
    """The bytes of a message; None if it is not stored."""
    return query(lambda reply: reply, "HGET", keys.bodies, id_)


def sample_ids(keys: PartitionKeys, most: int) -> Command[list[str]]:
    """Ids of some stored messages, taken at random."""
    return query(lambda reply: list(dict.fromkeys(texts(reply))), "HRANDFIELD", keys.bodies, -most)


def read_size(keys: PartitionKeys, id_: str) -> Command[int]:
    """The bytes of a message; 0 if it is not stored."""
    return query(int, "HSTRLEN", keys.bodies, id_)


def read_due(keys: PartitionKeys, member: str) -> Command[int | None]:
    """When a scheduled member is due, in server ms; None if it is not scheduled."""
    return query(number, "ZSCORE", keys.scheduled, member)


def delete(key: str) -> Command[int]:
    """Delete one key that is nobody's any more."""
    return Command("delete", (), (), int, arguments=("UNLINK", key))


def stored(keys: PartitionKeys) -> Command[int]:
    """How many message bodies a partition keeps."""
    return query(int, "HLEN", keys.bodies)


def kept(keys: PartitionKeys) -> Command[int]:
    """How many consumed messages a partition keeps."""
    return query(int, "ZCARD", keys.kept)


def kept_bytes(keys: PartitionKeys) -> Command[int]:
    """What they take."""
    return query(lambda reply: max(0, int(reply or 0)), "HGET", keys.meta, "kept_bytes")


def in_message_groups(keys: PartitionKeys) -> Command[int]:
    """How many stored messages of a partition have a message group."""
    return query(int, "HLEN", keys.message_groups)


def halves(keys: PartitionKeys) -> Command[int]:
    """How many messages of a partition are in transactions that are not decided."""
    return query(int, "HLEN", keys.half_of)


def scheduled_before(keys: PartitionKeys, now_ms: int) -> Command[int]:
    """How many messages of a partition wait to be delivered and were due by then."""
    return query(int, "ZCOUNT", keys.scheduled, "-inf", now_ms)


def messages_in_order(keys: GroupKeys) -> Command[int]:
    """How many unfinished messages of an ordered group have a message group.

    Those that have none are in one under a blank, which stands in front of all others; they stay in
    their partition, however many there are.
    """
    return query(int, "ZLEXCOUNT", keys.order, "(!", "+")


def stats(keys: GroupKeys) -> Command[Stats]:
    """How many messages of a group are where; what is due counts as ready."""
    return call(keys.scripts, "stats", (), _stats)


def blockers(keys: GroupKeys, most: int) -> Command[tuple[int, list[Blocking]]]:
    """How many message groups are blocked, and the messages that have blocked one for longest."""
    return call(keys.scripts, "blockers", (most,), _blockers)


def peek(keys: GroupKeys, id_: str) -> Command[Peeked]:
    """Where a message is, for one group."""
    return call(keys.scripts, "peek", (id_, LOOKED_AT), _peeked)


def dead_letters(
    keys: GroupKeys,
    *,
    count: int = MAX_BATCH,
    with_bodies: bool = False,
    after: tuple[int, str] = (0, ""),
    upto_ms: int | None = None,
    fingerprint: str = "",
    ids: Sequence[str] = (),
) -> Command[DeadPage]:
    """One page of the dead letters of a group in a partition, oldest first.

    Args:
        keys: The group in the partition.
        count: The most that the page may have.
        with_bodies: Whether their bodies are read, too.
        after: When the last one of the page before died, and its id; or a time and "", for those
            that died then and later.
        upto_ms: Those that have died until then; default until now.
        fingerprint: Only those of this fingerprint.
        ids: Only these, in their order.
    """
    (after_ms, after_id), upto = after, "" if upto_ms is None else upto_ms
    args = (
        int(with_bodies), MAX_BATCH_BYTES, count, after_ms, after_id, upto, fingerprint, *ids,
    )  # fmt: skip
    return call(keys.scripts, "dead_letters", args, _dead_page)


def dead_clusters(keys: GroupKeys, *, after: str | None) -> Command[list[DeadCluster]]:
    """Dead letters by fingerprint: a page behind the fingerprint `after`; None for the first."""
    first = "" if after is None else f"({after}\1"
    return call(keys.scripts, "dead_clusters", (first, MAX_BATCH), _dead_clusters)


def count_dead(keys: GroupKeys, fingerprint: str | None = None) -> Command[int]:
    """How many dead letters a group has in a partition, of all fingerprints or of one."""
    if fingerprint is None:
        return query(int, "ZCARD", keys.dead)
    bounds = f"[{fingerprint}\0", f"({fingerprint}\1"
    return query(int, "ZLEXCOUNT", keys.fingerprints, *bounds)


def dead_letter_member(death: str, since_ms: float, id_: str) -> str:
    """A dead letter's member of `fingerprints`; `death` is what is kept of its death."""
    parts = death.split(" ")
    return f"{parts[2] if len(parts) > 2 else ''}\0{int(since_ms):016}\0{id_}"  # noqa: PLR2004


def tracebacks(keys: GroupKeys, fingerprints: Sequence[str]) -> Command[list[str]]:
    """The tracebacks kept for these fingerprints; "" if there is none."""
    return read_these(keys.tracebacks, fingerprints)


def entries_of(
    keys: PartitionKeys, id_: str, start: str, pages: int = _PAGES
) -> Operation[list[tuple[int, dict[str, bytes]]]]:
    """The history entries that name a message, with their times: so many pages from `start`."""
    found: list[tuple[int, dict[str, bytes]]] = []
    wanted = id_.encode()
    for _ in range(pages):
        page = yield history(keys, start=start, count=_PAGE)
        for entry_id, fields in page:
            if wanted in fields["i"]:
                found.append((int(entry_id.partition("-")[0]), fields))
        if len(page) < _PAGE:
            break
        start = f"({page[-1][0]}"
    return found


def ids_with_key(keys: PartitionKeys, key: str, *, after: str, count: int) -> Command[list[str]]:
    """Ids of stored messages with a message key, by id, behind the id `after`; "" for the first."""
    first = f"({key}\0{after}" if after else f"[{key}\0"
    page = ("LIMIT", 0, count)
    return query(_keyed_ids, "ZRANGEBYLEX", keys.message_keys, first, f"({key}\x01", *page)


def recent_history(
    keys: PartitionKeys, *, end: str, count: int
) -> Command[list[tuple[str, dict[str, bytes]]]]:
    """Entries of a partition's history back from a stream id, newest first."""
    return query(_history, "XREVRANGE", keys.events, end, "-", "COUNT", count)


def history(
    keys: PartitionKeys, *, start: str, end: str = "+", count: int = 1000
) -> Command[list[tuple[str, dict[str, bytes]]]]:
    """Entries of a partition's history from one stream id to another, oldest first."""
    return query(_history, "XRANGE", keys.events, start, end, "COUNT", count)


def _keyed_ids(reply: list[bytes]) -> list[str]:
    return [text(member).rpartition("\0")[2] for member in reply]


def _optional_text(reply: bytes | None) -> str:
    """What is no UTF-8 is kept as it is, for whoever decodes a record to refuse."""
    return "" if reply is None else reply.decode(errors="surrogateescape")


def _records(reply: Any) -> dict[str, str]:
    rows = (
        reply.items() if isinstance(reply, Mapping) else zip(reply[::2], reply[1::2], strict=True)
    )
    return {_optional_text(name): _optional_text(record) for name, record in rows}


def _stats(reply: list[Any]) -> Stats:
    now, ready, retry, inflight, overdue, dead, scheduled, backlog, bodies = map(int, reply[:9])
    oldest, paused, levels, counters, history_bytes, most, rate, blocked, grouped = reply[9:18]
    ages, late = reply[18:]
    rungs = [
        LevelStats(count, due, number(first)) if count else _NONE_WAITS
        for count, due, first in levels
    ]
    return Stats(
        now, ready, retry, inflight, overdue, dead, scheduled, backlog, bodies, text(oldest),
        paused == b"1", rungs, pairs(counters), int(history_bytes), number(most), text(rate),
        max(0, int(blocked)), int(grouped), tuple(_born(ages)), int(late),
    )  # fmt: skip


def _born(reply: list[Any]) -> Iterator[tuple[str, int]]:
    for state, id_, tail in reply:
        at_ms = born_at_end(tail) or born_ms(text(id_))
        if at_ms is not None:
            yield text(state), at_ms


def _blockers(reply: list[Any]) -> tuple[int, list[Blocking]]:
    count, *rows = reply
    found = [
        Blocking(text(id_), text(name), attempt, blocked_ms, behind)
        for id_, name, attempt, blocked_ms, behind in rows
    ]
    return count, found


def _peeked(reply: list[Any]) -> Peeked:
    now, body, owed, byte, entry, deadline, dead, death, failures, scheduled = reply[:10]
    ready, retry, backlog, paused, waiting, stored, held, most, rate, head, ahead = reply[10:]
    return Peeked(
        int(now), body, owed, byte, text(entry), number(deadline), number(dead), text(death),
        text(failures), number(scheduled), number(ready), number(retry), number(backlog),
        paused == b"1", [(int(level), int(float(due))) for level, due in waiting], stored == 1,
        int(held), number(most), text(rate), text(head), number(ahead),
    )  # fmt: skip


def _dead_page(reply: list[Any]) -> DeadPage:
    now, looked, ids, since, deaths, failures, data = reply
    return DeadPage(
        int(now), int(looked), texts(ids), [int(float(ms)) for ms in since],
        texts(deaths), texts(failures), data,
    )  # fmt: skip


def _dead_clusters(reply: list[Any]) -> list[DeadCluster]:
    found = []
    for first, last, size, death, failures in zip(*reply, strict=True):
        fingerprint, first_ms, _ = text(first).split("\0")
        _, last_ms, id_ = text(last).split("\0")
        times = int(first_ms), int(last_ms)
        found.append(DeadCluster(fingerprint, size, *times, id_, text(death), text(failures)))
    return found


def _history(reply: list[Any]) -> list[tuple[str, dict[str, bytes]]]:
    found = []
    for id_, flat in reply:
        unpack_entry(flat)
        found.append((text(id_), {text(flat[i]): flat[i + 1] for i in range(0, len(flat), 2)}))
    return found
