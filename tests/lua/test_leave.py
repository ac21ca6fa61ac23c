"""leave: a group that holds nothing more in a partition is forgotten there."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rqretry.catalog.drain_group import drain
from rqretry.protocol import catalog, operate
from rqretry.protocol.command import Command
from rqretry.protocol.keys import GroupKeys
from tests.support.builders import SECOND, failure, prepared
from tests.support.world import World


def gone_from_the_route(world: World, name: str) -> None:
    groups = tuple(group for group in world.route.groups if group.name != name)
    world.route = replace(world.route, version=world.route.version + 1, groups=groups)
    world.run(catalog.subscribe(world.keys, world.route))


def busy(world: World, group: str) -> None:
    """A message in every place of a group, which is alone or one of two."""
    world.publish("w", "d", "i", "r", prepared("n", "x" * 9000, digest="d"))
    world.lease(4, group=group)
    world.fail(failure("w"), failure("d", level=-1), group=group, tracebacks={"f": "T"})
    world.fail(failure("r", delay_ms=1), group=group)
    world.advance(SECOND)
    world.promote(group=group)


def test_leave_forgets_a_group_that_holds_nothing(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.succeed(*world.leased("a"))
    world.succeed(*world.leased("a", group="h", publish=False), group="h")
    gone_from_the_route(world, "g")
    assert world.leave("g") == 0
    assert not [key for key in world.state() if key.startswith("g:")]
    assert not [name for name in world.state()["counters"] if name.endswith(":g")]
    assert world.lease(group="g").status == "NO_GROUP"


def test_leave_forgets_heads_that_a_cut_call_has_left(world: World) -> None:
    world.subscribe(ordered=True)
    world.client.hset(world.group().heads, "x", "a")
    gone_from_the_route(world, "g")
    assert world.leave("g") == 0
    assert not [key for key in world.state() if key.startswith("g:")]


def test_leave_deletes_nothing_while_the_group_holds_a_message(world: World) -> None:
    world.subscribe()
    busy(world, "g")
    gone_from_the_route(world, "g")
    with world.changes() as changed:
        assert world.leave() == 5
    assert changed == {}
    world.subscribe("g")  # so that the auditor knows whose they are


def test_leave_repeated_changes_nothing(world: World) -> None:
    world.subscribe()
    gone_from_the_route(world, "g")
    world.leave()
    with world.changes() as changed:
        assert world.leave() == 0
    assert changed == {}


def test_a_group_that_is_drained_frees_every_body_that_was_only_its_own(world: World) -> None:
    world.subscribe()
    busy(world, "g")
    gone_from_the_route(world, "g")
    assert world.perform(drain(world.group(), "ops")) == 5
    state = world.state()
    assert not [key for key in state if key.startswith("g:")]
    assert set(state) == {"route", "events", "lane:p"}


def test_a_group_that_is_drained_leaves_the_other_groups_theirs(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    busy(world, "g")
    gone_from_the_route(world, "g")
    assert world.perform(drain(world.group(), "ops")) == 5
    state = world.state()
    assert set(state["bodies"]) == set("wdirn")
    assert set(state["pending"].values()) == {"b"}
    assert set(state["h:ready"]) == set("wdirn")
    leased = world.leased("w", "d", "i", "r", "n", group="h", publish=False)
    assert set(world.succeed(*leased, group="h")) == {"OK"}
    assert "bodies" not in world.state()


Late = Callable[[GroupKeys, bytes], Command[Any]]
IN_LINE = "name\0" + f"{3:016}" + "b"
ENDS: dict[str, tuple[Late, Any]] = {
    "leave": (lambda keys, byte: operate.leave(keys, membership=byte), 0),
    "leave, stuck": (lambda keys, byte: operate.leave(keys, membership=byte, stuck=True), 0),
    "purge_list": (
        lambda keys, byte: operate.purge_list(keys, keys.ready, actor="ops", membership=byte),
        operate.PurgeCount(0, 0),
    ),
    "purge_blocked": (
        lambda keys, byte: operate.purge_blocked(keys, [IN_LINE], actor="ops", membership=byte),
        [b"GONE"],
    ),
    "purge": (
        lambda keys, byte: operate.purge(
            keys, ["c"], actor="ops", key=keys.inflight, membership=byte
        ),
        [b"GONE"],
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_what_ended_a_membership_does_nothing_in_the_next_one(world: World, end: str) -> None:
    world.subscribe("g", ordered=True)
    first = world.route.groups[0].byte
    gone_from_the_route(world, "g")
    assert world.leave("g") == 0
    request, nothing = ENDS[end]
    world.subscribe("h")  # takes the byte that was free
    again = world.subscribe("g", ordered=True)
    if end != "leave":
        world.publish("c")
        world.lease(1)
        world.publish(prepared("a", group="name"), prepared("b", group="name"))
    with world.changes() as changed:
        assert world.run(request(again, bytes((first,)))) == nothing
    assert changed == {}
    with world.changes() as changed:
        world.run(request(again, bytes((world.route.groups[-1].byte,))))
    assert changed
    world.damaged = end == "leave, stuck"  # who was out is forgotten, and is there
