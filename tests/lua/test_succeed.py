"""succeed: inflight -> committed."""

from rqretry.core.receipt import Receipt
from tests.support.builders import HOUR, failure, first, prepared
from tests.support.world import START_MS, VISIBILITY_MS, World


def test_succeed_deletes_the_body_and_the_lease(world: World) -> None:
    world.subscribe()
    receipts = world.leased("a", "b")
    with world.changes() as changed:
        assert world.succeed(receipts[0]) == ["OK"]
    assert changed == {
        "bodies": {"a": None},
        "g:inflight": {"a": None},
        "counters": {"succeed:g": 1},
        "events": ["succeed g w1 a"],
    }


def test_succeed_leaves_nothing_behind_of_a_message_that_failed_before(world: World) -> None:
    world.subscribe()
    world.publish(prepared("a", "x" * 9000, digest="d"))
    world.leased("a", publish=False)
    world.fail(failure("a"))
    world.advance(10_000)
    world.promote()
    world.lease()
    with world.changes() as changed:
        assert world.succeed(Receipt("a", 2)) == ["OK"]
    assert changed == {
        "bodies": {"a": None},
        "big": {"a": None},
        "id_expiry": {"a": START_MS + 10_000 + HOUR},
        "g:attempts": {"a": None},
        "g:failures": {"a": None},
        "g:inflight": {"a": None},
        "counters": {"succeed:g": 1},
        "events": ["succeed g w1 a 2"],
    }


def test_succeed_of_the_last_of_several_groups_deletes_the_body(world: World) -> None:
    for group in ("g", "h", "i"):
        world.subscribe(group)
    receipts = world.leased("a", group="g")
    world.lease(group="h")
    world.lease(group="i")
    with world.changes() as changed:
        world.succeed(*receipts, group="h")
    assert changed == {
        "pending": {"a": "ac"},
        "h:inflight": {"a": None},
        "counters": {"succeed:h": 1},
        "events": ["succeed h w1 a"],
    }
    world.succeed(*receipts, group="g")
    with world.changes() as changed:
        world.succeed(*receipts, group="i")
    assert changed == {
        "bodies": {"a": None},
        "pending": {"a": None},
        "i:inflight": {"a": None},
        "counters": {"succeed:i": 1},
        "events": ["succeed i w1 a"],
    }


def test_succeed_repeated_is_gone_for_one_group_and_for_several(world: World) -> None:
    world.subscribe("g")
    receipts = world.leased("a")
    world.subscribe("h")
    receipts += world.leased("b")
    assert world.succeed(*receipts) == ["OK", "OK"]
    with world.changes() as changed:
        assert world.succeed(*receipts) == ["GONE", "GONE"]
    assert changed == {"counters": {"stale:g": 2}}


def test_succeed_with_a_superseded_receipt_is_stale(world: World) -> None:
    world.subscribe()
    receipts = world.leased("a")
    world.advance(VISIBILITY_MS)
    world.expire()
    assert world.lease().numbers == [(2, 2)]
    with world.changes() as changed:
        assert world.succeed(*receipts) == ["STALE"]
        assert world.succeed(Receipt("a", 3)) == ["STALE"]
    assert changed == {"counters": {"stale:g": 2}}
    assert world.succeed(Receipt("a", 2)) == ["OK"]


def test_succeed_of_a_message_that_is_not_leased_is_stale(world: World) -> None:
    world.subscribe()
    world.publish("a")
    assert world.succeed(*first("a")) == ["STALE"]


def test_succeed_of_a_dead_letter_or_an_unknown_message_is_gone(world: World) -> None:
    world.subscribe()
    world.dead_letter("a")
    assert world.succeed(*first("a", "unknown"), Receipt("a", 2)) == ["GONE", "GONE", "GONE"]


def test_succeed_twice_in_one_call_commits_once(world: World) -> None:
    world.subscribe()
    receipts = world.leased("a")
    with world.changes() as changed:
        assert world.succeed(*receipts, *receipts) == ["OK", "STALE"]
    assert changed["counters"] == {"succeed:g": 1, "stale:g": 1}


def test_succeed_is_accepted_after_the_deadline_while_nobody_has_expired_it(world: World) -> None:
    world.subscribe()
    receipts = world.leased("a")
    world.advance(VISIBILITY_MS + 1)
    assert world.succeed(*receipts) == ["OK"]


def test_succeed_of_a_simple_consumer_needs_a_deadline_in_the_future(world: World) -> None:
    world.subscribe(kind="simple")
    receipts = world.leased("a", "b")
    world.advance(VISIBILITY_MS - 1)
    assert world.succeed(receipts[0], strict=True) == ["OK"]
    world.advance(1)
    with world.changes() as changed:
        assert world.succeed(receipts[1], strict=True) == ["STALE"]
    assert changed == {"counters": {"stale:g": 1}}


def test_succeed_of_nothing_is_nothing(world: World) -> None:
    world.subscribe()
    with world.changes() as changed:
        assert world.succeed() == []
    assert changed == {}


def test_succeed_notes_the_attempts_where_one_was_not_the_first(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.fail(failure("a"))
    world.advance(10_000)
    world.promote()
    world.publish("b")
    world.lease()
    assert world.succeed(Receipt("a", 2), Receipt("b", 1)) == ["OK", "OK"]
    assert world.history()[-1] == "succeed g w1 a b 2 1"
