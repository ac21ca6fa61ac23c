"""publish and deliver with a broadcast group, cut at every Redis command and then called again.

A cut may show a message twice, as it may deliver one twice; it never hides one, and leaves nothing.
"""

from collections.abc import Callable

import pytest

from rqretry.core.errors import AmbiguousResult, ScriptError
from rqretry.core.receipt import Receipt
from tests.conftest import ServerOf
from tests.lua.conftest import cut, world_on
from tests.lua.test_broadcast import broadcast, shown
from tests.support.builders import SECOND, prepared
from tests.support.lua_hooks import CUT_KEY
from tests.support.world import World

MOST_CALLS = 60


def publish(world: World) -> None:
    messages = [prepared("x", "x" * 9000, digest="d"), prepared("y")]
    world.publish(*messages, seq=7, checksum="s")


def schedule(world: World) -> None:
    messages = [prepared("x", "x" * 9000, digest="d", delay_ms=SECOND), prepared("y", delay_ms=1)]
    world.publish(*messages)
    world.advance(SECOND)


def deliver(world: World) -> None:
    world.deliver()


def nothing(world: World) -> None:
    pass


@pytest.mark.parametrize("others", [(), ("g",), ("g", "h")], ids=["alone", "one", "two"])
@pytest.mark.parametrize(
    ("start", "act"), [(nothing, publish), (schedule, deliver)], ids=["publish", "deliver"]
)
def test_a_cut_hides_nothing_from_broadcast_groups(
    server_of: ServerOf,
    start: Callable[[World], None],
    act: Callable[[World], None],
    others: tuple[str, ...],
) -> None:
    for call in range(1, MOST_CALLS):
        world = world_on(server_of, "redis-7", cut())
        broadcast(world, *others)
        start(world)
        if not was_cut(world, act, call):
            assert call > 10, "the script made no calls that could be cut"
            return
        act(world)
        check(world, others)
    pytest.fail(f"it makes more than {MOST_CALLS} calls")


def was_cut(world: World, act: Callable[[World], None], call: int) -> bool:
    world.client.set(CUT_KEY, call)
    try:
        act(world)
    except (ScriptError, AmbiguousResult) as error:
        assert "cut" in str(error)
        return True
    finally:
        world.client.delete(CUT_KEY)
    return False


def check(world: World, others: tuple[str, ...]) -> None:
    assert {id_ for ids in shown(world) for id_ in ids} == {"x", "y"}
    for group in others:
        leased = world.lease(group=group)
        assert sorted(leased.ids) == ["x", "y"]
        receipts = [Receipt(i, no) for i, (no, _) in zip(leased.ids, leased.numbers, strict=True)]
        world.succeed(*receipts, group=group)
    state = world.state()
    left = {"bodies", "big", "pending", "scheduled", "backlog"}
    assert not left & state.keys()
    assert world.findings() == []
