import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rqretry.core import retry_policy
from rqretry.core.delay_levels import DEFAULT_LEVELS, LevelTable
from rqretry.core.errors import CodecError, InvalidArgument
from rqretry.core.retry_policy import CompiledPolicy, RetryPolicy

LADDER = RetryPolicy.ladder("10s 30s 1m")


def test_rocketmq_waits_the_levels_from_the_third() -> None:
    compiled = retry_policy.compiled(RetryPolicy.rocketmq(), DEFAULT_LEVELS.ms)
    assert compiled == CompiledPolicy(DEFAULT_LEVELS.ms[2:], 0.0)
    assert [compiled.delay_ms(k) for k in (1, 2, 16, 17, 500)] == [10_000, 30_000, *[7_200_000] * 3]


@pytest.mark.parametrize(
    ("table", "waits"),
    [("1s", (1000,)), ("1s 2s", (2000,)), ("1s 2s 3s", (3000,)), ("1s 2s 3s 4s", (3000, 4000))],
)
def test_rocketmq_on_a_short_table_uses_its_last_level(table: Any, waits: Any) -> None:
    assert (
        retry_policy.compiled(RetryPolicy.rocketmq(), LevelTable.parse(table).ms).delays_ms == waits
    )


def test_rocketmq_on_a_long_table_is_cut_to_32_waits() -> None:
    table = LevelTable.parse(" ".join(f"{n}s" for n in range(1, 65)))
    waits = retry_policy.compiled(RetryPolicy.rocketmq(), table.ms).delays_ms
    assert len(waits) == 32
    assert waits[0] == 3000


def test_a_ladder_waits_its_steps_and_repeats_the_last() -> None:
    compiled = retry_policy.compiled(LADDER, DEFAULT_LEVELS.ms)
    assert [compiled.delay_ms(k) for k in (1, 2, 3, 4)] == [10_000, 30_000, 60_000, 60_000]
    assert compiled.total_ms(2) == 40_000
    assert compiled.total_ms(5) == 220_000
    assert RetryPolicy.ladder([10, "30s", 60]) == LADDER


@pytest.mark.parametrize(
    ("steps", "recorded"),
    [
        ([], "has 0 steps"),
        ("", "has 0 steps"),
        ([-1], "ladder step 1 -1"),
        ("10s 5s", "ladder step 2 '5s' must not be shorter than the step before it, 10s"),
        (["1s"] * 1000, "has 1000 steps: it must have 1 to 32"),
        ("0s", "step 1 '0s' is out of range"),
        ("41d", "step 1 '41d' is out of range"),
        ("1s apples", "step 2 'apples'"),
        ([True], "step 1 True"),
        (5, "ladder 5"),
        (b"1s", "ladder b'1s'"),
        (None, "ladder None"),
    ],
)
def test_a_bad_ladder_is_refused_with_the_step_at_fault(steps: Any, recorded: Any) -> None:
    with pytest.raises(InvalidArgument, match=recorded):
        RetryPolicy.ladder(steps)


def test_a_fixed_policy_waits_always_the_same() -> None:
    assert retry_policy.compiled(RetryPolicy.fixed(1), DEFAULT_LEVELS.ms).delays_ms == (1000,)


@pytest.mark.parametrize("bad", [0, -1, math.nan, "x", True, None, "41d"])
def test_a_bad_fixed_interval_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^fixed interval "):
        RetryPolicy.fixed(bad)


def test_an_exponential_policy_grows_to_its_cap() -> None:
    compiled = retry_policy.compiled(RetryPolicy.exponential(), DEFAULT_LEVELS.ms)
    seconds = (5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 7200)
    assert compiled.delays_ms == tuple(s * 1000 for s in seconds)
    assert compiled.jitter == 0.1


@given(
    st.floats(1, 1000),
    st.integers(1, 40 * 86_400_000),
    st.integers(1, 40 * 86_400_000),
)
def test_an_exponential_policy_never_overflows_and_never_shrinks(
    multiplier: Any, one: Any, two: Any
) -> None:
    first, cap = sorted((one, two))
    policy = RetryPolicy.exponential(first / 1000, multiplier, cap / 1000)
    waits = retry_policy.compiled(policy, DEFAULT_LEVELS.ms).delays_ms
    assert 1 <= len(waits) <= 32
    assert waits[0] == first
    assert list(waits) == sorted(waits)
    assert waits[-1] <= cap


@pytest.mark.parametrize(
    ("kwargs", "recorded"),
    [
        ({"initial": 0}, "exponential initial 0"),
        ({"multiplier": 0.5}, "exponential multiplier 0.5 must be a number from 1 to 1000"),
        ({"multiplier": math.inf}, "exponential multiplier inf"),
        ({"multiplier": math.nan}, "exponential multiplier nan"),
        ({"multiplier": True}, "exponential multiplier True"),
        ({"multiplier": "2"}, "exponential multiplier '2'"),
        ({"max": "1s"}, "exponential max '1s' must not be shorter than the initial wait, 5s"),
        ({"jitter": 1.1}, "exponential jitter 1.1 must be a number from 0 to 1"),
        ({"jitter": -0.1}, "exponential jitter -0.1"),
        ({"max_retries": -1}, "unlimited"),
    ],
)
def test_a_bad_exponential_policy_is_refused(kwargs: Any, recorded: Any) -> None:
    with pytest.raises(InvalidArgument, match=recorded):
        RetryPolicy.exponential(**kwargs)


POLICIES = [
    ("rocketmq", RetryPolicy.rocketmq()),
    ("ladder:10s 30s 1m", LADDER),
    ("fixed:1s", RetryPolicy.fixed(1)),
    ("exponential:5s,2,2h,0.1", RetryPolicy.exponential()),
    ("exponential:100ms,1.5,1m30s,0", RetryPolicy.exponential(0.1, 1.5, 90, 0)),
    ("exponential:5s,2,2h,0.00001", RetryPolicy.exponential(jitter=0.00001)),
]


@pytest.mark.parametrize(("text", "policy"), POLICIES)
def test_a_policy_is_written_and_read_as_the_command_line_spells_it(text: Any, policy: Any) -> None:
    assert str(policy) == text
    assert RetryPolicy.parse(text) == policy


@pytest.mark.parametrize(
    "text", ["exponential", "exponential:", "exponential:5s", "exponential: 5s, 2 ,2h"]
)
def test_the_later_parts_of_an_exponential_policy_have_defaults(text: Any) -> None:
    assert RetryPolicy.parse(text) == RetryPolicy.exponential()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rocket",
        "rocketmq:",
        "rocketmq:1s",
        "ladder",
        "ladder:",
        "fixed",
        "fixed:x",
        "exponential:5s,2,2h,0.1,7",
        "exponential:5s,x",
        "exponential:5s,1e3",
        "exponential:,,",
        "Fixed:1s",
        None,
        5,
    ],
)
def test_a_policy_that_cannot_be_read_is_refused(text: Any) -> None:
    with pytest.raises(InvalidArgument):
        RetryPolicy.parse(text)


@pytest.mark.parametrize("limit", [None, 0, 16, "unlimited"])
@pytest.mark.parametrize(("text", "policy"), POLICIES)
def test_a_policy_survives_the_catalog(text: Any, policy: Any, limit: Any) -> None:
    named = RetryPolicy.parse(text)
    object.__setattr__(named, "max_retries", -1 if limit == "unlimited" else limit)
    assert retry_policy.decoded(json.loads(json.dumps(retry_policy.encoded(named)))) == named


def test_a_policy_keeps_the_retries_it_names() -> None:
    assert RetryPolicy.fixed(1).max_retries is None
    assert RetryPolicy.fixed(1, max_retries=3).max_retries == 3
    assert RetryPolicy.rocketmq(max_retries="unlimited").max_retries == -1
    assert RetryPolicy.ladder("1s", max_retries=0).max_retries == 0


@pytest.mark.parametrize(
    "stored",
    [None, [], {}, {"policy": "new:1"}, {"policy": 5}, {"policy": "fixed:1s", "max_retries": "x"}],
)
def test_a_stored_policy_that_cannot_be_read_is_a_codec_error(stored: Any) -> None:
    with pytest.raises(CodecError, match="damaged, or a newer rqretry wrote it"):
        retry_policy.decoded(stored)


@pytest.mark.parametrize(
    ("policy", "retries", "request_parts"),
    [
        (RetryPolicy.rocketmq(), 16, "16 retries = 17 deliveries over 4 h 45 m 40 s"),
        (RetryPolicy.rocketmq(), 17, "17 retries = 18 deliveries over 6 h 45 m 40 s"),
        (RetryPolicy.rocketmq(), 1, "1 retry = 2 deliveries over 10 s"),
        (RetryPolicy.rocketmq(), 0, "0 retries = 1 delivery"),
        (LADDER, -1, "unlimited retries, in the end every 1 m"),
        (RetryPolicy.fixed("250ms"), 2, "2 retries = 3 deliveries over 500 ms"),
    ],
)
def test_a_policy_is_described_in_words(policy: Any, retries: Any, request_parts: Any) -> None:
    assert retry_policy.describe(policy, retries, DEFAULT_LEVELS.ms) == request_parts
