from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rqretry.core.delay_levels import DEFAULT_LEVELS, LevelTable
from rqretry.core.errors import CodecError, InvalidArgument

MINUTE = 60_000


def test_the_default_table_is_that_of_rocketmq() -> None:
    minutes = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)
    seconds = (1000, 5000, 10_000, 30_000)
    assert DEFAULT_LEVELS.ms == (*seconds, *(m * MINUTE for m in minutes))
    assert str(DEFAULT_LEVELS) == "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


def test_the_sixteen_waits_of_the_default_table_are_17140_seconds() -> None:
    assert sum(DEFAULT_LEVELS.ms[2:]) == 17_140_000


def test_a_table_is_read_from_a_sequence_of_durations() -> None:
    assert LevelTable.parse([1, "5s", timedelta(seconds=10), 10.5]).ms == (1000, 5000, 10000, 10500)


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ("", "number of levels"),
        ([], "number of levels"),
        (" ".join(f"{n}s" for n in range(1, 66)), "number of levels 65"),
        ("1s 5s 5s", "level 3 '5s' must be longer than the level before it, 5s"),
        ("5s 1s", "level 2 '1s'"),
        ("1s apples", "level 2 'apples'"),
        ("0s 1s", "level 1 '0 ms'"),
        ("41d", "level 1 '3542400000 ms'"),
        ([True], "level 1 True"),
        ([None], "level 1 None"),
        (5, "delay_levels 5"),
        (b"1s", "delay_levels b'1s'"),
        (None, "delay_levels None"),
    ],
)
def test_a_bad_table_is_refused_with_the_part_at_fault(bad: Any, named: Any) -> None:
    with pytest.raises(InvalidArgument, match=named):
        LevelTable.parse(bad)


def test_the_limits_themselves_are_allowed() -> None:
    assert len(LevelTable.parse(" ".join(f"{n}s" for n in range(1, 65)))) == 64
    assert LevelTable.parse("1ms 40d").ms == (1, 40 * 86_400_000)


def test_a_level_above_the_table_means_its_last() -> None:
    table = LevelTable.parse("1s 5s 10s")
    assert [table.delay_ms(level) for level in (1, 2, 3, 4, 99)] == [1000, 5000, *[10_000] * 3]
    with pytest.raises(InvalidArgument, match="level 0"):
        table.delay_ms(0)


@given(st.sets(st.integers(1, 40 * 86_400_000), min_size=1, max_size=64))
def test_a_table_survives_storing_and_printing(times: Any) -> None:
    table = LevelTable(tuple(sorted(times)))
    assert LevelTable.decode(table.encode()) == table
    assert LevelTable.parse(str(table)) == table


@pytest.mark.parametrize("damaged", ["", "x", "5 1", "1  2", "0"])
def test_a_damaged_stored_table_is_a_codec_error(damaged: Any) -> None:
    with pytest.raises(CodecError, match="damaged"):
        LevelTable.decode(damaged)
