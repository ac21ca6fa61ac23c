"""What operators move: redrive, purge, leave, recall, catch up; and the scans that they need."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from rqretry.protocol.command import (
    MAX_BATCH,
    MAX_BATCH_BYTES,
    Command,
    Operation,
    call,
    number,
    query,
    text,
    texts,
)
from rqretry.protocol.keys import GroupKeys, PartitionKeys
from rqretry.protocol.publish import scheduled_member

T = TypeVar("T")

_STATE_PARTS = 4
MAX_REDRIVEN, MAX_REPLAYED = 250, 75
"""Messages in a call: each may have a message group, or 16 message keys of 6 µs each."""
ANY_ROUTE = 2**53
"""A version that no topic's route is newer than."""


class GroupPage(NamedTuple):
    """One page of what a group holds in one list or sorted set."""

    now_ms: int
    total: int
    ids: list[str]
    due_ms: list[int | None]
    """Due time, or deadline; None in a list."""
    attempts: list[int]
    """The current delivery, else the next one."""
    failures: list[str]


class Browsed(NamedTuple):
    """A message in one list or sorted set."""

    member: str
    score: float
    """Due time, deadline, or where it stands in a list."""
    id: str
    attempt: int
    failure: str
    """The newest line of its failure record; "" for none."""
    head: str
    """Who is out of its message group; "" where that was not asked."""
    body: bytes


class BrowsedPage(NamedTuple):
    """One page of one list or sorted set."""

    now_ms: int
    more: bool
    messages: list[Browsed]


class FoundReasons(NamedTuple):
    """The commonest last errors of what waits in one partition."""

    waiting: int
    looked: int
    kinds: list[tuple[int, str, str]]
    """How many, one of them, and the line of its failure record."""


class CatchUpCount(NamedTuple):
    """What a page of catching up answered."""

    window: int
    """Messages in the page; -1: the group has caught up, and nothing was written."""
    given: int
    marked: int
    """Messages that had no entry, and now have their group's byte."""


class ReplayCount(NamedTuple):
    """What a page of a replay answered."""

    looked: int
    """Entries that the page was about; 0: nothing is left."""
    given: int


class BlockedPage(NamedTuple):
    """One page of what waits behind others of its message group."""

    now_ms: int
    after: str
    """Where the next page begins; '' at the end."""
    members: list[str]
    ids: list[str]
    failures: list[str]


class PurgeCount(NamedTuple):
    """What a call of purge_list returned."""

    gone: int
    window: int
    """How many entries of the list it went past."""


def redrive(
    keys: GroupKeys,
    ids: Sequence[str],
    *,
    actor: str,
    delays_ms: Sequence[int | str] | None = None,
    records: Sequence[str] | None = None,
) -> Command[list[bytes]]:
    """Dead to ready, or to waiting_retry for a delay; OK or GONE for each id.

    `records`: of each, the line for its failure record (failures.py).
    """
    delays = delays_ms or [""] * len(ids)
    lines = records or ['{"c":"redriven"}'] * len(ids)
    arguments = [argument for row in zip(ids, delays, lines, strict=True) for argument in row]
    return call(keys.scripts, "redrive", (keys.group, actor, *arguments), list, tuple(ids))


def purge(
    keys: GroupKeys,
    ids: Sequence[str],
    *,
    actor: str,
    key: str | None = None,
    membership: bytes = b"",
) -> Command[list[bytes]]:
    """Dead (or in another sorted set, `key`) to gone; OK or GONE for each id.

    `membership`: see leave.
    """
    return call(
        keys.scripts,
        "purge",
        (keys.group, actor, membership, *ids),
        list,
        tuple(ids),
        location=key or keys.dead,
    )


def purge_each(
    command: Callable[[Sequence[str]], Command[list[bytes]]], items: Sequence[str]
) -> Operation[int]:
    """Purge all of these, in as many calls as the bytes of their bodies need; how many went."""
    gone, rest = 0, items
    for _ in range(len(items)):
        verdicts: list[bytes] = yield command(rest)
        gone += verdicts.count(b"OK")
        rest = [item for item, verdict in zip(rest, verdicts, strict=True) if verdict == b"LATER"]
        if not rest:
            break
    return gone


def purge_list(
    keys: GroupKeys,
    key: str,
    *,
    actor: str,
    answers: Sequence[tuple[str, bool]] = (),
    limit: int = MAX_BATCH,
    membership: bytes = b"",
) -> Command[PurgeCount]:
    """Ready to gone, at the head of one list; `answers` says which go, none: all.

    `membership`: see leave.
    """
    flat = [argument for id_, goes in answers for argument in (id_, int(goes))]
    return call(
        keys.scripts,
        "purge_list",
        (keys.group, actor, limit, membership, *flat),
        lambda reply: PurgeCount(*map(int, reply)),
        location=key,
    )


def dead_letter(
    keys: GroupKeys,
    key: str,
    structure: str,
    answers: Sequence[tuple[str, bool]],
    *,
    actor: str,
    record: str,
) -> Command[PurgeCount]:
    """Ready or waiting_retry to dead; `answers` says which go, ids or, in the order, members.

    `structure`: "list", of which a window at the head is looked at, "zset" or "order".
    """
    flat = [argument for id_, goes in answers for argument in (id_, int(goes))]
    args = (keys.group, actor, structure, record, *flat)
    return call(keys.scripts, "dead_letter", args, _died, location=key)


def _died(reply: list[Any]) -> PurgeCount:
    return PurgeCount(len(reply[1]), int(reply[0]))


def catch_up(
    keys: GroupKeys, key: str, *, actor: str, in_list: bool, owner: int, offset: int
) -> Command[CatchUpCount]:
    """Stored to ready: one page of what the group with the byte `owner` has, for another group."""
    structure = "list" if in_list else "zset"
    return call(
        keys.scripts,
        "catch_up",
        (keys.group, actor, structure, bytes((owner,)), offset, MAX_BATCH),
        lambda reply: CatchUpCount(*map(int, reply)),
        location=key,
    )


def replay(
    keys: GroupKeys, key: str, *, actor: str, record: str, since_ms: int, upto_ms: int,
    limit: int = MAX_REPLAYED, route: int = ANY_ROUTE,
) -> Command[ReplayCount]:  # fmt: skip
    """Committed to ready: one page of what `key` has of the time, as far as bodies are kept.

    `key`: what the group has consumed, or what the partition keeps. `record`: as for `redrive`.
    `route`: its newest version that is known; behind a newer one nothing is given.
    """
    return call(
        keys.scripts,
        "replay",
        (keys.group, actor, record, since_ms, upto_ms, limit, route),
        lambda reply: ReplayCount(*map(int, reply)),
        location=key,
    )


def consumed_since(keys: GroupKeys, since_ms: int) -> Command[int]:
    """How many messages the group has consumed since a time, where that is kept."""
    return query(int, "ZCOUNT", keys.consumed, since_ms, "+inf")


def backfill_check(keys: GroupKeys, cursor: str) -> Command[tuple[str, list[str]]]:
    """One page of what is stored and not owed by the group: the next cursor, and the ids."""
    return call(
        keys.scripts, "backfill_check", (cursor,), lambda reply: (text(reply[0]), texts(reply[1]))
    )


def scheduled_ids(keys: PartitionKeys, cursor: str) -> Command[tuple[str, list[str]]]:
    """One page of what is scheduled: the next cursor, and the ids; a member may carry a tag."""
    return query(_scanned, "ZSCAN", keys.scheduled, cursor, "COUNT", MAX_BATCH)


def half_ids(keys: PartitionKeys, cursor: str) -> Command[tuple[str, list[str]]]:
    """One page of the half messages: the next cursor, and the ids."""
    return query(_scanned, "HSCAN", keys.half_of, cursor, "COUNT", MAX_BATCH)


def scan_blocked(
    keys: GroupKeys, *, after: str = "", count: int = MAX_BATCH
) -> Command[BlockedPage]:
    """One page of the line of an ordered group, without who is out; reads only."""
    return call(keys.scripts, "scan_blocked", (after, count), _blocked)


def purge_blocked(
    keys: GroupKeys, members: Sequence[str], *, actor: str, membership: bytes = b""
) -> Command[list[bytes]]:
    """Blocked to gone; OK or GONE for each member of the line; `membership`: see leave."""
    return call(keys.scripts, "purge_blocked", (keys.group, actor, membership, *members), list)


def leave(keys: GroupKeys, *, membership: bytes = b"", stuck: bool = False) -> Command[int]:
    """Forget a group in a partition where it holds nothing; answers what it still holds.

    `membership`: the byte that it had, in case that it has joined again. `stuck`: what it holds
    could not be removed, so it is forgotten which message of each message group is out.
    """
    return call(keys.scripts, "leave", (keys.group, membership, int(stuck)), int)


def erase(keys: PartitionKeys) -> Command[int]:
    """Delete what is a partition's own, at once; big keys are freed in the background."""
    return Command("erase", (), (), int, arguments=("UNLINK", *keys.everything()))


def erase_group(keys: GroupKeys) -> Command[int]:
    """Delete what a group that consumes another's dead letters has of its own in a partition."""
    own = (
        keys.config, keys.ready, keys.retry, keys.inflight, keys.attempts, keys.failures,
        keys.tracebacks, keys.deaths, keys.due, keys.wake, *keys.levels,
    )  # fmt: skip
    assert keys.source
    return Command("erase", (), (), int, arguments=("UNLINK", *own))


def recall(keys: PartitionKeys, id_: str, *, worker: str, tag: str = "") -> Command[str]:
    """Scheduled and not due to gone: OK, LATE or GONE."""
    args = (worker, id_, scheduled_member(id_, tag))
    return call(keys.scripts, "recall", args, text, (id_,))


def scan_group(
    keys: GroupKeys, key: str, *, in_list: bool, offset: int, count: int = MAX_BATCH
) -> Command[GroupPage]:
    """One page of what a group holds in a list or a sorted set of its own."""
    return call(
        keys.scripts,
        "scan_group",
        ("list" if in_list else "zset", offset, count),
        _held,
        location=key,
    )


def browse(
    keys: GroupKeys, key: str, structure: str, *, position: str = "", after: str = "",
    count: int = MAX_BATCH,
) -> Command[BrowsedPage]:  # fmt: skip
    """One page of the messages in `key`, with their newest failures and their bodies; reads only.

    `structure`: "list", "zset", "order" (what waits behind others) or "halves" (of the transaction
    that `after` names, with a blank). `position` and `after`: score and member of the last message
    of the page before.
    """
    args = (structure, position, after, count, MAX_BATCH_BYTES)
    return call(keys.scripts, "browse", args, _browsed, location=key)


def reasons(keys: GroupKeys, most: int) -> Command[FoundReasons]:
    """The commonest last errors of a group's messages that wait for a retry; reads only."""

    def decoded(reply: list[Any]) -> FoundReasons:
        waiting, looked, *kinds = reply
        return FoundReasons(waiting, looked, [(n, text(id_), text(line)) for n, id_, line in kinds])

    return call(keys.scripts, "reasons", (MAX_BATCH, most), decoded)


def _scanned(reply: list[Any]) -> tuple[str, list[str]]:
    """A cursor and ids, each of which may have a tag behind it; their values are left out."""
    return text(reply[0]), [text(member).partition(" ")[0] for member in reply[1][::2]]


def _blocked(reply: list[Any]) -> BlockedPage:
    now, after, members, ids, failures = reply
    return BlockedPage(
        int(now),
        text(after),
        *(texts(column) for column in (members, ids, failures)),
    )


def _browsed(reply: list[Any]) -> BrowsedPage:
    now, more, *rows = reply
    messages = [
        Browsed(
            text(member), float(score), text(id_), _attempt_in(state), text(line), text(head), body
        )
        for member, score, id_, state, line, head, body in rows
    ]
    return BrowsedPage(int(now), more == b"1", messages)


def _attempt_in(state: bytes) -> int:
    """The attempt of a delivery state; 1 where there is none, or it cannot be read."""
    parts = state.split(b":")
    return int(parts[1]) if len(parts) == _STATE_PARTS and parts[1].isdigit() else 1


def _held(reply: list[Any]) -> GroupPage:
    now, total, ids, scores, states, failures = reply
    return GroupPage(
        int(now),
        int(total),
        texts(ids),
        [number(score) for score in scores] or [None] * len(ids),
        [int(state.split(b":")[1]) if state else 1 for state in states],
        texts(failures),
    )


def scores(key: str, ids: Sequence[str]) -> Command[list[float | None]]:
    """The score of each id in a sorted set; None for one that is not there."""
    return query(list, "ZMSCORE", key, *ids)


def scan(keys: GroupKeys, key: str, read: Callable[[GroupPage], Iterable[T]]) -> Operation[list[T]]:
    """What `read` takes from each page of one list or sorted set of a group."""
    found: list[T] = []
    offset, total = 0, 1
    while offset < total:
        page: GroupPage = yield scan_group(keys, key, in_list=key in keys.lists, offset=offset)
        if not page.ids:
            break
        offset, total = offset + len(page.ids), page.total
        found += read(page)
    return found
