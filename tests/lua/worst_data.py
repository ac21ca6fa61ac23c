"""For each script the data that make one call of it as long as any: a table, by the script's name.

Each row builds the data on an empty partition and answers the call. What a call takes is bounded by
its caller, too: 500 messages, 1 MiB of bodies, and 2400 entries of indexes and of ordered
groups, and 40,000 of lists.
"""

from collections.abc import Callable
from typing import Any

from rqretry.protocol import broadcast, maintain, operate
from rqretry.protocol import lease as consuming
from rqretry.protocol import publish as producing
from rqretry.protocol.command import Command
from rqretry.protocol.keys import GroupKeys, NamespaceKeys
from rqretry.protocol.rate_limit import rate_set, rate_take
from tests.lua.test_feed_dlq_group import view
from tests.support.builders import MINUTE, SECOND, failure, first, prepared
from tests.support.world import START_MS, VISIBILITY_MS, WORKER, World

MANY, FULL, INDEXED = 65_000, 500, 2400
NUL = "\0"
KEYS = tuple(f"key-{number:02}-{'k' * 100}" for number in range(16))
NS = NamespaceKeys("test")
WORST: dict[str, Callable[[World], Command[Any]]] = {}
RECORD = '{"c":"failure","f":"0123456789abcdef","t":"' + "x" * 700 + '"}'


def worst(build: Callable[[World], Command[Any]]) -> Callable[[World], Command[Any]]:
    """The worst data of the script that has the function's name (a "_" behind it aside)."""
    WORST[build.__name__.rstrip("_")] = build
    return build


def ids(count: int, prefix: str = "m") -> list[str]:
    """As long as ids may be."""
    return [f"{prefix}{number:06}-{'i' * 110}" for number in range(count)]


def fill(world: World, key: str, rows: dict[str, Any], *, sorted_set: bool = False) -> None:
    """Store so much that publishing it would take long."""
    put = world.client.zadd if sorted_set else world.client.hset
    items = list(rows.items())
    for at in range(0, len(items), 20_000):
        part = dict(items[at : at + 20_000])
        put(key, part) if sorted_set else put(key, mapping=part)


def fill_list(world: World, key: str, count: int = MANY, prefix: str = "z") -> None:
    """Very many in a list."""
    for at in range(0, count, 20_000):
        world.client.rpush(key, *ids(count, prefix)[at : at + 20_000])


def line(world: World, name: str, count: int, prefix: str = "l") -> None:
    """A message group with very many in line."""
    members = [f"{name}{NUL}{n:016}{id_}" for n, id_ in enumerate(ids(count, prefix), 9)]
    fill(world, world.group().order, dict.fromkeys(members, 0), sorted_set=True)
    fill(world, world.keys.message_groups, dict.fromkeys(ids(count, prefix), f"{9:016}{name}"))
    world.client.hset(world.keys.meta, "order", count + 9)


def leased(world: World, *, ordered: bool = False, keys: tuple[str, ...] = ()) -> list[str]:
    """A full batch in flight among very many others, with message keys among very many others."""
    world.subscribe(ordered=ordered)
    names = ids(FULL)
    for at in range(0, FULL, 100):
        world.publish(
            *(prepared(i, keys=keys, group=i[:20] if ordered else "") for i in names[at : at + 100])
        )
    assert len(world.lease(FULL).ids) == FULL
    fill(
        world, world.group().inflight, dict.fromkeys(ids(MANY, "o"), START_MS * 9), sorted_set=True
    )
    if keys:
        named = dict.fromkeys((f"{KEYS[0]}{NUL}{id_}" for id_ in ids(MANY, "o")), 0)
        fill(world, world.keys.message_keys, named, sorted_set=True)
    if ordered:
        line(world, "long", MANY)
    return names


def dead(world: World, *, ordered: bool = False, keys: tuple[str, ...] = ()) -> list[str]:
    """A full batch of dead letters among very many others of the same millisecond."""
    names = leased(world, ordered=ordered, keys=keys)
    world.fail(*(failure(id_, level=-1, record=RECORD) for id_ in names))
    fill(world, world.group().dead, dict.fromkeys(ids(MANY, "o"), START_MS), sorted_set=True)
    fill(world, world.group().deaths, dict.fromkeys(ids(MANY, "o"), "1 failure 0123456789abcdef"))
    return names


def many_groups(world: World, count: int, *, ordered: bool = False, tags: str = "*") -> None:
    """A topic with so many groups."""
    for number in range(count):
        world.subscribe(f"g{number}", ordered=ordered, tags=tags, install=False)
    world.install()


def scheduled(world: World, count: int, *, groups: bool) -> None:
    """So many that are due, and very many that are not."""
    for at in range(0, count, 100):
        world.publish(
            *(
                prepared(i, delay_ms=SECOND, group=i[:20] if groups else "")
                for i in ids(count)[at : at + 100]
            )
        )
    fill(world, world.keys.scheduled, dict.fromkeys(ids(MANY, "o"), 10**12), sorted_set=True)
    world.advance(MINUTE)


# -- messages


@worst
def publish(world: World) -> Command[Any]:
    many_groups(world, 150)
    count = 40_000 // 150
    return published(world, [prepared(id_, "x" * 3900) for id_ in ids(count)])


@worst
def publish_with_options(world: World) -> Command[Any]:
    many_groups(world, 150, ordered=True)
    count = INDEXED // (150 + len(KEYS))
    return published(world, [prepared(i, keys=KEYS, group=i[:20]) for i in ids(count)])


def published(world: World, messages: list[Any]) -> Command[Any]:
    return producing.publish(
        world.keys, world.route, messages, producer="p", seq=1, checksum="s", lane_ttl_ms=SECOND
    )


@worst
def deliver(world: World) -> Command[Any]:
    many_groups(world, 150, ordered=True)
    scheduled(world, FULL, groups=True)
    return producing.deliver(world.keys, world.route, worker=WORKER, limit=FULL)


@worst
def scheduled_(world: World) -> Command[Any]:
    world.subscribe(tags="a")
    scheduled(world, FULL, groups=False)
    return producing.due_members(world.keys, limit=FULL)


@worst
def recall(world: World) -> Command[Any]:
    world.subscribe()
    world.publish(prepared("a", delay_ms=MINUTE, keys=KEYS))
    fill(world, world.keys.scheduled, dict.fromkeys(ids(MANY), 10**12), sorted_set=True)
    return operate.recall(world.keys, "a", worker=WORKER)


@worst
def lease(world: World) -> Command[Any]:
    world.subscribe(ordered=True)
    for at in range(0, FULL, 100):
        world.publish(*(prepared(i, "x" * 2000, group=i[:20]) for i in ids(FULL)[at : at + 100]))
    line(world, "long", MANY)
    fill(world, world.group().inflight, dict.fromkeys(ids(MANY, "o"), 10**12), sorted_set=True)
    return consuming.lease(
        world.group(), worker=WORKER, want=FULL, visibility_ms=VISIBILITY_MS, prefer="ready"
    )


@worst
def renew(world: World) -> Command[Any]:
    names = leased(world)
    return consuming.renew(world.group(), first(*names), visibility_ms=MINUTE)


@worst
def succeed(world: World) -> Command[Any]:
    names = leased(world, ordered=True, keys=KEYS)
    return consuming.succeed(world.group(), first(*names), worker=WORKER)


@worst
def fail(world: World) -> Command[Any]:
    failures = [failure(id_, record=RECORD) for id_ in leased(world, ordered=True)]
    return consuming.fail(world.group(), failures, worker=WORKER, tracebacks={})


@worst
def release(world: World) -> Command[Any]:
    receipts = first(*leased(world, ordered=True))
    return consuming.release(
        world.group(), receipts, worker=WORKER, delays_ms=[SECOND] * FULL, max_postpones=9
    )


@worst
def change_visibility(world: World) -> Command[Any]:
    flat = [value for id_ in leased(world) for value in (id_, 1)]
    keys = tuple(world.group().scripts["change_visibility"])
    return Command("change_visibility", keys, ("g", WORKER, 0, *flat), lambda reply: reply)


@worst
def expire(world: World) -> Command[Any]:
    leased(world, ordered=True)
    world.advance(VISIBILITY_MS)
    return maintain.expire(world.group(), worker=WORKER, hold_ms=SECOND, random=0.5)


@worst
def promote(world: World) -> Command[Any]:
    names = leased(world, ordered=True)
    world.fail(*(failure(id_, level=n % 18) for n, id_ in enumerate(names)))
    for level in world.group().levels:
        fill(world, level, dict.fromkeys(ids(10_000, "o"), 10**12), sorted_set=True)
    return maintain.promote(world.group(), worker=WORKER, early=True)


@worst
def poll(world: World) -> Command[Any]:
    many_groups(world, 100)
    return consuming.poll([world.group(f"g{number}") for number in range(100)])


@worst
def feed_dlq_group(world: World) -> Command[Any]:
    keys: GroupKeys = view(world)
    fill(world, world.group().dead, dict.fromkeys(ids(MANY), START_MS), sorted_set=True)
    for _ in range(3):
        world.run(maintain.feed_dlq_group(keys, worker=WORKER))
    world.advance(1)
    world.run(maintain.feed_dlq_group(keys, worker=WORKER))
    return maintain.feed_dlq_group(keys, worker=WORKER)


# -- upkeep


@worst
def sweep(world: World) -> Command[Any]:
    groups = [world.group(f"g{number}") for number in range(250)]
    old = dict.fromkeys(ids(FULL), 1)
    for keys in groups:
        world.client.hset(keys.config, "dlq_retention_ms", 1)
        fill(world, keys.dead, old, sorted_set=True)
        fill(world, keys.consumed, old, sorted_set=True)
    fill(world, world.keys.kept, old, sorted_set=True)
    fill(world, world.keys.kept_bodies, dict.fromkeys(old, "x"))
    for name in (world.keys.closed, world.keys.id_expiry):
        fill(world, name, dict.fromkeys(ids(MANY), 1), sorted_set=True)
    world.client.hset(world.keys.meta, mapping={"bytes": 2**26, "history_ms": 1, "keep_ms": 1})
    for number in range(200):
        world.client.xadd(world.keys.events, {"b": "x" * 2**16}, id=f"{number + 1}-0")
    return maintain.sweep(world.keys, groups)


@worst
def register(world: World) -> Command[Any]:
    fill(world, NS.workers, dict.fromkeys(ids(MANY), 1), sorted_set=True)
    fill(world, NS.worker_details, dict.fromkeys(ids(MANY), "1 " + "x" * 300))
    return maintain.register(NS, worker=WORKER, about="x" * 300, ttl_ms=SECOND)


@worst
def roster(world: World) -> Command[Any]:
    alive = {id_: START_MS * 2 + n for n, id_ in enumerate(ids(MANY))}
    fill(world, NS.workers, alive, sorted_set=True)
    fill(world, NS.worker_details, dict.fromkeys(alive, "1 " + "x" * 300))
    return maintain.roster(NS)


@worst
def rate_set_(world: World) -> Command[Any]:
    return rate_set(world.group().bucket, 1, "9/s")


@worst
def rate_take_(world: World) -> Command[Any]:
    world.run(rate_set(world.group().bucket, 1, "9/s"))
    return rate_take(world.group().bucket, want=FULL)


@worst
def tally(world: World) -> Command[Any]:
    return broadcast.tally(world.group(), {f"verb{number}": 1 for number in range(20)})
