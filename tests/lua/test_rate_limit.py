"""rate_set and rate_take: a group's rate limit and its bucket of tokens."""

import pytest

from rqretry.core.errors import AmbiguousResult, ScriptError
from rqretry.protocol.keys import bucket_key
from rqretry.protocol.rate_limit import Tokens, rate_set, rate_take
from tests.conftest import ServerOf
from tests.lua.conftest import cut, world_on
from tests.support.builders import SECOND
from tests.support.lua_hooks import CLOCK_KEY, CUT_KEY
from tests.support.world import START_MS, World

BUCKET = bucket_key("test", "g")
FULL = 51
"""What a bucket of 200/s holds: one and those of a quarter of a second."""


def set_time(world: World, now_ms: int) -> None:
    world.now = now_ms
    key = f"{CLOCK_KEY}:{{test/g}}" if world.backend.clock_in_slot else CLOCK_KEY
    world.client.set(key, now_ms)


@pytest.fixture
def bucket(world: World) -> World:
    """A bucket of 200 tokens a second, one of which is there."""
    set_time(world, START_MS)
    assert world.run(rate_set(BUCKET, 1, "200/s")) == 1
    return world


def taken(world: World, want: int, returned: int = 0) -> tuple[int | None, int]:
    tokens = world.run(rate_take(BUCKET, want=want, returned=returned))
    return tokens.given, tokens.wait_ms


def later(world: World, ms: int) -> None:
    set_time(world, world.now + ms)


def state(world: World) -> dict[bytes, bytes]:
    return dict(world.client.hgetall(BUCKET))


def test_take_from_no_bucket_is_no_limit(world: World) -> None:
    set_time(world, START_MS)
    assert taken(world, 5) == (None, 0)
    assert state(world) == {}


def test_a_new_limit_has_one_token_and_earns_the_others(bucket: World) -> None:
    assert taken(bucket, 1) == (1, 50)
    assert taken(bucket, 1) == (0, 5)
    later(bucket, 5)
    assert taken(bucket, 1) == (1, 50)


def test_take_gives_nothing_before_a_block_is_there_and_says_when(bucket: World) -> None:
    assert taken(bucket, 64) == (0, 45)
    assert taken(bucket, 64) == (0, 45)
    later(bucket, 44)
    assert taken(bucket, 64) == (0, 1)
    later(bucket, 1)
    assert taken(bucket, 64) == (10, 50)


def test_take_gives_all_that_is_wanted_and_there(bucket: World) -> None:
    later(bucket, 100)
    assert taken(bucket, 64) == (21, 50)
    later(bucket, 100)
    assert taken(bucket, 15) == (15, 25)
    assert taken(bucket, 64) == (0, 25)


def test_a_bucket_is_full_after_a_quarter_of_a_second(bucket: World) -> None:
    later(bucket, 3600 * SECOND)
    assert taken(bucket, 64) == (FULL, 50)


def test_tokens_that_were_not_used_come_back_and_fill_it_no_further(bucket: World) -> None:
    later(bucket, SECOND)
    assert taken(bucket, FULL) == (FULL, 50)
    assert taken(bucket, 0, returned=40) == (0, 0)
    assert taken(bucket, 64) == (40, 50)
    later(bucket, SECOND)
    taken(bucket, 0, returned=40)
    assert taken(bucket, 64) == (FULL, 50)


def test_parts_of_tokens_add_up(bucket: World) -> None:
    bucket.run(rate_set(BUCKET, 2, "3/s"))
    given = 0
    for _ in range(500):
        later(bucket, 8)
        given += taken(bucket, 1)[0] or 0
    assert given == 13


def test_time_that_goes_back_neither_gives_nor_takes_tokens(bucket: World) -> None:
    later(bucket, 100)
    assert taken(bucket, 21) == (21, 50)
    set_time(bucket, START_MS - 60 * SECOND)
    assert taken(bucket, 10) == (0, 50)


def test_tokens_are_earned_on_after_the_clock_stepped_back(bucket: World) -> None:
    assert taken(bucket, 1) == (1, 50)
    later(bucket, -3600 * SECOND)
    given = 0
    for _ in range(20):
        given += taken(bucket, 1)[0] or 0
        later(bucket, 1)
    for _ in range(10):
        later(bucket, 100)
        given += taken(bucket, 20)[0] or 0
    assert given in range(190, 205)


def test_a_bucket_heals_from_a_time_that_cannot_be(bucket: World) -> None:
    bucket.damage().hset(BUCKET, mapping={"mark": 2**53, "at": 2**53})
    assert taken(bucket, 20) == (0, 45)
    later(bucket, 100)
    assert taken(bucket, 20) == (20, 45)


def test_a_slow_rate_gives_one_token_at_a_time(bucket: World) -> None:
    bucket.run(rate_set(BUCKET, 2, "2/h"))
    assert taken(bucket, 64) == (1, 1800 * SECOND)
    assert taken(bucket, 64) == (0, 1800 * SECOND)
    later(bucket, 1800 * SECOND)
    assert taken(bucket, 64) == (1, 1800 * SECOND)


def test_a_newer_limit_wins_and_keeps_the_tokens(bucket: World) -> None:
    later(bucket, SECOND)
    taken(bucket, 0, returned=1)
    assert bucket.run(rate_set(BUCKET, 1, "1/s")) == 0
    assert bucket.run(rate_set(BUCKET, 2, "20/s")) == 1
    assert taken(bucket, 64) == (6, 50)


def test_no_limit_any_more_gives_any_number(bucket: World) -> None:
    assert bucket.run(rate_set(BUCKET, 2, "")) == 1
    assert taken(bucket, 64) == (None, 0)
    assert bucket.run(rate_set(BUCKET, 1, "1/s")) == 0
    assert taken(bucket, 64) == (None, 0)


def test_no_limit_where_there_was_none_leaves_no_trace(world: World) -> None:
    set_time(world, START_MS)
    assert world.run(rate_set(BUCKET, 1, "")) == 0
    assert state(world) == {}


@pytest.mark.parametrize("rate", ["1/s", ""])
def test_limit_cut_anywhere_is_completed_by_the_next_call(server_of: ServerOf, rate: str) -> None:
    for call in range(1, 10):
        world = world_on(server_of, "redis-7", cut())
        set_time(world, START_MS)
        world.run(rate_set(BUCKET, 1, "200/s"))
        world.client.set(CUT_KEY, call)
        try:
            world.run(rate_set(BUCKET, 2, rate))
        except (ScriptError, AmbiguousResult):
            world.client.delete(CUT_KEY)
            world.run(rate_set(BUCKET, 2, rate))
            expected = Tokens(1, 1000) if rate else Tokens(None, 0)
            assert world.run(rate_take(BUCKET, want=1)) == expected
        else:
            assert call > 1
            return
    pytest.fail("limit makes more calls than it says")


def test_take_cut_anywhere_gives_no_token_twice(server_of: ServerOf) -> None:
    for call in range(1, 10):
        world = world_on(server_of, "redis-7", cut())
        set_time(world, START_MS)
        world.run(rate_set(BUCKET, 1, "1/s"))
        world.client.set(CUT_KEY, call)
        try:
            world.run(rate_take(BUCKET, want=1))
        except (ScriptError, AmbiguousResult):
            world.client.delete(CUT_KEY)
            assert world.run(rate_take(BUCKET, want=1)).given == 1
            assert world.run(rate_take(BUCKET, want=1)).given == 0
        else:
            assert call > 2
            return
    pytest.fail("take makes more calls than it says")
