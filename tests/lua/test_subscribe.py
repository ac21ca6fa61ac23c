"""subscribe, configure: the catalog's word, copied into a partition."""

from dataclasses import replace

from rqretry.core.route import RouteGroup
from rqretry.protocol import catalog
from tests.support.builders import group_fields
from tests.support.world import World


def route_with(world: World, *names: str, version: int) -> World:
    groups = tuple(RouteGroup(name, 97 + place, "push") for place, name in enumerate(names))
    world.route = replace(world.route, version=version, groups=groups)
    return world


def subscribe(world: World) -> int | str:
    return world.run(catalog.subscribe(world.keys, world.route))


def test_subscribe_installs_the_route_and_gives_the_backlog_to_the_first_group(
    world: World,
) -> None:
    world.publish("a", "b")
    route_with(world, "g", "h", version=1)
    with world.changes() as changed:
        assert subscribe(world) == 0
    assert changed == {
        "route": {"version": "1", "table": world.route.encode(), "limit": "0"},
        "backlog": None,
        "g:ready": ["a", "b"],
        "g:wake": {"1": 0},
        "counters": {"publish:g": 2},
    }


def test_subscribe_repeated_changes_nothing(world: World) -> None:
    world.publish("a")
    subscribe(route_with(world, "g", version=1))
    with world.changes() as changed:
        assert subscribe(world) == 0
    assert changed == {}


def test_subscribe_with_an_older_route_keeps_the_newer_one(world: World) -> None:
    subscribe(route_with(world, "g", "h", version=2))
    with world.changes() as changed:
        subscribe(route_with(world, "g", version=1))
    assert changed == {}


def test_subscribe_puts_the_backlog_behind_what_is_ready_in_bounded_steps(world: World) -> None:
    world.publish(*(f"m{n}" for n in range(500)))
    world.publish("m500", "m501")
    route_with(world, "g", version=1)
    world.damage().rpush(world.group().ready, "first")
    assert subscribe(world) == 2
    assert subscribe(world) == 0
    state = world.state()
    assert state["g:ready"] == ["first", *(f"m{n}" for n in range(502))]
    assert state["counters"]["publish:g"] == "502"


def test_subscribe_of_a_topic_without_groups_leaves_the_backlog(world: World) -> None:
    world.publish("a")
    with world.changes() as changed:
        assert subscribe(route_with(world, version=1)) == 0
    table = '{"p":1,"g":[]}'
    assert changed == {"route": {"version": "1", "table": table, "limit": "0"}}


def test_a_group_that_comes_later_starts_with_what_is_published_after_it(world: World) -> None:
    world.publish("before any")
    world.subscribe("g")
    world.publish("between")
    world.subscribe("h")
    world.publish("after both")
    assert world.lease(group="g").ids == ["before any", "between", "after both"]
    assert world.lease(group="h").ids == ["after both"]


def test_configure_writes_newer_settings_and_wakes_who_waits_by_the_old_ones(world: World) -> None:
    with world.changes() as changed:
        world.configure("g", 1, **group_fields(97))
    assert changed == {
        "g:config": {name: _text(v) for name, v in group_fields(97).items()} | {"version": "1"}
    }
    with world.changes() as changed:
        world.configure("g", 2, max_retries=3)
    assert changed == {"g:config": {"version": "2", "max_retries": "3"}, "g:wake": {"1": 0}}


def test_configure_with_an_older_or_the_same_version_changes_nothing(world: World) -> None:
    world.configure("g", 2, max_retries=3)
    for version in (1, 2):
        with world.changes() as changed:
            world.configure("g", version, max_retries=9)
        assert changed == {}


def _text(value: str | int | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
