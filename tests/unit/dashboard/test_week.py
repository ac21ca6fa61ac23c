"""A week of numbers in bounded memory."""

from rqretry.admin.incidents import Moment
from rqretry.dashboard.week import MINUTE_S, MOST_GROUPS, TEN_MINUTES_S, WEEK_S, Series, Week


def test_a_series_has_one_row_a_minute_of_the_last_week_and_no_more() -> None:
    series = Series(MINUTE_S)
    for second in range(0, round(WEEK_S) + 7200, 30):
        series.note(float(second), Moment(due=second, succeed=second * 2))
    due, done = series.points("due"), series.points("succeed")
    assert len(due) == WEEK_S / MINUTE_S + 1
    assert due[-1] == (WEEK_S + 7140, WEEK_S + 7140)
    assert {rate for _, rate in done} == {2.0}


def test_what_does_not_change_is_two_points() -> None:
    series = Series(MINUTE_S)
    for minute in range(100):
        series.note(minute * 60.0, Moment(due=7 if 10 <= minute < 90 else 0))
    ends = (0, 9, 10, 89, 90, 99)
    assert series.points("due") == [(n * 60.0, 7.0 if n in (10, 89) else 0.0) for n in ends]


def test_groups_are_kept_every_ten_minutes_and_forgotten_when_they_are_gone() -> None:
    week, pair = Week(), ("t", "g")
    for minute in range(31):
        now = Moment(succeed=minute)
        week.note(minute * 60.0, {pair: now}, now)
    assert [at for at, _ in week.points(pair, "due")] == [n * TEN_MINUTES_S for n in range(4)]
    assert len(week.total.points("succeed")) == 30
    week.note(3600.0, {("t", str(n)): Moment() for n in range(MOST_GROUPS + 9)}, Moment())
    assert week.points(pair, "succeed") == []
    assert week.points(("t", str(MOST_GROUPS)), "due") == []
    assert week.points(("t", "0"), "due") == [(3600.0, 0.0)]
