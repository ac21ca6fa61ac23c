"""Where a message waited: for its worker, in its buffer, and behind a pause or a limit."""

import pytest

from rqretry.core.envelope import Envelope
from rqretry.core.failure_record import AttemptError, read_attempt_record
from rqretry.core.message import Message
from rqretry.core.message_id import make_id
from rqretry.core.waits import LIMITED, PAUSED, DueTimes, Refusal, Started, Waits, known_due_ms
from rqretry.protocol.keys import group_keys, partition_keys
from rqretry.worker.leases import LeasedPlace

NOW_MS = 1_800_000_000_000
ID = make_id(NOW_MS)
SEEN = (NOW_MS, 100.0)
"""The server's time at a monotonic time."""


def message(
    error: str = "", *, born: int | None = None, due: int | None = None, lease_no: int = 1
) -> Message[None]:
    envelope = Envelope(None, None, (), {}, None, born, due)
    return Message(("t", 0, "g", lease_no, ID), envelope, 1, 16, 0.0, error)


@pytest.mark.parametrize(
    ("due_ms", "waits"),
    [
        (NOW_MS - 3000, Waits(NOW_MS - 3000, 5000, 1500)),
        (NOW_MS + 9000, Waits(NOW_MS + 9000, 0, 1500)),  # an operator made it ready before
    ],
)
def test_waits_are_split_where_the_message_was_leased(due_ms: int, waits: Waits) -> None:
    assert Started(102.0, 103.5, SEEN).waits(due_ms) == waits
    assert waits.lateness_ms == waits.queue_ms + waits.buffer_ms


def test_a_pause_counts_as_far_as_the_message_was_due_in_it() -> None:
    refusals = (
        Refusal(PAUSED, 80.0, 97.0), Refusal(LIMITED, 98.0, 99.0), Refusal(PAUSED, 101.0, 105.0),
    )  # fmt: skip
    waits = Started(102.0, 102.0, SEEN, refusals).waits(NOW_MS - 5000)
    assert (waits.queue_ms, waits.paused_ms, waits.limited_ms) == (7000, 2000 + 1000, 1000)


def test_a_place_notes_from_when_to_when_it_gave_nothing() -> None:
    place = LeasedPlace("t", 0, group_keys(partition_keys("n", "t", 0), "g", 3, ""), 30.0)
    for why, at in ((None, 1.0), (PAUSED, 2.0), (PAUSED, 3.0), (LIMITED, 4.0), (None, 6.0)):
        place.refused(why, at)
    assert place.refusals == (Refusal(PAUSED, 2.0, 4.0), Refusal(LIMITED, 4.0, 6.0))


def test_when_a_message_was_due_is_known_of_first_deliveries_and_what_was_sent_back() -> None:
    assert known_due_ms(message(), None) == NOW_MS
    assert known_due_ms(message(born=7), None) == 7
    assert known_due_ms(message(born=7, due=9), None) == 9
    assert known_due_ms(message("-"), None) is None, "it was leased before, and given back"
    assert known_due_ms(message("0 5 {}"), AttemptError(0, 5, "redriven")) == 5


def test_a_retry_was_due_when_its_failure_record_says_whoever_wrote_it() -> None:
    for line, due_ms in (("1 5+10000 {}", 10_005), ("1 5+0 {}", 5), ("1 5 {}", None)):
        retry = message(line)
        retry.attempt = 2
        assert known_due_ms(retry, read_attempt_record(line)) == due_ms
    sent_back = '0 5+30 {"c":"redriven"}'
    assert known_due_ms(message(sent_back), read_attempt_record(sent_back)) == 35


def test_of_what_was_put_off_the_process_that_did_it_knows_until_another_one_has_it() -> None:
    due, record = DueTimes(), "1 5 {}"
    for lease_no, waits in ((3, Waits(NOW_MS + 1500, 500, 0)), (4, None)):
        due.note(message(record, lease_no=2), NOW_MS + 1500)
        again = message(record, lease_no=lease_no)
        again.attempt = 2
        again._started = Started(102.0, 102.0, SEEN)
        assert due.waits(again, read_attempt_record(record)) == waits
