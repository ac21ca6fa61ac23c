"""change_visibility: inflight -> inflight with a new receipt, or -> ready."""

from rqretry.core.receipt import Receipt
from tests.support.builders import SECOND, failure
from tests.support.world import START_MS, VISIBILITY_MS, World


def test_change_moves_the_deadline_from_now_and_makes_a_new_receipt(world: World) -> None:
    world.subscribe(kind="simple")
    (receipt,) = world.leased("a")
    world.advance(10 * SECOND)
    deadline = START_MS + 15 * SECOND
    with world.changes() as changed:
        assert world.change(receipt, 5 * SECOND) == 2
    assert changed == {
        "g:inflight": {"a": deadline},
        "g:attempts": {"a": "2:1:0:0"},
        "g:wake": {"1": 0},
        "counters": {"change:g": 1},
        "events": [f"change g w1 a 1,{deadline}"],
    }
    assert world.succeed(receipt, strict=True) == ["STALE"]
    assert world.succeed(Receipt("a", 2), strict=True) == ["OK"]


def test_change_to_a_later_deadline_wakes_nobody(world: World) -> None:
    world.subscribe(kind="simple")
    (receipt,) = world.leased("a")
    with world.changes() as changed:
        assert world.change(receipt, 60 * SECOND) == 2
    assert changed["g:inflight"] == {"a": START_MS + 60 * SECOND}
    assert "g:wake" not in changed


def test_change_to_nothing_is_a_failed_attempt_and_the_message_is_ready(world: World) -> None:
    world.subscribe(kind="simple")
    (receipt,) = world.leased("a")
    with world.changes() as changed:
        assert world.change(receipt, 0) == 2
    assert changed == {
        "g:retry": ["a"],
        "g:inflight": {"a": None},
        "g:attempts": {"a": "3:2:0:0"},
        "g:failures": {"a": f'1 {START_MS}+0 {{"c":"given_back"}}\n'},
        "g:wake": {"1": 0},
        "counters": {"fail:g": 1},
        "events": ["fail g w1 a 1,R"],
    }
    # Nobody ever holds lease 2, whose receipt was answered: it cannot settle for the next holder.
    assert world.lease().numbers == [(3, 2)]


def test_change_to_nothing_goes_behind_the_retries_that_wait(world: World) -> None:
    world.subscribe(kind="simple")
    a, b = world.leased("a", "b")
    world.change(a, 0)
    with world.changes() as changed:
        assert world.change(b, 0) == 2
    assert changed["g:retry"] == ["a", "b"]
    assert "g:wake" not in changed


def test_change_to_nothing_after_the_last_delivery_is_dead_with_its_record(world: World) -> None:
    world.subscribe(kind="simple", max_retries=1)
    world.leased("a")
    world.advance(VISIBILITY_MS)
    world.expire()
    world.lease()
    with world.changes() as changed:
        answer = world.changed(Receipt("a", 2), 0)
    now = START_MS + VISIBILITY_MS
    assert (answer.lease_no, answer.now_ms, answer.dead) == (3, now, ("a",))
    assert changed["g:dead"] == {"a": now}
    record = f'1 {now}+0 {{"c":"expired"}}\n2 {now} {{"c":"given_back"}}\n'
    assert changed["g:failures"] == {"a": record}
    assert changed["g:graves"] == {"a": "2 given_back 042ae7e69d7418d9"}
    assert changed["counters"] == {"fail:g": 1, "dead:g": 1}
    assert changed["events"] == ["fail g w1 a 2,D"]
    assert "g:retry" not in changed


def test_change_needs_a_deadline_in_the_future(world: World) -> None:
    world.subscribe(kind="simple")
    (receipt,) = world.leased("a")
    world.advance(VISIBILITY_MS)
    with world.changes() as changed:
        assert world.change(receipt, 5 * SECOND) == "STALE"
    assert changed == {}


def test_change_with_a_superseded_receipt_is_stale_and_of_an_ended_message_gone(
    world: World,
) -> None:
    world.subscribe(kind="simple")
    (a, b, c) = world.leased("a", "b", "c")
    world.change(a, 5 * SECOND)
    world.succeed(b)
    world.fail(failure("c", level=-1))
    with world.changes() as changed:
        assert [world.change(r, SECOND) for r in (a, b, c)] == ["STALE", "GONE", "GONE"]
    assert changed == {}


def test_change_to_nothing_answers_a_receipt_that_never_names_a_lease(world: World) -> None:
    world.subscribe(kind="simple")
    (receipt,) = world.leased("a")
    answered = world.change(receipt, 0)
    assert isinstance(answered, int)
    (numbers,) = world.lease().numbers
    assert numbers[0] != answered
    assert world.succeed(Receipt("a", answered)) == ["STALE"]
    assert world.succeed(Receipt("a", numbers[0])) == ["OK"]
