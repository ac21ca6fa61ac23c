"""Timetables: which slots a schedule has, over changes of the clock, and what is refused."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from rqretry import CodecError, ConfigError, InvalidArgument
from rqretry.core import schedule
from rqretry.core.schedule import MOST_CAUGHT_UP, ScheduleRecord, Timetable, spell_slot

DAY = 86_400


def at(text: str) -> int:
    """A UTC time in seconds."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def berlin(line: str) -> Timetable:
    """A timetable in Berlin, which changes its clocks on 2027-03-28 and 2027-10-31 at 01:00 UTC."""
    return Timetable.parse(line, None, "Europe/Berlin")


@pytest.mark.parametrize(
    ("line", "after", "until", "slots"),
    [
        ("30 2 * * *", "2027-03-27T00:00", "2027-03-29T12:00",
         ["2027-03-27T01:30:00Z", "2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"]),
        ("15,45 2 * * *", "2027-03-28T00:00", "2027-03-28T12:00", ["2027-03-28T01:00:00Z"]),
        ("30 2 * * *", "2027-10-30T12:00", "2027-11-01T12:00",
         ["2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"]),
        ("30 2 * * *", "2027-10-31T00:45", "2027-11-01T12:00", ["2027-11-01T01:30:00Z"]),
        ("30 * * * *", "2027-10-31T00:00", "2027-10-31T02:00",
         ["2027-10-31T00:30:00Z", "2027-10-31T01:30:00Z"]),
        ("30 * * * *", "2027-03-28T00:00", "2027-03-28T02:00",
         ["2027-03-28T00:30:00Z", "2027-03-28T01:30:00Z"]),
    ],
)  # fmt: skip
def test_a_skipped_time_comes_at_the_end_of_the_gap_and_a_repeated_one_once(
    line: str, after: str, until: str, slots: list[str]
) -> None:
    found = berlin(line).upto(at(after), at(until))

    assert [spell_slot(slot) for slot in found] == slots


@pytest.mark.parametrize("line", ["30 2 * * *", "15,45 2 * * *", "*/20 2 * * *", "7 */2 * * *"])
@pytest.mark.parametrize("day", ["2027-03-27T12:00", "2027-10-30T12:00"])
def test_wherever_one_begins_to_read_the_slots_are_the_same(line: str, day: str) -> None:
    begin, table = at(day), berlin(line)
    slots = table.upto(begin, begin + DAY)

    for later in range(begin, begin + DAY, 1710):
        assert table.upto(later, begin + DAY) == [slot for slot in slots if slot > later]


def test_an_interval_is_counted_from_the_epoch() -> None:
    table = Timetable.parse(None, "10m", None)

    assert table.upto(at("2027-01-01T00:03"), at("2027-01-01T00:21")) == [
        at("2027-01-01T00:10"),
        at("2027-01-01T00:20"),
    ]
    assert str(table) == "every 10m"


def test_a_slot_up_to_a_minute_late_is_published_and_the_policy_is_about_the_rest() -> None:
    now, table = at("2027-01-01T12:00:30"), Timetable.parse("* * * * *", None, None)
    noon, long_ago = at("2027-01-01T12:00"), now - 30 * DAY

    assert table.pending(long_ago, now, "none") == [noon]
    assert table.pending(long_ago, now, "last") == [noon]
    every_one = table.pending(long_ago, now, "all")
    assert len(every_one) == MOST_CAUGHT_UP + 1
    assert every_one == sorted(every_one)
    hourly, later = Timetable.parse("0 * * * *", None, None), noon + 1800
    assert hourly.pending(noon - 7200, later, "none") == []
    assert hourly.pending(noon - 7200, later, "last") == [noon]
    assert hourly.pending(noon - 7200, later, "all") == [noon - 3600, noon]
    assert hourly.pending(noon, later, "all") == []


BAD: list[tuple[tuple[Any, Any, Any], str]] = [
    (("0 0 31 2 *", None, None), "cron '0 0 31 2 *' never fires: no month that it names"),
    (("0 0 30,31 2 *", None, None), "never fires"),
    (("61 * * * *", None, None), "cannot be read (bad minute): correct that field"),
    (("0 0 32 * *", None, None), "cannot be read (bad day-of-month)"),
    (("0 3 * * * *", None, None), "has 6 fields and must have 5"),
    (("0 0 3 * * * *", None, None), "has 7 fields and must have 5"),
    (("@daily", None, None), "has 1 field and must have 5"),
    ((5, None, None), "cron 5 must be a str"),
    ((None, None, None), "neither of them: give one"),
    (("* * * * *", "1m", None), "both a cron line and every=: give one"),
    ((None, 0, None), "every 0 is out of range: it must be between 1 s and 366 d"),
    ((None, "500ms", None), "must be between 1 s and 366 d"),
    ((None, "367d", None), "must be between 1 s and 366 d"),
    ((None, "1500ms", None), "must be whole seconds"),
    ((None, "1m", "UTC"), "cannot be given with every=: remove it"),
    (("0 3 * * *", None, "Europe/Berln"), "is not a known time zone; did you mean Europe/Berlin?"),
    (("0 3 * * *", None, "../../etc/passwd"), "is not a known time zone"),
    (("0 3 * * *", None, 5), "timezone 5 is not a known time zone"),
]


@pytest.mark.parametrize(("given", "sentence"), BAD)
def test_what_means_nothing_is_refused_with_the_fix(given: Any, sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(sentence)):
        Timetable.parse(*given)


def test_what_reads_cron_lines_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> None:
        raise ImportError

    monkeypatch.setattr(schedule, "import_module", missing)
    with pytest.raises(ConfigError, match=r"install rqretry\[cron\]"):
        Timetable.parse("0 3 * * *", None, None)
    assert Timetable.parse(None, 60, None).every_s == 60


def test_a_record_is_read_as_it_was_stored_and_a_damaged_one_is_named() -> None:
    record = ScheduleRecord("nightly", berlin("0 3 * * *"), "all", {"n": 1}, 5, 4, paused=True)

    assert ScheduleRecord.decode("nightly", record.encode()) == record
    for text in (
        "", "{}", "[]", '{"timetable": 1}', '{"timetable": {"every_s": -60}}',
        '{"timetable": {"every_s": 1' + 30 * "0" + "}}",
        '{"timetable": {"every_s": 60}, "position": 1' + 30 * "0" + "}",
        '{"timetable": {"every_s": 60}, "last": -1' + 30 * "0" + "}",
        '{"timetable": {"every_s": "60"}}', '{"timetable": {"every_s": 60}, "position": "now"}',
    ):  # fmt: skip
        with pytest.raises(CodecError, match="the record of schedule 'nightly' is damaged"):
            ScheduleRecord.decode("nightly", text)


def test_what_a_newer_version_stores_too_is_passed_over() -> None:
    record = ScheduleRecord("tick", Timetable(every_s=60), position=5)
    text = record.encode().replace('"every_s"', '"jitter_s":3,"every_s"')

    assert ScheduleRecord.decode("tick", text.replace("{", '{"owner":"a",', 1)) == record


def test_a_stored_line_that_cannot_be_read_is_damage() -> None:
    record = ScheduleRecord("tick", Timetable("every full moon"))

    with pytest.raises(CodecError, match="cron line 'every full moon' cannot be read"):
        record.next_slot(0)


def test_another_timetable_begins_now_and_another_body_goes_on() -> None:
    old = ScheduleRecord("tick", Timetable(every_s=60), position=100, last=60, paused=True)
    changed = ScheduleRecord("tick", Timetable(every_s=30)).redefined(old, 500_000)
    other_body = ScheduleRecord("tick", Timetable(every_s=60), body=1).redefined(old, 500_000)

    assert (changed.position, changed.last, changed.paused) == (500, 60, True)
    assert (other_body.position, other_body.body) == (100, 1)
    assert ScheduleRecord("tick", Timetable(every_s=60)).redefined(old, 500_000) is old
