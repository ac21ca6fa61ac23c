"""Periodic messages, R79 to R81."""

from itertools import count, takewhile
from typing import Any

from tests.meta.mutation.case import Symbol
from tests.meta.mutation.cases.common import case

PERIODIC = "tests/contract/testing/test_periodic.py::"
SCHEDULE = "tests/unit/core/test_schedule.py::"


def lane_of_its_own(original: Any) -> Any:
    """Each publish of a slot has a lane of its own: its id alone keeps it from being repeated."""
    numbers = count()

    def call(self: Any, sent: Any, front: Any = None) -> Any:
        if sent.producer.startswith("cron."):
            sent = sent._replace(producer=f"cron.{next(numbers)}")
        return original(self, sent, front)

    return call


def everything(_original: Any) -> Any:
    """All slots since the last one are published, whatever the schedule says."""
    return lambda self, after, now, _: list(takewhile(lambda slot: slot <= now, self.after(after)))


def in_utc(original: Any) -> Any:
    """Time zones mean nothing."""

    def after(self: Any, at: int) -> Any:
        return original(type(self)(self.cron, self.every_s, "UTC"), at)

    return after


def as_it_stands(_original: Any) -> Any:
    """What is stored is taken as it stands."""
    return lambda found, _: dict(found)


CASES = (
    case("R79", "a slot is kept from being repeated by its id alone",
         Symbol("Publishing.call", lane_of_its_own),
         f"{PERIODIC}test_a_worker_that_hung_for_longer_than_ids_are_remembered_publishes_nothing",
         f"{PERIODIC}test_three_workers_of_which_each_slot_kills_one_publish_500_slots_once"),
    case("R80", "all missed slots are made up", Symbol("Timetable.pending", everything),
         f"{PERIODIC}test_after_an_outage_missed_slots_are_caught_up_as_the_schedule_says[last-1]",
         f"{SCHEDULE}test_a_slot_up_to_a_minute_late_is_published_and_the_policy_is_about_the_rest"),
    case("R80", "a stored schedule is not checked", Symbol("_read_fields", as_it_stands),
         f"{PERIODIC}test_a_damaged_schedule_stops_no_other_one"),
    case("R81", "a cron line is read in UTC", Symbol("Timetable.after", in_utc),
         f"{SCHEDULE}test_a_skipped_time_comes_at_the_end_of_the_gap_and_a_repeated_one_once"),
)  # fmt: skip
