"""A script is cut anywhere, and somebody else acts before anybody repeats it.

Another group finishes with every message, and forgets what it alone still kept of them; or who
removes a message by hand publishes its id again.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from rqretry.core.receipt import Receipt
from rqretry.protocol.transaction import Half
from tests.conftest import ServerOf
from tests.lua import test_halves
from tests.lua.conftest import cut_writes, world_on
from tests.lua.crash_cases import (
    TWO,
    Act,
    Case,
    dead_lettered,
    failed_before,
    leased,
    published,
    scheduled_later,
)
from tests.lua.crash_cases_ordered import (
    clear,
    ordered,
    ordered_dead,
    ordered_failed,
    ordered_leased,
    ordered_overdue,
)
from tests.lua.test_crash_points import MOST_CALLS, cut_everywhere, was_cut
from tests.support.builders import HOUR, failure, first, prepared
from tests.support.ordering import leased as ids_leased
from tests.support.ordering import line, sent
from tests.support.world import START_MS, World


def finish_for_h(world: World) -> None:
    """Group h finishes with all that it has."""
    while (taken := world.lease(group="h")).ids:
        numbers = [lease_no for lease_no, _ in taken.numbers]
        world.succeed(*map(Receipt, taken.ids, numbers), group="h")


def for_two(start: Callable[..., None], **settings: int) -> Act:
    return lambda world: start(world, *TWO, **settings)


ENDINGS = [
    Case(
        "succeed", for_two(ordered_leased), lambda w: w.succeed(*first("a", "c", "d")), ends="acd"
    ),
    Case("purge", for_two(ordered_leased), lambda w: w.purge("a", place="inflight"), ends="a"),
    Case(
        "purge a level",
        for_two(ordered_failed),
        lambda w: w.purge("a", place="delay:1"),
        ends="a",
        leaves="a",
    ),
    Case(
        "purge_list",
        for_two(ordered),
        lambda w: w.drop(*((id_, True) for id_ in "acd")),
        ends="acd",
        leaves="acd",
    ),
    Case("purge_blocked", for_two(ordered), clear, ends="b", leaves="b"),
    Case("purge dead letters", for_two(ordered_dead), lambda w: w.purge("a"), ends="a"),
    Case("dead_letter", for_two(ordered), lambda w: w.end_by_hand("a", "c", "d", staying="d")),
    Case(
        "fail to death",
        for_two(ordered_leased),
        lambda w: w.fail(failure("a", level=-1), failure("c", level=-1)),
    ),
    Case("expire to death", for_two(ordered_overdue, max_retries=0), lambda w: w.expire()),
]
"""What ends a message for group g in an ordered group; h has all of them, too."""


@pytest.mark.parametrize("case", ENDINGS, ids=lambda case: case.name)
def test_the_next_of_a_message_group_comes_though_the_other_group_has_finished_meanwhile(
    server_of: ServerOf, case: Case
) -> None:
    case = replace(case, meanwhile=finish_for_h, ends_for_others="abcd")
    cut_everywhere(server_of, case, cut_writes(), repeated=True)


@pytest.mark.parametrize(
    ("act", "settings"),
    [
        (lambda w: w.fail(failure("a", level=-1), failure("c", level=-1)), {}),
        (lambda w: w.change(Receipt("a", 1), 0), {"max_retries": 0}),
        (lambda w: w.release(*first("a", "c")), {}),
    ],
    ids=["fail to death", "change to nothing", "release"],
)
def test_whatever_is_reported_of_what_a_cut_has_ended_lets_the_next_one_go(
    server_of: ServerOf, act: Act, settings: dict[str, int]
) -> None:
    case = Case(
        "succeed",
        for_two(ordered_leased, **settings),
        lambda w: w.succeed(*first("a", "c", "d")),
        ends="acd",
        ends_for_others="abcd",
        meanwhile=finish_for_h,
        after=act,
    )
    cut_everywhere(server_of, case, cut_writes(), repeated=False)


def test_a_commit_that_is_repeated_when_its_messages_are_done_leaves_nothing(
    server_of: ServerOf,
) -> None:
    halves = [Half(1, prepared("a", digest="d"), "", "x"), Half(2, prepared("b"), "", "x")]
    case = Case("commit", lambda w: None, test_halves.commit)
    for call in range(1, MOST_CALLS):
        world = world_on(server_of, "redis-7", cut_writes())
        world.subscribe(ordered=True)
        test_halves.prepare(world, halves)
        if not was_cut(world, case, call):
            return
        for _ in range(2):
            world.deliver()
            while (taken := world.lease()).ids:
                numbers = [lease_no for lease_no, _ in taken.numbers]
                world.succeed(*map(Receipt, taken.ids, numbers))
            test_halves.commit(world)
        world.deliver()
        assert world.findings() == []
    pytest.fail("it makes too many calls")


def blocked(world: World) -> None:
    """Message a has an id of the caller's, and stands behind another one."""
    world.subscribe(ordered=True)
    world.publish(prepared("z", group="x"), prepared("a", group="x", digest="d"))


def half(world: World) -> None:
    world.subscribe()
    test_halves.prepare(world, test_halves.halves(prepared("a", "x" * 9000, digest="d")))


REMOVALS: dict[str, tuple[Act, Act]] = {
    "purge": (dead_lettered, lambda w: w.purge("a")),
    "purge a level": (failed_before, lambda w: w.purge("a", place="delay:1")),
    "purge what is in flight": (leased, lambda w: w.purge("a", place="inflight")),
    "purge_list": (published, lambda w: w.drop(("a", True))),
    "purge_list all": (published, lambda w: w.drop(limit=1)),
    "purge_blocked": (blocked, clear),
    "recall": (lambda w: scheduled_later(w, "g"), lambda w: w.recall("a")),
    "rollback": (half, test_halves.rollback),
}
"""What removes message a, whose id the caller chose, so that the id may be published again."""


@pytest.mark.parametrize("name", REMOVALS)
def test_a_removal_that_is_repeated_spares_the_new_message_of_the_id(
    server_of: ServerOf, name: str
) -> None:
    start, act = REMOVALS[name]
    case, new = Case(name, start, act), prepared("a", "new", digest="e")
    for call in range(1, MOST_CALLS):
        world = world_on(server_of, "redis-7", cut_writes())
        start(world)
        ended = not was_cut(world, case, call)
        accepted = world.publish(new, producer="q", seq=1).verdicts == ""
        act(world)
        if not accepted:  # its id is known until nothing is left of it, else for an hour
            assert not ended
            again = world.publish(new, producer="q", seq=2).verdicts == ""
            if not again:
                assert "a" not in world.state().get("bodies", {})
                world.advance(HOUR)
                world.sweep()
                assert world.publish(new, producer="q", seq=3).verdicts == ""
        assert world.state()["bodies"]["a"] == "new"
        assert "a" in world.state()["g:ready"]
        if ended:
            assert accepted
            return
    pytest.fail(f"{name} makes more than {MOST_CALLS} calls")


def test_a_recall_that_is_repeated_completes_what_was_cut(world: World) -> None:
    world.subscribe()
    world.publish(prepared("a", digest="d", delay_ms=HOUR))
    world.damage().hdel(world.keys.bodies, "a")  # a call was cut behind this
    assert world.recall("a") == "OK"
    assert "scheduled" not in world.state()
    assert world.publish(prepared("a", digest="e"), seq=2).verdicts == ""


def test_what_is_dead_though_it_stands_in_the_order_is_not_purged_as_blocked(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("abc"))
    world.client.hset(world.group().deaths, "b", "0 by_hand")
    world.client.zadd(world.group().dead, {"b": START_MS})  # a call was cut behind this
    world.client.zadd(world.group().fingerprints, {f"\0{START_MS:016}\0b": 0})
    with world.changes() as changed:
        assert clear(world) == [b"GONE", b"OK"]
    assert changed["bodies"] == {"c": None}
    assert world.redrive("b") == ["OK"]
    world.succeed(*world.leased("a", publish=False))
    assert ids_leased(world) == ["b"]
    assert line(world) == ["x4b"]
