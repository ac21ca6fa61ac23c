"""What a batch handler's return value means for each message."""

from functools import partial
from typing import Any

import pytest

from rqretry.core.batch_result import read_batch, stranger
from rqretry.core.consume_result import FALSE_REASON, ConsumeResult, Outcome, classify_return

IDS = ("a", "b")
READ = partial(classify_return, none_is_success=True)
BAD = ValueError("bad")


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        (None, Outcome.SUCCESS),
        (True, Outcome.SUCCESS),
        (7, Outcome.SUCCESS),
        (False, Outcome.FAILURE),
        (ConsumeResult.dead_letter(), Outcome.DEAD_LETTER),
        ([True, True], Outcome.FAILURE),
        ((), Outcome.FAILURE),
        ({True}, Outcome.FAILURE),
    ],
)
def test_one_value_is_for_all(value: Any, outcome: Outcome) -> None:
    answers = read_batch(value, IDS, READ)
    assert [answer.outcome for answer in answers.values()] == [outcome] * 2  # type: ignore[union-attr]
    assert list(answers) == list(IDS)


def test_a_mapping_is_read_for_each_and_what_is_missing_failed() -> None:
    answers = read_batch({"b": False}, IDS, READ)
    assert answers["b"] == ConsumeResult(Outcome.FAILURE, FALSE_REASON)
    assert isinstance(missing := answers["a"], ConsumeResult)
    assert missing.reason == "the handler's mapping has no outcome for this message"
    assert read_batch({}, IDS, READ).keys() == {"a", "b"}


def test_an_exception_is_no_success() -> None:
    assert read_batch(BAD, IDS, READ) == {"a": BAD, "b": BAD}
    assert read_batch({"a": BAD, "b": True}, IDS, READ) == {"a": BAD, "b": ConsumeResult.SUCCESS}


def test_an_id_that_was_not_there_is_named() -> None:
    assert stranger({"a": True, "b": True}, IDS) is None
    assert stranger(None, IDS) is None
    named = stranger({"a": True, 7: True}, IDS)
    assert named is not None
    assert named.startswith("the outcome for 7 is ignored")
    assert named.endswith("use message.id as the key")
