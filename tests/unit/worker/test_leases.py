"""What a process knows of a place: leases, results on their way, tracebacks, and what is due."""

from typing import Any, cast

import pytest

from rqretry.protocol.keys import partition_keys
from rqretry.protocol.lease import Leased, Polled
from rqretry.worker.leases import Delivery, LeasedPlace, Schedule, Tracebacks

NOTHING_DUE = Polled(1000, None, None, None)


def place(visibility_s: float = 30.0) -> LeasedPlace:
    return LeasedPlace("t", 0, partition_keys("n", "t", 0).group("g", 18), visibility_s)


def leased(*ids: str, left: int = 0, rate: str = "") -> Leased:
    return Leased(
        "OK", None, None, None, left, list(ids), [b"1"] * len(ids), [(1, 1)] * len(ids), 1000,
        [""] * len(ids), rate,
    )  # fmt: skip


def test_an_older_lease_of_a_message_does_not_end_the_newer_one() -> None:
    here = place()
    (old,), (new,) = here.leased(leased("a"), 1.0), here.leased(leased("a"), 2.0)
    here.leases.end(old)
    assert new in here.leases
    assert old not in here.leases
    here.leases.end(new)
    assert len(here.leases) == 0


def test_the_heartbeat_renews_what_has_started_and_was_sent_before_and_is_not_lost() -> None:
    here = place()
    early, lost, settled, waits = here.leased(leased("early", "lost", "settled", "waits"), 1.0)
    (late,) = here.leased(leased("late"), 2.0)
    early.task = lost.task = late.task = cast(Any, "a slot")
    lost.lost = settled.settled = True
    assert here.leases.sent_before(2.0) == [early, settled]
    assert here.leases.take_late(2.0) == [waits]
    assert here.leases.take_late(2.0) == []
    assert waits.lost
    assert waits not in here.leases


def test_what_is_taken_out_of_the_outbox_is_not_counted_any_more() -> None:
    outbox, delivery = place().outbox, Delivery(place(), "a", b"", (1, 1), 0.0)
    outbox.succeeded.append(delivery)
    assert len(outbox) == 1
    assert outbox.take() == ([delivery], [], [])
    assert len(outbox) == 0
    assert outbox.take() == ([], [], [])


def test_a_traceback_is_sent_once_and_again_only_where_the_call_failed() -> None:
    tracebacks = Tracebacks()
    tracebacks.note("f", ValueError("first"))
    tracebacks.note("f", ValueError("second"))
    taken = tracebacks.take()
    assert "first" in taken["f"]
    tracebacks.put_back(taken)
    assert tracebacks.take() == taken
    tracebacks.note("f", ValueError("third"))
    assert tracebacks.take() == {}


@pytest.mark.parametrize(
    ("seen", "soonest"),
    [
        (NOTHING_DUE, 124.5),  # the look, which comes after 1.2 * 20 s and a half
        (NOTHING_DUE._replace(next_due_ms=3000), 103.0),
        (NOTHING_DUE._replace(next_due_ms=3000, next_deadline_ms=2000), 102.0),
        (NOTHING_DUE._replace(next_deadline_ms=2000, next_scheduled_ms=1), 100.001),
        (NOTHING_DUE._replace(next_due_ms=60_000), 124.5),
    ],
)
def test_maintenance_is_needed_when_the_first_thing_is_due(seen: Polled, soonest: float) -> None:
    schedule = Schedule(20.0)
    schedule.note(seen, 100.0)
    assert schedule.soonest() == pytest.approx(soonest)


def test_a_clock_that_steps_or_jumps_is_not_believed_until_maintenance_reads_it() -> None:
    schedule = Schedule(30.0)
    assert schedule.expected_ms(100.0) is None
    for now_ms, at in ((1000, 100.0), (11_000, 110.0), (8_000, 111.0), (80_000, 112.0)):
        schedule.note(NOTHING_DUE._replace(now_ms=now_ms), at)
    assert schedule.expected_ms(113.0) == 11_000 + 2850
    schedule.maintained(3000, 120.0)
    assert schedule.expected_ms(120.5) == 3475


def test_a_lease_names_the_time_that_it_expects_unless_the_server_was_heard_of_just_now() -> None:
    schedule = Schedule(30.0)
    assert schedule.expected_again_ms(100.0) is None
    schedule.note(NOTHING_DUE._replace(now_ms=1000), 100.0)
    assert schedule.expected_again_ms(100.9) is None
    assert schedule.expected_again_ms(110.0) == 1000 + 9500


def test_time_that_a_server_has_from_us_is_not_rounded_down_again_and_again() -> None:
    schedule = Schedule(30.0)
    schedule.maintained(3000, 120.0)
    for each in range(1000):  # a millisecond is left until the next thing is due, it says
        now = 120.0 + each / 1000
        expected = schedule.expected_ms(now)
        assert expected is not None
        schedule.maintained(expected, now + 0.0005, expected)
    assert schedule.expected_ms(121.0) == 3950


def test_a_place_takes_from_its_two_lists_in_turn() -> None:
    here = place()
    assert [here.next_list() for _ in range(3)] == ["retry", "ready", "retry"]


def test_a_place_is_empty_until_a_wake_up_when_a_lease_left_nothing() -> None:
    here = place()
    states = []
    for answer in (leased("a", left=1), leased()):
        here.leased(answer, 1.0)
        states.append(here.empty)
    here.may_hold_more()
    assert [*states, here.empty] == [False, True, False]


def test_a_place_with_a_rate_limit_needs_tokens_before_a_lease() -> None:
    here = place()
    needs = [here.simple]
    here.leased(leased(rate="5/s"), 3.0)
    assert [*needs, here.simple] == [True, False]
