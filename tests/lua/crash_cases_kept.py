"""The crash points of what keeps consumed messages, and delivers them again."""

from dataclasses import replace

from tests.lua.crash_cases import TWO, Case, leased, settle
from tests.support.builders import HOUR, first, prepared
from tests.support.world import World

MB = 2**20


def keep(world: World, *, keep_ms: int = 24 * HOUR, keep_bytes: int = MB) -> None:
    """The topic keeps what is consumed from now on."""
    version = world.route.version + 1
    world.route = replace(world.route, version=version, keep_ms=keep_ms, keep_bytes=keep_bytes)
    world.install()


def keeping(world: World, *groups: str) -> None:
    leased(world, *groups)
    keep(world)


def consumed(world: World, *groups: str) -> None:
    """Two messages with all that a message can have are consumed by each group."""
    for group in groups or ("g",):
        world.subscribe(group)
    keep(world)
    world.publish(prepared("a", "a" * 9000, keys=("k",)), prepared("b", group="x", keys=("k", "l")))
    for group in groups or ("g",):
        world.lease(group=group)
        world.succeed(*first("a", "b"), group=group)


def consumed_by_one(world: World) -> None:
    for group in TWO:
        world.subscribe(group)
    keep(world)
    world.leased("a", "b")
    world.succeed(*first("a", "b"))


def consumed_in_order(world: World) -> None:
    world.subscribe(ordered=True)
    keep(world)
    world.publish(prepared("a", group="x"), prepared("b", group="x"), prepared("c", group="y"))
    for _ in range(2):
        ids = world.lease().ids
        world.succeed(*first(*ids))


def over(world: World) -> None:
    consumed(world)
    world.advance(25 * HOUR)


KEPT = [
    Case("succeed and keep", keeping, lambda w: settle(w, 1), ends="ab"),
    Case(
        "succeed and keep, two groups",
        lambda w: keeping(w, *TWO),
        lambda w: settle(w, 1),
        ends="ab",
    ),
    Case("replay", consumed, lambda w: w.replay(), publishes="ab"),
    Case(
        "replay, two groups",
        lambda w: consumed(w, *TWO),
        lambda w: w.replay(),
        publishes="ab",
        for_others="",
    ),
    Case(
        "replay of what another group owes",
        consumed_by_one,
        lambda w: w.replay(),
        publishes="ab",
        for_others="",
    ),
    Case("replay in order", consumed_in_order, lambda w: w.replay(), publishes="abc"),
    Case("sweep of what is kept", over, lambda w: w.sweep(groups=["g"])),
]
