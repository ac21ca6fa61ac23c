"""Ordered groups after a call that was cut: who is over holds up nobody."""

import pytest

from tests.support.builders import SECOND, failure, first, prepared
from tests.support.ordering import leased, line, sent
from tests.support.world import START_MS, VISIBILITY_MS, World


def test_a_follower_that_this_group_has_finished_with_is_passed_over(world: World) -> None:
    world.subscribe("g", ordered=True)
    world.subscribe("h")
    world.publish(*sent("abc"))
    assert leased(world) == ["a"]
    byte_of_h = bytes((world.route.groups[1].byte,))
    world.client.hset(world.keys.pending, "b", byte_of_h)  # a call of g was cut behind this
    world.succeed(*first("a"))
    assert leased(world) == ["c"]
    assert line(world) == ["x3c"]


def die(world: World, id_: str) -> None:
    """The message is dead, and stands in the order of its message group: so a cut leaves it."""
    world.client.hset(world.group().deaths, id_, "1 failure")
    world.client.zadd(world.group().dead, {id_: START_MS})
    world.client.zadd(world.group().fingerprints, {f"\0{START_MS:016}\0{id_}": 0})


@pytest.mark.parametrize("others", [0, 9], ids=["little in flight", "much in flight"])
def test_a_follower_that_is_in_flight_already_is_not_sent_out_again(
    world: World, others: int
) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("abc"), *(prepared(f"y{n}", group=f"y{n}") for n in range(others)))
    assert leased(world)[0] == "a"
    world.damage().zadd(world.group().inflight, {"b": START_MS + VISIBILITY_MS})
    world.succeed(*first("a"))
    assert world.state()["g:ready"] == ["c"]


def test_a_follower_that_is_dead_is_passed_over(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("abc"))
    assert leased(world) == ["a"]
    die(world, "b")
    world.succeed(*first("a"))
    assert world.state()["g:ready"] == ["c"]
    assert line(world) == ["x3c"]


def test_a_redriven_message_leaves_the_place_that_a_cut_left_to_it(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("abc"))
    die(world, "b")
    assert world.redrive("b") == ["OK"]
    assert line(world) == ["x1a", "x3c", "x4b"]


def test_a_retry_that_is_no_longer_the_head_goes_to_the_end_of_its_message_group(
    world: World,
) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("abc"))
    assert leased(world) == ["a"]
    world.fail(failure("a"))
    world.damage().hset(world.group().heads, "x", "b")  # as a cut leaves it
    world.advance(SECOND)
    world.promote()
    assert line(world) == ["x2b", "x3c", "x4a"]


def test_a_line_passes_over_what_a_cut_left_in_it(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("abc"))
    world.lease()
    world.damage().hdel(world.keys.bodies, "b")
    world.succeed(*first("a"))
    assert leased(world) == ["c"]
    assert line(world) == ["x3c"]


def test_an_orphan_in_flight_lets_the_next_one_go(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("ab"))
    world.lease()
    world.damage().hdel(world.keys.bodies, "a")
    world.advance(VISIBILITY_MS)
    world.expire()
    assert leased(world) == ["b"]
    assert "a" not in world.state()["message_groups"]


def test_an_orphan_in_flight_that_is_not_the_head_leaves_the_order(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("ab"))
    world.lease()
    world.damage().hdel(world.keys.bodies, "b")
    world.client.zadd(world.group().inflight, {"b": START_MS + VISIBILITY_MS})  # as a cut leaves it
    world.advance(VISIBILITY_MS)
    world.expire()
    assert line(world) == ["x1a"]


@pytest.mark.parametrize("message_groups", [999, 1000])
def test_heads_are_looked_through_for_an_orphan_where_they_are_not_too_many(
    world: World, message_groups: int
) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("ab"))
    world.lease()
    world.damage().hdel(world.keys.bodies, "a")
    world.client.hdel(world.keys.message_groups, "a")
    others = {f"y{number}": f"of {number}" for number in range(message_groups)}
    world.client.hset(world.group().heads, mapping=others)
    world.advance(VISIBILITY_MS)
    world.expire()
    assert leased(world) == (["b"] if message_groups == 999 else [])


def test_a_repeated_publish_that_was_cut_keeps_its_place(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("a"), seq=7)
    world.damage().delete(world.keys.lane("p"))
    world.publish(*sent("b"), producer="q")
    world.publish(*sent("a"), seq=7)
    assert line(world) == ["x1a", "x2b"]
    assert leased(world) == ["a"]


def test_a_lease_drops_who_is_not_the_head_of_its_message_group(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("ab"))
    world.client.lpush(world.group().ready, "b")  # as a cut leaves it
    with world.changes() as changed:
        assert leased(world) == ["a"]
    assert (changed["g:ready"], changed["g:inflight"].keys()) == (None, {"a"})


def test_a_lease_that_meets_a_head_without_a_body_lets_the_next_one_go(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("ab"))
    world.damage().hdel(world.keys.bodies, "a")
    world.client.hdel(world.keys.message_groups, "a")
    answer = world.lease()
    assert (answer.ids, answer.left) == ([], 1)  # the follower, which is in the list by now
    assert leased(world) == ["b"]
    assert line(world) == ["x2b"]


def test_a_lease_that_meets_a_head_that_is_dead_lets_the_next_one_go(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("ab"), *sent("c", "y"))
    die(world, "a")
    answer = world.lease(1)
    assert (answer.ids, answer.left) == ([], 2)
    assert leased(world) == ["c", "b"]
    assert line(world) == ["x2b", "y3c"]
    assert world.state()["g:heads"] == {"x": "b", "y": "c"}


def test_a_lease_that_meets_a_head_that_its_group_has_finished_with_lets_the_next_one_go(
    world: World,
) -> None:
    world.subscribe("g", ordered=True)
    world.subscribe("h")
    world.publish(*sent("ab"))
    byte_of_h = bytes((world.route.groups[1].byte,))
    world.client.hset(world.keys.pending, "a", byte_of_h)  # as a purge that was cut leaves it
    assert (world.lease().ids, leased(world)) == ([], ["b"])
    assert line(world) == ["x2b"]


def test_who_died_in_a_call_that_was_cut_is_sent_back_behind_the_next_one(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("ab"))
    world.lease()
    world.client.hset(world.group().deaths, "a", "1 failure")
    world.client.zadd(world.group().dead, {"a": START_MS})  # and it is in flight, and the head
    with world.changes() as changed:
        assert world.redrive("a") == ["OK"]
    assert (changed["g:ready"], changed["g:heads"]) == (["b"], {"x": "b"})
    assert changed["g:wake"] == {"1": 0}
    assert line(world) == ["x2b", "x3a"]
    world.succeed(*world.leased("b", publish=False))
    assert leased(world) == ["a"]
