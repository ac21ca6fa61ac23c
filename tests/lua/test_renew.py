"""renew: inflight -> inflight, with a later deadline and the same receipt."""

from rqretry.core.receipt import Receipt
from tests.support.builders import MINUTE, SECOND, failure, first
from tests.support.world import START_MS, VISIBILITY_MS, World


def test_renew_pushes_the_deadline_and_leaves_the_receipt_valid(world: World) -> None:
    world.subscribe()
    receipts = world.leased("a", "b")
    world.advance(10 * SECOND)
    with world.changes() as changed:
        assert world.renew(*receipts) == ["OK", "OK"]
    deadline = START_MS + 10 * SECOND + VISIBILITY_MS
    assert changed == {"g:inflight": {"a": deadline, "b": deadline}}
    assert world.succeed(*receipts) == ["OK", "OK"]


def test_renew_never_shortens_a_lease(world: World) -> None:
    world.subscribe()
    receipts = world.leased("a")
    with world.changes() as changed:
        assert world.renew(*receipts, visibility_ms=SECOND) == ["OK"]
    assert changed == {}


def test_renew_is_accepted_after_the_deadline_while_nobody_has_expired_it(world: World) -> None:
    world.subscribe()
    receipts = world.leased("a")
    world.advance(2 * VISIBILITY_MS)
    assert world.renew(*receipts) == ["OK"]
    assert world.expire().moved == 0


def test_renew_of_a_lease_that_ended_is_stale_and_of_a_message_that_ended_gone(
    world: World,
) -> None:
    world.subscribe()
    world.leased("a", "b", "c", "d")
    world.succeed(*first("a"))
    world.fail(failure("b"), failure("c", level=-1))
    with world.changes() as changed:
        verdicts = world.renew(*first("a", "b", "c", "d"), Receipt("d", 2), Receipt("d", 1))
    assert verdicts == ["GONE", "STALE", "GONE", "OK", "STALE", "STALE"]
    assert changed == {}


def test_renew_of_what_this_group_has_finished_with_is_gone_though_another_owes_it(
    world: World,
) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.succeed(*world.leased("a"))
    assert world.renew(*first("a")) == ["GONE"]


def test_renew_of_nothing_is_nothing(world: World) -> None:
    world.subscribe()
    assert world.renew() == []


def test_renew_keeps_time_from_running_back(world: World) -> None:
    world.subscribe()
    receipts = world.leased("a")
    world.advance(10 * SECOND)
    world.renew(*receipts)
    world.set_time(START_MS - MINUTE)
    world.renew(*receipts)
    assert world.state()["g:inflight"] == {"a": START_MS + 10 * SECOND + VISIBILITY_MS}
    assert world.expire().now_ms == START_MS + 10 * SECOND
