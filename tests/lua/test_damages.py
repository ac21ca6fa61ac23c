"""Every damage of the table, by hand: found, made right, and every message is handled.

Each begins with a partition that has something in every place. The other servers have their turn in
`make campaign`; test_repair.py runs on all of them.
"""

from collections.abc import Callable, Iterator

import pytest

from rqretry.core.receipt import Receipt
from tests.conftest import ServerOf
from tests.lua.conftest import open_backend
from tests.lua.damages import DAMAGES, Damage, busy
from tests.lua.test_repair import in_order
from tests.support.backends import Backend
from tests.support.builders import HOUR
from tests.support.repairing import repaired
from tests.support.world import VISIBILITY_MS, World


@pytest.fixture(
    scope="session",
    params=[
        "redis-7",
        "cluster",
        pytest.param("redis-6.2", marks=pytest.mark.campaign),
        pytest.param("fakeredis", marks=pytest.mark.campaign),
    ],
)
def backend(request: pytest.FixtureRequest, server_of: ServerOf) -> Iterator[Backend]:
    """Two ways to run the scripts, and all of them in a campaign."""
    yield from open_backend(request.param, server_of)


def everything_is_handled(world: World, group: str) -> set[str]:
    """The ids that a group commits or has dead, when it works until nothing is left."""
    done: set[str] = set()
    for _ in range(20):
        world.deliver()
        world.expire(group=group)
        world.promote(group=group)
        leased = world.lease(100, group=group)
        for id_, (lease_no, _) in zip(leased.ids, leased.numbers, strict=True):
            assert world.succeed(Receipt(id_, lease_no), group=group) == ["OK"]
            assert id_ not in done, f"{id_} was committed twice"
            done.add(id_)
        world.advance(HOUR)
    return done | set(world.state().get(f"{group}:dead", ()))


@pytest.mark.parametrize(
    ("name", "damage"), [(name, damage) for name, damage, _ in DAMAGES], ids=[d[0] for d in DAMAGES]
)
def test_a_damage_is_repaired_and_every_message_is_handled(
    world: World, name: str, damage: Damage
) -> None:
    busy(world)
    damage(world.damage(), world)
    stored = set(world.state()["bodies"])

    found = world.findings()
    done = repaired(world)
    assert world.findings() == []
    assert bool(done) == bool(found)
    with world.changes() as changed:
        assert repaired(world) == []
    assert changed == {}

    assert set(world.state()["bodies"]) == stored, "a repair deletes no body"
    finished = {"ready"} if name == "a message that its group has finished with" else set()
    for group in "gh":
        gone = finished if group == "g" else set()
        assert stored - gone <= everything_is_handled(world, group)
    state = world.state()
    assert set(state.get("bodies", ())) <= set(state.get("g:dead", ()))


def lose_the_heads(world: World) -> None:
    world.damage().delete(world.group().heads)


def lose_who_is_out(world: World) -> None:
    world.damage().delete(world.group().ready)


def lose_both(world: World) -> None:
    world.damage().delete(world.group().ready, world.group().heads)


def lose_the_line(world: World) -> None:
    world.damage().zrem(world.group().order, "x\x000000000000000001a")


def lose_a_blocked_one(world: World) -> None:
    world.damage().zrem(world.group().order, "x\x000000000000000002b")


def list_a_blocked_one(world: World) -> None:
    world.damage().rpush(world.group().ready, "b")


def lose_all(world: World) -> None:
    world.damage().delete(world.group().ready, world.group().heads, world.group().order)


def number_a_blocked_one_twice(world: World) -> None:
    world.damage().zadd(world.group().order, {"x\x000000000000000000b": 0})


def number_a_blocked_one_anew(world: World) -> None:
    lose_a_blocked_one(world)
    world.damage().zadd(world.group().order, {"x\x000000000000000009b": 0})


def lose_the_name(world: World) -> None:
    world.damage().hdel(world.keys.message_groups, "b")


ORDERED_DAMAGES = [
    lose_the_heads, lose_who_is_out, lose_both, lose_the_line, lose_a_blocked_one,
    list_a_blocked_one, lose_all, lose_the_name, number_a_blocked_one_twice,
    number_a_blocked_one_anew,
]  # fmt: skip


@pytest.mark.parametrize("damage", ORDERED_DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("leased", [False, True], ids=["listed", "leased"])
def test_a_damaged_line_is_repaired_and_keeps_its_order(
    world: World, damage: Callable[[World], None], *, leased: bool
) -> None:
    in_order(world)
    if leased:
        assert world.lease().ids == ["a", "c"]
    damage(world)

    found = world.findings()
    assert bool(repaired(world)) == bool(found)
    assert world.findings() == []
    with world.changes() as changed:
        assert repaired(world) == []
    assert changed == {}

    handled: list[str] = []
    world.advance(VISIBILITY_MS)
    for _ in range(6):
        world.expire()
        page = world.lease()
        assert not {"a", "b"} <= set(page.ids), "two of a message group are out"
        for id_, (lease_no, _) in zip(page.ids, page.numbers, strict=True):
            assert world.succeed(Receipt(id_, lease_no)) == ["OK"]
            handled.append(id_)
    assert sorted(handled) == ["a", "b", "c"]
    assert handled.index("a") < handled.index("b")
