"""release: inflight -> ready, uncounted, or -> waiting_retry (postponed)."""

from rqretry.core.receipt import Receipt
from tests.support.builders import MINUTE, SECOND, failure, first
from tests.support.world import START_MS, VISIBILITY_MS, World


def test_release_gives_back_at_the_head_in_the_same_order_and_counts_nothing(world: World) -> None:
    world.subscribe()
    receipts = world.leased("a", "b", "c")
    world.publish("d")
    with world.changes() as changed:
        assert world.release(*receipts) == ["OK", "OK", "OK"]
    assert changed == {
        "g:ready": ["a", "b", "c", "d"],
        "g:attempts": {"a": "2:1:0:0", "b": "2:1:0:0", "c": "2:1:0:0"},
        "g:inflight": {"a": None, "b": None, "c": None},
        "counters": {"release:g": 3},
        "events": ["release g w1 a b c 1,R 1,R 1,R"],
    }
    assert world.lease(2).numbers == [(2, 1), (2, 1)]


def test_release_gives_a_retry_back_to_the_head_of_its_own_lane_and_wakes(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.fail(failure("a"))
    world.advance(10 * SECOND)
    world.promote()
    world.lease()
    with world.changes() as changed:
        assert world.release(Receipt("a", 2)) == ["OK"]
    assert changed == {
        "g:retry": ["a"],
        "g:attempts": {"a": "3:2:0:0"},
        "g:inflight": {"a": None},
        "g:wake": {"1": 0},
        "counters": {"release:g": 1},
        "events": ["release g w1 a 2,R"],
    }


def test_release_with_a_delay_postpones_and_counts_the_postponement_only(world: World) -> None:
    world.subscribe()
    receipts = world.leased("a")
    due = START_MS + 45 * SECOND
    with world.changes() as changed:
        assert world.release(*receipts, delays_ms=[45 * SECOND], max_postpones=3) == ["OK"]
    assert changed == {
        "g:delay:4": {"a": due},
        "g:due": {"4": due},
        "g:attempts": {"a": "2:1:0:1"},
        "g:inflight": {"a": None},
        "g:wake": {"1": 0},
        "counters": {"release:g": 1},
        "events": [f"release g w1 a 1,W,4,{due}"],
    }
    world.set_time(due)
    world.promote()
    assert world.lease().numbers == [(2, 1)]


def test_release_past_the_limit_of_postponements_changes_nothing(world: World) -> None:
    world.subscribe()
    receipts = world.leased("a", "b")
    assert world.release(receipts[0], delays_ms=[SECOND], max_postpones=1) == ["OK"]
    world.advance(SECOND)
    world.promote()
    world.lease()
    with world.changes() as changed:
        assert world.release(Receipt("a", 2), delays_ms=[SECOND], max_postpones=1) == ["LIMIT"]
    assert changed == {}
    assert world.release(Receipt("a", 2)) == ["OK"]
    assert world.release(receipts[1], delays_ms=[SECOND], max_postpones=0) == ["LIMIT"]


def test_release_mixes_what_goes_back_and_what_is_postponed(world: World) -> None:
    world.subscribe()
    receipts = world.leased("a", "b")
    assert world.release(*receipts, delays_ms=["", MINUTE], max_postpones=1) == ["OK", "OK"]
    state = world.state()
    assert (state["g:ready"], state["g:delay:5"]) == (["a"], {"b": START_MS + MINUTE})


def test_release_repeated_is_stale_and_of_a_message_that_ended_gone(world: World) -> None:
    world.subscribe()
    receipts = world.leased("a", "b", "c")
    world.succeed(receipts[1])
    world.fail(failure("c", level=-1))
    assert world.release(receipts[0]) == ["OK"]
    with world.changes() as changed:
        assert world.release(*receipts) == ["STALE", "GONE", "GONE"]
    assert changed == {}


def test_release_makes_the_old_receipt_stale_also_after_the_next_lease(world: World) -> None:
    world.subscribe()
    receipts = world.leased("a")
    world.release(*receipts)
    world.lease()
    assert world.release(*receipts) == ["STALE"]
    assert world.succeed(*first("a")) == ["STALE"]


def test_release_after_the_deadline_is_accepted_while_nobody_has_expired_it(world: World) -> None:
    world.subscribe()
    receipts = world.leased("a")
    world.advance(2 * VISIBILITY_MS)
    assert world.release(*receipts) == ["OK"]
    assert world.expire().moved == 0


def test_in_a_simple_group_a_release_is_bounded_and_needs_a_deadline_in_the_future(
    world: World,
) -> None:
    world.subscribe(kind="simple")
    a, b = world.leased("a", "b")
    with world.changes() as changed:
        assert world.release(a, max_postpones=1) == ["OK"]
    assert (changed["g:ready"], changed["g:attempts"]) == (["a"], {"a": "2:1:0:1"})
    world.lease(want=1)
    with world.changes() as changed:
        assert world.release(Receipt("a", 2), max_postpones=1) == ["LIMIT"]
        world.advance(VISIBILITY_MS)
        assert world.release(b, max_postpones=1) == ["STALE"]
    assert changed == {}
