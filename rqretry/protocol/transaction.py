"""prepare, commit and rollback halves; enlist, decide, finish, claim and defer their record."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from rqretry.core.route import Route
from rqretry.protocol.command import MAX_BATCH, Argument, Command, call, number, query, text, texts
from rqretry.protocol.keys import NamespaceKeys, PartitionKeys
from rqretry.protocol.large_body import write_ahead
from rqretry.protocol.publish import Prepared

OPEN, PARKED, COMMITTED, ROLLED_BACK = "open", "parked", "committed", "rolled_back"


class Terms(NamedTuple):
    """Whose a transaction is, and when it is checked."""

    group: str
    """The producer group."""
    topic: str
    after_ms: int
    every_ms: int
    most: int


class Record(NamedTuple):
    """What the namespace knows of a transaction."""

    id: str
    state: str
    """"open", "parked", "committed" or "rolled_back"."""
    terms: Terms
    opened_by: str
    opened_ms: int
    checks: int
    claim: int
    decided_ms: int | None
    decider: str
    reason: str
    partitions: tuple[tuple[str, int], ...]
    """(topic, partition) of each partition that has halves, or had some when it was decided."""


class Half(NamedTuple):
    """A message on its way into a transaction."""

    number: int
    """Its number in the transaction, from 1."""
    message: Prepared
    tag: str
    message_group: str


class PreparedHalves(NamedTuple):
    """What a prepare call answered: as Published, CLOSED where it is decided already, or LATE."""

    status: str
    verdicts: str = ""
    route: Route | None = None
    stored: int = 0
    limit: int = 0
    now_ms: int = 0
    """Where it came too late: the partition's time, for the next call."""


class Enlisted(NamedTuple):
    """What enlist answered: OK, GONE, LATE, or the state that it was decided to."""

    status: str
    decider: str = ""
    reason: str = ""
    now_ms: int = 0
    """Where it came too late: the time, for the next call."""


class Decided(NamedTuple):
    """What decide answered: OK, ALREADY, CONFLICT, STALE or GONE."""

    status: str
    decided_ms: int = 0
    partitions: tuple[tuple[str, int], ...] = ()
    state: str = ""
    decider: str = ""
    reason: str = ""


class Claimed(NamedTuple):
    """What a claim answered."""

    next_due_ms: int | None
    """Milliseconds until the next transaction needs somebody; None for none."""
    records: list[Record]
    parked: list[str]
    now_ms: int
    """The server's time; what was expected, while it is not believed."""


class StoredHalf(NamedTuple):
    """A half as its partition keeps it."""

    transaction: str
    id: str


# -- in a partition --------------------------------------------------------------------------------


def prepare(
    keys: PartitionKeys,
    route: Route,
    transaction: str,
    halves: Sequence[Half],
    *,
    worker: str,
    seen_ms: int,
    blob: bytes = b"",
) -> Command[PreparedHalves]:
    """Nothing to half: stored, and seen by no group.

    `seen_ms` is what the last call that came too late was answered, 0 for none.
    """
    args: list[Argument] = [route.version, transaction, worker, seen_ms, blob]
    ids = tuple(half.message.id for half in halves)
    ahead, taken = write_ahead(keys.incoming, keys.bodies, [h.message[:2] for h in halves])
    for half, data in zip(halves, taken, strict=True):
        m = half.message
        args += (half.number, m.id, data, m.digest, half.tag, half.message_group, m.keys)
    made = call(keys.scripts, "prepare", tuple(args), _prepared, ids)
    return replace(made, ahead=ahead) if ahead else made


def commit(
    keys: PartitionKeys, transaction: str, *, worker: str, decided_ms: int, limit: int = MAX_BATCH
) -> Command[tuple[int, int]]:
    """Half to scheduled and due; answers how many, and whether any are left."""
    return call(keys.scripts, "commit", (transaction, worker, decided_ms, limit), _two)


def rollback(
    keys: PartitionKeys, transaction: str, *, worker: str, limit: int = MAX_BATCH
) -> Command[tuple[int, int]]:
    """Half to gone; answers how many, and whether any are left."""
    return call(keys.scripts, "rollback", (transaction, worker, limit), _two)


def half_of(keys: PartitionKeys, id_: str) -> Command[StoredHalf | None]:
    """The transaction that a stored message is a half of; None for none."""
    return query(lambda reply: _half(reply) if reply else None, "HGET", keys.half_of, id_)


def halves(keys: PartitionKeys, transaction: str, count: int) -> Command[list[str]]:
    """The ids of the first halves of a transaction in a partition."""
    low, high, page = f"[{transaction} ", f"({transaction}!", ("LIMIT", 0, count)
    return query(_half_ids, "ZRANGEBYLEX", keys.halves, low, high, *page)


def bodies(keys: PartitionKeys, ids: Sequence[str]) -> Command[list[bytes | None]]:
    """The stored bytes of messages."""
    return query(list, "HMGET", keys.bodies, *ids)


# -- in the namespace's slot -----------------------------------------------------------------------


def enlist(
    keys: NamespaceKeys,
    transaction: str,
    partition: tuple[str, int],
    terms: Terms,
    *,
    known: bool,
    worker: str,
    seen_ms: int,
) -> Command[Enlisted]:
    """Open a transaction, or add a partition to it; `known`: it must be there.

    `seen_ms` is what the last call that came too late was answered, 0 for none.
    """
    args = (
        transaction, _spell(partition), int(known), terms.group, terms.topic, worker,
        terms.after_ms, terms.every_ms, terms.most, seen_ms,
    )  # fmt: skip
    ids = (transaction,)
    return call(keys.scripts, "enlist", args, _enlisted, ids, checks=keys.checks(terms.group))


def decide(
    keys: NamespaceKeys,
    transaction: str,
    group: str,
    decision: str,
    *,
    worker: str,
    lease_ms: int,
    claim: int | None = None,
    reason: str = "",
) -> Command[Decided]:
    """Commit or roll back, once and for all; `claim` where a checker decides."""
    claimed: Argument = "" if claim is None else claim
    args = (transaction, decision, worker, lease_ms, claimed, one_line(reason))
    return call(keys.scripts, "decide", args, _decided, checks=keys.checks(group))


def finish(
    keys: NamespaceKeys, transaction: str, partitions: Sequence[tuple[str, int]]
) -> Command[int]:
    """The decision is carried out in these, in the record's order; answers 1 if some are left."""
    return call(keys.scripts, "finish", (transaction, *map(_spell, partitions)), int)


def claim(
    keys: NamespaceKeys,
    groups: Sequence[str],
    *,
    lease_ms: int,
    limit: int,
    expected_ms: int | None = None,
    hold_ms: int = 0,
) -> Command[Claimed]:
    """Take decided transactions that were cut off, and open ones of these groups to check.

    `expected_ms` and `hold_ms` are those of maintain.expire.
    """
    args: tuple[Argument, ...] = (
        lease_ms, limit, "" if expected_ms is None else expected_ms, hold_ms
    )  # fmt: skip
    return Command("claim", (*keys.scripts["claim"], *map(keys.checks, groups)), args, _claimed)


def defer(
    keys: NamespaceKeys, transaction: str, group: str, *, claim: int, reason: str
) -> Command[str]:
    """A checker does not know: OK (checked again), PARKED, or STALE."""
    return call(
        keys.scripts,
        "defer",
        (transaction, claim, one_line(reason)),
        text,
        checks=keys.checks(group),
    )


def read(keys: NamespaceKeys, transaction: str) -> Command[Record | None]:
    """One record; None if it is not known (any more)."""

    def decoded(reply: bytes | None) -> Record | None:
        return None if reply is None else read_record(transaction, reply)

    return query(decoded, "HGET", keys.transactions, transaction)


def read_many(keys: NamespaceKeys, transactions: Sequence[str]) -> Command[list[Record]]:
    """The records of these that are known and can be read."""

    def decoded(reply: list[bytes | None]) -> list[Record]:
        return _readable(zip(transactions, reply, strict=True))

    return query(decoded, "HMGET", keys.transactions, *transactions)


def page(key: str, offset: int, count: int) -> Command[list[str]]:
    """Ids of an index of transactions, the oldest first."""
    return query(texts, "ZRANGE", key, offset, offset + count - 1)


def first_time(key: str) -> Command[int | None]:
    """Since when, or until when, the first one of an index is there; None for none."""
    return query(
        lambda reply: number(reply[1]) if reply else None, "ZRANGE", key, 0, 0, "WITHSCORES"
    )


def size(key: str) -> Command[int]:
    """How many an index of transactions holds."""
    return query(int, "ZCARD", key)


def next_check(keys: NamespaceKeys, group: str, transaction: str) -> Command[int | None]:
    """When a transaction is checked, server time in ms; None for never."""
    return query(number, "ZSCORE", keys.checks(group), transaction)


def one_line(reason: str, limit: int = 500) -> str:
    """A reason as the record can keep it: the record is one line of fields between tabs."""
    return " ".join(reason.split())[:limit]


def read_record(id_: str, stored: bytes) -> Record:
    """The record as lua/include/transaction.lua spells it."""
    fields = stored.decode(errors="replace").split("\t")
    state, group, topic, by, opened, after, every, most, checks, claims = fields[:10]
    decided, decider, reason, partitions = fields[10:14]
    return Record(
        id_,
        state,
        Terms(group, topic, _whole(after), _whole(every), _whole(most)),
        by,
        _whole(opened),
        _whole(checks),
        _whole(claims),
        number(decided.encode()),
        decider,
        reason,
        _partitions(partitions),
    )


def _whole(value: str) -> int:
    return int(float(value or 0))


def _spell(partition: tuple[str, int]) -> str:
    return f"{partition[0]}:{partition[1]}"


def _partitions(spelled: str) -> tuple[tuple[str, int], ...]:
    split = (each.rpartition(":") for each in spelled.split())
    return tuple((topic, int(partition)) for topic, _, partition in split)


def _half(member: bytes) -> StoredHalf:
    transaction, _, id_, _, _ = text(member).split(" ")
    return StoredHalf(transaction, id_)


def _half_ids(reply: list[bytes]) -> list[str]:
    return [_half(member).id for member in reply]


def _two(reply: list[Any]) -> tuple[int, int]:
    return int(reply[0]), int(reply[1])


def _prepared(reply: list[Any]) -> PreparedHalves:
    status = text(reply[0])
    if status == "STALE_ROUTE":
        return PreparedHalves(status, route=Route.decode(int(reply[1]), reply[2]))
    if status == "FULL":
        return PreparedHalves(status, stored=int(reply[1]), limit=int(reply[2]))
    if status == "LATE":
        return PreparedHalves(status, now_ms=int(reply[1]))
    return PreparedHalves(status, text(reply[2]) if status == "OK" else "")


def _enlisted(reply: list[Any]) -> Enlisted:
    status = text(reply[0])
    if status == "LATE":
        return Enlisted(status, now_ms=int(reply[1]))
    if status in ("OK", "GONE"):
        return Enlisted(status)
    return Enlisted(status, text(reply[1]), text(reply[2]))


def _decided(reply: list[Any]) -> Decided:
    status = text(reply[0])
    if status in ("OK", "ALREADY"):
        return Decided(status, _whole(text(reply[1])), _partitions(text(reply[2])))
    if status == "CONFLICT":
        state, decider, reason = map(text, reply[1:4])
        return Decided(status, _whole(text(reply[4])), (), state, decider, reason)
    return Decided(status)


def _claimed(reply: list[Any]) -> Claimed:
    now, next_due, taken, parked = reply
    records = _readable(zip(texts(taken[::2]), taken[1::2], strict=True))
    return Claimed(number(next_due), records, texts(parked), int(now))


def _readable(pairs: Iterable[tuple[str, bytes | None]]) -> list[Record]:
    """The records of transactions that have one; a damaged one keeps no other from being read."""
    found = []
    for id_, stored in pairs:
        with suppress(ValueError):
            found += [read_record(id_, stored)] if stored is not None else []
    return found
