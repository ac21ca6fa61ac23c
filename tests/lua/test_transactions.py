"""enlist, decide, finish, claim, defer: the records of transactions in the namespace's slot."""

from collections.abc import Callable
from typing import Any

import pytest

from rqretry.core.errors import AmbiguousResult, ScriptError
from rqretry.protocol import transaction
from rqretry.protocol.keys import NamespaceKeys
from rqretry.protocol.transaction import (
    COMMITTED,
    OPEN,
    PARKED,
    ROLLED_BACK,
    Claimed,
    Decided,
    Enlisted,
    Record,
    Terms,
)
from tests.conftest import ServerOf
from tests.lua.conftest import cut, world_on
from tests.support.builders import MINUTE, SECOND
from tests.support.lua_hooks import CLOCK_KEY, CUT_KEY
from tests.support.world import START_MS, World

KEYS = NamespaceKeys("test")
TERMS = Terms("shop", "t", 6 * SECOND, 30 * SECOND, 3)
LEASE_MS = 15 * SECOND
HOLD_MS = 10 * SECOND
KEPT_MS = 10 * MINUTE
HERE, THERE = ("t", 0), ("t", 1)


@pytest.fixture
def space(world: World) -> World:
    set_time(world, START_MS)
    return world


def set_time(world: World, now_ms: int) -> None:
    world.now = now_ms
    key = f"{CLOCK_KEY}:{{test}}" if world.backend.clock_in_slot else CLOCK_KEY
    world.client.set(key, now_ms)


def advance(world: World, ms: int) -> None:
    set_time(world, world.now + ms)


def enlist(
    world: World,
    id_: str = "a",
    place: tuple[str, int] = HERE,
    *,
    known: bool = False,
    terms: Terms = TERMS,
    seen_ms: int | None = None,
) -> Enlisted:
    seen_ms = world.now if seen_ms is None else seen_ms
    command = transaction.enlist(KEYS, id_, place, terms, known=known, worker="p1", seen_ms=seen_ms)
    return world.run(command)


def decide(world: World, decision: str, id_: str = "a", **options: Any) -> Decided:
    command = transaction.decide(
        KEYS, id_, "shop", decision, worker="w1", lease_ms=LEASE_MS, **options
    )
    return world.run(command)


def finish(world: World, *places: tuple[str, int], id_: str = "a") -> int:
    return world.run(transaction.finish(KEYS, id_, places))


def claim(world: World, *groups: str, limit: int = 10, expected_ms: int | None = None) -> Claimed:
    command = transaction.claim(
        KEYS, groups, lease_ms=LEASE_MS, limit=limit, expected_ms=expected_ms, hold_ms=HOLD_MS
    )
    return world.run(command)


def defer(world: World, number: int, reason: str = "not yet", id_: str = "a") -> str:
    return world.run(transaction.defer(KEYS, id_, "shop", claim=number, reason=reason))


def record(world: World, id_: str = "a") -> Record:
    found = world.run(transaction.read(KEYS, id_))
    assert found is not None
    return found


def index(world: World, key: str) -> dict[str, int]:
    scored = world.client.zrange(key, 0, -1, withscores=True)
    return {member.decode(): int(score) for member, score in scored}


def indexes(world: World) -> dict[str, dict[str, int]]:
    named = {
        "open": KEYS.open_transactions,
        "checks": KEYS.checks("shop"),
        "unfinished": KEYS.unfinished_transactions,
        "parked": KEYS.parked_transactions,
        "finished": KEYS.finished_transactions,
    }
    return {name: found for name, key in named.items() if (found := index(world, key))}


def test_enlist_opens_a_transaction_that_is_checked_after_its_time(space: World) -> None:
    assert enlist(space) == Enlisted("OK")
    assert record(space) == Record("a", OPEN, TERMS, "p1", START_MS, 0, 0, None, "", "", (HERE,))
    assert indexes(space) == {"open": {"a": START_MS}, "checks": {"a": START_MS + 6 * SECOND}}


def test_enlist_notes_each_place_once_and_does_not_put_off_the_check(space: World) -> None:
    enlist(space)
    advance(space, SECOND)
    enlist(space, place=THERE, known=True)
    enlist(space, place=THERE, known=True)
    assert record(space).partitions == (HERE, THERE)
    assert indexes(space)["checks"] == {"a": START_MS + 6 * SECOND}


def test_enlist_in_a_transaction_that_must_be_there_and_is_not_is_gone(space: World) -> None:
    assert enlist(space, known=True) == Enlisted("GONE")
    assert space.run(transaction.read(KEYS, "a")) is None


def test_enlist_that_arrives_when_the_decision_is_forgotten_opens_nothing(space: World) -> None:
    sent = space.now
    enlist(space, seen_ms=sent)
    decide(space, ROLLED_BACK)
    space.run(transaction.finish(KEYS, "a", [HERE]))
    advance(space, 10 * MINUTE)
    enlist(space, "b")
    assert enlist(space, seen_ms=sent) == Enlisted("LATE", now_ms=space.now)
    assert enlist(space, seen_ms=space.now + 1) == Enlisted("LATE", now_ms=space.now)
    assert space.run(transaction.read(KEYS, "a")) is None


@pytest.mark.parametrize("decision", [COMMITTED, ROLLED_BACK])
def test_enlist_in_a_decided_transaction_reports_who_decided(space: World, decision: str) -> None:
    enlist(space)
    decide(space, decision, reason="so it is")
    assert enlist(space, place=THERE, known=True) == Enlisted(decision, "w1", "so it is")
    assert record(space).partitions == (HERE,)


@pytest.mark.parametrize("decision", [COMMITTED, ROLLED_BACK])
def test_a_decision_holds_and_repeating_it_is_already_done(space: World, decision: str) -> None:
    enlist(space)
    advance(space, SECOND)
    now = space.now
    assert decide(space, decision) == Decided("OK", now, (HERE,))
    assert indexes(space) == {"open": {"a": START_MS}, "unfinished": {"a": now + LEASE_MS}}
    advance(space, SECOND)
    assert decide(space, decision) == Decided("ALREADY", now, (HERE,))
    other = ROLLED_BACK if decision == COMMITTED else COMMITTED
    assert decide(space, other) == Decided("CONFLICT", now, (), decision, "w1", "")
    assert record(space).state == decision


def test_decide_about_nothing_is_gone(space: World) -> None:
    assert decide(space, COMMITTED) == Decided("GONE")


def test_finish_of_the_last_place_forgets_the_transaction_after_ten_minutes(space: World) -> None:
    enlist(space)
    enlist(space, place=THERE, known=True)
    decide(space, COMMITTED)
    assert finish(space, HERE) == 1
    assert record(space).partitions == (THERE,)
    assert finish(space, THERE) == 0
    assert indexes(space) == {"finished": {"a": START_MS + KEPT_MS}}
    assert decide(space, COMMITTED) == Decided("ALREADY", START_MS, ())
    advance(space, KEPT_MS)
    enlist(space, "b")
    assert space.run(transaction.read(KEYS, "a")) is None
    assert "finished" not in indexes(space)
    assert finish(space, HERE) == 0


def test_finish_tidies_what_a_decision_that_was_cut_has_left(space: World) -> None:
    enlist(space)
    decide(space, COMMITTED)
    space.client.zadd(KEYS.parked_transactions, {"a": START_MS})
    assert finish(space, HERE) == 0
    assert indexes(space) == {"finished": {"a": START_MS + KEPT_MS}}


def test_finish_of_what_is_not_decided_changes_nothing(space: World) -> None:
    enlist(space)
    assert finish(space, HERE) == 0
    assert record(space).partitions == (HERE,)


def test_claim_takes_what_is_to_be_checked_and_nobody_else_gets_it(space: World) -> None:
    enlist(space)
    assert claim(space, "shop")[:3] == (6 * SECOND, [], [])
    advance(space, 6 * SECOND)
    taken = claim(space, "shop")
    assert [(r.id, r.checks, r.claim) for r in taken.records] == [("a", 1, 1)]
    assert claim(space, "shop")[:3] == (LEASE_MS, [], [])


def test_claim_of_other_groups_leaves_it(space: World) -> None:
    enlist(space)
    advance(space, 6 * SECOND)
    assert claim(space, "other")[:3] == (None, [], [])
    assert claim(space)[:3] == (None, [], [])


def test_claim_answers_when_the_first_of_several_groups_is_due(space: World) -> None:
    enlist(space)
    enlist(space, "b", terms=TERMS._replace(group="later", after_ms=9 * SECOND))
    assert claim(space, "shop", "later").next_due_ms == 6 * SECOND
    assert claim(space, "later", "shop").next_due_ms == 6 * SECOND


def test_a_claim_that_is_not_answered_comes_again_and_counts(space: World) -> None:
    enlist(space)
    advance(space, 6 * SECOND)
    for number in (1, 2, 3):
        assert [r.checks for r in claim(space, "shop").records] == [number]
        advance(space, LEASE_MS)
    assert claim(space, "shop")[:3] == (None, [], ["a"])
    assert record(space).state == PARKED
    assert indexes(space) == {"open": {"a": START_MS}, "parked": {"a": space.now}}


def test_defer_checks_again_later_and_parks_after_the_last_check(space: World) -> None:
    enlist(space)
    advance(space, 6 * SECOND)
    for number in (1, 2):
        claim(space, "shop")
        assert defer(space, number, "not\tyet\nknown") == "OK"
        assert record(space).reason == "not yet known"
        assert indexes(space)["checks"] == {"a": space.now + 30 * SECOND}
        advance(space, 30 * SECOND)
    claim(space, "shop")
    assert defer(space, 3) == "PARKED"
    found = record(space)
    assert (found.state, found.checks, found.reason) == (PARKED, 3, "not yet")
    assert indexes(space) == {"open": {"a": START_MS}, "parked": {"a": space.now}}
    advance(space, 1000 * MINUTE)
    assert claim(space, "shop")[:3] == (None, [], [])


@pytest.mark.parametrize("decision", [COMMITTED, ROLLED_BACK])
def test_a_parked_transaction_is_still_anybodys_to_decide(space: World, decision: str) -> None:
    enlist(space, terms=TERMS._replace(most=1))
    advance(space, 6 * SECOND)
    claim(space, "shop")
    assert defer(space, 1) == "PARKED"
    assert enlist(space, place=THERE, known=True) == Enlisted("OK")
    assert decide(space, decision) == Decided("OK", space.now, (HERE, THERE))
    assert "parked" not in indexes(space)


def test_a_checker_whose_turn_is_over_decides_nothing(space: World) -> None:
    enlist(space)
    advance(space, 6 * SECOND)
    claim(space, "shop")
    advance(space, LEASE_MS)
    claim(space, "shop")
    assert decide(space, COMMITTED, claim=1) == Decided("STALE")
    assert defer(space, 1) == "STALE"
    assert record(space).state == OPEN
    assert decide(space, COMMITTED, claim=2).status == "OK"
    assert defer(space, 2) == "STALE"


def test_anybody_claims_a_decision_that_was_cut_off(space: World) -> None:
    enlist(space)
    decide(space, COMMITTED)
    assert claim(space)[:3] == (LEASE_MS, [], [])
    advance(space, LEASE_MS)
    (found,) = claim(space).records
    assert (found.state, found.partitions) == (COMMITTED, (HERE,))


def test_claim_forgets_a_decision_that_was_cut_before_it_was_written(space: World) -> None:
    enlist(space)
    space.client.zadd(KEYS.unfinished_transactions, {"a": 0, "never": 0})
    assert claim(space)[:3] == (None, [], [])
    assert "unfinished" not in indexes(space)


def test_claim_takes_a_bounded_number(space: World) -> None:
    for id_ in "abc":
        enlist(space, id_)
    advance(space, 6 * SECOND)
    assert len(claim(space, "shop", limit=2).records) == 2
    assert len(claim(space, "shop", limit=2).records) == 1


def opened(world: World) -> None:
    enlist(world)


def due(world: World) -> None:
    enlist(world)
    advance(world, 6 * SECOND)


def claimed(world: World) -> None:
    due(world)
    claim(world, "shop")


def last_claimed(world: World) -> None:
    enlist(world, terms=TERMS._replace(most=1))
    advance(world, 6 * SECOND)
    claim(world, "shop")


def last_parked(world: World) -> None:
    last_claimed(world)
    defer(world, 1)


def committed(world: World) -> None:
    enlist(world)
    decide(world, COMMITTED)


Act = Callable[[World], object]
CUTS: dict[str, tuple[Act, Act]] = {
    "enlist": (lambda w: None, enlist),
    "enlist again": (opened, lambda w: enlist(w, place=THERE, known=True)),
    "decide": (opened, lambda w: decide(w, COMMITTED)),
    "decide parked": (
        last_parked,
        lambda w: decide(w, ROLLED_BACK),
    ),
    "finish": (committed, lambda w: finish(w, HERE)),
    "defer": (claimed, lambda w: defer(w, 1)),
    "defer for good": (last_claimed, lambda w: defer(w, 1)),
}


@pytest.mark.parametrize("name", CUTS)
def test_a_cut_anywhere_and_a_repeat_are_as_good_as_one_call(
    server_of: ServerOf, name: str
) -> None:
    start, act = CUTS[name]
    wanted: Any = None
    for call in range(30):
        world = world_on(server_of, "redis-7", cut())
        set_time(world, START_MS)
        start(world)
        was_cut = cut_at(world, act, call)
        act(world)
        if name == "defer for good" and "checks" in indexes(world):
            advance(world, LEASE_MS)  # the cut was before the last index, which a claim tidies
            claim(world, "shop")
        seen = (record(world), indexes(world))
        wanted = wanted or seen  # call 0 is never made: nothing was cut
        assert seen == wanted
        if call and not was_cut:
            assert call > 2, "the script made no calls that could be cut"
            return
    pytest.fail("it makes too many calls")


def test_a_claim_that_is_cut_anywhere_is_taken_by_the_next_one(server_of: ServerOf) -> None:
    for call in range(1, 30):
        world = world_on(server_of, "redis-7", cut())
        set_time(world, START_MS)
        due(world)
        was_cut = cut_at(world, lambda w: claim(w, "shop"), call)
        if not was_cut:
            return
        advance(world, LEASE_MS)
        assert [r.id for r in claim(world, "shop").records] == ["a"]
    pytest.fail("it makes too many calls")


def cut_at(world: World, act: Act, call: int) -> bool:
    world.client.set(CUT_KEY, call)
    try:
        act(world)
    except (ScriptError, AmbiguousResult):
        return True
    finally:
        world.client.delete(CUT_KEY)
    return False
