"""dead_letter: an operator ends messages that are not done, one or a selection, on each server."""

from functools import partial

import pytest

from rqretry.core.errors import ConfigError, GroupNotFound, InvalidArgument
from tests.contract.admin.bench import Bench


def test_whatever_is_not_in_flight_can_be_ended_by_hand_and_sent_back(bench: Bench) -> None:
    bench.group("g", "t", "u")
    waiting, held, ready = bench.publish("waiting", "held", "ready")
    (other,) = bench.publish("other", topic="u")
    first, second = bench.lease(2)
    bench.fail([first], "no card")
    (later,) = bench.publish("later", delay=60)
    assert bench.numbers() == (2, 0, 1, 1, 0)
    assert bench.admin.dead_letter("g", ids=[waiting, held, ready], dry_run=True) == 2
    assert bench.admin.dead_letter("g", topic="t", all=True, reason="closed account") == 2
    assert bench.numbers() == (1, 0, 1, 0, 2)
    found = {dead.id: dead for dead in bench.admin.dead_letters("g")}
    assert found.keys() == {waiting, ready}
    assert {(d.cause, d.error) for d in found.values()} == {("by_hand", "closed account")}
    assert [found[id_].deliveries for id_ in (waiting, ready)] == [1, 0]
    assert [str(error) for error in found[waiting].errors] == ["no card", "closed account"]
    assert found[waiting].failures == 1
    events = bench.admin.timeline(waiting)
    assert [(event.event, event.note) for event in events[-2:]][1] == (
        *("dead_letter", "closed account: dead"),
    )
    bench.succeed([second])  # what was in flight goes on
    assert bench.admin.redrive("g", all=True) == 2
    assert {receipt.id for receipt in bench.lease()} == {waiting, ready}
    assert [receipt.id for receipt in bench.lease(topic="u")] == [other]
    assert bench.admin.message(later).states[0].state == "scheduled"
    entries = bench.admin.audit()
    assert bench.verbs() == ["dead_letter", "redrive"]
    assert entries[-1].arguments["reason"] == "closed account"


def test_what_is_scheduled_is_recalled_and_nothing_else(bench: Bench) -> None:
    bench.group("g", "t")
    (later,) = bench.publish("later", delay=60, tag="x")
    for act in (
        bench.admin.dead_letter,
        bench.admin.promote,
        partial(bench.admin.purge, state="ready"),
    ):
        with pytest.raises(InvalidArgument, match=f"no group's yet.*rqretry recall {later}"):
            act("g", ids=[later], dry_run=True)
    assert bench.admin.dead_letter("g", ids=["unknown"]) == 0
    assert bench.admin.message(later).states[0].state == "scheduled"


def test_a_selection_by_error_and_what_is_blocked(bench: Bench) -> None:
    bench.group("g", ordered=True)
    head, blocked, last = bench.publish(1, 2, 3, message_group="m")
    (free,) = bench.publish(4, message_group="n")
    bench.fail(bench.lease(), "no card")
    assert bench.admin.dead_letter("g", ids=[blocked]) == 1
    assert bench.lease() == []  # the head still waits
    assert bench.admin.dead_letter("g", error="card", ids=[head]) == 1
    assert [receipt.id for receipt in bench.lease()] == [last]
    assert bench.admin.message(free).states[0].state == "waiting_retry"
    assert bench.admin.dead_letter("g", error="something else") == 0


def test_who_has_no_dead_letters_is_refused(bench: Bench) -> None:
    bench.group("everybody", kind="broadcast")
    bench.group("g")
    bench.group("looker", "t", source="g")
    with pytest.raises(ConfigError, match="a broadcast group keeps nothing"):
        bench.admin.dead_letter("everybody", all=True)
    with pytest.raises(ConfigError, match="consumes the dead letters of 'g'"):
        bench.admin.dead_letter("looker", all=True)
    with pytest.raises(InvalidArgument, match="all=True"):
        bench.admin.dead_letter("g")
    with pytest.raises(InvalidArgument, match="since and before"):
        bench.admin.dead_letter("g", since=1.0)
    with pytest.raises(GroupNotFound):
        bench.admin.dead_letter("none", all=True)
    assert bench.verbs() == []
