"""No call takes long, whatever the data looks like: what it makes the server do is bounded.

Redis does nothing else while a script runs. What is counted here is what takes time: 20 ms are some
30,000 commands, 200,000 elements, 60 MiB that are read, 300 MiB that are freed or 1,000,000 items
of lists that are searched; the bounds are a third of that or less, and of searching two thirds.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from rqretry.protocol import operate, transaction
from tests.conftest import ServerOf
from tests.lua.conftest import world_on
from tests.lua.worst_data import fill
from tests.support import lua_hooks
from tests.support.builders import MINUTE, SECOND, failure, first, prepared
from tests.support.lua_hooks import WORK_KEY
from tests.support.world import WORKER, World

MOST = {
    "commands": 8000,
    "elements": 60_000,
    "bytes": 16 * 2**20,
    "freed": 68 * 2**20,
    "searched": 600_000,
}
MANY = 100_000
FULL = 500
LARGE = 4 * 2**20
NUL = "\0"

measured = cache(lua_hooks.measured)


@pytest.fixture
def world(server_of: ServerOf) -> World:
    found = world_on(server_of, "redis-7", measured())
    found.damaged = True
    return found


@contextmanager
def bounded(world: World) -> Iterator[None]:
    """What one call does is within the bounds."""
    world.client.delete(WORK_KEY)
    yield
    done = {name.decode(): int(n) for name, n in world.client.hgetall(WORK_KEY).items()}
    world.client.delete(WORK_KEY)
    assert done["commands"] > 0
    assert {name: n for name, n in done.items() if n > MOST[name]} == {}


def ids(count: int) -> list[str]:
    return [f"m{number:06}" for number in range(count)]


def large(world: World, *names: str) -> None:
    """These bodies have 4 MiB each, as far as scripts can know."""
    sizes = dict.fromkeys(names, LARGE)
    world.client.hset(world.keys.big, mapping=sizes)
    world.client.hset(world.keys.bodies.replace("bodies", "sizes"), mapping=sizes)


def message_groups(world: World) -> None:
    """As many message groups, each with one message that is out; one message has lost its body."""
    keys = world.subscribe(ordered=True)
    world.publish(prepared("lost", group="name"), prepared("next", group="name"))
    names = {f"name-{number}": f"m{number:06}" for number in range(MANY)}
    fill(world, keys.heads, names)
    fill(world, world.keys.message_groups, {id_: f"{0:016}{n}" for n, id_ in names.items()})
    world.client.hdel(world.keys.bodies, "lost")


@pytest.mark.parametrize("known", [True, False])
def test_a_message_without_a_body_among_many_message_groups(world: World, *, known: bool) -> None:
    message_groups(world)
    if not known:
        world.client.hdel(world.keys.message_groups, "lost")
    with bounded(world):
        assert world.lease().ids == []
    if known:
        assert world.lease().ids == ["next"]


def test_a_message_without_a_body_that_expires_among_many_message_groups(world: World) -> None:
    message_groups(world)
    world.client.zadd(world.group().inflight, {"lost": 1})
    world.client.delete(world.group().ready)
    with bounded(world):
        assert world.expire().moved == 1
    assert world.lease().ids == ["next"]


def test_a_message_group_with_many_messages_that_lost_their_bodies(world: World) -> None:
    keys = world.subscribe(ordered=True)
    world.publish(prepared("first", group="name"))
    line = {f"name{NUL}{n:016}{id_}": 0 for n, id_ in enumerate(ids(3000), 2)}
    fill(world, keys.order, line, sorted_set=True)
    slots = {id_: f"{n:016}name" for n, id_ in enumerate(ids(3000), 2)}
    fill(world, world.keys.message_groups, slots)
    world.client.hset(world.keys.meta, "order", 4000)
    world.publish(prepared("last", group="name"))
    leased = world.lease().ids
    assert leased == ["first"]
    with bounded(world):
        assert world.succeed(*first("first")) == ["OK"]
    for _ in range(10):
        with bounded(world):
            leased = world.lease().ids
        if leased:
            break
    assert leased == ["last"]


def committed(world: World, names: list[str]) -> list[str]:
    return world.succeed(*first(*names))


def purged(world: World, names: list[str]) -> list[str]:
    return world.purge(*names)


def leased(world: World, names: list[str]) -> None:
    assert world.lease(FULL).ids == names


def dead(world: World, names: list[str]) -> None:
    leased(world, names)
    world.fail(*(failure(id_, level=-1) for id_ in names))


@pytest.mark.parametrize(("before", "end"), [(leased, committed), (dead, purged)])
@pytest.mark.parametrize("groups", [1, 2])
def test_bodies_of_2_gib_end_in_several_calls(
    world: World,
    before: Callable[[World, list[str]], None],
    end: Callable[[World, list[str]], list[str]],
    groups: int,
) -> None:
    names = ids(FULL)
    for name in ("g", "h")[:groups]:
        world.subscribe(name)
    world.publish(*names)
    before(world, names)
    large(world, *names)
    calls, rest = 0, names
    while rest:
        with bounded(world):
            verdicts = end(world, rest)
        calls += 1
        assert set(verdicts) <= {"OK", "LATER"}
        rest = [id_ for id_, verdict in zip(rest, verdicts, strict=True) if verdict == "LATER"]
        assert rest == names[FULL - len(rest) :]
    assert calls == -(-FULL // 16)
    assert world.client.hlen(world.keys.bodies) == (0 if groups == 1 else FULL)


def test_late_ones_are_as_they_were_and_others_have_their_verdicts(world: World) -> None:
    world.subscribe()
    names = ids(40)
    world.publish(*names)
    leased(world, names)
    world.fail(failure(names[3]), failure(names[30]))
    world.promote(early=True)
    assert world.lease(FULL).ids == [names[3], names[30]]
    large(world, *names)
    receipts = [first(id_)[0] for id_ in names]
    before = world.state()["g:inflight"]
    verdicts = world.succeed(*receipts)
    assert verdicts == ["STALE" if id_ in (names[3], names[30]) else "OK" for id_ in names[:17]] + [
        "STALE" if id_ == names[30] else "LATER" for id_ in names[17:]
    ]
    left = world.state()["g:inflight"]
    assert left == {id_: before[id_] for id_ in [names[3], *names[17:]]}
    assert len(world.history()[-1].split()) > 0


def test_ready_bodies_of_2_gib_are_purged_in_several_calls(world: World) -> None:
    world.subscribe()
    world.publish(*ids(FULL))
    large(world, *ids(FULL))
    with bounded(world):
        assert world.drop() == (16, 16)


def test_blocked_bodies_of_2_gib_are_purged_in_several_calls(world: World) -> None:
    keys = world.subscribe(ordered=True)
    world.publish(*(prepared(id_, group="name") for id_ in ids(100)))
    large(world, *ids(100))
    members = [member.decode() for member in world.client.zrange(keys.order, 0, -1)]
    with bounded(world):
        verdicts = world.run(operate.purge_blocked(keys, members[1:], actor="ops"))
    assert verdicts == [b"OK"] * 16 + [b"LATER"] * 83
    assert world.client.zcard(keys.order) == 84


def test_halves_of_2_gib_are_rolled_back_in_several_calls(world: World) -> None:
    halves = {f"tx {n:08} {id_}  ": 0 for n, id_ in enumerate(ids(FULL))}
    fill(world, world.keys.halves, halves, sorted_set=True)
    fill(world, world.keys.half_of, dict(zip(ids(FULL), halves, strict=True)))
    fill(world, world.keys.bodies, dict.fromkeys(ids(FULL), "x"))
    large(world, *ids(FULL))
    with bounded(world):
        assert world.run(transaction.rollback(world.keys, "tx", worker=WORKER)) == (16, 1)


def test_scheduled_bodies_of_2_gib_that_nobody_wants_go_in_several_calls(world: World) -> None:
    world.subscribe(tags="a")
    world.publish(*(prepared(id_, delay_ms=SECOND, tag="b") for id_ in ids(FULL)))
    large(world, *ids(FULL))
    world.advance(MINUTE)
    members = [member.decode() for member in world.client.zrange(world.keys.scheduled, 0, -1)]
    with bounded(world):
        assert world.deliver_these(*members)[1] == 16


def test_transactions_that_ended_long_ago_are_many(world: World) -> None:
    fill(world, world.keys.closed, dict.fromkeys(ids(MANY), 1), sorted_set=True)
    with bounded(world):
        world.run(transaction.rollback(world.keys, "tx", worker=WORKER))
    assert world.client.zcard(world.keys.closed) == MANY + 1 - 100
    with bounded(world):
        assert world.sweep().next_ms == 0


def test_a_backlog_is_large(world: World) -> None:
    world.client.rpush(world.keys.backlog, *ids(MANY))
    with bounded(world):
        world.subscribe()
    assert world.client.llen(world.group().ready) == MANY


def test_entries_of_the_history_are_large(world: World) -> None:
    world.subscribe()
    for number in range(12):
        entry = {"e": "fail", "g": "g", "w": "w", "i": "a", "d": "", "b": "x" * 2**20}
        world.client.xadd(world.keys.events, entry, id=f"{number + 1}-0")
    world.client.hset(world.keys.meta, mapping={"bytes": 12 * 2**20, "limit": 1000})
    with bounded(world):
        world.publish("a")
    with bounded(world):
        world.sweep()


def test_a_full_batch_of_a_large_ordered_group(world: World) -> None:
    world.subscribe(ordered=True)
    for part in ("a", "b"):
        world.publish(*(prepared(f"{part}{id_}", group=id_) for id_ in ids(FULL)))
    with bounded(world):
        names = world.lease(FULL).ids
    with bounded(world):
        assert set(world.succeed(*first(*names))) == {"OK"}
    assert world.lease(FULL).ids == [f"b{id_}" for id_ in ids(FULL)]


def test_a_group_leaves_that_holds_much(world: World) -> None:
    message_groups(world)
    fill(world, world.group().dead, dict.fromkeys(ids(MANY), 1), sorted_set=True)
    with bounded(world):
        assert world.leave() > MANY
    world.client.delete(world.group().dead, world.group().order, world.group().ready)
    with bounded(world):
        assert world.leave() == 0
