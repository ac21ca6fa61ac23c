from typing import Any

from rqretry.core.lifecycle import TRANSITIONS, State


def reachable(start: Any) -> Any:
    seen, frontier = set(), set(start)
    while frontier:
        seen |= frontier
        frontier = {s for row in TRANSITIONS if seen & set(row.before) for s in row.after} - seen
    return seen


def test_every_verb_has_exactly_one_row() -> None:
    verbs = [row.verb for row in TRANSITIONS]
    assert len(set(verbs)) == len(verbs) == 19


def test_every_state_can_be_reached_from_a_publish_or_a_transaction() -> None:
    published = next(row.after for row in TRANSITIONS if row.verb == "publish")
    prepared = next(row.after for row in TRANSITIONS if row.verb == "prepare")
    assert reachable(published) == set(State) - {State.PREPARED}
    assert reachable(prepared) == set(State)


def test_only_a_committed_message_has_no_way_on() -> None:
    left = {state for row in TRANSITIONS for state in row.before}
    assert set(State) - left == {State.COMMITTED}


def test_every_settle_starts_in_flight() -> None:
    settles = {"renew", "change", "succeed", "fail", "release", "expire"}
    assert {row.verb for row in TRANSITIONS if row.before == (State.INFLIGHT,)} == settles


def test_a_dead_message_leaves_only_by_redrive_or_purge() -> None:
    assert {row.verb for row in TRANSITIONS if State.DEAD in row.before} == {
        "redrive",
        "purge",
    }
