"""pause, resume, pinning, unsubscribe and delete: an operator changes groups and topics."""

import logging
from dataclasses import replace

import pytest

from rqretry import AsyncClient
from rqretry.core.errors import ConfigError, GroupNotFound, InvalidArgument, TopicNotFound
from rqretry.core.parts import parts_of
from rqretry.core.retry_policy import RetryPolicy
from rqretry.core.route import MAX_GROUPS
from rqretry.protocol.command import Block, Command, Each, Pause
from tests.contract.admin.bench import Bench


def test_a_paused_group_gets_nothing_and_loses_nothing(bench: Bench) -> None:
    bench.group()
    (sent,) = bench.publish(1)
    assert bench.admin.pause("g").paused is True
    assert bench.lease() == []
    assert bench.admin.explain(sent) == {"g": "the group is paused"}
    assert bench.admin.resume("g").paused is False
    assert [receipt.id for receipt in bench.lease()] == [sent]
    assert bench.verbs() == ["pause", "resume"]


def test_resuming_wakes_a_consumer_that_waits(bench: Bench) -> None:
    bench.group()
    bench.publish(1)
    bench.admin.pause("g")
    wake = bench.keys().wake
    bench.redis.delete(wake)
    bench.admin.resume("g")
    assert bench.redis.exists(wake)


def test_a_pause_is_for_one_group(bench: Bench) -> None:
    bench.group("g")
    bench.group("h")
    bench.publish(1)
    bench.admin.pause("g")
    assert bench.lease(group="g") == []
    assert len(bench.lease(group="h")) == 1


def test_a_pinned_value_is_kept_by_a_start_that_names_another(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.group(max_retries=16)
    pinned = bench.admin.set_group("g", max_retries=3, pin=True)
    assert (pinned.max_retries, pinned.pinned) == (3, ("max_retries",))
    with caplog.at_level(logging.WARNING, "rqretry"):
        bench.group(max_retries=16, policy=RetryPolicy.fixed(1))
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "max_retries is pinned to 3, not 16" in warning
    info = bench.admin.group("g")
    assert (info.max_retries, info.policy) == (3, "fixed:1s")  # only what is pinned is kept
    assert bench.redis.hget(bench.keys().config, "max_retries") == b"3"


def test_a_start_that_agrees_with_the_pin_says_nothing(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.group()
    bench.admin.set_group("g", max_retries=3, pin=True)
    with caplog.at_level(logging.WARNING, "rqretry"):
        bench.group(max_retries=3)
    assert caplog.records == []


def test_without_a_pin_the_start_wins(bench: Bench) -> None:
    bench.group()
    bench.admin.set_group("g", max_retries=3)
    bench.group(max_retries=16)
    assert bench.admin.group("g").max_retries == 16


def test_an_operator_always_wins_and_may_unpin(bench: Bench) -> None:
    bench.group()
    bench.admin.set_group("g", max_retries=3, policy="fixed:1s", pin=True)
    assert bench.admin.set_group("g", max_retries=5).pinned == ("max_retries", "policy")
    assert bench.admin.set_group("g", max_retries=6, pin=False).pinned == ("policy",)
    assert bench.admin.set_group("g", pin=False).pinned == ()
    bench.group(max_retries=16)
    assert bench.admin.group("g").max_retries == 16


def test_a_partial_change_keeps_the_rest_and_says_who_and_when(bench: Bench) -> None:
    bench.group(max_retries=4, policy=RetryPolicy.fixed(2))
    before = parts_of(bench.client).store.clock.now_ms()
    info = bench.admin.set_group("g", max_retries=5)
    assert (info.max_retries, info.policy) == (5, "fixed:2s")
    assert info.changed_by == parts_of(bench.client).name
    assert abs(info.changed_at_ms - before) < 60_000


def test_unsubscribing_frees_what_only_this_group_had(bench: Bench) -> None:
    bench.group("g", "t", "other")
    bench.dead_letter("dead")
    bench.publish("waits", "flies", "x" * 9000)
    receipts = bench.lease(2)
    bench.fail(receipts[:1])
    bench.publish("kept", topic="other")
    assert bench.admin.unsubscribe("g", "t", dry_run=True) == 4
    assert bench.stored() == 4

    assert bench.admin.unsubscribe("g", "t") == 4

    assert bench.stored() == 0
    assert bench.keys_of("{t:0}:group:g") == []
    assert bench.keys_of("{t:0}:big") == bench.keys_of("{t:0}:pending") == []
    assert bench.admin.group("g").topics == ("other",)
    assert bench.numbers(topic="other") == (1, 0, 0, 0, 0)
    assert bench.verbs() == ["unsubscribe"]
    assert bench.admin.audit()[0].counts == {"messages": 4}


def test_unsubscribing_leaves_the_other_groups_their_messages(bench: Bench) -> None:
    bench.group("g")
    bench.group("h")
    bench.publish(1, 2)
    bench.admin.unsubscribe("g", "t")
    bench.publish(3)
    assert bench.stored() == 3
    assert bench.numbers("h") == (3, 0, 0, 0, 0)
    bench.succeed(bench.lease(group="h"), group="h")
    assert bench.stored() == 0


def test_a_group_that_comes_back_gets_what_is_published_from_then_on(bench: Bench) -> None:
    bench.group("g")
    bench.group("h")
    bench.publish("before")
    bench.admin.unsubscribe("g", "t")
    bench.publish("between")
    bench.group("g")
    (sent,) = bench.publish("after")
    receipts = bench.lease(group="g")
    assert [receipt.id for receipt in receipts] == [sent]
    bench.succeed(receipts, group="g")
    assert bench.stored() == 3
    bench.succeed(bench.lease(group="h"), group="h")
    assert bench.stored() == 0


def test_messages_wait_for_the_next_group_when_the_last_one_has_left(bench: Bench) -> None:
    bench.group("g")
    bench.admin.unsubscribe("g", "t")
    (sent,) = bench.publish(1)
    assert bench.admin.stats("t").backlog == 1
    bench.group("h")
    assert [receipt.id for receipt in bench.lease(group="h")] == [sent]


def test_unsubscribing_needs_a_subscription(bench: Bench) -> None:
    bench.group("g")
    bench.admin.create_topic("other")
    with pytest.raises(GroupNotFound, match="'other'"):
        bench.admin.unsubscribe("g", "other")
    with pytest.raises(GroupNotFound, match="'x'"):
        bench.admin.unsubscribe("x", "t")


def test_an_unsubscribe_that_was_cut_off_is_completed_by_the_next_start(bench: Bench) -> None:
    bench.group("g")
    bench.publish(1, 2)
    operation = parts_of(bench.client).catalog.subscriptions.leave("g", "t")
    for step in operation:  # the first change of the record, and then the process is gone
        del step
        break
    operation.close()
    operation = parts_of(bench.client).catalog.subscriptions.leave("g", "t")
    step = next(operation)
    for _ in range(4):
        step = operation.send(parts_of(bench.client).store.run(step))  # type: ignore[arg-type]
    parts_of(bench.client).store.run(step)  # type: ignore[arg-type]
    operation.close()
    assert bench.admin.group("g").topics == ()
    assert bench.stored() == 2

    bench.group("g")

    assert (bench.stored(), bench.admin.group("g").topics) == (0, ("t",))
    (sent,) = bench.publish(3)
    assert [receipt.id for receipt in bench.lease()] == [sent]


def test_a_deleted_group_frees_its_memory(bench: Bench) -> None:
    bench.group("g", "t", "u")
    bench.dead_letter("dead")
    bench.publish(*range(700))
    bench.publish(1, topic="u")
    assert bench.admin.delete_group("g", dry_run=True) == 702
    assert bench.admin.delete_group("g") == 702
    assert bench.keys_of("group:g") == []
    assert (bench.stored(), bench.stored("u")) == (0, 0)
    with pytest.raises(GroupNotFound):
        bench.admin.group("g")
    assert bench.verbs() == ["delete_group"]


def test_a_group_made_again_after_its_deletion_works(bench: Bench) -> None:
    bench.group(max_retries=3)
    bench.admin.set_group("g", max_retries=4)
    bench.admin.delete_group("g")
    bench.group(max_retries=2)
    (sent,) = bench.publish(1)
    assert bench.redis.hget(bench.keys().config, "max_retries") == b"2"
    assert [receipt.id for receipt in bench.lease()] == [sent]


@pytest.mark.parametrize("verb", ["unsubscribe", "delete_group"])
def test_a_group_whose_worker_is_alive_stays_unless_forced(bench: Bench, verb: str) -> None:
    bench.group()
    bench.publish(1)
    bench.appear("w1")
    act = getattr(bench.admin, verb)
    given = ("g", "t") if verb == "unsubscribe" else ("g",)
    with pytest.raises(ConfigError, match="'w1' is alive"):
        act(*given)
    assert bench.stored() == 1
    assert act(*given, force=True) == 1
    assert bench.stored() == 0


def test_a_deleted_topic_frees_everything(bench: Bench) -> None:
    bench.admin.create_topic("t", partitions=3)
    bench.publish(*range(20), "x" * 9000)
    bench.publish("later", delay=60, id="mine")
    assert bench.admin.delete_topic("t", dry_run=True) == 22
    assert bench.admin.delete_topic("t") == 22
    left = [key for key in bench.keys_of("{t:") if ":lane:" not in key]
    assert left == []
    assert all(bench.redis.ttl(key) > 0 for key in bench.keys_of(":lane:"))
    assert bench.admin.topics() == []
    with pytest.raises(TopicNotFound):
        bench.admin.stats("t")
    with pytest.raises(TopicNotFound):
        bench.admin.delete_topic("t")


def test_a_topic_with_groups_is_deleted_only_by_force(bench: Bench) -> None:
    bench.group()
    bench.publish(1)
    with pytest.raises(InvalidArgument, match="'t' has groups: g"):
        bench.admin.delete_topic("t")
    assert bench.admin.delete_topic("t", force=True) == 1
    assert bench.admin.group("g").topics == ()
    assert [key for key in bench.keys_of("{t:") if ":lane:" not in key] == []
    assert bench.verbs() == ["delete_topic"]


def test_a_producer_that_knows_a_deleted_topic_makes_it_anew(bench: Bench) -> None:
    bench.group()
    bench.publish(1)
    with type(bench.client)(bench.url, namespace="test") as operator:
        operator.admin.delete_topic("t", force=True)
        parts_of(operator).store.perform(parts_of(operator).catalog.join("h", "push", ["t"]))
        operator.admin.delete_topic("t", force=True)
        bench.publish(2)
        parts_of(operator).store.perform(parts_of(operator).catalog.join("h", "push", ["t"]))
    (sent,) = bench.publish(3)
    ids = [receipt.id for receipt in bench.lease(group="h")]
    assert len(ids) == 2
    assert ids[1] == sent


def test_a_deletion_that_was_cut_off_is_completed_by_the_next_use(bench: Bench) -> None:
    bench.publish(1)
    operation = parts_of(bench.client).catalog.topics.remove("t")
    step = next(operation)
    for _ in range(2):
        step = operation.send(parts_of(bench.client).store.run(step))  # type: ignore[arg-type]
    parts_of(bench.client).store.run(step)  # type: ignore[arg-type]
    operation.close()
    assert bench.admin.topics() == []
    with type(bench.client)(bench.url, namespace="test") as producer:
        producer.publish("t", 2)
    assert [topic.name for topic in bench.admin.topics()] == ["t"]
    assert bench.stored() == 1


async def test_the_same_verbs_with_asyncio(bench: Bench) -> None:
    bench.group()
    bench.publish(1)
    async with AsyncClient(bench.url, namespace="test") as client:
        assert (await client.admin.pause("g")).paused is True
        assert await client.admin.delete_group("g") == 1
        assert [entry.verb for entry in await client.admin.audit()] == ["delete_group", "pause"]


def test_any_number_of_groups_join_a_topic_one_after_another(bench: Bench) -> None:
    bench.group("keeper")
    kept = bench.publish(1)
    for number in range(MAX_GROUPS + 2):
        name = f"g{number % 3}"
        bench.group(name)
        if number % 50 == 0:
            (sent,) = bench.publish(number)
            assert [receipt.id for receipt in bench.lease(group=name)] == [sent]
            kept.append(sent)
        bench.admin.delete_group(name, force=True)
    receipts = bench.lease(16, group="keeper")
    assert [receipt.id for receipt in receipts] == kept
    bench.succeed(receipts, group="keeper")
    assert bench.stored() == 0, "no message is owed to a group that left"


def test_a_byte_is_not_used_again_before_its_group_has_left_completely(bench: Bench) -> None:
    bench.group("g")
    stored = set(bench.publish(1, 2))
    leave = parts_of(bench.client).catalog.subscriptions.leave("g", "t")
    step = next(leave)
    while True:
        assert not isinstance(step, Block | Each | Pause)
        commands = [step] if isinstance(step, Command) else step
        if any(command.verb == "purge_list" for command in commands):
            break  # the route has lost the group, and what it held is there
        answers = [parts_of(bench.client).store.run(command) for command in commands]
        step = leave.send(answers[0] if isinstance(step, Command) else answers)
    record = parts_of(bench.client).store.perform(parts_of(bench.client).catalog.topics.find("t"))
    assert record
    assert record.leaving == (("g", 1),)
    full = replace(record, next_byte=1).with_group("h", "push")
    assert full.byte_of("h") == 2
    assert bench.stored() == len(stored)
    bench.group("g")  # completes it
    record = parts_of(bench.client).store.perform(parts_of(bench.client).catalog.topics.find("t"))
    assert record
    assert (record.leaving, bench.stored()) == ((), 0)


def test_the_share_of_a_topic_that_a_group_left_goes_to_the_others(bench: Bench) -> None:
    bench.client.admin.create_topic("u", partitions=3)
    bench.publish(*range(4))
    bench.group("g", "t", "u", max_inflight=4)
    assert len(bench.lease(16)) == 1
    bench.admin.unsubscribe("g", "u", force=True)
    assert bench.admin.group("g").max_inflight == 4
    assert len(bench.lease(16)) == 3
    bench.admin.delete_group("g", force=True)
    assert bench.admin.groups() == []
