"""prepare, commit, rollback: the halves of transactions in a partition."""

from collections.abc import Callable, Sequence

import pytest

from rqretry.checks.auditor import Defect
from rqretry.core.errors import AmbiguousResult, ScriptError
from rqretry.core.history_notes import Noted
from rqretry.core.receipt import Receipt
from rqretry.core.route import Route
from rqretry.protocol import transaction
from rqretry.protocol.publish import Prepared
from rqretry.protocol.transaction import Half, PreparedHalves
from tests.conftest import ServerOf
from tests.lua.conftest import cut, refused, world_on
from tests.support.builders import HOUR, MINUTE, SECOND, failure, prepared
from tests.support.lua_hooks import CUT_KEY
from tests.support.world import START_MS, World

TX, OTHER = "tx1", "tx2"
KEPT_MS = 10 * MINUTE


def halves(*messages: str | Prepared, first: int = 1, tag: str = "") -> list[Half]:
    made = [prepared(m) if isinstance(m, str) else m for m in messages]
    return [Half(number, message, tag, "") for number, message in enumerate(made, start=first)]


def prepare(
    world: World,
    batch: Sequence[Half],
    tx: str = TX,
    route: Route | None = None,
    seen_ms: int | None = None,
) -> PreparedHalves:
    seen_ms = world.now if seen_ms is None else seen_ms
    command = transaction.prepare(
        world.keys, route or world.route, tx, batch, worker="w1", seen_ms=seen_ms
    )
    return world.run(command)


def commit(world: World, tx: str = TX, limit: int = 500) -> tuple[int, int]:
    command = transaction.commit(world.keys, tx, worker="w1", decided_ms=world.now, limit=limit)
    return world.run(command)


def rollback(world: World, tx: str = TX, limit: int = 500) -> tuple[int, int]:
    return world.run(transaction.rollback(world.keys, tx, worker="w1", limit=limit))


def unexplained(world: World) -> list[Defect]:
    """What fsck finds beside halves whose transaction has no record in this partition's world."""
    return [f for f in world.findings() if f.kind != "orphan half"]


@pytest.fixture
def half(world: World) -> World:
    """A world whose halves have no records, which the auditor rightly finds."""
    world.damaged = True
    return world


def test_prepare_stores_messages_that_no_group_sees(half: World) -> None:
    half.subscribe()
    with half.changes() as changed:
        answer = prepare(half, halves(prepared("a", "x" * 9000, digest="d"), tag="red"))
    assert answer == PreparedHalves("OK", "A")
    member = f"{TX} 00000001 a red "
    assert changed == {
        "bodies": {"a": "x" * 9000},
        "big": {"a": "9000"},
        "ids": {"a": "d"},
        "halves": {member: 0},
        "half_of": {"a": member},
        "counters": {"prepare": 1},
        "events": ["prepare  w1 a"],
    }
    assert half.lease().ids == []
    assert unexplained(half) == []


def test_prepare_repeated_is_answered_as_before_and_changes_nothing(half: World) -> None:
    half.subscribe()
    batch = halves("a", prepared("b", digest="d"))
    assert prepare(half, batch).verdicts == "AA"
    with half.changes() as changed:
        assert prepare(half, batch).verdicts == "AA"
    assert changed == {}


def test_prepare_by_a_stale_route_writes_nothing_and_reports_the_new_one(half: World) -> None:
    half.subscribe()
    with half.changes() as changed:
        answer = prepare(half, halves("a"), route=Route())
    assert (answer.status, answer.route) == ("STALE_ROUTE", half.route)
    assert changed == {}


def test_prepare_of_an_id_that_was_published_is_a_duplicate_or_a_conflict(half: World) -> None:
    half.subscribe()
    half.publish(prepared("a", digest="d"))
    with half.changes() as changed:
        batch = halves(prepared("a", digest="d"), prepared("a", digest="other"))
        assert prepare(half, batch).verdicts == "DC"
    assert changed == {}


def test_prepare_of_an_id_twice_in_a_transaction_stores_it_once(half: World) -> None:
    half.subscribe()
    twice = halves(prepared("a", digest="d"), prepared("a", digest="d"))
    assert prepare(half, twice).verdicts == "AD"
    assert prepare(half, halves(prepared("a", digest="d"), first=3)).verdicts == "D"
    assert commit(half) == (1, 0)


def test_prepare_of_an_id_that_another_open_transaction_has_is_refused(half: World) -> None:
    half.subscribe()
    prepare(half, halves(prepared("a", digest="d")))
    with half.changes() as changed:
        assert prepare(half, halves(prepared("a", digest="d")), OTHER).verdicts == "H"
    assert changed == {}


def test_prepare_past_the_limit_of_the_topic_stores_nothing(half: World) -> None:
    half.subscribe()
    half.client.hset(half.keys.meta, "most", 1)
    with half.changes() as changed:
        answer = prepare(half, halves("a", "b"))
    assert (answer.status, answer.stored, answer.limit) == ("FULL", 0, 1)
    assert changed == {}


def test_prepare_counts_what_the_topic_has_stored_already(half: World) -> None:
    half.subscribe()
    half.publish("a")
    half.client.hset(half.keys.meta, "most", 2)
    answer = prepare(half, halves("b", "c"))
    assert (answer.status, answer.stored, answer.limit) == ("FULL", 1, 2)


def test_prepare_of_an_id_whose_hour_is_over_is_remembered_anew(half: World) -> None:
    half.subscribe()
    half.publish(prepared("a", digest="d"))
    half.succeed(*half.leased("a", publish=False))
    half.advance(HOUR)
    with half.changes() as changed:
        assert prepare(half, halves(prepared("a", digest="d"))).verdicts == "A"
    assert changed["id_expiry"] == {"a": None}


@pytest.mark.parametrize("decide", [commit, rollback], ids=["committed", "rolled back"])
def test_prepare_after_the_decision_is_refused(half: World, decide: object) -> None:
    half.subscribe()
    decide(half)  # type: ignore[operator]
    with half.changes() as changed:
        assert prepare(half, halves("a")).status == "CLOSED"
    assert changed == {}
    assert half.state()["closed"] == {TX: START_MS + KEPT_MS}


@pytest.mark.parametrize("decide", [commit, rollback], ids=["committed", "rolled back"])
def test_prepare_that_arrives_when_the_decision_is_forgotten_is_refused(
    half: World, decide: Callable[[World], object]
) -> None:
    half.subscribe()
    sent = half.now
    assert prepare(half, halves("a"), seen_ms=sent).verdicts == "A"
    decide(half)
    half.advance(KEPT_MS)
    half.sweep()
    assert half.state().get("closed", {}) == {}
    with half.changes() as changed:
        assert prepare(half, halves("a"), seen_ms=sent) == PreparedHalves("LATE", now_ms=half.now)
    assert changed == {}


def test_prepare_is_taken_at_the_time_that_it_was_told_though_the_wall_went_back(
    half: World,
) -> None:
    half.subscribe()
    half.advance(HOUR)
    told = prepare(half, halves("a"), seen_ms=0).now_ms
    half.set_time(START_MS)
    assert prepare(half, halves("a"), seen_ms=told).verdicts == "A"


def test_prepare_is_told_the_time_where_its_caller_has_another_one(half: World) -> None:
    half.subscribe()
    for other in (0, half.now - KEPT_MS, half.now + 1):
        assert prepare(half, halves("a"), seen_ms=other) == PreparedHalves("LATE", now_ms=half.now)
    assert prepare(half, halves("a"), seen_ms=half.now - KEPT_MS + 1).verdicts == "A"


def test_commit_makes_the_halves_due_in_the_order_of_their_numbers(half: World) -> None:
    half.subscribe()
    prepare(half, halves("c", "a"))
    prepare(half, halves("b", first=3), OTHER)
    prepare(half, halves("d", first=10))
    with half.changes() as changed:
        assert commit(half) == (3, 0)
    assert sorted(changed) == ["closed", "counters", "events", "half_of", "halves", "scheduled"]
    assert changed["counters"] == {"commit": 3}
    assert changed["events"] == ["commit  w1 c a d"]
    due = changed["scheduled"]
    assert sorted(due, key=due.get) == ["c", "a", "d"]
    assert all(START_MS - 8 <= at <= START_MS for at in due.values())
    assert set(half.state()["half_of"]) == {"b"}
    assert half.deliver()[:2] == ("OK", 3)
    assert half.lease().ids == ["c", "a", "d"]


def test_commit_keeps_the_tag_with_the_message(half: World) -> None:
    half.subscribe()
    prepare(half, halves("a", tag="red"))
    commit(half)
    assert list(half.state()["scheduled"]) == ["a red"]


def test_commit_and_rollback_take_bounded_batches(half: World) -> None:
    prepare(half, halves("a", "b", "c"))
    assert [commit(half, limit=2), commit(half, limit=2), commit(half, limit=2)] == [
        (2, 1), (1, 0), (0, 0),
    ]  # fmt: skip
    prepare(half, halves("d", "e", "f"), OTHER)
    assert [rollback(half, OTHER, 2), rollback(half, OTHER, 2)] == [(2, 1), (1, 0)]


def test_rollback_leaves_nothing_of_the_transaction(half: World) -> None:
    half.subscribe()
    before = half.state()
    prepare(half, halves(prepared("a", "x" * 9000, digest="d"), "b"))
    assert rollback(half) == (2, 0)
    after = half.state()
    assert after.pop("closed") == {TX: START_MS + KEPT_MS}
    assert after.pop("counters") == {"prepare": "2", "rollback": "2"}
    assert after.pop("events") == ["prepare  w1 a b", "rollback  w1 a b"]
    assert after == before


def test_an_id_that_was_rolled_back_can_be_published_again(half: World) -> None:
    half.subscribe()
    prepare(half, halves(prepared("a", digest="d")))
    rollback(half)
    assert half.publish(prepared("a", digest="d")).verdicts == ""
    assert half.lease().ids == ["a"]


def test_publishing_the_id_of_an_undecided_half_is_refused_and_leaves_no_trace(half: World) -> None:
    half.subscribe()
    prepare(half, halves(prepared("a", digest="d")))
    with half.changes() as changed:
        answer = half.publish(prepared("a", digest="d"), prepared("b", digest="d"), seq=1)
    assert (answer.status, answer.verdicts) == ("OK", "HA")
    assert {key: value for key, value in changed.items() if not key.startswith("lane")} == {
        "bodies": {"b": "body of b"},
        "ids": {"b": "d"},
        "g:ready": ["b"],
        "g:wake": {"1": 0},
        "counters": {"publish:g": 1},
        "events": ["publish  p b"],
    }
    again = half.publish(prepared("a", digest="d"), prepared("b", digest="d"), seq=1)
    assert (again.status, again.verdicts) == ("DUPLICATE", "HA")
    assert half.publish(prepared("a", "other", digest="e"), seq=2).verdicts == "H"
    assert unexplained(half) == []


def test_once_a_half_is_committed_its_id_is_known_like_any_other(half: World) -> None:
    half.subscribe()
    prepare(half, halves(prepared("a", digest="d")))
    commit(half)
    assert half.publish(prepared("a", digest="d")).verdicts == "D"
    assert half.publish(prepared("a", "other", digest="e")).verdicts == "C"


def test_a_committed_message_retries_like_any_other(half: World) -> None:
    half.subscribe()
    prepare(half, halves("a"))
    commit(half)
    half.deliver()
    half.lease()
    half.advance(31 * SECOND)
    assert half.expire().moved == 1
    assert half.lease(prefer="retry").numbers == [(2, 2)]


def test_a_committed_message_of_a_message_group_that_nobody_wants_leaves_nothing(
    half: World,
) -> None:
    half.subscribe("g", tags="red", ordered=True)
    before = half.state()
    prepare(half, [Half(1, prepared("a"), "blue", "m")])
    commit(half)
    assert half.deliver()[:2] == ("OK", 1)
    assert unexplained(half) == []
    after = half.state()
    assert after.pop("closed") == {TX: START_MS + KEPT_MS}
    assert after.pop("counters") == {"prepare": "1", "commit": "1", "filtered:g": "1"}
    del after["events"]
    assert after == before


def test_purging_a_dead_letter_sends_nobody_out_beside_the_head_of_its_message_group(
    half: World,
) -> None:
    """Here the next in line stands in front of the head: it was committed before that came."""
    half.subscribe(ordered=True)
    half.publish(_in_group("d"))
    half.lease()
    half.fail(failure("d", level=-1))
    prepare(half, [Half(1, prepared("c"), "", "m")])
    commit(half)
    half.publish(_in_group("p"))
    half.deliver()
    assert half.lease().ids == ["p"]
    with half.changes() as changed:
        assert half.purge("d") == ["OK"]
    assert changed == {
        "bodies": {"d": None},
        "message_groups": {"d": None},
        "g:attempts": {"d": None},
        "g:failures": {"d": None},
        "g:dead": {"d": None},
        "g:graves": {"d": None},
        "g:fingerprints": {f"\0{START_MS:016}\0d": None},
        "counters": {"purge:g": 1},
        "events": ["purge g ops d"],
    }
    assert half.lease().ids == []
    assert half.succeed(Receipt("p", 1)) == ["OK"]
    assert half.lease().ids == ["c"]
    assert unexplained(half) == []


def _in_group(id_: str) -> Prepared:
    return prepared(id_)._replace(noted=Noted("", (), "m"))


def test_marks_of_closed_transactions_go_after_ten_minutes(half: World) -> None:
    rollback(half)
    half.advance(KEPT_MS)
    rollback(half, OTHER)
    assert set(half.state()["closed"]) == {OTHER}


Act = Callable[[World], object]
CUTS: dict[str, tuple[Act, Act]] = {
    "prepare": (
        lambda w: None,
        lambda w: prepare(w, halves(prepared("a", "x" * 9000, digest="d"), "b")),
    ),
    "commit": (
        lambda w: prepare(w, halves(prepared("a", "x" * 9000, digest="d"), "b")),
        commit,
    ),
    "rollback": (
        lambda w: prepare(w, halves(prepared("a", "x" * 9000, digest="d"), "b")),
        rollback,
    ),
}


@pytest.mark.parametrize("name", CUTS)
def test_a_cut_anywhere_and_a_repeat_are_as_good_as_one_call(
    server_of: ServerOf, name: str
) -> None:
    start, act = CUTS[name]
    wanted = None
    for call in range(60):
        world = world_on(server_of, "redis-7", cut())
        world.subscribe()
        start(world)
        world.client.set(CUT_KEY, call)
        try:
            act(world)
            was_cut = False
        except (ScriptError, AmbiguousResult):
            was_cut = True
        world.client.delete(CUT_KEY)
        if was_cut and name != "prepare":
            state = world.state()
            kept = {m.partition(" ")[0] for m in state.get("scheduled", ())}
            kept |= set(state.get("half_of", ()))
            assert name == "rollback" or kept == {"a", "b"} == set(state["bodies"])
        act(world)
        state = world.state()
        if was_cut and name == "rollback":  # an id that it leaves is remembered for an hour
            assert state.get("ids", {}).keys() <= state.get("id_expiry", {}).keys()
            world.client.delete(world.keys.ids, world.keys.id_expiry)
        state = {k: v for k, v in world.state().items() if k not in ("counters", "events")}
        if wanted is None:
            wanted = state  # call 0 is never made: nothing was cut
        assert state == wanted
        assert unexplained(world) == []
        if call and not was_cut:
            assert call > 5, "the script made no calls that could be cut"
            return
    pytest.fail("it makes too many calls")


def test_prepare_leaves_nothing_where_one_of_its_writes_is_refused(server_of: ServerOf) -> None:
    batch = halves(prepared("a", "x" * 9000, digest="d", keys=("k",)), "b")
    done = 0
    for call in range(1, 40):
        world = world_on(server_of, "redis-7", refused())
        world.subscribe()
        world.client.set(CUT_KEY, call)
        before = world.state()
        try:
            prepare(world, batch)
            done += 1
        except (ScriptError, AmbiguousResult):
            state = world.state()
            if state.get("ids") == {"a": "?d"}:  # begun: it is as good as unknown
                del state["ids"]
            assert "half_of" in state or state == before
        world.client.delete(CUT_KEY)
    assert done < 30
