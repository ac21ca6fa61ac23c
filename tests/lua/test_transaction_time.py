"""The records of transactions when the server's clock steps."""

import pytest

from rqretry.protocol.transaction import COMMITTED
from tests.lua.test_transactions import (
    HOLD_MS,
    LEASE_MS,
    advance,
    claim,
    decide,
    defer,
    enlist,
    set_time,
)
from tests.support.builders import HOUR, MINUTE, SECOND
from tests.support.world import START_MS, World


@pytest.fixture(autouse=True)
def opened(world: World) -> None:
    """A transaction that is checked after 6 s, and then every 30 s."""
    set_time(world, START_MS)
    enlist(world)


def taken(world: World, expected_ms: int | None = None) -> list[str]:
    return [one.id for one in claim(world, "shop", expected_ms=expected_ms).records]


def test_time_moves_on_where_transactions_are_only_looked_at(world: World) -> None:
    set_time(world, START_MS - MINUTE)
    assert taken(world) == []
    advance(world, 7 * SECOND)
    assert taken(world) == ["a"]


def test_a_decision_is_later_than_any_before_it_although_the_clock_goes_back(world: World) -> None:
    enlist(world, "b")
    advance(world, MINUTE)
    decide(world, COMMITTED)
    set_time(world, START_MS)
    assert decide(world, COMMITTED, "b").decided_ms == START_MS + MINUTE


def test_a_decision_is_not_before_its_transaction_although_the_clock_goes_back(
    world: World,
) -> None:
    advance(world, MINUTE)
    enlist(world, "b")
    set_time(world, START_MS)
    assert decide(world, COMMITTED, "b").decided_ms == START_MS + MINUTE


def test_what_is_answered_late_is_not_before_it_although_the_clock_goes_back(world: World) -> None:
    advance(world, MINUTE)
    assert enlist(world, "b", seen_ms=START_MS + HOUR).now_ms == START_MS + MINUTE
    set_time(world, START_MS)
    assert enlist(world, "b", seen_ms=START_MS + HOUR).now_ms == START_MS + MINUTE


def test_nothing_is_claimed_in_a_jump_that_comes_back(world: World) -> None:
    set_time(world, START_MS + SECOND + HOUR)
    expected = START_MS + SECOND
    assert claim(world, "shop", expected_ms=expected) == (HOLD_MS, [], [], expected)
    advance(world, 5 * SECOND)
    assert claim(world, "shop").next_due_ms == HOLD_MS - 5 * SECOND
    set_time(world, START_MS + 6 * SECOND)
    assert taken(world, START_MS + 5 * SECOND) == ["a"]
    assert taken(world) == []
    advance(world, LEASE_MS)
    assert taken(world) == ["a"]


def test_what_is_due_is_claimed_soon_after_a_jump_that_stays(world: World) -> None:
    set_time(world, START_MS + SECOND + HOUR)
    assert taken(world, START_MS + SECOND) == []
    advance(world, HOLD_MS)
    assert taken(world, START_MS + SECOND) == ["a"]


def test_a_jump_that_somebody_noted_holds_nothing_once_the_clock_is_back(world: World) -> None:
    set_time(world, START_MS + SECOND + HOUR)
    assert taken(world, START_MS + SECOND) == []
    enlist(world, "b")  # a first call, which expects nothing, notes it
    set_time(world, START_MS + 2 * SECOND)
    found = claim(world, "shop", expected_ms=START_MS + 2 * SECOND)
    assert [one.id for one in found.records] == ["a"]
    advance(world, 7 * SECOND)
    assert "b" in taken(world, found[3] + 7 * SECOND)


def test_a_claim_within_a_jump_lasts_no_longer_once_the_clock_is_back(world: World) -> None:
    set_time(world, START_MS + 6 * SECOND + HOUR)
    assert taken(world) == ["a"]  # a first look, which expects nothing
    set_time(world, START_MS + 6 * SECOND)
    assert claim(world, "shop").next_due_ms == LEASE_MS


def test_a_check_is_put_off_by_no_more_once_the_clock_is_back(world: World) -> None:
    advance(world, 6 * SECOND)
    assert taken(world) == ["a"]
    set_time(world, START_MS + 6 * SECOND + HOUR)
    assert defer(world, 1) == "OK"
    set_time(world, START_MS + 6 * SECOND)
    assert claim(world, "shop").next_due_ms == 30 * SECOND


def test_who_looks_again_makes_up_for_what_a_step_back_would_undo(world: World) -> None:
    set_time(world, START_MS + 6 * SECOND - HOUR)  # nobody has noted the 6 s
    assert taken(world, START_MS + 6 * SECOND) == ["a"]
