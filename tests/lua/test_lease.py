"""lease: ready -> inflight."""

from collections.abc import Callable

import pytest

from rqretry.core.receipt import Receipt
from rqretry.protocol.command import MAX_BATCH_BYTES
from rqretry.protocol.lease import with_large
from tests.support.builders import MINUTE, SECOND, failure, first, prepared
from tests.support.world import START_MS, VISIBILITY_MS, World

DEADLINE = START_MS + VISIBILITY_MS


def test_lease_moves_the_oldest_messages_to_inflight_until_their_deadline(world: World) -> None:
    world.subscribe()
    world.publish("a", "b", "c")
    with world.changes() as changed:
        leased = world.lease(2)
    assert leased.ids == ["a", "b"]
    assert leased.data == [b"body of a", b"body of b"]
    assert leased.numbers == [(1, 1), (1, 1)]
    assert (leased.left, leased.next_due_ms, leased.next_deadline_ms) == (1, None, VISIBILITY_MS)
    assert changed == {
        "g:ready": ["c"],
        "g:inflight": {"a": DEADLINE, "b": DEADLINE},
        "g:wake": {"1": 0},
        "counters": {"lease:g": 2},
        "events": ["lease g w1 a b"],
    }


def test_lease_that_takes_everything_wakes_nobody(world: World) -> None:
    world.subscribe()
    world.publish("a")
    with world.changes() as changed:
        assert world.lease().left == 0
    assert "g:wake" not in changed
    assert changed["g:ready"] is None


def test_lease_of_nothing_changes_nothing(world: World) -> None:
    world.subscribe()
    with world.changes() as changed:
        leased = world.lease()
    assert (leased.status, leased.ids, leased.left, leased.now_ms) == ("OK", [], 0, START_MS)
    assert leased[1:4] == (None, None, None)
    assert changed == {}


def test_lease_without_a_configuration_says_so(world: World) -> None:
    world.publish("a")
    with world.changes() as changed:
        assert world.lease(group="nobody").status == "NO_GROUP"
    assert changed == {}


def test_lease_of_a_paused_group_takes_nothing_until_it_is_resumed(world: World) -> None:
    world.subscribe()
    world.publish("a")
    world.configure("g", 2, paused=1)
    with world.changes() as changed:
        assert world.lease().status == "PAUSED"
    assert changed == {}
    world.configure("g", 3, paused=0)
    assert world.lease().ids == ["a"]


def test_lease_of_a_paused_group_still_reports_what_is_due_when(world: World) -> None:
    world.subscribe()
    world.leased("a", "b")
    world.fail(failure("a", delay_ms=5000))
    world.publish(prepared("c", delay_ms=7000), "d")
    world.configure("g", 2, paused=1)
    world.advance(SECOND)
    answer = world.lease()
    assert answer[:5] == ("PAUSED", 4000, VISIBILITY_MS - SECOND, 6000, 0)
    assert (answer.ids, answer.now_ms) == ([], START_MS + SECOND)


def test_lease_prefers_one_lane_and_fills_up_from_the_other(world: World) -> None:
    world.subscribe()
    world.leased("r1", "r2")
    world.advance(VISIBILITY_MS)
    world.expire()
    world.publish("n1", "n2")
    with world.changes() as changed:
        leased = world.lease(3, prefer="retry")
    assert leased.ids == ["r1", "r2", "n1"]
    assert leased.numbers == [(2, 2), (2, 2), (1, 1)]
    assert (changed["g:ready"], changed["g:retry"]) == (["n2"], None)
    assert changed["events"] == ["lease g w1 r1 r2 n1 2:2:1:0 2:2:1:0 -"]


def test_lease_of_new_messages_first_leaves_the_retries(world: World) -> None:
    world.subscribe()
    world.leased("r1", "r2")
    world.advance(VISIBILITY_MS)
    world.expire()
    world.publish("n1", "n2")
    with world.changes() as changed:
        assert world.lease(3, prefer="ready").ids == ["n1", "n2", "r1"]
    assert (changed["g:ready"], changed["g:retry"]) == (None, ["r2"])


def test_lease_takes_one_lane_when_it_is_enough(world: World) -> None:
    world.subscribe()
    world.publish("a", "b", "c")
    assert world.lease(2, prefer="ready").ids == ["a", "b"]


def test_lease_stops_before_the_bodies_are_too_many_bytes(world: World) -> None:
    world.subscribe()
    half = "x" * (MAX_BATCH_BYTES // 2)
    world.publish(prepared("a", half), prepared("b", half), prepared("c", half))
    with world.changes() as changed:
        leased = world.lease()
    assert (leased.ids, leased.left) == (["a", "b"], 1)
    assert changed["g:ready"] == ["c"]


def test_lease_takes_one_message_however_big_it_is(world: World) -> None:
    world.subscribe()
    world.publish(prepared("a", "x" * (MAX_BATCH_BYTES + 1)), "b")
    assert world.lease().ids == ["a"]
    assert world.lease().ids == ["b"]


def test_a_large_body_does_not_pass_through_the_script(world: World) -> None:
    world.subscribe()
    large = prepared("a", "x" * 65537)
    world.publish(large, prepared("b", "x" * 65536), "c", prepared("gone", "x" * 70000))
    world.client.hdel(world.keys.bodies, "gone")
    world.client.hdel(world.keys.big, "gone")
    leased = world.lease(4)
    assert leased.ids == ["a", "b", "c"]
    assert [len(data) for data in leased.data] == [0, 65536, 9]
    whole = world.perform(with_large(world.group(), leased))
    assert whole.data == [large.data, *leased.data[1:]]
    assert whole._replace(data=leased.data) == leased

    world.client.hdel(world.keys.bodies, "a")  # by an operator, meanwhile
    rest = world.perform(with_large(world.group(), leased))
    assert (rest.ids, rest.numbers) == (["b", "c"], leased.numbers[1:])
    world.client.hset(world.keys.bodies, "a", large.data)


def test_a_lease_takes_a_whole_batch_of_small_bodies(world: World) -> None:
    world.subscribe()
    world.publish(*(f"m{n}" for n in range(500)))
    assert len(world.lease(500).ids) == 500


def test_lease_drops_an_id_that_is_in_flight_and_one_that_came_twice(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.publish("b", "c")
    world.client.rpush(world.group().ready, "a", "b")
    with world.changes() as changed:
        assert world.lease().ids == ["b", "c"]
    assert changed["g:ready"] is None
    assert changed["g:inflight"] == {"b": DEADLINE, "c": DEADLINE}


def test_a_later_lease_leaves_what_is_in_flight_as_it_is(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.publish("b", "c")
    world.client.rpush(world.group().ready, "a", "b")
    world.advance(SECOND)
    with world.changes() as changed:
        leased = world.lease()
    assert (leased.ids, leased.data) == (["b", "c"], [b"body of b", b"body of c"])
    assert leased.next_deadline_ms == VISIBILITY_MS - SECOND
    assert changed == {
        "g:ready": None,
        "g:inflight": {"b": DEADLINE + SECOND, "c": DEADLINE + SECOND},
        "counters": {"lease:g": 2},
        "events": ["lease g w1 b c"],
    }


def test_a_later_lease_of_retries_reports_each_its_own_numbers_and_error(world: World) -> None:
    world.subscribe()
    world.leased("a", "b", "c", "d")
    world.fail(*(failure(id_, delay_ms=1, record=f'{{"m":"{id_}"}}') for id_ in "abc"))
    world.advance(1)
    world.promote()
    assert world.lease(1, prefer="retry").ids == ["a"]
    world.publish("e")
    world.client.rpush(world.group().retry, "d", "a", "b")
    world.advance(1)
    with world.changes() as changed:
        leased = world.lease(prefer="retry")
    assert (leased.ids, leased.data) == (
        ["b", "c", "e"], [b"body of b", b"body of c", b"body of e"]
    )  # fmt: skip
    assert leased.numbers == [(2, 2), (2, 2), (1, 1)]
    assert leased.last_errors == [f'1 {START_MS}+1 {{"m":"{id_}"}}' for id_ in "bc"] + [""]
    assert changed["g:inflight"] == dict.fromkeys("bce", DEADLINE + 2)
    assert changed["events"] == ["lease g w1 b c e 2:2:0:0 2:2:0:0 -"]


def test_a_later_lease_that_leaves_out_all_retries_is_of_first_attempts(world: World) -> None:
    world.subscribe()
    world.release(*world.leased("a"))
    assert world.lease().numbers == [(2, 1)]
    world.publish("b")
    world.client.rpush(world.group().ready, "a")
    world.advance(1)
    with world.changes() as changed:
        assert world.lease().numbers == [(1, 1)]
    assert changed["events"] == ["lease g w1 b"]


def test_lease_counts_no_orphan_that_is_in_flight(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.publish("b", "c")
    world.client.rpush(world.group().ready, "a")
    world.damage().hdel(world.keys.bodies, "a", "b")
    world.advance(1)
    with world.changes() as changed:
        assert world.lease().ids == ["c"]
    assert changed["counters"] == {"lease:g": 1, "orphan:g": 1}


def test_lease_of_an_id_that_both_lists_hold_and_nothing_else_leases_it_once(world: World) -> None:
    world.subscribe()
    world.publish("a", "b", "c")
    world.client.rpush(world.group().ready, "b", "b")
    world.client.rpush(world.group().retry, "a")
    with world.changes() as changed:
        leased = world.lease()
    assert leased.ids == ["a", "b", "c"]
    assert leased.data == [b"body of a", b"body of b", b"body of c"]
    assert (leased.numbers, leased.last_errors) == ([(1, 1)] * 3, [""] * 3)
    assert leased.left == 0
    assert changed == {
        "g:ready": None,
        "g:retry": None,
        "g:inflight": {"a": DEADLINE, "b": DEADLINE, "c": DEADLINE},
        "counters": {"lease:g": 3},
        "events": ["lease g w1 a b c"],
    }


def test_lease_drops_a_dead_letter_that_is_still_in_a_list(world: World) -> None:
    world.subscribe()
    world.dead_letter("a")
    world.client.rpush(world.group().retry, "a")
    with world.changes() as changed:
        assert world.lease().ids == []
    assert changed == {"g:retry": None}


def test_lease_counts_and_drops_an_id_without_a_body(world: World) -> None:
    world.subscribe()
    world.subscribe("h")
    world.publish("a", "b")
    world.damage().hdel(world.keys.bodies, "a")
    with world.changes() as changed:
        assert world.lease().ids == ["b"]
    assert changed == {
        "pending": {"a": None},
        "g:ready": None,
        "g:inflight": {"b": DEADLINE},
        "counters": {"orphan:g": 1, "lease:g": 1},
        "events": ["lease g w1 b"],
    }


def test_nothing_is_left_of_a_retry_without_a_body(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.fail(failure("a", delay_ms=0))
    world.promote()
    world.damage().hdel(world.keys.bodies, "a")
    assert {"g:attempts", "g:failures"} <= world.state().keys()
    assert world.lease().ids == []
    assert not {"g:attempts", "g:failures", "g:retry"} & world.state().keys()


def test_lease_drops_an_id_that_the_group_no_longer_owes(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.succeed(*world.leased("a"))
    world.client.rpush(world.group().ready, "a")
    with world.changes() as changed:
        assert world.lease().ids == []
    assert changed == {"g:ready": None}
    assert world.lease(group="h").ids == ["a"]


def test_lease_that_only_drops_leftovers_wakes_for_the_rest(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.publish("b")
    world.client.lpush(world.group().ready, "a")
    with world.changes() as changed:
        leased = world.lease(1)
    assert (leased.ids, leased.left) == ([], 1)
    assert changed == {"g:ready": ["b"], "g:wake": {"1": 0}}


def test_lease_reports_when_to_look_again(world: World) -> None:
    world.subscribe()
    world.leased("a", "b")
    world.fail(failure("a"))
    world.publish(prepared("later", delay_ms=7 * SECOND))
    world.advance(2 * SECOND)
    leased = world.lease()
    assert leased.next_due_ms == 8 * SECOND
    assert leased.next_deadline_ms == VISIBILITY_MS - 2 * SECOND
    assert leased.next_scheduled_ms == 5 * SECOND
    world.advance(MINUTE)
    leased = world.lease()
    assert (leased.next_due_ms, leased.next_deadline_ms, leased.next_scheduled_ms) == (0, 0, 0)


def test_lease_of_a_short_time_reports_the_others_of_its_deadline(world: World) -> None:
    world.subscribe()
    world.publish("a")
    with world.changes() as changed:
        world.lease(visibility_ms=2 * SECOND)
    assert changed["g:wake"] == {"1": 0}


def test_lease_behind_an_earlier_deadline_reports_nobody(world: World) -> None:
    world.subscribe()
    world.publish("a", "b")
    world.lease(1, visibility_ms=SECOND)
    with world.changes() as changed:
        world.lease(1, visibility_ms=2 * SECOND)
    assert "g:wake" not in changed


def test_lease_of_several_groups_is_independent(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.publish("a")
    assert world.lease(group="g").ids == ["a"]
    assert world.lease(group="g").ids == []
    assert world.lease(group="h").ids == ["a"]


def test_lease_again_after_a_release_has_a_higher_number(world: World) -> None:
    world.subscribe()
    world.release(*world.leased("a"))
    assert world.lease().numbers == [(2, 1)]
    assert world.succeed(*first("a")) == ["STALE"]


def test_lease_reports_the_newest_failure_of_each_message_that_failed_before(world: World) -> None:
    world.subscribe()
    world.leased("a", "b", "c")
    world.fail(failure("a", delay_ms=1, record='{"m":"one"}'))
    world.release(*first("b"))
    world.advance(1)
    world.promote()
    assert world.lease(1, prefer="retry").errors == [f'1 {START_MS}+1 {{"m":"one"}}']
    world.fail(failure("a", 2, delay_ms=1, record='{"m":"two"}'))
    world.advance(1)
    world.promote()
    leased = world.lease()
    assert (leased.ids, leased.errors) == (["b", "a"], ["-", f'2 {START_MS + 1}+1 {{"m":"two"}}'])
    world.release(Receipt("a", 3), delays_ms=[SECOND], max_postpones=1)
    world.advance(SECOND)
    world.promote()
    put_off = f'2 {START_MS + 1} {{"m":"two"}}'
    assert world.lease().errors == [put_off], "when it is due now is not in its record"


def test_lease_reports_a_redrive_and_of_no_failure_before_it(world: World) -> None:
    world.subscribe()
    world.dead_letter("a")
    world.release(*world.leased("b"))
    world.redrive("a")
    leased = world.lease()
    lines = dict(zip(leased.ids, leased.last_errors, strict=True))
    assert lines == {"a": '0 1000000 {"c":"redriven"}', "b": "-"}


def test_lease_reports_an_expiry_as_the_newest_failure(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.advance(VISIBILITY_MS)
    world.expire()
    assert world.lease().errors == [f'1 {DEADLINE}+0 {{"c":"expired"}}']


def test_lease_takes_no_more_than_max_inflight_allows_and_wakes_nobody(world: World) -> None:
    world.subscribe(max_inflight=3)
    world.publish(*"abcde")
    assert world.lease(2).status == "OK"
    with world.changes() as changed:
        leased = world.lease(2)
    assert (leased.status, leased.ids, leased.left) == ("LIMITED", ["c"], 2)
    assert leased.exhausted
    assert "g:wake" not in changed
    with world.changes() as changed:
        leased = world.lease()
    assert (leased.status, leased.ids, leased.next_deadline_ms) == ("LIMITED", [], VISIBILITY_MS)
    assert changed == {}


def test_lease_of_short_leases_at_max_inflight_wakes_nobody(world: World) -> None:
    world.subscribe(max_inflight=1)
    world.publish("a", "b")
    with world.changes() as changed:
        world.lease(visibility_ms=SECOND)
    assert "g:wake" not in changed


@pytest.mark.parametrize(
    "end",
    [
        lambda w: w.succeed(*first("a")),
        lambda w: w.fail(failure("a")),
        lambda w: w.release(*first("a")),
        lambda w: w.change(Receipt("a", 1), 0),
        lambda w: (w.advance(VISIBILITY_MS), w.expire(limit=1)),
    ],
    ids=["succeed", "fail", "release", "change", "expire"],
)
def test_the_end_of_a_lease_wakes_a_group_at_its_max_inflight_once_there_is_room(
    world: World, end: Callable[[World], object]
) -> None:
    world.subscribe(max_inflight=2)
    world.publish(*"abcd")
    world.lease(2)
    with world.changes() as changed:
        end(world)
    assert changed["g:wake"] == {"1": 0}
    world.configure("g", 2, max_inflight=1)
    world.configure("g", 3, max_inflight=2)
    world.lease(1)
    world.configure("g", 4, max_inflight=1)
    with world.changes() as changed:
        world.succeed(*first("b"))
    assert "g:wake" not in changed, "the group is still over its limit"


def test_the_end_of_a_lease_below_max_inflight_wakes_nobody(world: World) -> None:
    world.subscribe(max_inflight=3)
    world.publish("a", "b", "c")
    world.lease(2)
    with world.changes() as changed:
        world.succeed(*first("a"))
    assert "g:wake" not in changed


def test_lease_of_a_group_with_a_rate_wants_tokens(world: World) -> None:
    world.subscribe(rate="5/s")
    world.publish("a")
    with world.changes() as changed:
        leased = world.lease()
    assert (leased.status, leased.ids, leased.rate, leased.exhausted) == ("RATED", [], "5/s", False)
    assert changed == {}
    leased = world.lease(tokens=True)
    assert (leased.status, leased.ids, leased.rate) == ("OK", ["a"], "5/s")


def test_lease_with_tokens_of_a_group_without_a_rate_is_any_lease(world: World) -> None:
    world.subscribe()
    world.publish("a")
    leased = world.lease(tokens=True)
    assert (leased.ids, leased.rate) == (["a"], "")


def test_lease_says_what_is_left_in_the_retry_lane_too(world: World) -> None:
    world.subscribe()
    world.leased("a", "b")
    world.advance(VISIBILITY_MS)
    world.expire()
    with world.changes() as changed:
        leased = world.lease(1)
    assert (leased.ids, leased.left) == (["a"], 1)
    assert changed["g:wake"] == {"1": 0}
