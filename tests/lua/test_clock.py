"""Logical time: it never goes back, moves on at the wall's rate, and comes back to the wall's."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from rqretry.protocol import inspect
from tests.support.builders import HOUR, MINUTE, SECOND, failure, first, prepared
from tests.support.world import START_MS, VISIBILITY_MS, World

LAST_MS = 2**48 - 1


def clock(world: World) -> tuple[int, int]:
    """The mark and the offset that are noted."""
    mark, offset = world.client.hmget(world.keys.meta, "mark", "offset")
    return int(mark), int(offset)


def history_ids(world: World) -> list[str]:
    return [id_ for id_, _ in world.run(inspect.history(world.keys, start="-"))]


def waiting(world: World) -> None:
    """A message that is due again in 10 s."""
    world.subscribe()
    world.leased("a")
    world.fail(failure("a"))


def test_the_history_goes_on_in_order_when_the_clock_goes_back(world: World) -> None:
    world.subscribe()
    world.publish("a")
    world.set_time(START_MS - HOUR)
    world.publish("b")
    world.advance(SECOND)
    world.publish("c")
    assert history_ids(world) == [f"{START_MS}-1", f"{START_MS}-2", f"{START_MS + 950}-3"]


def test_time_runs_on_from_its_mark_when_the_clock_goes_back(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.set_time(START_MS - HOUR)
    assert world.expire().now_ms == START_MS
    world.advance(VISIBILITY_MS)
    assert world.expire().moved == 0
    world.advance(VISIBILITY_MS // 19)
    assert world.expire()[:3] == (False, START_MS + VISIBILITY_MS, 1)


@pytest.mark.parametrize("look", ["lease", "promote"])
def test_a_retry_comes_where_nothing_is_written_after_a_step_back(world: World, look: str) -> None:
    waiting(world)
    world.set_time(START_MS - HOUR)
    for _ in range(11):
        assert world.promote().moved == 0 if look == "promote" else world.lease().ids == []
        world.advance(SECOND)
    assert world.promote().moved == 1


def test_an_expiry_comes_where_nothing_is_written_after_a_step_back(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.set_time(START_MS - HOUR)
    moved = 0
    for _ in range(33):
        moved += world.expire().moved
        world.advance(SECOND)
    assert moved == 1


def test_a_delay_ends_where_nothing_is_written_after_a_step_back(world: World) -> None:
    world.subscribe()
    world.publish(prepared("a", delay_ms=10 * SECOND))
    world.set_time(START_MS - HOUR)
    moved = 0
    for _ in range(12):
        moved += world.deliver()[1]
        world.advance(SECOND)
    assert moved == 1


def test_an_id_is_forgotten_where_nothing_is_written_after_a_step_back(world: World) -> None:
    world.subscribe()
    world.publish(prepared("a", digest="d"))
    world.lease()
    world.succeed(*first("a"))
    world.set_time(START_MS - 2 * HOUR)
    for _ in range(66):
        world.sweep()
        world.advance(MINUTE)
    assert not world.client.exists(world.keys.ids)


def test_who_looks_again_makes_up_for_what_a_step_back_would_undo(world: World) -> None:
    waiting(world)
    world.set_time(START_MS + 9 * SECOND - HOUR)  # nobody has noted the 9 s
    assert world.promote(expected_ms=START_MS + 9 * SECOND) == (START_MS + 9 * SECOND, 0, SECOND)
    world.advance(SECOND + 60)
    assert world.promote(expected_ms=START_MS + 10 * SECOND).moved == 1


def test_a_step_back_costs_no_more_than_the_caller_does_not_know(world: World) -> None:
    waiting(world)
    world.set_time(START_MS + 9 * SECOND - SECOND)  # a step that looks like jitter
    assert world.promote(expected_ms=START_MS + 9 * SECOND) == (START_MS + 9 * SECOND, 0, SECOND)
    assert clock(world) == (START_MS + 9 * SECOND, 0)


@pytest.mark.parametrize("verb", ["lease", "renew"])
def test_a_lease_behind_a_step_that_nobody_noted_lasts_as_long_as_any(
    world: World, verb: str
) -> None:
    world.subscribe()
    world.publish("a")
    if verb == "renew":
        world.lease()
    now_ms = START_MS + 9 * SECOND
    world.set_time(now_ms - HOUR)
    if verb == "renew":
        assert world.renew(*first("a"), expected_ms=now_ms) == ["OK"]
    else:
        assert world.lease(expected_ms=now_ms).now_ms == now_ms
    assert world.expire(expected_ms=now_ms + VISIBILITY_MS - 1).moved == 0
    assert world.expire(expected_ms=now_ms + VISIBILITY_MS).moved == 1


def test_a_caller_whose_clock_is_wrong_moves_a_minute_on_at_most(world: World) -> None:
    waiting(world)
    world.advance(8 * SECOND)
    assert world.promote(expected_ms=world.now + HOUR)[0] == START_MS + MINUTE


def test_time_comes_back_to_the_wall_one_part_in_twenty(world: World) -> None:
    world.subscribe()
    world.publish("a")
    world.set_time(START_MS - MINUTE)
    ahead = []
    for at in range(20 * 60 + 1):
        ahead.append(world.publish(f"m{at}").now_ms - world.now)
        world.advance(SECOND)
    assert ahead[0] == MINUTE
    assert ahead[400] == MINUTE - 20 * SECOND
    assert ahead[-1] == 0
    assert max(a - b for a, b in pairwise(ahead)) < 3 * SECOND


@pytest.mark.parametrize("step_ms", [-HOUR, -5 * SECOND, -SECOND])
def test_a_clock_that_was_wrong_for_half_a_second_leaves_nothing(
    world: World, step_ms: int
) -> None:
    world.subscribe()
    world.publish("a")
    world.set_time(START_MS + step_ms)
    for at in range(10):
        world.publish(f"m{at}")
        world.advance(50)
    world.set_time(START_MS + 500)
    if step_ms == -5 * SECOND:  # as much time might have passed: who looks again knows better
        world.promote(expected_ms=START_MS + 500)
    assert world.publish("b").now_ms == START_MS + 500
    assert clock(world) == (START_MS + 500, 0)


@pytest.mark.parametrize("offset_ms", [0, HOUR])
def test_a_clock_that_jitters_does_not_run_ahead(world: World, offset_ms: int) -> None:
    world.subscribe()
    world.publish("a")
    chance, true_ms, now_ms = random.Random(7), START_MS - offset_ms, 0
    for at in range(400):
        true_ms += 50
        world.set_time(true_ms + chance.randint(-500, 500))
        now_ms = world.publish(f"m{at}").now_ms
    slewed = 20 * SECOND // 20 if offset_ms else 0
    assert abs(now_ms - true_ms - offset_ms + slewed) <= 600


def test_a_lease_does_not_grow_longer_when_the_clock_goes_back(world: World) -> None:
    world.subscribe()
    world.publish("a")
    world.set_time(START_MS - HOUR)
    world.lease()
    assert world.state()["g:inflight"] == {"a": START_MS + VISIBILITY_MS}
    world.publish("b")
    world.fail(failure("a"))
    assert world.state()["g:delay:3"] == {"a": START_MS + 10 * SECOND}


def test_a_date_is_the_walls_after_the_clock_was_an_hour_ahead(world: World) -> None:
    world.subscribe()
    world.set_time(START_MS + HOUR)
    world.publish("a")
    world.set_time(START_MS)
    date = prepared("d", delay_ms=f"@{START_MS + 10 * SECOND}")
    assert world.publish(date, prepared("e", delay_ms=12 * SECOND)).now_ms == START_MS + HOUR
    world.advance(10 * SECOND - 1)
    assert world.deliver() == ("OK", 0, 1, None)
    assert world.lease().next_scheduled_ms == 1
    assert world.recall("d") == "OK"
    world.publish(date)
    world.advance(1)
    assert world.recall("d") == "LATE"
    assert world.deliver()[1:3] == (1, 2500)
    world.advance(3 * SECOND)
    assert world.deliver() == ("OK", 1, None, None)


def test_delays_behind_many_dates_are_delivered_in_time(world: World) -> None:
    world.subscribe()
    world.set_time(START_MS + HOUR)
    world.publish("a")
    world.set_time(START_MS)
    dates = [prepared(f"d{at}", delay_ms=f"@{START_MS + MINUTE}") for at in range(20)]
    world.publish(*dates, prepared("e", delay_ms=SECOND))
    world.advance(2 * SECOND)
    assert world.deliver(limit=5)[1] == 1
    assert world.state()["g:ready"] == ["a", "e"]


@pytest.mark.parametrize("verb", ["promote", "deliver", "expire"])
def test_nothing_falls_due_in_a_jump_that_comes_back(world: World, verb: str) -> None:
    waiting(world)
    world.publish("b", prepared("d", delay_ms=f"@{START_MS + MINUTE}"))
    world.lease()

    def look(expected_ms: int) -> int:
        if verb == "deliver":
            return int(world.deliver(expected_ms=expected_ms, hold_ms=SECOND)[1])
        found = getattr(world, verb)(expected_ms=expected_ms, hold_ms=10 * SECOND)
        return 0 if verb == "expire" and found.held else int(found.moved)

    world.set_time(START_MS + HOUR)
    assert look(START_MS + SECOND) == 0
    world.set_time(START_MS + 2 * SECOND)
    assert look(START_MS + 2 * SECOND) == 0
    world.advance(60 * SECOND)
    assert look(START_MS + 62 * SECOND) == 1


def test_a_jump_that_came_back_holds_nothing_when_its_time_really_comes(world: World) -> None:
    waiting(world)
    world.set_time(START_MS + HOUR)
    assert world.promote(expected_ms=START_MS, hold_ms=10 * SECOND).moved == 0
    world.set_time(START_MS)
    world.promote(expected_ms=START_MS, hold_ms=10 * SECOND)
    world.set_time(START_MS + HOUR)
    assert world.promote(expected_ms=START_MS + HOUR, hold_ms=10 * SECOND).moved == 1


def test_what_was_held_is_moved_when_the_clock_stays(world: World) -> None:
    waiting(world)
    world.set_time(START_MS + HOUR)
    assert world.promote(expected_ms=START_MS, hold_ms=SECOND)[1:] == (0, SECOND)
    world.advance(SECOND)
    assert world.promote(expected_ms=START_MS + SECOND, hold_ms=SECOND).moved == 1


@pytest.mark.parametrize("damage", [2**53, 10**30, -5, "inf", "nan", "x", 2.5])
@pytest.mark.parametrize("field", ["mark", "offset", "seq", "bytes", "hold", "floor"])
def test_a_partition_heals_from_an_absurd_number(
    world: World, field: str, damage: float | str
) -> None:
    world.subscribe()
    world.publish("a")
    world.damage().hset(world.keys.meta, field, damage)
    world.advance(SECOND)
    now_ms = world.publish("b").now_ms
    assert START_MS <= now_ms <= START_MS + 4 * SECOND
    world.lease(visibility_ms=SECOND)
    world.advance(4 * SECOND)
    assert world.expire().moved == 2
    mark, offset = clock(world)
    assert START_MS <= mark <= START_MS + 9 * SECOND
    assert offset <= 4 * SECOND


@pytest.mark.parametrize("damage", [2**53, -5])
def test_a_number_of_calls_that_cannot_be_heals_within_its_millisecond(
    world: World, damage: int
) -> None:
    world.subscribe()
    world.publish("a")
    world.damage().hset(world.keys.meta, "seq", damage)
    for id_ in "bcd":
        assert world.publish(id_).now_ms == START_MS + 1
    assert history_ids(world)[1:] == [f"{START_MS + 1}-{number}" for number in (1, 2, 3)]


@pytest.mark.parametrize("damage", [2**53, 2**63 - 1, 10**30, -5, "inf", "nan", "x", 2.5])
@pytest.mark.parametrize("field", ["order", "cast_ms", "cast_seq", "cast_count", "cast_bytes"])
def test_an_ordered_and_broadcast_partition_heals_from_an_absurd_number(
    world: World, field: str, damage: float | str
) -> None:
    world.subscribe(ordered=True)
    world.route = replace(world.route, version=world.route.version + 1, broadcast=True)
    world.install()
    world.publish(prepared("a", group="k"))
    world.damage().hset(world.keys.meta, field, damage)
    world.advance(1)
    for id_ in ("b", "c"):
        world.publish(prepared(id_, group="k"))
    for id_ in ("a", "b", "c"):
        assert world.lease().ids == [id_]
        world.succeed(*first(id_))
    assert world.client.xlen(world.keys.broadcast) == 3


def test_a_server_at_the_end_of_time_is_followed(world: World) -> None:
    world.subscribe()
    world.set_time(LAST_MS - MINUTE)
    world.publish("a")
    world.set_time(START_MS)
    for at in range(10):
        world.publish(f"m{at}")
        world.advance(SECOND)
    receipts = world.lease(visibility_ms=SECOND)
    world.advance(2 * SECOND)
    assert world.expire().moved == len(receipts.ids)
