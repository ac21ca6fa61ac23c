import functools
import pickle
from collections.abc import Awaitable, Coroutine
from typing import Annotated, Any, Optional, Union

import pytest

from rqretry.core.consume_result import (
    MISSING,
    ConsumeResult,
    DeadLetter,
    HandlerSignal,
    Outcome,
    Postpone,
    Retry,
    classify_return,
    classify_task_return,
    none_means_success,
    return_annotation,
)
from rqretry.core.errors import InvalidArgument, RqretryError


def test_the_two_plain_results_are_results() -> None:
    assert ConsumeResult(Outcome.SUCCESS) == ConsumeResult.SUCCESS
    assert ConsumeResult.failure() == ConsumeResult.FAILURE
    assert ConsumeResult.SUCCESS != ConsumeResult.FAILURE


def test_a_retry_carries_its_wait_or_its_level() -> None:
    assert ConsumeResult.retry(after="30s").delay_ms == 30_000
    assert ConsumeResult.retry(after=0).delay_ms == 0
    assert ConsumeResult.retry(level=4) == ConsumeResult(Outcome.FAILURE, None, None, 4)
    assert ConsumeResult.retry(level=0) == ConsumeResult.retry() == ConsumeResult.FAILURE


def test_level_minus_one_is_the_dead_letter_queue_now() -> None:
    assert ConsumeResult.retry(level=-1, reason="x") == ConsumeResult.dead_letter("x")


@pytest.mark.parametrize("level", [-2, True, 1.5, "4"])
def test_an_impossible_level_is_refused(level: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^level "):
        ConsumeResult.retry(level=level)


def test_a_wait_and_a_level_together_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="after=5: drop one"):
        ConsumeResult.retry(after=5, level=2)


@pytest.mark.parametrize("after", [-1, "5 apples", True, "41d", None])
def test_an_impossible_wait_is_refused(after: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^after "):
        ConsumeResult.postpone(after)


def test_a_result_is_frozen_and_small() -> None:
    with pytest.raises(AttributeError):
        ConsumeResult.SUCCESS.reason = "x"  # type: ignore[misc]
    assert not hasattr(ConsumeResult.SUCCESS, "__dict__")


def test_a_result_is_shown_by_what_it_asks_for() -> None:
    assert repr(ConsumeResult.SUCCESS) == "<ConsumeResult SUCCESS>"
    assert repr(ConsumeResult.retry(90, reason="no")) == "<ConsumeResult FAILURE after 1m30s 'no'>"
    assert repr(ConsumeResult.retry(level=4)) == "<ConsumeResult FAILURE level 4>"


def test_a_reason_can_always_be_stored() -> None:
    assert ConsumeResult.failure("half \ud800").reason == r"half \ud800"
    no_text: Any = ValueError("x")
    assert ConsumeResult.failure(no_text).reason == "ValueError('x')"
    assert ConsumeResult.failure("x" * 10_000).reason == "x" * 1000


@pytest.mark.parametrize(
    ("signal", "result"),
    [
        (Retry(), ConsumeResult.FAILURE),
        (Retry(30, reason="busy"), ConsumeResult.retry(30, reason="busy")),
        (Retry(level=-1), ConsumeResult.dead_letter()),
        (Postpone("1m", "not yet"), ConsumeResult.postpone(60, "not yet")),
        (DeadLetter("cancelled"), ConsumeResult.dead_letter("cancelled")),
    ],
)
def test_a_signal_stands_for_its_result_also_after_pickle(signal: Any, result: Any) -> None:
    assert signal.result == result
    copy = pickle.loads(pickle.dumps(signal))
    assert type(copy) is type(signal)
    assert copy.result == result
    assert str(copy) == str(signal)


def test_signals_are_not_errors_of_rqretry() -> None:
    assert not issubclass(HandlerSignal, RqretryError)
    assert str(DeadLetter("cancelled")) == "cancelled"


@pytest.mark.parametrize("value", [0, "", [], 5, object(), True, Outcome.FAILURE])
def test_any_other_value_is_a_success(value: Any) -> None:
    result = classify_return(value, none_is_success=False)
    assert result is ConsumeResult.SUCCESS


@pytest.mark.parametrize("none_is_success", [False, True])
def test_false_is_a_failure_and_nothing_that_equals_it_is(none_is_success: Any) -> None:
    failed = classify_return(False, none_is_success=none_is_success)
    assert (failed.outcome, failed.reason) == (Outcome.FAILURE, "handler returned False")
    for value in (True, 0, 0.0, ""):
        result = classify_return(value, none_is_success=none_is_success)
        assert result is ConsumeResult.SUCCESS


@pytest.mark.parametrize("value", [False, None, 0, ConsumeResult.FAILURE, Outcome.DEAD_LETTER, "x"])
def test_whatever_a_task_returns_is_a_success(value: Any) -> None:
    assert classify_task_return(value) is ConsumeResult.SUCCESS


def test_none_is_what_the_annotation_or_the_option_says() -> None:
    assert classify_return(None, none_is_success=True) is ConsumeResult.SUCCESS
    failed = classify_return(None, none_is_success=False)
    assert failed.outcome is Outcome.FAILURE
    assert failed.reason == "handler returned None where it promised a result"


def test_a_result_passes_through_unchanged() -> None:
    result = ConsumeResult.postpone(5)
    assert classify_return(result, none_is_success=False) is result


def test_a_coroutine_that_nobody_awaited_is_a_failure() -> None:
    async def work() -> None:
        """Never runs."""

    coroutine = work()
    result = classify_return(coroutine, none_is_success=True)
    coroutine.close()
    assert result.outcome is Outcome.FAILURE
    assert "returned coroutine that nobody ran" in str(result.reason)


def test_a_generator_whose_body_never_ran_is_a_failure() -> None:
    async def later() -> Any:
        yield 1

    for value in ((n for n in [1]), later()):
        for result in (classify_return(value, none_is_success=True), classify_task_return(value)):
            assert result.outcome is Outcome.FAILURE


def no_annotation(message): ...  # type: ignore[no-untyped-def]


def none(message: Any) -> None: ...


def annotated_with(annotation: Any) -> Any:
    """A handler whose return annotation is this one."""

    def handler(message: Any) -> Any:
        raise AssertionError("never called")

    handler.__annotations__["return"] = annotation
    return handler


def bad_parameter(message: "Elsewhere") -> ConsumeResult:  # type: ignore[name-defined]  # noqa: F821
    raise AssertionError("never called")


async def asynchronous(message: Any) -> ConsumeResult:
    raise AssertionError("never called")


@functools.wraps(asynchronous)
def wrapper(*args: Any) -> Any:
    return asynchronous(*args)


class Handler:
    def __call__(self, message: Any) -> ConsumeResult:
        raise AssertionError("never called")

    def method(self, message: Any) -> bool:
        raise AssertionError("never called")


class Strange:
    __annotations__ = 5  # type: ignore[assignment]

    def __call__(self, message): ...  # type: ignore[no-untyped-def]


ANNOTATIONS = [
    (None, True),
    (Any, True),
    (object, True),
    (ConsumeResult, False),
    (ConsumeResult | None, False),
    (Optional[ConsumeResult], False),  # noqa: UP045 - users write it
    (Union[bool, ConsumeResult, None], False),  # noqa: UP007 - users write it
    (bool, False),
    (bool | None, True),
    (int, False),
    (int | None, True),
    ("ConsumeResult", False),
    ("None", True),
    ("bool", False),
    ("Elsewhere", False),
    ("elsewhere.ConsumeResult | None", False),
    ("Optional[Elsewhere]", True),
    ("not python (", False),
    (Awaitable[ConsumeResult], False),
    (Coroutine[Any, Any, None], True),
    (Annotated[bool, "x"], False),
    (list[ConsumeResult], False),
    (5, False),
]


@pytest.mark.parametrize(
    ("handler", "none_succeeds"),
    [
        *((annotated_with(annotation), succeeds) for annotation, succeeds in ANNOTATIONS),
        (no_annotation, True),
        (none, True),
        (bad_parameter, False),
        (asynchronous, False),
        (wrapper, False),
        (functools.partial(annotated_with(bool), 1), False),
        (Handler(), False),
        (Handler().method, False),
        (lambda message: None, True),
        (Strange(), True),
        (len, True),
    ],
)
def test_none_means_what_the_return_annotation_promises(handler: Any, none_succeeds: Any) -> None:
    assert none_means_success(return_annotation(handler)) is none_succeeds


def test_a_handler_without_annotation_has_none() -> None:
    assert return_annotation(no_annotation) is MISSING
