"""A script makes the same number of Redis commands whatever the batch (design, budgets)."""

from collections.abc import Callable

import pytest

from rqretry.core.receipt import Receipt
from rqretry.protocol.inspect import stats
from rqretry.protocol.scripts import ScriptLibrary
from tests.conftest import ServerOf
from tests.lua.conftest import counted, world_on
from tests.support.builders import SECOND, failure, first, prepared
from tests.support.lua_hooks import CALLS_KEY
from tests.support.world import World

SMALL, LARGE = 20, 75
"""Of 16 or fewer nobody asks whether they are too many bytes for one call."""

Ids = list[str]


def publish(world: World, ids: Ids) -> None:
    world.publish(*ids)


def publish_chosen_ids(world: World, ids: Ids) -> None:
    world.publish(*(prepared(id_, digest="d") for id_ in ids))


def publish_with_keys(world: World, ids: Ids) -> None:
    world.publish(*(prepared(id_, keys=("k", f"key of {id_}".replace(" ", "-"))) for id_ in ids))


def publish_delayed(world: World, ids: Ids) -> None:
    world.publish(*(prepared(id_, delay_ms=SECOND) for id_ in ids))


def lease(world: World, ids: Ids) -> None:
    assert world.lease(len(ids)).ids == ids


def renew(world: World, ids: Ids) -> None:
    assert set(world.renew(*first(*ids))) == {"OK"}


def succeed(world: World, ids: Ids) -> None:
    assert set(world.succeed(*first(*ids))) == {"OK"}


def succeed_second_attempts(world: World, ids: Ids) -> None:
    assert set(world.succeed(*(Receipt(id_, 2) for id_ in ids))) == {"OK"}


def fail(world: World, ids: Ids) -> None:
    assert {f.level for f in world.fail(*(failure(id_) for id_ in ids))} == {3}


def fail_for_good(world: World, ids: Ids) -> None:
    assert all(f.dead for f in world.fail(*(failure(id_, level=-1) for id_ in ids)))


def release(world: World, ids: Ids) -> None:
    assert set(world.release(*first(*ids))) == {"OK"}


def postpone(world: World, ids: Ids) -> None:
    delays_ms = [SECOND] * len(ids)
    verdicts = world.release(*first(*ids), delays_ms=delays_ms, max_postpones=1)
    assert set(verdicts) == {"OK"}


def promote(world: World, ids: Ids) -> None:
    world.advance(10 * SECOND)
    assert world.promote().moved == len(ids)


def purge(world: World, ids: Ids) -> None:
    assert set(world.purge(*ids)) == {"OK"}


def promote_early(world: World, ids: Ids) -> None:
    assert world.promote(early=True, level=3, ids=ids).moved == len(ids)


def purge_waiting(world: World, ids: Ids) -> None:
    assert set(world.purge(*ids, place="delay:3")) == {"OK"}


def drop(world: World, ids: Ids) -> None:
    assert world.drop() == (len(ids), len(ids))


Step = Callable[[World, Ids], None]


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize(
    "steps",
    [
        (publish,),
        (publish_chosen_ids,),
        (publish_with_keys,),
        (publish_delayed,),
        (publish, lease),
        (publish, lease, renew),
        (publish, lease, succeed),
        (publish_chosen_ids, lease, succeed),
        (publish_with_keys, lease, succeed),
        (publish_with_keys, lease, fail_for_good, purge),
        (publish_with_keys, drop),
        (publish, lease, fail),
        (publish, lease, fail_for_good),
        (publish, lease, fail_for_good, purge),
        (publish, lease, fail, purge_waiting),
        (publish, lease, fail, promote_early),
        (publish, drop),
        (publish_chosen_ids, drop),
        (publish, lease, release),
        (publish, lease, postpone),
        (publish, lease, fail, promote),
        (publish, lease, fail, promote, lease),
        (publish, lease, fail, promote, lease, succeed_second_attempts),
    ],
    ids=lambda steps: " ".join(step.__name__ for step in steps),
)
def test_a_script_makes_as_many_commands_for_75_messages_as_for_20(
    server_of: ServerOf, steps: tuple[Step, ...], groups: int
) -> None:
    calls = {}
    for size in (SMALL, LARGE):
        world = world_on(server_of, "redis-7", counted())
        for name in ("g", "h", "i")[:groups]:
            world.subscribe(name)
        for step in steps:
            world.client.set(CALLS_KEY, 0)
            step(world, [f"m{n:03}" for n in range(size)])
        calls[size] = int(world.client.get(CALLS_KEY))
    assert calls[LARGE] == calls[SMALL]
    assert calls[LARGE] <= 30


def test_a_bare_message_published_alone_makes_nine_commands(server_of: ServerOf) -> None:
    world = world_on(server_of, "redis-7", counted())
    world.subscribe("g")
    world.publish("first")
    world.client.set(CALLS_KEY, 0)
    world.publish("alone")
    assert int(world.client.get(CALLS_KEY)) == 8  # and TIME, for which there is a virtual clock


def test_what_ends_in_an_ordered_group_takes_two_commands_for_each_message_group_that_goes_on(
    server_of: ServerOf,
) -> None:
    calls = {}
    for size in (SMALL, LARGE):
        world = world_on(server_of, "redis-7", counted())
        world.subscribe(ordered=True)
        heads = [f"m{n:03}" for n in range(size)]
        for ids in (heads, [f"n{n:03}" for n in range(size)]):
            world.publish(*(prepared(id_, group=f"x{n}") for n, id_ in enumerate(ids)))
        lease(world, heads)
        world.client.set(CALLS_KEY, 0)
        succeed(world, heads)
        calls[size] = int(world.client.get(CALLS_KEY))
    assert calls[LARGE] - calls[SMALL] == 2 * (LARGE - SMALL)


def test_the_numbers_of_a_group_for_which_nothing_waits_take_no_command_a_level(
    server_of: ServerOf,
) -> None:
    world = world_on(server_of, "redis-7", ScriptLibrary())
    world.subscribe("g")
    world.publish("first")
    world.run(stats(world.group()))  # the server knows the script from now on
    world.client.config_resetstat()
    found = world.run(stats(world.group()))
    asked = world.client.info("commandstats")
    assert (found.ready, found.levels) == (1, [])
    assert sum(asked[name]["calls"] for name in asked) <= 24  # of a script with 21
