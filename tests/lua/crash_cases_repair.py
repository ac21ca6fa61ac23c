"""The repairs of the auditor, cut: start states that were damaged by hand, and the calls."""

from tests.lua.crash_cases import TWO, Case, dead_lettered, leased, published
from tests.lua.crash_cases_ordered import in_order, ordered
from tests.support.builders import failure
from tests.support.repairing import adopt, reorder, repair_now, repaired, tidy
from tests.support.world import START_MS, World

OVER = "y\x000000000000000003c"
"""The third message as a member of its line."""


def not_delivered(world: World) -> None:
    """Group g owes a and does not have it."""
    published(world, *TWO)
    world.client.lrem(world.group().ready, 0, "a")


def nowhere(world: World) -> None:
    """Nobody has a, and nothing says who owes it."""
    published(world, *TWO)
    for name in TWO:
        world.client.lrem(world.group(name).ready, 0, "a")
    world.client.hdel(world.keys.pending, "a")


def without_a_group(world: World) -> None:
    world.publish("a", "b")
    world.client.lrem(world.keys.backlog, 0, "a")


def twice(world: World) -> None:
    """Message a is in flight, waits and is listed; b is listed twice in each lane."""
    leased(world)
    world.client.zadd(world.group().levels[2], {"a": START_MS + 10_000})
    world.client.zadd(world.group().due, {"3": START_MS + 10_000})
    world.client.rpush(world.group().ready, "a", "c")
    world.client.rpush(world.group().retry, "c", "c")


def finished(world: World) -> None:
    """Group g has finished with a, which is still in flight and listed."""
    leased(world, *TWO)
    world.client.hset(world.keys.pending, "a", "b")
    world.client.rpush(world.group().ready, "a")


def lost(world: World) -> None:
    """The bodies of a and b are gone: one is in flight and the other waits."""
    leased(world)
    world.fail(failure("b"))
    world.client.hdel(world.keys.bodies, "a", "b")
    world.client.delete(world.keys.big)


def ordered_lost(world: World) -> None:
    ordered(world)
    world.client.hdel(world.keys.bodies, "a")


def headless(world: World) -> None:
    """Nobody is out in group g; d has no message group."""
    ordered(world, *TWO)
    world.client.delete(world.group().heads)
    world.client.ltrim(world.group().ready, -1, -1)


def out_of_turn(world: World) -> None:
    ordered(world)
    world.client.rpush(world.group().ready, "b")


def over_in_line(world: World) -> None:
    """Message c of message group y is dead, and is still its head."""
    ordered(world)
    world.publish(*in_order("e", "y"))
    world.lease()
    world.fail(failure("c", level=-1))
    world.client.zadd(world.group().order, {OVER: 0})
    world.client.hset(world.group().heads, "y", "c")
    world.client.lrem(world.group().ready, 0, "e")


def leftovers(world: World) -> None:
    published(world)
    for key in (world.keys.pending, world.keys.big, world.keys.message_groups):
        world.client.hset(key, "z", "1")
    world.client.hset(world.keys.keyed, "z", "k l")
    world.client.zadd(world.keys.message_keys, {"k\0z": 0, "l\0z": 0, "k\0y": 0})
    world.client.rpush(world.keys.backlog, "z")


def without_deaths(world: World) -> None:
    dead_lettered(world)
    world.client.delete(world.group().deaths)


def go_on(world: World) -> object:
    return reorder(world, "go_on", "x", "y")


def put_back_in_order(world: World) -> object:
    return repair_now(world, "put_back", "a", "c", "d")


def tidy_all(world: World) -> None:
    tidy(world, "bodies", "z")
    tidy(world, "backlog", "z")
    tidy(world, "keys", "k\0y")


def let_go(world: World) -> object:
    return reorder(world, "pass", OVER)


def again(world: World) -> None:
    """What an operator does after a repair that was cut: the whole of it once more."""
    repaired(world)


REPAIRS = [
    Case(name, start, act, ends=ends, leaves=ends, publishes=publishes, after=again)
    for name, start, act, ends, publishes in (
        ("put back", not_delivered, lambda w: repair_now(w, "put_back", "a"), "", "a"),
        ("put back in order", headless, put_back_in_order, "", ""),
        ("adopt", nowhere, lambda w: adopt(w, "a"), "", "a"),
        ("adopt to the backlog", without_a_group, lambda w: adopt(w, "a"), "", "a"),
        ("settle", twice, lambda w: repair_now(w, "settle", "a", "c"), "", ""),
        ("settle what is finished", finished, lambda w: repair_now(w, "settle", "a"), "a", ""),
        ("lost", lost, lambda w: repair_now(w, "lost", "a", "b"), "ab", ""),
        ("lost in order", ordered_lost, lambda w: repair_now(w, "lost", "a"), "a", ""),
        ("cause", without_deaths, lambda w: repair_now(w, "cause", "a", "b"), "", ""),
        ("go on", headless, go_on, "", ""),
        ("turn", out_of_turn, lambda w: reorder(w, "turn", "b"), "", ""),
        ("pass", over_in_line, let_go, "", ""),
        ("tidy", leftovers, tidy_all, "yz", ""),
    )
]
