"""What publish is given, checked and encoded before any I/O."""

from typing import Any

import pytest

from rqretry import InvalidArgument, OutgoingMessage
from rqretry.producer.encode import draft


@pytest.mark.parametrize(("value", "expected"), [(0, ""), ("10s", 10_000), ("40d", 3_456_000_000)])
def test_a_delay_is_read_in_milliseconds(value: Any, expected: Any) -> None:
    message, _ = draft(OutgoingMessage(body=1, delay=value), "a", 0)
    assert message.delay_ms == expected


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), "5 apples", True, 10**12, "41d"])
def test_a_bad_delay_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^delay "):
        draft(OutgoingMessage(body=1, delay=bad), "a", 0)


@pytest.mark.parametrize("bad", [False, 0, "", [], ()])
def test_only_none_means_no_headers(bad: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^headers .* must be a mapping of str to str"):
        draft(OutgoingMessage(body=1, headers=bad), "a", 0)


def test_empty_headers_are_the_same_message_as_none() -> None:
    none, _ = draft(OutgoingMessage(body=1, id="a"), "", 0)
    empty, _ = draft(OutgoingMessage(body=1, id="a", headers={}), "", 0)
    assert empty == none


def test_an_empty_durability_is_not_memory() -> None:
    with pytest.raises(InvalidArgument, match=r'^durability \'\' must be "memory", "disk" or'):
        draft(OutgoingMessage(body=1, durability=""), "a", 0)
