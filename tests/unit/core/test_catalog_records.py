"""The catalog's records of topics and groups."""

import pytest

from rqretry.core.catalog_records import HISTORY_BYTES, PUSH, SIMPLE, GroupRecord, TopicRecord
from rqretry.core.delay_levels import DEFAULT_LEVELS
from rqretry.core.errors import CodecError, ConfigError
from rqretry.core.retry_policy import RetryPolicy
from rqretry.core.route import MAX_GROUPS, Route, RouteGroup


def test_a_topic_survives_its_encoding() -> None:
    topic = TopicRecord("t", 4).with_group("a", PUSH).with_group("b", SIMPLE)

    assert TopicRecord.decode("t", topic.encode()) == topic


def test_a_new_group_gets_the_next_byte_and_the_topic_a_new_version() -> None:
    topic = TopicRecord("t", 1)
    grown = topic.with_group("a", PUSH).with_group("b", SIMPLE)

    assert [(group.name, group.byte) for group in grown.groups] == [("a", 1), ("b", 2)]
    assert (grown.version, grown.byte_of("b"), grown.byte_of("c")) == (topic.version + 2, 2, 0)
    assert grown.route == Route(3, 1, grown.groups, history_bytes=HISTORY_BYTES)


def test_subscribing_twice_changes_nothing() -> None:
    topic = TopicRecord("t", 1).with_group("a", PUSH)

    assert topic.with_group("a", PUSH) is topic


def test_a_byte_is_used_again_when_nothing_of_its_group_is_left_and_the_oldest_first() -> None:
    topic = TopicRecord("t", 1)
    for byte in range(1, MAX_GROUPS + 1):
        topic = topic.with_group(f"g{byte}", PUSH)
    with pytest.raises(ConfigError, match="has 250 groups"):
        topic.with_group("too many", PUSH)
    left = topic.without_group("g7", 7).without_group("g3", 3)
    assert TopicRecord.decode("t", left.encode()) == left
    with pytest.raises(ConfigError, match="has 250 groups"):
        left.with_group("too early", PUSH)
    freed = left.freed("g3", 3).with_group("one", PUSH).freed("g7", 7).with_group("other", PUSH)
    assert (freed.byte_of("one"), freed.byte_of("other")) == (3, 7)
    again = freed.without_group("g9", 9).freed("g9", 9).without_group("g5", 5).freed("g5", 5)
    assert again.with_group("next", PUSH).byte_of("next") == 9


def test_a_group_survives_its_encoding() -> None:
    group = GroupRecord("g", PUSH, 3, RetryPolicy.exponential(), ("t", "u"), 9, "me")

    assert GroupRecord.decode("g", group.encode()) == group


def test_a_change_makes_a_new_version_and_says_who_made_it() -> None:
    group = GroupRecord("g", PUSH)
    changed = group.changed("me", 5, max_retries=3)

    assert (changed.max_retries, changed.version) == (3, 2)
    assert (changed.changed_by, changed.changed_at_ms) == ("me", 5)
    assert changed.policy == group.policy


def test_a_change_to_what_it_is_already_is_none() -> None:
    group = GroupRecord("g", PUSH, 3)

    assert group.changed("me", 5, max_retries=3) is group
    assert group.changed("me", 5) is group


def test_the_scripts_are_reported_the_ladder_compiled_to_milliseconds() -> None:
    stated = GroupRecord("g", PUSH).configuration(DEFAULT_LEVELS, 7, "t")

    assert str(stated["delays"]).split()[:3] == ["10000", "30000", "60000"]
    assert len(str(stated["delays"]).split()) == 16
    assert len(str(stated["levels"]).split()) == 18
    assert (stated["kind"], stated["max_retries"], stated["byte"]) == (
        "push",
        16,
        b"\x07",
    )


@pytest.mark.parametrize(
    "stored", ["", "{", "[]", "{}", "null", '{"partitions": 1}', '{"kind": 1}']
)
def test_a_damaged_record_is_named(stored: str) -> None:
    with pytest.raises(CodecError, match="'t'"):
        TopicRecord.decode("t", stored)
    with pytest.raises(CodecError, match="'g'"):
        GroupRecord.decode("g", stored)


def test_other_tags_make_a_new_version_of_the_topic_and_keep_the_byte() -> None:
    topic = TopicRecord("t", 1).with_group("a", PUSH).with_group("b", PUSH)
    changed = topic.with_group("a", PUSH, "x || y")

    assert (changed.version, changed.next_byte) == (topic.version + 1, topic.next_byte)
    assert changed.groups == (RouteGroup("a", 1, PUSH, "x || y"), RouteGroup("b", 2, PUSH))
    assert TopicRecord.decode("t", changed.encode()) == changed
    assert changed.with_group("a", PUSH, "*").groups == topic.groups


def test_a_group_takes_everything_of_a_topic_whose_tags_were_never_named() -> None:
    group = GroupRecord("g", PUSH, topics=("t", "u"))
    some = group.changed("me", 5, tags=group.with_tags(["t"], "x"))

    assert GroupRecord.decode("g", some.encode()) == some
    assert (some.tags_of("t"), some.tags_of("u")) == ("x", "*")
    assert some.with_tags(["t"], "*") == group.tags == ()
