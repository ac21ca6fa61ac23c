"""The same for the scripts of transactions, of the catalog and of operators."""

from typing import Any

from rqretry.admin.series import BATCH
from rqretry.core.route import Route, RouteGroup
from rqretry.protocol import audit_log, catalog, inspect, operate, repair, series
from rqretry.protocol import lease as consuming
from rqretry.protocol import transaction as transactions
from rqretry.protocol.command import Command
from tests.lua.crash_cases_kept import keep
from tests.lua.worst_data import (
    FULL,
    INDEXED,
    KEYS,
    MANY,
    NS,
    NUL,
    RECORD,
    WORST,
    dead,
    fill,
    fill_list,
    ids,
    leased,
    line,
    worst,
)
from tests.support.builders import SECOND, failure, first, prepared
from tests.support.world import START_MS, WORKER, World

__all__ = ["WORST"]

TERMS = transactions.Terms("g", "t", SECOND, SECOND, 15)


def record(partitions: int, state: str = "open") -> str:
    """A transaction's, with messages in so many partitions."""
    parts = " ".join(f"{'t' * 120}:{number}" for number in range(partitions))
    fields = [state, "g", "t", "p", 1, 1000, 1000, 15, 0, 0, 1, "p", "reason", parts]
    return "\t".join(map(str, fields))


def transaction(world: World, state: str = "open") -> str:
    """One of very many, with a message in each of 8000 partitions."""
    world.client.hset(NS.transactions, "tx", record(8000, state))
    for key in (NS.open_transactions, NS.finished_transactions, NS.unfinished_transactions):
        fill(world, key, dict.fromkeys(ids(MANY), 1), sorted_set=True)
    return "tx"


# -- transactions


@worst
def enlist(world: World) -> Command[Any]:
    name = transaction(world)
    return transactions.enlist(NS, name, ("t", 1), TERMS, known=True, worker=WORKER, seen_ms=1)


@worst
def decide(world: World) -> Command[Any]:
    name = transaction(world)
    return transactions.decide(NS, name, "g", "committed", worker=WORKER, lease_ms=SECOND)


@worst
def defer(world: World) -> Command[Any]:
    return transactions.defer(NS, transaction(world), "g", claim=0, reason="x" * 500)


@worst
def finish(world: World) -> Command[Any]:
    done = [("t" * 120, number) for number in range(7900, 8000)]
    return transactions.finish(NS, transaction(world, "committed"), done)


@worst
def claim(world: World) -> Command[Any]:
    groups = [f"g{number}" for number in range(250)]
    for group in groups:
        fill(world, NS.checks(group), dict.fromkeys(ids(FULL), 1), sorted_set=True)
    large = {id_: record(8000) for id_ in ids(20, "u")}
    fill(world, NS.transactions, large)
    fill(world, NS.checks("g249"), dict.fromkeys(large, 1), sorted_set=True)
    fill(world, NS.checks("g248"), dict.fromkeys(large, 0), sorted_set=True)
    return transactions.claim(NS, [*groups[-2:], *groups], lease_ms=SECOND, limit=10)


@worst
def prepare(world: World) -> Command[Any]:
    world.subscribe()
    fill(world, world.keys.halves, dict.fromkeys(ids(MANY), 0), sorted_set=True)
    halves = [
        transactions.Half(n, prepared(i, "x" * 2000, keys=KEYS, digest="d"), "tag", "name")
        for n, i in enumerate(ids(INDEXED // len(KEYS)))
    ]
    return transactions.prepare(
        world.keys, world.route, "tx", halves, worker=WORKER, seen_ms=START_MS
    )


def halves_of(world: World) -> None:
    """A full batch, of very many."""
    world.subscribe(ordered=True)
    names = ids(FULL)
    for prefix, rows in (("tx", names), ("ty", ids(MANY, "o"))):
        members = {id_: f"{prefix} {n:08} {id_} tag name-{n}" for n, id_ in enumerate(rows)}
        fill(world, world.keys.halves, dict.fromkeys(members.values(), 0), sorted_set=True)
        fill(world, world.keys.half_of, members)
    fill(world, world.keys.bodies, dict.fromkeys(names, "x"))
    fill(world, world.keys.ids, dict.fromkeys(ids(MANY), "digest"))


@worst
def commit(world: World) -> Command[Any]:
    halves_of(world)
    return transactions.commit(world.keys, "tx", worker=WORKER, decided_ms=START_MS)


@worst
def rollback(world: World) -> Command[Any]:
    halves_of(world)
    return transactions.rollback(world.keys, "tx", worker=WORKER)


# -- the catalog


@worst
def compare_and_set(world: World) -> Command[Any]:
    world.client.hset(NS.topics, "t", "x" * 2**20)
    return catalog.compare_and_set(NS, NS.topics, "t", "x" * 2**20, "y" * 2**20)


@worst
def configure(world: World) -> Command[Any]:
    return catalog.configure(world.group(), 1, {f"field{n}": "x" * 1000 for n in range(100)})


@worst
def subscribe(world: World) -> Command[Any]:
    fill_list(world, world.keys.backlog)
    slots = {id_: f"{n:016}name-{n}" for n, id_ in enumerate(ids(FULL, "z"))}
    fill(world, world.keys.message_groups, slots)
    line(world, "long", MANY)
    groups = (
        RouteGroup("g", 1, "push", ordered=True),
        *(RouteGroup(f"h{n}", n, "push") for n in range(2, 251)),
    )
    return catalog.subscribe(world.keys, Route(1, 1, groups))


@worst
def audit_append(world: World) -> Command[Any]:
    pipeline = world.client.pipeline()
    for _ in range(20_000):
        pipeline.xadd(NS.audit, {"at": 1, "by": "x", "e": "x", "a": "{}", "n": "{}"})
    pipeline.execute()
    large = {"selected": "x" * 2**16}
    return audit_log.audit_append(NS, actor="ops", verb="redrive", arguments=large, counts=large)


@worst
def record_series(world: World) -> Command[Any]:
    minute = world.run(series.record_series(NS)).minute
    world.client.hset(NS.series, "since", 1)
    names = [f"{'t' * 120}/{'g' * 110}{n}" for n in range(BATCH)]
    for key in NS.rings:
        fill(world, key, dict.fromkeys(names, "x" * 600))
    return series.record_series(NS, minute, [series.Row(name, 1, 2**40, 2**40) for name in names])


@worst
def now(world: World) -> Command[Any]:
    return audit_log.now(NS)


# -- reading


@worst
def stats(world: World) -> Command[Any]:
    leased(world, ordered=True)
    fill(world, world.keys.counters, {f"verb{n % 20}:group-{n // 20}": 1 for n in range(5000)})
    return inspect.stats(world.group())


@worst
def peek(world: World) -> Command[Any]:
    leased(world, ordered=True)
    for key in (world.group().ready, world.group().retry, world.keys.backlog):
        fill_list(world, key)
    return inspect.peek(world.group(), ids(MANY, "l")[-1])


@worst
def dead_letters(world: World) -> Command[Any]:
    names = dead(world)
    fill(world, world.keys.bodies, dict.fromkeys(names, "x" * 8000))
    return inspect.dead_letters(world.group(), with_bodies=True, after=(START_MS, ids(1, "n")[0]))


@worst
def dead_clusters(world: World) -> Command[Any]:
    dead(world)
    rows = {f"{n % 5000:016x}{NUL}{1:016}{NUL}{id_}": 0 for n, id_ in enumerate(ids(MANY))}
    fill(world, world.group().fingerprints, rows, sorted_set=True)
    return inspect.dead_clusters(world.group(), after=None)


@worst
def scan_blocked(world: World) -> Command[Any]:
    leased(world, ordered=True)
    return operate.scan_blocked(world.group())


@worst
def blockers(world: World) -> Command[Any]:
    names = leased(world, ordered=True)
    world.fail(*(failure(id_, record=RECORD) for id_ in names))
    fill(world, world.group().attempts, dict.fromkeys(ids(MANY, "l"), "2:2:0:0"))
    fill_list(world, world.group().retry, prefix="l")
    return inspect.blockers(world.group(), 10)


@worst
def browse(world: World) -> Command[Any]:
    names = leased(world, ordered=True)
    world.fail(*(failure(id_, record=RECORD) for id_ in names))
    fill(world, world.group().failures, dict.fromkeys(names, f"1 {START_MS} {RECORD}\n" * 19))
    fill(world, world.keys.bodies, dict.fromkeys(names, "x" * 8000))
    fill(world, world.group().levels[2], dict.fromkeys(ids(MANY, "o"), START_MS), sorted_set=True)
    return operate.browse(
        world.group(), world.group().levels[2], "zset", position=str(START_MS), after="o9"
    )


@worst
def reasons(world: World) -> Command[Any]:
    names = leased(world)
    world.fail(*(failure(id_, record=RECORD) for id_ in names))
    records = (
        "".join(f"{n} {START_MS} {RECORD.replace('0123', f'{at:04x}')}\n" for n in range(19))
        for at in range(FULL)
    )
    fill(world, world.group().failures, dict(zip(names, records, strict=True)))
    fill_list(world, world.group().retry)
    return operate.reasons(world.group(), 20)


@worst
def scan_group(world: World) -> Command[Any]:
    dead(world)
    return operate.scan_group(world.group(), world.group().dead, in_list=False, offset=MANY // 2)


@worst
def backfill_check(world: World) -> Command[Any]:
    world.subscribe()
    fill(world, world.keys.bodies, dict.fromkeys(ids(MANY), "x" * 1000))
    return operate.backfill_check(world.group(), "0")


# -- dead letters and purging


@worst
def redrive(world: World) -> Command[Any]:
    names = dead(world, ordered=True)
    return operate.redrive(world.group(), names[: operate.MAX_REDRIVEN], actor="ops")


@worst
def purge(world: World) -> Command[Any]:
    names = dead(world, ordered=True, keys=KEYS)
    return operate.purge(world.group(), names, actor="ops")


@worst
def purge_list(world: World) -> Command[Any]:
    world.subscribe(ordered=True)
    for at in range(0, FULL, 100):
        world.publish(*(prepared(i, keys=KEYS, group=i[:20]) for i in ids(FULL)[at : at + 100]))
    fill_list(world, world.group().ready)
    return operate.purge_list(world.group(), world.group().ready, actor="ops")


@worst
def dead_letter(world: World) -> Command[Any]:
    world.subscribe(ordered=True)
    for at in range(0, FULL, 100):
        world.publish(*(prepared(i, keys=KEYS, group=i[:20]) for i in ids(FULL)[at : at + 100]))
    fill(world, world.group().dead, dict.fromkeys(ids(MANY, "o"), 1), sorted_set=True)
    answers = [(id_, True) for id_ in ids(FULL)]
    return operate.dead_letter(
        world.group(), world.group().ready, "list", answers, actor="ops", record=RECORD
    )


@worst
def purge_blocked(world: World) -> Command[Any]:
    world.subscribe(ordered=True)
    for at in range(0, FULL, 100):
        world.publish(*(prepared(i, keys=KEYS, group="name") for i in ids(FULL)[at : at + 100]))
    members = [member.decode() for member in world.client.zrange(world.group().order, 1, -1)]
    line(world, "long", MANY)
    return operate.purge_blocked(world.group(), members, actor="ops")


@worst
def catch_up(world: World) -> Command[Any]:
    world.subscribe("g")
    world.subscribe("h", catching_up=1)
    fill_list(world, world.group("g").ready)
    fill(world, world.keys.bodies, dict.fromkeys(ids(MANY, "z"), "x"))
    keys = world.group("h")
    place = world.group("g").ready
    return operate.catch_up(keys, place, actor="o", in_list=True, owner=97, offset=MANY // 2)


@worst
def replay(world: World) -> Command[Any]:
    keep(world, keep_bytes=2**40)
    names = leased(world, ordered=True, keys=KEYS)
    for at in range(0, FULL, 100):
        world.succeed(*first(*names[at : at + 100]))
    keys = world.group()
    fill(world, keys.consumed, dict.fromkeys(ids(MANY, "o"), START_MS * 3), sorted_set=True)
    span = {"since_ms": START_MS, "upto_ms": START_MS * 2}
    return operate.replay(keys, keys.consumed, actor="o", record=RECORD, **span)


def kept_again(world: World) -> Command[Any]:
    """A full batch is done where the topic keeps bodies, and has very many, also of these ids."""
    keep(world, keep_bytes=2**40)
    names = leased(world, ordered=True, keys=KEYS)
    old = dict.fromkeys([*names, *ids(MANY, "o")], START_MS)
    fill(world, world.keys.kept, old, sorted_set=True)
    fill(world, world.group().consumed, old, sorted_set=True)
    fill(world, world.keys.kept_bodies, dict.fromkeys(old, "x" * 100))
    return consuming.succeed(world.group(), first(*names), worker=WORKER)


@worst
def leave(world: World) -> Command[Any]:
    dead(world, ordered=True)
    keys = world.group()
    fill(world, world.keys.counters, {f"verb{n % 20}:group-{n // 20}": 1 for n in range(5000)})
    world.client.delete(keys.ready, keys.retry, keys.inflight, keys.dead, keys.order)
    return operate.leave(keys)


# -- repairs


@worst
def repair_places(world: World) -> Command[Any]:
    names = leased(world, ordered=True)
    fill_list(world, world.group().ready, 60_000)
    fill_list(world, world.group().retry, 60_000, "y")
    return repair.repair_places(world.group(), "settle", names, actor="ops")


@worst
def repair_order(world: World) -> Command[Any]:
    leased(world, ordered=True)
    fill_list(world, world.group().ready, 10_000)
    fill(world, world.keys.bodies, dict.fromkeys(ids(100, "l"), "x"))
    return repair.repair_order(world.group(), "go_on", ["long", "other"], actor="ops")


@worst
def repair_owners(world: World) -> Command[Any]:
    for number in range(100):
        world.subscribe(f"g{number}", install=False)
    stray = ids(FULL)
    fill(world, world.keys.bodies, dict.fromkeys(stray, "x"))
    groups = [(world.group(group.name), chr(group.byte)) for group in world.route.groups]
    orphans = [repair.Orphan(id_, "", b"a") for id_ in stray]
    return repair.repair_owners(world.keys, groups, orphans, actor="ops")


@worst
def repair_orphans(world: World) -> Command[Any]:
    fill_list(world, world.keys.backlog)
    return repair.repair_orphans(world.keys, "backlog", ids(FULL, "z"))
