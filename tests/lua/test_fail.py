"""fail: inflight -> waiting_retry | dead."""

import itertools
from dataclasses import replace

import pytest

from rqretry.core.failure_record import read_record
from rqretry.core.receipt import Receipt
from rqretry.protocol import lease
from rqretry.protocol.lease import Failed
from tests.support.builders import MINUTE, SECOND, failure, first
from tests.support.world import START_MS, VISIBILITY_MS, WORKER, World


def test_fail_waits_on_the_ladder_from_the_moment_it_is_reported(world: World) -> None:
    world.subscribe()
    world.leased("a", "b")
    world.advance(3 * SECOND)
    due = START_MS + 13 * SECOND
    with world.changes() as changed:
        assert world.fail(failure("a")) == [Failed("OK", False, 1, 3, due)]
    assert changed == {
        "g:delay:3": {"a": due},
        "g:due": {"3": due},
        "g:attempts": {"a": "2:2:0:0"},
        "g:failures": {"a": '1 1003000+10000 {"c":"failure"}\n'},
        "g:inflight": {"a": None},
        "g:wake": {"1": 0},
        "counters": {"fail:g": 1},
        "events": [f"fail g w1 a 1,W,3,{due}"],
    }


def test_fail_goes_the_whole_ladder_and_then_to_the_dead_letters_at_once(world: World) -> None:
    world.subscribe()
    world.publish("a")
    waits, verdicts = [], []
    for attempt in range(1, 18):
        assert world.lease().numbers == [(attempt, attempt)]
        (failed,) = world.fail(failure("a", attempt))
        verdicts.append((failed.dead, failed.attempt, failed.level))
        if not failed.dead:
            waits.append((failed.due_ms - world.now) // SECOND)
            world.set_time(failed.due_ms - 1)
            assert world.promote().moved == 0
            world.advance(1)
            assert world.promote().moved == 1
    assert waits == [10, 30, *(60 * m for m in range(1, 11)), 1200, 1800, 3600, 7200]
    assert sum(waits) == 17_140
    assert verdicts[:-1] == [(False, k, k + 2) for k in range(1, 17)]
    assert verdicts[-1] == (True, 17, 0)
    assert world.lease().ids == []


RECORD = '{"c":"timeout","m":"said \\"f\\":\\"11\\"","f":"0f"}'


def test_fail_with_no_retries_left_is_dead_with_its_body_and_reason(world: World) -> None:
    world.subscribe(max_retries=0)
    world.leased("a")
    with world.changes() as changed:
        assert world.fail(failure("a", cause="timeout", record=RECORD)) == [Failed("OK", True, 1)]
    assert changed == {
        "g:dead": {"a": START_MS},
        "g:graves": {"a": "1 timeout 0f"},
        "g:fingerprints": {f"0f\0{START_MS:016}\0a": 0},
        "g:attempts": {"a": "2:1:0:0"},
        "g:failures": {"a": f"1 1000000 {RECORD}\n"},
        "g:inflight": {"a": None},
        "counters": {"fail:g": 1, "dead:g": 1},
        "events": ["fail g w1 a 1,D"],
    }


def test_fail_of_an_unlimited_group_never_dies(world: World) -> None:
    world.subscribe(max_retries=-1)
    world.leased("a")
    world.client.hset(world.group().attempts, "a", "90:90:0:0")
    (failed,) = world.fail(failure("a", 90))
    assert (failed.dead, failed.level) == (False, 18)


@pytest.mark.parametrize(
    ("level", "expected", "wait_ms"),
    [(1, 1, SECOND), (4, 4, 30 * SECOND), (18, 18, 120 * MINUTE), (99, 18, 120 * MINUTE)],
)
def test_fail_with_a_level_waits_at_that_level(
    world: World, level: int, expected: int, wait_ms: int
) -> None:
    world.subscribe()
    world.leased("a")
    (failed,) = world.fail(failure("a", level=level))
    assert (failed.level, failed.due_ms) == (expected, START_MS + wait_ms)
    assert world.state()[f"g:delay:{expected}"] == {"a": START_MS + wait_ms}


def test_fail_with_level_minus_one_is_dead_with_retries_left(world: World) -> None:
    world.subscribe()
    world.leased("a")
    assert world.fail(failure("a", level=-1, delay_ms=5)) == [Failed("OK", True, 1)]


@pytest.mark.parametrize(
    ("delay_ms", "level"),
    [(1, 1), (999, 1), (1000, 1), (4999, 1), (5000, 2), (29_999, 3), (9_999_999, 18)],
)
def test_fail_with_a_delay_goes_to_the_largest_level_not_above_it(
    world: World, delay_ms: int, level: int
) -> None:
    world.subscribe()
    world.leased("a")
    (failed,) = world.fail(failure("a", level=7, delay_ms=delay_ms))
    assert (failed.level, failed.due_ms) == (level, START_MS + delay_ms)


def test_fail_by_an_explicit_level_does_not_change_the_automatic_ones_after_it(
    world: World,
) -> None:
    world.subscribe()
    world.leased("a")
    world.fail(failure("a", level=1))
    world.advance(SECOND)
    world.promote()
    world.lease()
    (failed,) = world.fail(failure("a", 2))
    assert failed.level == 4


@pytest.mark.parametrize(("random", "wait_ms"), [(0.0, 9_000), (0.5, 10_000), (0.75, 10_500)])
def test_fail_with_jitter_spreads_the_wait(world: World, random: float, wait_ms: int) -> None:
    world.subscribe(jitter="0.1")
    world.leased("a")
    (failed,) = world.fail(failure("a", random=random))
    assert failed.due_ms == START_MS + wait_ms


def test_fail_with_jitter_spreads_the_messages_of_a_call_over_its_whole_range(world: World) -> None:
    world.subscribe(jitter="0.1")
    ids = [f"m{number}" for number in range(50)]
    world.leased(*ids)
    waits = [failed.due_ms - START_MS for failed in world.fail(*map(failure, ids))]
    assert waits[0] == 10_000  # of the call's own random number
    gaps = [later - sooner for sooner, later in itertools.pairwise(sorted(waits))]
    assert 9_000 <= min(waits) < 9_050
    assert 10_950 < max(waits) < 11_000
    assert 0 < min(gaps) < max(gaps) < 100


def test_fail_treats_each_message_as_it_says_beside_others_that_say_nothing(world: World) -> None:
    world.subscribe(jitter="0.1")
    world.leased("a", "b", "c")
    failed = world.fail(
        failure("a", random=0.0), failure("b", cause="timeout"), failure("c", random=1.0)
    )
    assert [f.due_ms - START_MS for f in failed] == [9_000, 10_000, 11_000]


def test_fail_records_when_each_message_is_due(world: World) -> None:
    world.subscribe(jitter="0.1")
    world.leased(*"abcdef")
    world.client.hset(world.group().attempts, "e", "1:17:0:0")
    results = world.fail(*map(failure, "abc"))
    results += world.fail(failure("d", level=2), failure("e"), failure("f", delay_ms=0))
    records = {id_: read_record(text) for id_, text in world.state()["g:failures"].items()}
    due = {id_: found[-1].due_ms or 0 for id_, found in records.items()}
    assert due == {id_: one.due_ms for id_, one in zip("abcdef", results, strict=True)}
    assert len({due["a"], due["b"], due["c"]}) == 3
    assert records["e"][-1].due_ms is None, "it is dead"
    assert (due["d"], due["f"]) == (START_MS + 5 * SECOND, START_MS)


def test_records_that_are_alike_but_for_the_attempt_name_their_own(world: World) -> None:
    world.subscribe()
    world.leased("a", "b")
    world.client.hset(world.group().attempts, "b", "1:2:0:0")  # its record is lost
    world.fail(failure("a", delay_ms=SECOND), failure("b", delay_ms=SECOND))
    records = {id_: read_record(text) for id_, text in world.state()["g:failures"].items()}
    assert [records[id_][-1].attempt for id_ in "ab"] == [1, 2]


def test_fail_does_not_jitter_what_the_handler_chose(world: World) -> None:
    world.subscribe(jitter="0.5")
    world.leased("a", "b")
    failed = world.fail(failure("a", delay_ms=700, random=0.0), failure("b", level=2, random=0.0))
    assert [f.due_ms - START_MS for f in failed] == [700, 5000]


def test_fail_repeats_the_last_step_of_a_short_ladder(world: World) -> None:
    world.subscribe(delays="200 700")
    world.publish("a")
    waits = []
    for attempt in range(1, 5):
        world.lease()
        (failed,) = world.fail(failure("a", attempt))
        waits.append(failed.due_ms - world.now)
        world.set_time(failed.due_ms)
        world.promote()
    assert waits == [200, 700, 700, 700]


def test_fail_by_a_lowered_limit_is_dead_at_the_next_failure(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.fail(failure("a", level=1))
    world.configure("g", 2, max_retries=0)
    world.advance(SECOND)
    world.promote()
    assert world.lease().ids == ["a"]
    assert world.fail(failure("a", 2)) == [Failed("OK", True, 2)]


def test_fail_repeated_is_stale_and_counts_no_second_attempt(world: World) -> None:
    world.subscribe()
    world.leased("a", "b")
    world.fail(failure("a"), failure("b", level=-1))
    with world.changes() as changed:
        assert world.fail(failure("a"), failure("b")) == [Failed("STALE"), Failed("GONE")]
    assert changed == {"counters": {"stale:g": 2}}


def test_fail_after_success_is_gone_and_after_expiry_stale(world: World) -> None:
    world.subscribe()
    world.leased("a", "b")
    world.succeed(*first("a"))
    world.advance(VISIBILITY_MS)
    world.expire()
    assert world.fail(failure("a"), failure("b"), failure("c")) == [
        Failed("GONE"), Failed("STALE"), Failed("GONE"),
    ]  # fmt: skip


def test_fail_records_what_each_message_of_a_call_says(world: World) -> None:
    world.subscribe()
    world.leased("a", "b", "c", "d", "e")
    world.client.hset(world.group().attempts, "d", "1:2:0:0")
    recorded = {"a": "one", "b": "one", "c": "two", "d": "two", "e": "one"}
    world.fail(*(failure(id_, record=f'{{"m":"{text}"}}') for id_, text in recorded.items()))
    lines = {id_: f'1 {START_MS}+10000 {{"m":"{text}"}}\n' for id_, text in recorded.items()}
    assert world.state()["g:failures"] == {**lines, "d": f'2 {START_MS}+30000 {{"m":"two"}}\n'}


def test_fail_adds_to_the_records_of_those_that_failed_before_and_begins_others(
    world: World,
) -> None:
    world.subscribe()
    world.leased("a", "b")
    world.fail(failure("a", delay_ms=1), failure("b", delay_ms=1))
    world.advance(1)
    world.promote()
    world.publish("c", "d")
    world.lease()
    world.fail(failure("c"), failure("a", 2), failure("b", 2), failure("d"))
    first_line, now = '1 1000000+1 {"c":"failure"}\n', world.now
    assert world.state()["g:failures"] == {
        **dict.fromkeys("ab", f'{first_line}2 {now}+30000 {{"c":"failure"}}\n'),
        **dict.fromkeys("cd", f'1 {now}+10000 {{"c":"failure"}}\n'),
    }


@pytest.mark.parametrize(
    ("recorded", "level", "request_parts"),
    [
        (["same"] * 4, 0, 1),
        (["one", "two", "two", "one"], 0, 3),
        (["one", "2", "1", "four"], 0, 3),
        (["same"] * 4, 1, 7),
        (["one", "2", "1", "four"], 1, 7),
    ],
)
def test_fail_keeps_what_each_message_says_however_it_is_sent(
    world: World, recorded: list[str], level: int, request_parts: int
) -> None:
    world.subscribe()
    world.leased(*"abcd")
    failures = [
        failure(id_, level=level, record=text) for id_, text in zip("abcd", recorded, strict=True)
    ]
    command = lease.fail(
        world.group(), failures, worker=WORKER, tracebacks={"f1": "T 1", "f2": "T 2"}
    )
    assert command.args[3] == request_parts
    waits = 1 if level else 3
    assert {(f.verdict, f.level) for f in world.run(command)} == {("OK", waits)}
    state = world.state()
    assert state["g:tracebacks"] == {"f1": "T 1", "f2": "T 2"}
    at = f"{START_MS}+{SECOND if level else 10 * SECOND}"
    records = {id_: f"1 {at} {text}\n" for id_, text in zip("abcd", recorded, strict=True)}
    assert state["g:failures"] == records
    retried = {"a": "one", "b": "one"}
    world.set_time(START_MS + 10 * SECOND)
    world.promote()
    world.lease()
    world.fail(*(failure(id_, 2, record=text) for id_, text in retried.items()))
    state = world.state()
    assert {id_: state["g:attempts"][id_] for id_ in "abcd"} == {
        **dict.fromkeys("ab", "3:3:0:0"), **dict.fromkeys("cd", "2:2:0:0"),
    }  # fmt: skip
    for id_, text in retried.items():
        assert state["g:failures"][id_] == f"{records[id_]}2 {world.now}+30000 {text}\n"


def test_fail_of_alike_messages_of_which_one_came_too_late_fails_the_others(world: World) -> None:
    world.subscribe()
    world.leased("a", "b", "c")
    world.succeed(*first("b"))
    verdicts = [f.verdict for f in world.fail(*map(failure, "abc"))]
    assert verdicts == ["OK", "GONE", "OK"]
    assert world.state()["g:attempts"] == dict.fromkeys("ac", "2:2:0:0")


def test_fail_answers_once_what_is_the_same_of_all(world: World) -> None:
    world.subscribe()
    world.leased("a", "b", "c")
    alike = lease.fail(world.group(), [failure("a"), failure("b")], worker=WORKER, tracebacks={})
    assert len(world.run(replace(alike, decode=list))) == 2
    failed = [Failed("OK", False, 1, 3, START_MS + 10 * SECOND), Failed("GONE")]
    assert world.fail(failure("c"), failure("nobody")) == failed


@pytest.mark.parametrize("others", [2, 6, 20])
def test_fail_of_the_newest_lease_behind_many_older_ones(world: World, others: int) -> None:
    world.subscribe()
    world.leased(*(f"m{number:02}" for number in range(others)))
    world.advance(1)
    world.leased("x", "y")
    assert [f.verdict for f in world.fail(failure("x"), failure("y"))] == ["OK", "OK"]


def test_fail_twice_in_one_call_counts_once(world: World) -> None:
    world.subscribe()
    world.leased("a")
    assert [f.verdict for f in world.fail(failure("a"), failure("a"))] == ["OK", "STALE"]
    assert world.state()["g:attempts"] == {"a": "2:2:0:0"}


def test_fail_wakes_only_where_something_is_due_earlier(world: World) -> None:
    world.subscribe()
    world.leased("a", "b", "c")
    for id_, delay_ms, wakes in (("a", 5000, True), ("b", 60_000, False), ("c", 4000, True)):
        with world.changes() as changed:
            world.fail(failure(id_, delay_ms=delay_ms))
        assert ("g:wake" in changed) is wakes


def test_fail_lowers_the_index_of_a_level_and_never_raises_it(world: World) -> None:
    world.subscribe()
    world.leased("a", "b", "c")
    world.fail(failure("a", delay_ms=3000))
    world.fail(failure("b", delay_ms=4000))
    assert world.state()["g:due"] == {"1": START_MS + 3000}
    world.fail(failure("c", delay_ms=2000))
    assert world.state()["g:due"] == {"1": START_MS + 2000}


def test_fail_keeps_the_first_3_and_the_last_16_lines_of_a_failure_record(world: World) -> None:
    world.subscribe(max_retries=-1, delays="1000")
    world.publish("a")
    for attempt in range(1, 26):
        world.lease()
        world.fail(failure("a", attempt, record=f'{{"n":{attempt}}}'))
        world.advance(SECOND)
        world.promote()
    lines = world.state()["g:failures"]["a"].splitlines()
    assert [int(line.split()[0]) for line in lines] == [1, 2, 3, *range(10, 26)]
    assert lines[0] == '1 1000000+1000 {"n":1}'
    assert lines[-1] == '25 1024000+1000 {"n":25}'


def test_fail_keeps_one_traceback_of_a_kind_and_a_thousand_kinds(world: World) -> None:
    world.subscribe()
    world.leased("a", "b", "c")
    world.fail(failure("a"), tracebacks={"f1": "Traceback 1", "f2": "Traceback 2"})
    assert world.state()["g:tracebacks"] == {"f1": "Traceback 1", "f2": "Traceback 2"}
    world.fail(failure("b"), tracebacks={f"x{n}": "t" for n in range(499)})
    world.fail(failure("c"), tracebacks={f"y{n}": "t" for n in range(500)} | {"f2": "Traceback 2"})
    kept = world.state()["g:tracebacks"]
    assert len(kept) == 1000
    assert "f1" not in kept
    assert {"f2", "y499"} < kept.keys()


def test_fail_of_a_full_batch_with_every_kind_of_outcome(world: World) -> None:
    world.subscribe()
    ids = [f"m{n}" for n in range(500)]
    world.leased(*ids)
    failed = world.fail(*(failure(id_, level=n % 20 - 1) for n, id_ in enumerate(ids)))
    assert sum(f.dead for f in failed) == 25
    state = world.state()
    waiting = sum(len(state.get(f"g:delay:{n}", {})) for n in range(1, 19))
    assert (waiting, len(state["g:dead"]), "g:inflight" in state) == (475, 25, False)


def test_fail_of_one_group_leaves_the_others_alone(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    receipts = world.leased("a")
    world.lease(group="h")
    world.fail(failure("a", level=-1))
    assert world.succeed(*receipts, group="h") == ["OK"]
    state = world.state()
    assert state["bodies"] == {"a": "body of a"}
    assert state["pending"] == {"a": "a"}
    assert world.redrive("a") == ["OK"]
    assert world.lease().numbers == [(3, 1)]
    assert world.succeed(Receipt("a", 3)) == ["OK"]
    assert "bodies" not in world.state()
