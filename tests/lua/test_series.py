"""The history of the numbers: one writer a minute, minutes for a day, ten minutes for a week."""

import pytest

from rqretry.protocol.command import Each, Operation
from rqretry.protocol.keys import HOUR_RING, SPAN_RING, NamespaceKeys
from rqretry.protocol.series import (
    ALL,
    DAY,
    WEEK,
    Point,
    Row,
    forget,
    name_of,
    read_series,
    record_series,
)
from tests.support.builders import MINUTE
from tests.support.lua_hooks import CLOCK_KEY
from tests.support.world import World

KEYS = NamespaceKeys("test")
G, H = name_of("t", "g"), name_of("t", "h")
FIRST = 20_160
"""Where an hour begins, and six."""


@pytest.fixture
def series(world: World) -> World:
    """At the beginning of a minute."""
    at(world, 0)
    return world


def at(world: World, minute: float) -> None:
    """So many minutes after the beginning."""
    key = f"{CLOCK_KEY}:{{test}}" if world.backend.clock_in_slot else CLOCK_KEY
    world.client.set(key, int((FIRST + minute) * MINUTE))


def take(world: World) -> str:
    return str(world.run(record_series(KEYS)).minute)


def record(world: World, minute: float, *rows: Row) -> None:
    """As a writer does it."""
    at(world, minute)
    taken = take(world)
    assert taken == str(int(FIRST + minute))
    answer = world.run(record_series(KEYS, taken, rows))
    total = Row(ALL, sum(row.due for row in rows), answer.succeeded, answer.failed)
    assert world.run(record_series(KEYS, taken, [total])).minute == taken


def points(world: World, name: str, minutes: int = WEEK) -> list[tuple[float, int, int, int]]:
    """Minutes after the beginning, due, succeeded and failed, where there is something."""
    return [
        (point.at_s / 60 - FIRST, point.due, point.succeeded, point.failed)
        for point in world.perform(read_series(KEYS, [G, H], minutes))[name]
        if any(point[2:])
    ]


def test_a_minute_has_one_writer_and_counts_what_grew_since_the_last_one(series: World) -> None:
    record(series, 0, Row(G, 5, 100, 10), Row(H, 0, 7, 0))
    assert take(series) == ""  # another one, or the same again
    assert series.run(record_series(KEYS, str(FIRST - 1), [Row(G, 9, 999, 999)])).minute == ""
    record(series, 1.5, Row(G, 3, 130, 11), Row(H, 0, 7, 0))
    assert take(series) == ""
    record(series, 2, Row(G, 0, 130, 11), Row(H, 1, 7, 4))
    assert points(series, G) == [(1, 5, 0, 0), (2, 3, 30, 1)]
    assert points(series, H) == [(3, 1, 0, 4)]
    assert points(series, ALL) == [(1, 5, 0, 0), (2, 3, 30, 1), (3, 1, 0, 4)]


def test_a_new_group_grew_from_nothing_and_so_did_one_that_began_anew(series: World) -> None:
    record(series, 0, Row(G, 0, 50, 0))
    record(series, 1, Row(G, 0, 50, 0), Row(H, 0, 3, 2))
    record(series, 2, Row(G, 0, 4, 0), Row(H, 0, 3, 2))
    assert points(series, H) == [(2, 0, 3, 2)]
    assert points(series, G) == [(3, 0, 4, 0)]


def test_ten_minutes_are_kept_for_a_week_and_nothing_for_longer(series: World) -> None:
    """The clock of a week, in four hours' steps but for the first and the last hour."""
    seen: dict[int, list[tuple[float, int, int, int]]] = {}
    steps = [*range(60), *range(60, WEEK + 240, 240), *range(WEEK + 240, WEEK + 300)]
    for done, minute in enumerate(steps, 1):
        record(series, minute, Row(G, minute % 7, done, 0))
        if minute == DAY + 300:
            seen[minute] = points(series, G)
    (early,) = seen.values()
    assert [row[0] for row in early[:6]] == [10, 20, 30, 40, 50, 60]  # folded
    # The very first minute has nothing to compare with.
    assert early[:2] == [(10, 6, 9, 0), (20, 6, 10, 0)]
    late = points(series, G)
    assert late[0][0] > 300  # a week ago
    assert [row[0] for row in late[-60:]] == [minute + 1.0 for minute in steps[-60:]]
    assert sum(row[2] for row in late) == len([m for m in steps if m >= 300])
    keys = [*series.client.scan_iter(match="*:series:*", count=1000)]
    assert len(keys) <= HOUR_RING + SPAN_RING
    assert max(series.client.hstrlen(key, G) for key in keys) <= 603
    assert points(series, G, 30)[0][0] == steps[-1] + 1 - 29


def test_where_nobody_recorded_what_came_is_spread_over_the_time(series: World) -> None:
    record(series, 0, Row(G, 0, 0, 0))
    record(series, 90, Row(G, 0, 900, 0))
    found = series.perform(read_series(KEYS, [G]))[G]
    assert found[-1] == Point((FIRST + 91) * 60.0, 90 * 60.0, 0, 900, 0)
    assert series.perform(read_series(KEYS, []))[ALL][-1].succeeded == 900


def test_a_group_that_is_gone_is_forgotten_and_the_others_stay(series: World) -> None:
    record(series, 0, Row(G, 0, 1, 0), Row(H, 0, 1, 0))
    record(series, 1, Row(G, 2, 4, 0), Row(H, 0, 3, 0))
    series.perform(gone([G]))
    assert points(series, G) == []
    assert points(series, H) == [(2, 0, 2, 0)]
    assert points(series, ALL) == [(2, 2, 5, 0)]
    assert not any(series.client.hexists(key, G) for key in (KEYS.series, *KEYS.rings))


def gone(names: list[str]) -> Operation[None]:
    answers = yield Each([*forget(KEYS, names)])
    assert all(isinstance(answer, int) for answer in answers)


def test_what_is_damaged_is_begun_anew_and_what_is_too_much_is_cut(series: World) -> None:
    record(series, 0, Row(G, 0, 0, 0))
    for key in KEYS.rings:
        series.client.hset(key, G, b"x" * 14)
    series.client.hset(KEYS.series, G, "what")
    record(series, 1, Row(G, 2**30, 2**40, 3))
    assert points(series, G) == [(2, 2**24 - 1, 2**24 - 1, 3)]


def test_nothing_is_known_of_what_nobody_has_recorded(series: World) -> None:
    assert series.perform(read_series(KEYS, [G])) == {ALL: [], G: []}
