"""Batch handlers on virtual time: which messages a call gets, and what becomes of each."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from rqretry import App, ConsumeResult, DeadLetter, Message, Retry, RetryPolicy
from rqretry.core.middleware import CallNext
from rqretry.testing import Lab

Messages = list[Message[Any]]


def batched(lab: Lab, answer: Callable[[Messages], Any], **options: Any) -> list[list[Any]]:
    """A batch consumer of group "g"; the bodies of each call."""
    app, calls = lab.app(App()), []

    @app.consumer("t", group="g", **{"batch": 3, "batch_wait": "50ms", **options})
    async def handle(messages: Messages) -> Any:
        calls.append([message.body for message in messages])
        return answer(messages)

    return calls


def ended(lab: Lab, id_: str) -> list[tuple[int, str]]:
    return [(attempt.number, attempt.outcome) for attempt in lab.attempts(id_)]


def test_a_full_batch_starts_at_once_and_another_when_its_first_message_has_waited(
    lab: Lab,
) -> None:
    calls = batched(lab, lambda _: None)
    lab.publish_many("t", [1, 2, 3, 4])
    assert lab.run_until_idle() == 3
    assert calls == [[1, 2, 3]]
    assert lab.advance("30ms") == 0
    lab.publish("t", 5)
    assert lab.advance("19ms") == 0
    assert lab.advance("1ms") == 2
    assert calls == [[1, 2, 3], [4, 5]]


def test_one_outcome_is_that_of_all_and_a_mapping_that_of_each(lab: Lab) -> None:
    def answer(messages: Messages) -> Any:
        first = messages[0]
        if first.body == "false":
            return False if first.attempt == 1 else None
        if first.body == "raised" and first.attempt == 1:
            raise Retry(after="5s")
        if first.body == "each":
            good, bad, dead = (message.id for message in messages)
            return {bad: ValueError("bad"), dead: DeadLetter("no use"), good: None}
        return True

    batched(lab, answer, policy=RetryPolicy.fixed("10s", max_retries=1))
    failed = lab.publish_many("t", ["false"] * 3)
    lab.run_until_idle()
    raised = lab.publish_many("t", ["raised"] * 3)
    lab.run_until_idle()
    each = lab.publish_many("t", ["each", "bad", "dead"])
    lab.run_until_idle()
    lab.advance("1m")
    assert [ended(lab, id_) for id_ in failed] == [[(1, "failure"), (2, "success")]] * 3
    assert [[a.at for a in lab.attempts(id_)] for id_ in raised] == [[0, 5]] * 3
    assert ended(lab, each[0]) == [(1, "success")]
    assert ended(lab, each[1]) == [(1, "failure"), (2, "success")]
    assert ended(lab, each[2]) == [(1, "rejected")]
    assert {d.id: d.error for d in lab.admin.dead_letters("g")} == {each[2]: "no use"}
    (first, *_) = lab.attempts(each[1])
    assert first.error == "ValueError: bad"


def test_what_a_mapping_does_not_name_is_tried_again_and_what_was_not_there_is_ignored(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(messages: Messages) -> dict[str, Any]:
        done: dict[str, Any] = {messages[0].id: ConsumeResult.SUCCESS}
        return done if messages[0].attempt > 1 else done | {"elsewhere": True, "again": True}

    batched(lab, answer, policy=RetryPolicy.fixed("1s", max_retries=16))
    good, *missing = lab.publish_many("t", [1, 2, 3])
    with caplog.at_level(logging.ERROR):
        lab.advance("1m")
    assert ended(lab, good) == [(1, "success")]
    assert [ended(lab, id_)[0] for id_ in missing] == [(1, "failure")] * 2
    assert {ended(lab, id_)[-1][1] for id_ in missing} == {"success"}
    assert lab.attempts(missing[0])[0].error == (
        "the handler's mapping has no outcome for this message; the outcome for 'elsewhere' is"
        " ignored, since no message of this batch has that id: use message.id as the key"
    )
    (record,) = caplog.records
    assert "'elsewhere' is ignored" in record.getMessage()


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ([ValueError("lost")], "a batch handler returned a list: return one outcome for all"),
        ({"inserted": 3}, "the handler's mapping has no outcome for this message"),
        (False, "handler returned False"),
    ],
)
def test_what_is_no_outcome_is_no_success(lab: Lab, returned: Any, reason: str) -> None:
    batched(lab, lambda _: returned, max_retries=0)
    lab.publish_many("t", [1, 2, 3])
    lab.run_until_idle()
    errors = [dead.error for dead in lab.admin.dead_letters("g")]
    assert len(errors) == 3
    assert all(error.startswith(reason) for error in errors)


def test_attempts_are_counted_for_each_message_wherever_it_was_in_a_batch(lab: Lab) -> None:
    def answer(messages: Messages) -> dict[str, bool]:
        return {message.id: message.body == "good" for message in messages}

    calls = batched(lab, answer, policy=RetryPolicy.fixed("1s", max_retries=2))
    bad = lab.publish("t", "bad")
    for _ in range(3):
        lab.publish("t", "good")
        lab.advance("1s")
    lab.advance("1s")
    assert ended(lab, bad) == [(1, "failure"), (2, "failure"), (3, "failure")]
    assert [dead.id for dead in lab.admin.dead_letters("g")] == [bad]
    assert sum(len(call) for call in calls) == 6


def test_a_body_that_does_not_fit_is_dead_and_the_others_are_handled(lab: Lab) -> None:
    app, seen = lab.app(App()), list[int]()

    @app.topic("t", body=int).consumer(group="g", batch=3)
    def handle(messages: list[Message[int]]) -> None:
        seen.extend(message.body for message in messages)

    lab.publish_many("t", [1, "two", 3])
    lab.run_until_idle()
    assert seen == [1, 3]
    (dead,) = lab.admin.dead_letters("g")
    assert (dead.body, dead.cause) == ("two", "mismatch")


def test_a_worker_that_dies_in_a_batch_has_used_an_attempt_of_each_of_its_messages(
    lab: Lab,
) -> None:
    def answer(messages: Messages) -> None:
        if messages[0].attempt == 1:
            lab.crash()

    calls = batched(lab, answer, visibility="30s")
    ids = lab.publish_many("t", [1, 2, 3])
    lab.run_until_idle()
    lab.advance("31s")
    assert calls == [[1, 2, 3]] * 2
    assert [ended(lab, id_) for id_ in ids] == [[(1, "expired"), (2, "success")]] * 3


def test_a_lease_that_is_lost_in_a_batch_takes_its_message_alone(lab: Lab) -> None:
    ids: list[str] = []

    def answer(messages: Messages) -> dict[str, bool]:
        if len(messages) == 3:
            lab.lose_lease(ids[1])
            assert [message.cancelled for message in messages] == [False, True, False]
        return {message.id: True for message in messages}

    batched(lab, answer, visibility="30s")
    ids += lab.publish_many("t", [1, 2, 3])
    lab.advance("1m")
    assert [ended(lab, id_) for id_ in (ids[0], ids[2])] == [[(1, "success")]] * 2
    assert ended(lab, ids[1]) == [(1, "expired"), (2, "success")]


def test_a_batch_of_an_ordered_group_has_one_message_of_each_message_group(lab: Lab) -> None:
    def answer(messages: Messages) -> dict[str, bool]:
        return {m.id: not (m.body == "a1" and m.attempt < 3) for m in messages}

    calls = batched(lab, answer, ordered=True, batch=10)
    for body in ("a1", "a2", "b1", "b2", "c1"):
        lab.publish("t", body, message_group=body[0])
    lab.advance("40ms")
    lab.advance("1m")
    assert calls == [["a1", "b1", "c1"], ["b2"], ["a1"], ["a1"], ["a2"]]


def test_messages_with_one_id_in_two_topics_are_in_two_batches(lab: Lab) -> None:
    app, calls = lab.app(App()), []

    @app.consumer(["t", "u"], group="g", batch=3)
    async def handle(messages: Messages) -> dict[str, bool]:
        calls.append([(message.topic, message.id) for message in messages])
        return {message.id: message.topic == "u" for message in messages}

    for topic in ("t", "u"):
        lab.publish(topic, 1, id="same")
    lab.advance("1s")
    assert calls == [[("t", "same")], [("u", "same")]]


def test_middleware_is_called_for_each_message_and_the_handler_once(lab: Lab) -> None:
    app, calls, around = lab.app(App()), [], []

    @app.middleware
    async def skip(message: Message[Any], call_next: CallNext) -> ConsumeResult:
        if message.body == "skipped":
            return ConsumeResult.SUCCESS
        result = await call_next(message)
        around.append((message.body, result.outcome.name))
        return result

    @app.consumer("t", group="g", batch=3, max_retries=0)
    async def handle(messages: Messages) -> dict[str, Any]:
        calls.append([message.body for message in messages])
        return {m.id: DeadLetter("no") if m.body == "dead" else True for m in messages}

    ids = lab.publish_many("t", ["good", "skipped", "dead"])
    lab.run_until_idle()
    assert calls == [["good", "dead"]]
    assert around == [("good", "SUCCESS"), ("dead", "DEAD_LETTER")]
    assert [ended(lab, id_)[-1][1] for id_ in ids] == ["success", "success", "rejected"]


def test_all_are_postponed_together_and_no_attempt_is_counted(lab: Lab) -> None:
    def answer(messages: Messages) -> Any:
        return ConsumeResult.postpone("10s") if lab.now < 10 else None

    calls = batched(lab, answer)
    ids = lab.publish_many("t", [1, 2, 3])
    lab.advance("10s")
    assert calls == [[1, 2, 3]] * 2
    assert [ended(lab, id_) for id_ in ids] == [[(1, "postponed"), (1, "success")]] * 3
