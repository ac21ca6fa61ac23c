"""catch_up: stored -> ready of one more group; backfill_check: what it does not have yet."""

from typing import Any

import pytest

from rqretry.catalog.backfill import catch_up
from rqretry.core.receipt import Receipt
from rqretry.protocol.operate import CatchUpCount, backfill_check
from tests.support.builders import HOUR, failure, first, prepared
from tests.support.world import START_MS, World

BEHIND: Any = {"paused": 1, "catching_up": 1}
OVER = CatchUpCount(-1, 0, 0)


def all_of_it(world: World, group: str = "h") -> int:
    sources = [(world.group(g.name), g.byte) for g in world.route.groups]
    return world.perform(catch_up(world.group(group), sources, "ops"))


def go_on(world: World, group: str = "h") -> None:
    world.configure(group, 2, paused=0, catching_up=0)


def test_catch_up_gives_a_group_what_another_has(world: World) -> None:
    world.subscribe("g")
    world.publish("a", "b")
    world.subscribe("h", **BEHIND)
    with world.changes() as changed:
        assert world.catch_up() == CatchUpCount(2, 2, 2)
    assert changed == {
        "h:ready": ["a", "b"],
        "pending": {"a": "ab", "b": "ab"},
        "h:attempts": {"a": f"{START_MS}:1:0:0", "b": f"{START_MS}:1:0:0"},
        "counters": {"publish:h": 2},
        "events": ["subscribe h ops a b"],
    }


def test_catch_up_repeated_changes_nothing(world: World) -> None:
    world.subscribe("g")
    world.publish("a", "b")
    world.subscribe("h", **BEHIND)
    world.catch_up()
    with world.changes() as changed:
        assert world.catch_up() == CatchUpCount(2, 0, 0)
    assert changed == {}


def test_catch_up_of_an_empty_place_changes_nothing(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h", **BEHIND)
    with world.changes() as changed:
        assert world.catch_up("retry") == CatchUpCount(0, 0, 0)
        assert world.catch_up("dead") == CatchUpCount(0, 0, 0)
    assert changed == {}


@pytest.mark.parametrize("fields", [{}, {"paused": 1}, {"catching_up": 0}])
def test_catch_up_after_the_group_went_on_is_refused(world: World, fields: Any) -> None:
    world.subscribe("g")
    world.publish("a")
    world.subscribe("h", **fields)
    with world.changes() as changed:
        assert world.catch_up() == OVER
    assert changed == {}


def test_catch_up_of_a_group_that_is_not_there_is_refused(world: World) -> None:
    world.subscribe("g")
    world.publish("a")
    with world.changes() as changed:
        assert world.catch_up(group="nobody") == OVER
    assert changed == {}


def test_what_a_group_gets_comes_in_order_before_what_is_published_meanwhile(
    world: World,
) -> None:
    world.subscribe("g")
    world.publish("a", "b", "c")
    world.leased("a", publish=False)
    world.subscribe("h", **BEHIND)
    world.publish("d")
    assert all_of_it(world) == 3
    assert world.state()["h:ready"] == ["a", "b", "c", "d"]
    assert world.missed() == set()


def test_a_long_list_is_given_page_by_page_in_its_order(world: World) -> None:
    world.subscribe("g")
    ids = [f"m{n:04}" for n in range(1200)]
    for at in range(0, 1200, 400):
        world.publish(*ids[at : at + 400])
    world.subscribe("h", **BEHIND)
    world.publish("new")
    assert all_of_it(world) == 1200
    assert world.state()["h:ready"] == [*ids, "new"]


def test_a_page_never_jumps_over_a_message_where_others_lease_and_publish(world: World) -> None:
    world.subscribe("g")
    ids = [f"m{n:04}" for n in range(600)]
    world.publish(*ids[:300])
    world.publish(*ids[300:])
    world.subscribe("h", **BEHIND)
    assert world.catch_up() == CatchUpCount(500, 500, 500)
    world.lease(50)
    world.publish(*(f"n{n}" for n in range(20)))
    assert world.catch_up(offset=500) == CatchUpCount(70, 50, 50)
    assert len(world.missed()) == 50
    assert all_of_it(world) == 50
    assert sorted(world.state()["h:ready"][:600]) == ids


def test_every_place_of_the_other_group_counts_and_nothing_is_scheduled_twice(
    world: World,
) -> None:
    world.subscribe("g")
    world.publish("waits", "dead", "retry", "runs", "ready", prepared("big", "x" * 9000))
    world.publish(prepared("later", delay_ms=HOUR))
    world.lease(4)
    world.fail(failure("waits"), failure("dead", level=-1), failure("retry", delay_ms=1))
    world.advance(1)
    world.promote()
    world.subscribe("h", **BEHIND)
    assert all_of_it(world) == 6
    state = world.state()
    assert set(state["h:ready"]) == {"waits", "dead", "retry", "runs", "ready", "big"}
    assert (world.missed(), set(state["scheduled"])) == ({"later"}, {"later"})
    go_on(world)
    leased = world.lease(9, group="h")
    receipts = [Receipt(i, n) for i, (n, _) in zip(leased.ids, leased.numbers, strict=True)]
    assert {attempt for _, attempt in leased.numbers} == {1}
    assert set(world.succeed(*receipts, group="h")) == {"OK"}
    assert set(world.state()["bodies"]) == {*leased.ids, "later"}
    assert world.succeed(*first("runs")) == ["OK"]
    assert "runs" not in world.state()["bodies"]


def test_a_group_does_not_get_what_it_has(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.publish("ready", "runs", "dead", "done")
    world.lease(4, group="h")
    world.fail(failure("dead", level=-1), group="h")
    world.succeed(*first("done"), group="h")
    world.configure("h", 2, **BEHIND)
    assert all_of_it(world) == 1
    state = world.state()
    assert (state["h:ready"], set(state["h:inflight"]), set(state["h:dead"])) == (
        ["done"],
        {"ready", "runs"},
        {"dead"},
    )


def test_an_old_receipt_is_stale_after_the_message_was_given_again(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.succeed(*world.leased("a", group="h"), group="h")
    world.configure("h", 2, **BEHIND)
    assert all_of_it(world) == 1
    world.configure("h", 3, paused=0, catching_up=0)
    assert world.lease(group="h").numbers == [(START_MS, 1)]
    assert world.succeed(*first("a"), group="h") == ["STALE"]
    assert world.succeed(Receipt("a", START_MS), group="h") == ["OK"]


def test_what_only_the_group_has_is_marked_and_stays_its_own(world: World) -> None:
    world.subscribe("h")
    world.publish("mine")
    world.subscribe("g")
    world.configure("h", 2, **BEHIND)
    assert all_of_it(world) == 0
    state = world.state()
    assert (state["pending"], state["h:ready"]) == ({"mine": "a"}, ["mine"])
    world.configure("h", 3, paused=0, catching_up=0)
    assert world.succeed(*world.leased("mine", group="h", publish=False), group="h") == ["OK"]
    assert "bodies" not in world.state()


def test_a_group_that_is_alone_has_everything(world: World) -> None:
    world.subscribe("h")
    world.publish("a")
    world.configure("h", 2, **BEHIND)
    with world.changes() as changed:
        assert all_of_it(world) == 0
    assert changed == {}


def test_what_a_leaving_group_holds_is_nobodys_and_does_not_keep_a_group_waiting(
    world: World,
) -> None:
    world.subscribe("gone")
    world.publish("a")
    route = world.route
    world.subscribe("g")
    world.subscribe("h", **BEHIND)
    rest = tuple(group for group in world.route.groups if group.name != "gone")
    world.route = type(route)(9, 1, rest)
    assert all_of_it(world) == 0
    assert world.missed() == {"a"}
    world.damage()


def test_missed_reads_page_after_page_and_changes_nothing(world: World) -> None:
    world.subscribe("g")
    for at in range(0, 2000, 400):
        world.publish(*(f"m{n}" for n in range(at, at + 400)))
    world.publish(prepared("big", "x" * 9000))
    world.subscribe("h", **BEHIND)
    found: set[str] = set()
    cursor, calls = "0", 0
    with world.changes() as changed:
        while calls == 0 or cursor != "0":
            cursor, ids = world.run(backfill_check(world.group("h"), cursor))
            found.update(ids)
            calls += 1
    assert (changed, len(found)) == ({}, 2001)
    assert calls > 50  # a big body makes short pages
    world.configure("h", 2, paused=0, catching_up=0)
