import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rqretry.core.durations import compact, milliseconds, seconds, spell
from rqretry.core.errors import InvalidArgument


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0.0),
        (30, 30.0),
        (0.25, 0.25),
        (timedelta(minutes=1, milliseconds=5), 60.005),
        ("10s", 10.0),
        ("1m30s", 90.0),
        ("2h", 7200.0),
        ("250ms", 0.25),
        ("1d", 86400.0),
        ("1h30m", 5400.0),
        ("30", 30.0),
        (" 1.5h ", 5400.0),
        ("4 h 45 m 40 s", 17140.0),
        ("5m5ms", 300.005),
    ],
)
def test_a_duration_is_read_in_seconds(value: Any, expected: Any) -> None:
    assert seconds(value, name="wait") == expected


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        None,
        b"10s",
        [],
        math.nan,
        math.inf,
        -math.inf,
        -1,
        -0.001,
        10**400,
        1e308,
        "9999999999d",
        timedelta(seconds=-1),
        "",
        " ",
        "s",
        "5 apples",
        "-1",
        "1e3",
        "1_000",
        "nan",
        "inf",
        "30s1m",
        "1s1s",
        "1m 30",
        "\u0661s",
        "1s\x00",
        "1" * 5000,
        "9" * 90 + "d" * 30,
    ],
    ids=repr,
)
def test_what_is_no_duration_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^wait .*(not a duration|out of range)"):
        seconds(value, name="wait")


def test_a_duration_out_of_range_names_both_limits() -> None:
    with pytest.raises(InvalidArgument, match="between 10 ms and 12 h"):
        seconds("13h", name="invisible_duration", minimum=0.01, maximum=43200)
    with pytest.raises(InvalidArgument, match="at least 1 s"):
        seconds(0.5, name="wait", minimum=1)
    assert seconds("12h", name="x", minimum=0.01, maximum=43200) == 43200


@pytest.mark.parametrize(
    ("value", "expected"), [(0, 0), (0.0001, 1), (1.1, 1100), ("250ms", 250), (0.0026, 3)]
)
def test_milliseconds_are_whole_and_never_lose_a_short_wait(value: Any, expected: Any) -> None:
    assert milliseconds(value, name="delay") == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (17140, "4 h 45 m 40 s"),
        (10, "10 s"),
        (0.25, "250 ms"),
        (0, "0 s"),
        (90061.5, "1 d 1 h 1 m 1 s 500 ms"),
        (0.0001, "0.1 ms"),
        (-5, "-5 s"),
        (math.inf, "inf"),
    ],
)
def test_a_duration_is_spelled_for_people(value: Any, expected: Any) -> None:
    assert spell(value) == expected


@given(st.integers(min_value=0, max_value=40 * 86_400_000))
def test_what_is_printed_is_read_back(duration_ms: Any) -> None:
    assert milliseconds(spell(duration_ms / 1000), name="x") == duration_ms
    assert milliseconds(compact(duration_ms), name="x") == duration_ms
    assert milliseconds(duration_ms / 1000, name="x") == duration_ms


@given(st.text() | st.floats() | st.integers())
def test_any_value_is_a_finite_duration_or_refused(value: Any) -> None:
    try:
        result = seconds(value, name="wait", maximum=1e9)
    except InvalidArgument:
        return
    assert 0 <= result <= 1e9
