import re
from enum import Enum
from types import MappingProxyType
from typing import Any

import pytest

from rqretry.core import limits
from rqretry.core.errors import InvalidArgument

NAMES = [
    (limits.check_topic, "topic", 127),
    (limits.check_group, "group", 120),
    (limits.check_namespace, "namespace", 63),
]


@pytest.mark.parametrize(("check", "kind", "longest"), NAMES)
def test_a_name_may_have_every_length_and_character_of_its_kind(
    check: Any, kind: Any, longest: Any
) -> None:
    for good in ("a", "Z9_-", "x" * longest):
        assert check(good) == good


@pytest.mark.parametrize(("check", "kind", "longest"), NAMES)
@pytest.mark.parametrize(
    ("bad", "recorded"),
    [
        ("", "has 0 characters"),
        ("a{b}", r"holds '{' \(U\+007B LEFT CURLY BRACKET\) at position 1"),
        ("a:b", r"U\+003A"),
        ("a b", r"U\+0020"),
        ("ab\n", r"holds '\\n' \(U\+000A\) at position 2"),
        ("a\x00b", r"holds '\\x00'"),
        ("*", "ASTERISK"),
        ("?", "QUESTION MARK"),
        ("[", "LEFT SQUARE BRACKET"),
        ("queu\u0451", "CYRILLIC SMALL LETTER IO.* at position 4"),
        ("a\u200bb", "ZERO WIDTH SPACE"),
        ("\u202eabc", "RIGHT-TO-LEFT OVERRIDE"),
        ("cafe\u0301", "COMBINING ACUTE ACCENT"),
        ("caf\u00e9", "LATIN SMALL LETTER E WITH ACUTE"),
        ("\uff11", "FULLWIDTH DIGIT ONE"),
        ("%DLQ%claims", "PERCENT SIGN.* at position 0"),
        (None, "NoneType, not str"),
        (5, "int, not str"),
        (b"topic", "bytes, not str"),
        (["a"], "list, not str"),
    ],
)
def test_a_bad_name_is_refused_with_the_character_and_its_place(
    check: Any, kind: Any, longest: Any, bad: Any, recorded: Any
) -> None:
    with pytest.raises(InvalidArgument, match=f"^{kind} .*{recorded}.*1 to {longest} characters"):
        check(bad)


@pytest.mark.parametrize(("check", "kind", "longest"), NAMES)
def test_a_name_that_is_too_long_reports_its_length(check: Any, kind: Any, longest: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"has {longest + 1} characters"):
        check("x" * (longest + 1))


class Topic(str, Enum):  # noqa: UP042 - the kind whose f-string is its name
    FLIGHTS = "flights"


def test_a_member_of_a_str_enum_is_stored_by_its_value() -> None:
    assert type(limits.check_topic(Topic.FLIGHTS)) is str
    assert f"{limits.check_topic(Topic.FLIGHTS)}" == "flights"


def test_many_message_ids_are_checked_at_once() -> None:
    assert limits.are_message_ids([])
    assert limits.are_message_ids(["order:17.A_b-c", "x" * 128])
    for bad in ("", "x" * 129, "a b", "\n", "\u00e4", "\ud800", None, 5, b"a"):
        assert not limits.are_message_ids(["a", bad])


def test_a_message_id_allows_dots_and_colons() -> None:
    assert limits.check_message_id("order:17.A_b-c") == "order:17.A_b-c"
    assert limits.check_message_id("x" * 128)


@pytest.mark.parametrize("bad", ["", "x" * 129, "a/b", "a b", "\u0451", None, 7, "a\n"])
def test_a_bad_message_id_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^message id"):
        limits.check_message_id(bad)


@pytest.mark.parametrize("check", [limits.check_tag, limits.check_message_group])
@pytest.mark.parametrize(
    "bad", ["", " ", "a b", "a\tb", "a\x7f", "a\u00a0b", "a\u200bb", "\ud800", "x" * 129, None, 3]
)
def test_tags_and_message_groups_hold_no_blanks_and_no_control_characters(
    check: Any, bad: Any
) -> None:
    with pytest.raises(InvalidArgument, match=r"^(tag|message_group) "):
        check(bad)


def test_a_tag_may_be_in_any_script_but_has_no_bar() -> None:
    assert limits.check_tag("\u0437\u0430\u043a\u0430\u0437") == "\u0437\u0430\u043a\u0430\u0437"
    with pytest.raises(InvalidArgument, match="separates tags"):
        limits.check_tag("a|b")


def test_a_message_group_is_measured_in_bytes() -> None:
    assert limits.check_message_group("x" * 63)
    with pytest.raises(InvalidArgument, match="takes 64 bytes"):
        limits.check_message_group("\u0437" * 32)


def test_keys_are_one_text_or_a_sequence() -> None:
    assert limits.check_keys("k") == ("k",)
    assert limits.check_keys(["a", "b"]) == ("a", "b")
    assert limits.check_keys(()) == ()
    assert len(limits.check_keys([f"k{n}" for n in range(16)])) == 16


@pytest.mark.parametrize(
    "bad", ["", [""], ["a b"], ["x" * 129], [None], ["k"] * 17, 5, b"k", {"a"}, {"a": 1}, None]
)
def test_bad_keys_are_refused(bad: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^keys? "):
        limits.check_keys(bad)


def test_headers_are_copied_from_any_mapping() -> None:
    given = MappingProxyType({"trace-id": "abc", "note": "two words\n"})
    assert limits.check_headers(given) == {"trace-id": "abc", "note": "two words\n"}
    assert limits.check_headers({}) == {}
    assert len(limits.check_headers({f"h{n}": "" for n in range(128)})) == 128


@pytest.mark.parametrize(
    ("bad", "recorded"),
    [
        ({f"h{n}": "" for n in range(129)}, "are 129; at most 128"),
        ({"a": 1}, r"header 'a' 1 is int, not str: convert it"),
        ({"a": None}, "NoneType, not str"),
        ({"a": b"x"}, "bytes, not str"),
        ({1: "a"}, "header name 1 is int"),
        ({"": "a"}, "header name '' has 0"),
        ({"x" * 129: "a"}, "has 129"),
        ({"a b": "c"}, "header name 'a b' holds"),
        ({"a": "\ud800"}, "surrogate"),
        ([("a", "b")], "must be a mapping"),
        ("a=b", "must be a mapping"),
        (None, "must be a mapping"),
    ],
)
def test_bad_headers_are_refused(bad: Any, recorded: Any) -> None:
    with pytest.raises(InvalidArgument, match=recorded):
        limits.check_headers(bad)


def test_headers_are_bounded_together_in_bytes() -> None:
    assert limits.check_headers({"a": "x" * 16383})
    with pytest.raises(InvalidArgument, match="take 16385 bytes"):
        limits.check_headers({"a": "x" * 16384})
    with pytest.raises(InvalidArgument, match="take 16387 bytes"):
        limits.check_headers({"\u0437": "x", "b": "\u0437" * 8191 + "y"})


def test_partitions_are_1_to_1024() -> None:
    assert [limits.check_partitions(n) for n in (1, 1024)] == [1, 1024]
    for bad in (0, -1, 1025, True, 1.0, "2", None):
        with pytest.raises(InvalidArgument, match=r"^partitions .* from 1 to 1024$"):
            limits.check_partitions(bad)


def test_max_retries_is_a_whole_number_or_unlimited() -> None:
    assert [limits.check_max_retries(n) for n in (0, 16, 1_000_000)] == [0, 16, 1_000_000]
    assert limits.check_max_retries("unlimited") == -1


def test_minus_one_retries_is_refused_with_the_word_to_use() -> None:
    with pytest.raises(InvalidArgument, match='-1 is refused: use "unlimited"'):
        limits.check_max_retries(-1)


@pytest.mark.parametrize("bad", [True, False, -2, 1_000_001, 1.0, "16", "", None, [1]])
def test_a_bad_max_retries_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^max_retries .*from 0 to 1000000"):
        limits.check_max_retries(bad)


@pytest.mark.parametrize("bad", [0, -1, 10**6, True, "3", 2.0])
def test_a_count_names_its_argument_and_both_limits(bad: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^max_messages .*from 1 to 32$"):
        limits.check_count(bad, name="max_messages", maximum=32)


def test_a_count_may_have_no_upper_limit() -> None:
    assert limits.check_count(10**9, name="rows", minimum=0) == 10**9
    with pytest.raises(InvalidArgument, match="0 or more"):
        limits.check_count(-1, name="rows", minimum=0)


def test_tags_are_put_in_order_and_each_once() -> None:
    assert limits.check_tags("b||a  ||  b") == "a || b"
    assert limits.check_tags(" * ") == "*"
    most = " || ".join(f"t{n:02}" for n in range(64))
    assert limits.check_tags(most) == most


@pytest.mark.parametrize(
    ("bad", "recorded"),
    [
        ("", '"||" between them'),
        ("a | b", '"||" between them'),
        ("a ||| b", '"||" between them'),
        ("a b", '"||" between them'),
        ("a\tb || c", '"||" between them'),
        ("a ||", '"||" between them'),
        ("a || *", "alone takes every message"),
        ("x" * 129, "129 characters"),
        ("a || \x00", "control characters"),
        (" || ".join(map(str, range(65))), "are 65; at most 64"),
        (None, "must be a str"),
        (["a"], "must be a str"),
    ],
)
def test_tags_of_a_subscription_that_are_none_are_refused(bad: Any, recorded: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(recorded)):
        limits.check_tags(bad)
