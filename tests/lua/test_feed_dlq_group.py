"""feed_dlq_group: dead letters of one group to ready of another, and what becomes of them."""

from collections.abc import Sequence

import pytest

from rqretry.core.errors import AmbiguousResult, ScriptError
from rqretry.core.receipt import Receipt
from rqretry.protocol import catalog, inspect, maintain
from rqretry.protocol import lease as consuming
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.lease import Failure, Leased
from tests.conftest import ServerOf
from tests.lua.conftest import cut, world_on
from tests.support.builders import LEVELS, SECOND, failure, first, group_fields
from tests.support.lua_hooks import CUT_KEY
from tests.support.world import START_MS, VISIBILITY_MS, WORKER, World


def keys_of(world: World) -> GroupKeys:
    return world.keys.group("v", len(LEVELS), "g")


def view(world: World, **settings: object) -> GroupKeys:
    """Group g, and group v that consumes its dead letters."""
    world.subscribe("g")
    fields = group_fields(1, **settings) | {"byte": b"", "view": 1}
    world.run(catalog.configure(keys_of(world), 1, fields))
    return keys_of(world)


def feed(world: World, limit: int = 500) -> int:
    return world.run(maintain.feed_dlq_group(keys_of(world), worker=WORKER, limit=limit))


def lease(world: World, want: int = 10) -> Leased:
    keys = keys_of(world)
    return world.run(consuming.lease(keys, worker=WORKER, want=want, visibility_ms=VISIBILITY_MS))


def succeed(world: World, *receipts: Receipt) -> list[bytes]:
    return world.run(consuming.succeed(keys_of(world), receipts, worker=WORKER))


def fail(world: World, *failures: Failure) -> Sequence[consuming.Failed]:
    return world.run(consuming.fail(keys_of(world), failures, worker=WORKER, tracebacks={}))


def expire(world: World) -> maintain.Expired:
    return world.run(maintain.expire(keys_of(world), worker=WORKER, hold_ms=SECOND, random=0.5))


def test_feed_lists_each_of_very_many_that_died_in_one_millisecond_once(world: World) -> None:
    keys = view(world)
    ids = [f"m{number:04}" for number in range(4100)]
    world.damage().zadd(world.group().dead, dict.fromkeys(ids, START_MS))
    assert [feed(world) for _ in range(3)] == [500, 500, 0]  # more may die in this millisecond
    world.advance(1)
    assert [feed(world) for _ in range(8)] == [500] * 6 + [100, 0]
    assert [id_.decode() for id_ in world.client.lrange(keys.ready, 0, -1)] == ids


def test_feed_lists_each_dead_letter_once_in_the_order_of_death(world: World) -> None:
    view(world)
    world.dead_letter("a", "b")
    world.advance(1)
    world.dead_letter("c")
    with world.changes() as changed:
        assert feed(world) == 3
    assert changed == {
        "v:graves": {"a": str(START_MS), "b": str(START_MS), "c": str(START_MS + 1)},
        "v:ready": ["a", "b", "c"],
        "v:config": {"fed_at": str(START_MS + 1), "fed_ids": "c", "fed_to": ""},
        "v:wake": {"1": 0},
        "counters": {"publish:v": 3},
        "events": ["feed v w1 a b c"],
    }
    with world.changes() as changed:
        assert feed(world) == 0
    assert changed == {}


def test_feed_finds_dead_letters_that_died_in_the_millisecond_it_has_looked_at(
    world: World,
) -> None:
    view(world)
    world.dead_letter("b")
    assert feed(world) == 1
    world.dead_letter("a", "c")
    assert feed(world) == 2
    world.dead_letter("d")
    assert feed(world) == 1
    assert feed(world) == 0
    assert world.state()["v:ready"] == ["b", "a", "c", "d"]


def test_feed_goes_on_behind_one_that_is_gone(world: World) -> None:
    view(world)
    world.dead_letter(*"abdef")
    assert feed(world, limit=2) == 2
    world.dead_letter("c")
    world.advance(1)
    assert feed(world, limit=2) == 2
    assert world.purge("d") == ["OK"]
    assert [feed(world, limit=2) for _ in range(2)] == [2, 0]
    assert world.state()["v:ready"] == ["a", "b", "c", "d", "e", "f"]


def test_feed_goes_on_where_a_bounded_one_has_stopped(world: World) -> None:
    view(world)
    world.dead_letter(*"abcdefg")
    assert [feed(world, limit=3) for _ in range(4)] == [3, 3, 1, 0]
    assert world.state()["v:ready"] == list("abcdefg")


def test_feed_of_a_group_that_consumes_topics_changes_nothing(world: World) -> None:
    world.subscribe("g")
    world.subscribe("v")
    world.dead_letter("a")
    with world.changes() as changed:
        assert feed(world) == 0
    assert changed == {}


def test_success_forgets_the_mark_and_leaves_the_dead_letter(world: World) -> None:
    view(world)
    world.dead_letter("a")
    feed(world)
    leased = lease(world)
    assert leased.ids == ["a"]
    assert leased.errors == [f'1 {START_MS} {{"c":"failure"}}']
    with world.changes() as changed:
        assert succeed(world, *first("a")) == [b"OK"]
    assert changed == {
        "v:graves": {"a": None},
        "v:inflight": {"a": None},
        "counters": {"succeed:v": 1},
        "events": ["succeed v w1 a"],
    }
    assert world.redrive("a") == ["OK"]


def test_what_is_given_up_is_dropped_and_leaves_the_dead_letter(world: World) -> None:
    view(world, max_retries=1)
    world.dead_letter("a")
    feed(world)
    lease(world)
    assert not fail(world, failure("a", delay_ms=1))[0].dead
    world.advance(1)
    world.run(maintain.promote(keys_of(world), worker=WORKER))
    assert lease(world).numbers == [(2, 2)]
    with world.changes() as changed:
        assert fail(world, failure("a", 2))[0].dead
    assert changed == {
        "v:attempts": {"a": None},
        "v:failures": {"a": None},
        "v:graves": {"a": None},
        "v:inflight": {"a": None},
        "counters": {"fail:v": 1, "dropped:v": 1},
        "events": ["fail v w1 a 2,D"],
    }
    assert "g:dead" in world.state()


def test_an_expired_lease_comes_back_and_is_dropped_after_the_last(world: World) -> None:
    view(world, max_retries=1)
    world.dead_letter("a")
    feed(world)
    lease(world)
    world.advance(VISIBILITY_MS)
    assert expire(world).moved == 1
    assert lease(world).numbers == [(2, 2)]
    world.advance(VISIBILITY_MS)
    assert expire(world).moved == 1
    state = world.state()
    assert [key for key in state if key.startswith("v:")] == ["v:config", "v:wake"]
    assert list(state["g:dead"]) == ["a"]


@pytest.mark.parametrize("end", ["purge", "redrive"])
def test_a_dead_letter_that_is_gone_goes_away(world: World, end: str) -> None:
    view(world)
    world.dead_letter("a", "b", "c")
    feed(world)
    assert lease(world, 1).ids == ["a"]
    getattr(world, end)("a", "b")
    with world.changes() as changed:
        assert lease(world).ids == ["c"]
    assert changed["v:graves"] == {"b": None}
    world.advance(VISIBILITY_MS)
    expire(world)
    assert succeed(world, Receipt("c", 2)) == [b"GONE"]
    assert lease(world).ids == ["c"]
    succeed(world, Receipt("c", 2))
    assert [key for key in world.state() if key.startswith("v:")] == ["v:config", "v:wake"]


def test_a_dead_letter_that_is_gone_takes_its_numbers_and_failures_along(world: World) -> None:
    view(world)
    world.dead_letter("a")
    feed(world)
    lease(world)
    fail(world, failure("a", delay_ms=1))
    world.advance(1)
    world.run(maintain.promote(keys_of(world), worker=WORKER))
    world.redrive("a")
    with world.changes() as changed:
        assert lease(world).ids == []
    assert (changed["v:attempts"], changed["v:failures"]) == ({"a": None}, {"a": None})


def test_a_dead_letter_that_dies_again_is_another_one(world: World) -> None:
    view(world)
    world.dead_letter("a")
    feed(world)
    lease(world)
    fail(world, failure("a", delay_ms=9 * SECOND))
    world.redrive("a")
    world.advance(1)
    receipt = Receipt("a", world.lease().numbers[0][0])
    world.fail(failure("a", receipt.lease_no, level=-1))
    with world.changes() as changed:
        assert feed(world) == 1
    assert changed["v:failures"] == {"a": None}
    assert lease(world).numbers == [(3, 1)]


def test_feed_cut_anywhere_and_repeated_loses_no_dead_letter(server_of: ServerOf) -> None:
    for call in range(1, 30):
        world = world_on(server_of, "redis-7", cut())
        view(world)
        world.dead_letter("a", "b")
        world.client.set(CUT_KEY, call)
        try:
            feed(world)
        except (ScriptError, AmbiguousResult):
            world.client.delete(CUT_KEY)
        else:
            assert call > 10
            return
        handled = []
        for _ in range(5):
            feed(world)
            leased = lease(world)
            handled += leased.ids
            succeed(
                world,
                *(Receipt(i, n) for i, (n, _) in zip(leased.ids, leased.numbers, strict=True)),
            )
        assert sorted(set(handled)) == ["a", "b"]
        assert sorted(world.state()["g:dead"]) == ["a", "b"]
    pytest.fail("feed makes more calls than it says")


def test_dead_letters_that_were_not_looked_at_yet_count_as_ready(world: World) -> None:
    view(world)
    world.dead_letter("a", "b")
    assert world.run(inspect.stats(keys_of(world))).ready == 2
    feed(world)
    world.advance(1)
    world.dead_letter("c")
    assert world.run(inspect.stats(keys_of(world))).ready == 3
