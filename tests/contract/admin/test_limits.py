"""set_topic(max_messages=) and QueueFull; recall."""

from typing import Any

import pytest

from rqretry import AsyncClient, OutgoingMessage
from rqretry.core.errors import (
    InvalidArgument,
    MessageNotFound,
    PublishError,
    QueueFull,
    TopicNotFound,
)
from tests.contract.admin.bench import Bench


def test_a_publish_that_would_go_over_is_refused_and_stores_nothing(bench: Bench) -> None:
    bench.group()
    assert bench.admin.set_topic("t", max_messages=2).max_messages == 2
    bench.publish(1, 2)
    with pytest.raises(QueueFull, match="'t' is full"):
        bench.publish(3)
    with pytest.raises(QueueFull):
        bench.publish(3, delay=5)
    assert bench.stored() == 2
    bench.succeed(bench.lease(1))
    bench.publish(3)
    assert bench.verbs() == ["set_topic"]


def test_publish_many_says_which_ids_were_not_stored(bench: Bench) -> None:
    bench.admin.create_topic("t")
    bench.admin.set_topic("t", max_messages=600)
    with pytest.raises(PublishError, match="full") as caught:
        bench.client.publish_many("t", range(700))
    assert (len(caught.value.done), len(caught.value.failed)) == (470, 230)
    assert bench.stored() == 470


def test_a_limit_holds_for_clients_that_knew_the_topic_before_and_can_be_lifted(
    bench: Bench,
) -> None:
    bench.publish(1)
    with type(bench.client)(bench.url, namespace="test") as operator:
        operator.admin.set_topic("t", max_messages=1)
    with pytest.raises(QueueFull):
        bench.publish(2)
    assert bench.admin.set_topic("t", max_messages=0).max_messages is None
    bench.publish(2)


def test_a_limit_survives_a_new_group(bench: Bench) -> None:
    bench.admin.create_topic("t")
    bench.admin.set_topic("t", max_messages=1)
    bench.group()
    bench.publish(1)
    with pytest.raises(QueueFull):
        bench.publish(2)


def test_a_limit_is_shared_by_the_partitions_and_rounded_up(bench: Bench) -> None:
    bench.admin.create_topic("t", partitions=4)
    bench.admin.set_topic("t", max_messages=5)
    limits = {bench.redis.hget(f"rqretry:test:{{t:{n}}}:meta", "most") for n in range(4)}
    assert limits == {b"2"}


def test_of_settings_of_which_one_is_refused_none_is_set(bench: Bench) -> None:
    before = bench.admin.create_topic("t", partitions=4)
    with pytest.raises(InvalidArgument, match="it has 4"):
        bench.admin.set_topic("t", max_messages=5, partitions=2)
    assert bench.admin.topics() == [before]


def test_a_limit_must_be_a_number_and_the_topic_be_there(bench: Bench) -> None:
    bench.admin.create_topic("t")
    with pytest.raises(InvalidArgument, match="max_messages"):
        bench.admin.set_topic("t", max_messages=-1)
    with pytest.raises(TopicNotFound):
        bench.admin.set_topic("unknown", max_messages=1)


def test_recalling_cancels_a_message_that_is_not_due(bench: Bench) -> None:
    bench.group()
    bench.admin.create_topic("many", partitions=5)
    (sent,) = bench.publish(1, delay=60)
    (other,) = bench.publish(2, topic="many", delay=60)
    assert bench.client.recall(sent) is True
    assert bench.client.recall(other, topic="many") is True
    assert bench.stored() == 0
    with pytest.raises(MessageNotFound):
        bench.client.recall(sent)
    assert [event.event for event in bench.admin.timeline(sent)] == ["publish", "recall"]


def test_recalling_too_late_answers_false_and_changes_nothing(bench: Bench) -> None:
    bench.group()
    (sent,) = bench.publish(1)
    assert bench.client.recall(sent) is False
    assert [receipt.id for receipt in bench.lease()] == [sent]


def test_recalling_what_is_not_there_is_an_error(bench: Bench) -> None:
    bench.admin.create_topic("t")
    with pytest.raises(MessageNotFound, match="'nothing'"):
        bench.client.recall("nothing")
    with pytest.raises(TopicNotFound):
        bench.client.recall("nothing", topic="unknown")
    with pytest.raises(InvalidArgument):
        bench.client.recall("not an id")


async def test_recalling_with_asyncio(bench: Bench) -> None:
    async with AsyncClient(bench.url, namespace="test") as client:
        sent = await client.publish("t", 1, delay=60)
        assert await client.recall(sent) is True


def shares(bench: Bench, partitions: int, field: str) -> set[int]:
    keys = [f"rqretry:test:{{t:{number}}}:meta" for number in range(partitions)]
    return {int(bench.redis.hget(key, field)) for key in keys}


def test_history_is_bounded_for_the_topic_however_many_partitions_it_has(bench: Bench) -> None:
    bench.admin.create_topic("t", partitions=16)
    assert shares(bench, 16, "limit") == {4 * 1024 * 1024}
    bench.admin.set_topic("t", partitions=32)
    assert shares(bench, 32, "limit") == {2 * 1024 * 1024}
    changed = bench.admin.set_topic("t", max_history_bytes=32 * 100_000, max_history_age="2h")
    assert (changed.max_history_bytes, changed.max_history_age_s) == (3_200_000, 7200)
    assert shares(bench, 32, "limit") == {100_000}
    assert shares(bench, 32, "history_ms") == {7_200_000}
    changed = bench.admin.set_topic("t", max_history_bytes=None, max_history_age=None)
    assert (changed.max_history_bytes, changed.max_history_age_s) == (64 * 1024 * 1024, None)
    assert shares(bench, 32, "history_ms") == {0}


def test_no_partition_keeps_more_history_than_its_share(bench: Bench) -> None:
    bench.admin.create_topic("t", partitions=4)
    bench.admin.set_topic("t", max_history_bytes=4 * 64 * 1024)
    for _ in range(8):
        bench.client.publish_many(
            "t", [OutgoingMessage(body=n, keys=["k" * 100]) for n in range(2000)]
        )
    (topic,) = bench.admin.stats("t").topics
    assert 0 < topic.history_bytes <= 4 * 64 * 1024
    assert topic.stored == 16_000


@pytest.mark.parametrize(
    "wrong", [{"max_history_bytes": 1}, {"max_history_bytes": "1"}, {"max_history_age": "59s"}]
)
def test_a_limit_of_history_that_is_out_of_range_is_refused(
    bench: Bench, wrong: dict[str, Any]
) -> None:
    bench.admin.create_topic("t")
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        bench.admin.set_topic("t", **wrong)
