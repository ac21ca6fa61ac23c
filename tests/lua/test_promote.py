"""promote: waiting_retry and due -> ready (retry lane)."""

from tests.support.builders import SECOND, failure
from tests.support.world import START_MS, World


def waiting(world: World, **delays_ms: int) -> None:
    world.subscribe()
    world.leased(*delays_ms)
    world.fail(*(failure(id_, delay_ms=delay_ms) for id_, delay_ms in delays_ms.items()))


def test_promote_takes_nothing_that_is_not_due(world: World) -> None:
    waiting(world, a=2000)
    world.advance(1999)
    with world.changes() as changed:
        assert world.promote() == (world.now, 0, 1)
    assert changed == {}


def test_promote_moves_what_is_due_to_the_retry_lane(world: World) -> None:
    waiting(world, a=2000, b=3000, c=6000)
    world.advance(3000)
    with world.changes() as changed:
        assert world.promote() == (world.now, 2, 3000)
    assert changed == {
        "g:retry": ["a", "b"],
        "g:delay:1": {"a": None, "b": None},
        "g:due": {"1": None},
        "g:wake": {"1": 0},
        "counters": {"promote:g": 2},
        "events": ["promote g w1 a b"],
    }


def test_promote_raises_the_index_of_a_level_that_still_has_something(world: World) -> None:
    waiting(world, a=2000, b=3000)
    world.advance(2000)
    with world.changes() as changed:
        assert world.promote() == (world.now, 1, 1000)
    assert changed["g:due"] == {"1": START_MS + 3000}


def test_promote_takes_from_several_levels_up_to_its_limit(world: World) -> None:
    waiting(world, a=1000, b=2000, c=6000, d=11_000)
    world.advance(20 * SECOND)
    assert world.promote(limit=3) == (world.now, 3, 0)
    assert world.state()["g:retry"] == ["a", "b", "c"]
    assert world.promote(limit=3) == (world.now, 1, None)
    state = world.state()
    assert state["g:retry"] == ["a", "b", "c", "d"]
    assert "g:due" not in state


def test_promote_corrects_an_index_that_is_too_early(world: World) -> None:
    waiting(world, a=4000)
    world.client.zadd(world.group().due, {"1": START_MS, "9": START_MS})
    with world.changes() as changed:
        assert world.promote() == (START_MS, 0, 4000)
    assert changed == {"g:due": {"1": START_MS + 4000, "9": None}}


def test_promote_skips_a_level_that_the_table_does_not_have(world: World) -> None:
    waiting(world, a=1000)
    world.client.zadd(world.group().due, {"77": START_MS})
    world.advance(1000)
    assert world.promote().moved == 1


def test_promote_wakes_only_where_the_retry_lane_was_empty(world: World) -> None:
    waiting(world, a=1000, b=2000)
    for wakes in (True, False):
        world.advance(1000)
        with world.changes() as changed:
            world.promote()
        assert ("g:wake" in changed) is wakes


def test_promote_twice_moves_once(world: World) -> None:
    waiting(world, a=1000)
    world.advance(1000)
    world.promote()
    with world.changes() as changed:
        assert world.promote() == (world.now, 0, None)
    assert changed == {}


def test_promote_early_takes_what_is_not_due_from_every_level(world: World) -> None:
    waiting(world, a=2000, b=6000, c=11_000)
    with world.changes() as changed:
        assert world.promote(early=True).moved == 3
    assert changed == {
        "g:retry": ["a", "b", "c"],
        "g:delay:1": {"a": None},
        "g:delay:2": {"b": None},
        "g:delay:3": {"c": None},
        "g:due": {"1": None, "2": None, "3": None},
        "g:wake": {"1": 0},
        "counters": {"promote:g": 3},
        "events": ["promote g w1 a b c"],
    }
    assert world.lease(prefer="retry").numbers == [(2, 2)] * 3


def test_promote_early_from_one_level_leaves_the_others(world: World) -> None:
    waiting(world, a=2000, b=6000)
    assert world.promote(early=True, level=2) == (START_MS, 1, 2000)
    assert world.state()["g:retry"] == ["b"]


def test_promote_early_takes_the_messages_that_are_named_and_here_once(world: World) -> None:
    waiting(world, a=2000, b=3000, c=6000)
    named = ["b", "b", "c", "unknown"]
    assert world.promote(early=True, level=1, ids=named) == (START_MS, 1, 2000)
    state = world.state()
    assert (state["g:retry"], state["g:delay:1"]) == (["b"], {"a": START_MS + 2000})
    assert state["g:due"]["1"] == START_MS + 2000


def test_promote_from_an_empty_level_changes_nothing(world: World) -> None:
    waiting(world, a=2000)
    with world.changes() as changed:
        assert world.promote(early=True, level=7).moved == 0
    assert changed == {}
