"""What an operator does: numbers, one message, dead letters, redrive and purge."""

import asyncio
import time
from typing import Any

import pytest

from rqretry import (
    App,
    ConsumeResult,
    DeadLetter,
    DeadLetterFilter,
    InvalidArgument,
    Message,
    MessageNotFound,
    RetryPolicy,
)
from tests.contract.integration.harness import Lab, Seen, counted, until


async def dead_lettered(lab: Lab, app: App, seen: Seen, *bodies: Any) -> list[str]:
    """Publish these and let group g dead-letter them."""

    @app.consumer("t", group="g", max_retries=1, policy=RetryPolicy.fixed("1ms"))
    async def handle(message: Message[Any]) -> ConsumeResult:
        seen.add(message)
        if sum(one.id == message.id and one.attempt == 1 for one in seen.messages) > 1:
            return ConsumeResult.SUCCESS
        if message.body == "reject":
            raise DeadLetter("rejected by hand")
        raise ValueError(message.body)

    async with lab.working(app):
        ids = await app.publish_many("t", bodies)
        await counted(lab, "g", dead=len(bodies))
    return [str(id_) for id_ in ids]


async def test_a_redriven_message_starts_again_with_its_id_and_body(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    (sent,) = await dead_lettered(lab, app, seen, {"deep": [1, 2]})

    assert await app.admin.redrive("g", ids=[sent]) == 1
    async with lab.working(app):
        await seen.count(3)
        await counted(lab, "g", succeed=1)

    first, second, third = seen.messages
    assert {message.id for message in seen.messages} == {sent}
    assert third.body == first.body == {"deep": [1, 2]}
    assert seen.attempts == [1, 2, 1]
    assert first.fencing_token < second.fencing_token < third.fencing_token
    assert await app.admin.dead_letters("g") == []


async def test_a_redrive_is_for_one_group_only(lab: Lab) -> None:
    app, seen, other = lab.app(), Seen(), Seen()
    app.consumer("t", group="other")(other.add)
    (sent,) = await dead_lettered(lab, app, seen, 1)
    await app.admin.redrive("g", all=True)
    async with lab.working(app):
        await counted(lab, "g", succeed=1)
        await counted(lab, "other", succeed=1)

    assert [message.id for message in other.messages] == [sent]
    with pytest.raises(MessageNotFound):
        await app.admin.message(sent)


async def test_redrive_and_purge_choose_by_the_same_filter(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    ids = await dead_lettered(lab, app, seen, "a", "b", "reject", "reject")
    dead_records = await app.admin.dead_letters("g")
    by_cause = {record.id: record.cause for record in dead_records}
    mine = next(record for record in dead_records if record.body == "a")

    assert [by_cause[id_] for id_ in ids] == ["failure", "failure", "rejected", "rejected"]
    assert await app.admin.redrive("g", error="rejected by hand", dry_run=True) == 2
    assert await app.admin.redrive("g", fingerprint=mine.fingerprint, dry_run=True) == 2
    assert await app.admin.redrive("g", topic="other", dry_run=True) == 0
    assert await app.admin.redrive("g", since=time.time() + 60, dry_run=True) == 0
    assert await app.admin.redrive("g", before=time.time() + 60, dry_run=True) == 4
    assert await app.admin.purge("g", ids=[ids[0]], dry_run=True) == 1
    assert len(await app.admin.dead_letters("g")) == 4

    assert await app.admin.purge("g", DeadLetterFilter(error="rejected by hand")) == 2
    assert {record.id for record in await app.admin.dead_letters("g")} == set(ids[:2])
    assert await app.admin.purge("g", ids=[ids[0]]) == 1
    assert await app.admin.purge("g", ids=[ids[0]]) == 0
    (topic,) = (await app.admin.stats("t")).topics
    assert topic.stored == 1


@pytest.mark.parametrize("verb", ["redrive", "purge"])
async def test_moving_dead_letters_without_choosing_any_is_refused(lab: Lab, verb: str) -> None:
    app, seen = lab.app(), Seen()
    await dead_lettered(lab, app, seen, 1)
    move = getattr(app.admin, verb)

    with pytest.raises(InvalidArgument, match="all=True"):
        await move("g")
    with pytest.raises(InvalidArgument, match="'color'"):
        await move("g", color="red")
    with pytest.raises(InvalidArgument):
        await move("g", DeadLetterFilter(all=True), ids=["x"])

    assert len(await app.admin.dead_letters("g")) == 1


async def test_a_dead_letter_reports_the_whole_story(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    (sent,) = await dead_lettered(lab, app, seen, "why")
    (record,) = await app.admin.dead_letters("g")

    assert (record.id, record.topic, record.group, record.attempt) == (
        sent,
        "t",
        "g",
        2,
    )
    assert record.error == "ValueError: why"
    assert [(error.attempt, error.type, error.message) for error in record.errors] == [
        (1, "ValueError", "why"),
        (2, "ValueError", "why"),
    ]
    assert {error.fingerprint for error in record.errors} == {record.fingerprint}
    assert all(error.worker and error.at_ms > 0 for error in record.errors)
    traces = lab.redis.hgetall("rqretry:test:{t:0}:group:g:tracebacks")
    assert b"ValueError: why" in traces[record.fingerprint.encode()]


async def test_the_failure_record_keeps_the_lineage_across_a_redrive(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    (sent,) = await dead_lettered(lab, app, seen, 1)
    await app.admin.redrive("g", all=True)

    (state,) = (await app.admin.message(sent)).states

    assert (state.state, state.attempt) == ("ready", 1)
    assert [error.cause for error in state.errors] == ["failure", "failure", "redriven"]


async def test_what_is_due_is_moved_by_who_counts_with_no_worker_alive(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("t")
    consumer = client.simple_consumer("t", group="g", create_group=True)
    client.publish_many("t", range(3))
    consumer.receive(2, invisible_duration="300ms")

    before = lab.stats("g")
    await until(lambda: lab.stats("g").retry == 2)
    after = lab.stats("g")

    assert (before.ready, before.retry, before.inflight) == (1, 0, 2)
    assert (after.ready, after.retry, after.inflight) == (1, 2, 0)
    assert lab.redis.zcard("rqretry:test:{t:0}:group:g:inflight") == 0
    assert after.oldest_age_s is not None


async def test_numbers_count_a_retry_that_is_due_as_ready_with_no_worker_alive(lab: Lab) -> None:
    app = lab.app()

    @app.consumer("t", group="g", policy=RetryPolicy.fixed("300ms"))
    async def handle(_message: Message[Any]) -> None:
        raise ValueError

    async with lab.working(app):
        await app.publish("t", 1)
        waiting = await counted(lab, "g", fail=1)
    assert [(rung.level, rung.count) for rung in waiting.waiting] == [(1, 1)]

    await until(lambda: lab.stats("g").retry == 1)
    assert lab.stats("g").waiting == ()


async def test_where_a_message_is_for_each_group(lab: Lab) -> None:
    app, go_on = lab.app(), asyncio.Event()

    @app.consumer("t", group="done")
    async def done(_message: Message[Any]) -> None:
        pass

    @app.consumer("t", group="busy")
    async def busy(_message: Message[Any]) -> None:
        await go_on.wait()

    @app.consumer("t", group="waiting", policy=RetryPolicy.fixed("1h"))
    async def waiting(_message: Message[Any]) -> None:
        raise ValueError

    @app.consumer("t", group="dead", max_retries=0)
    async def dead(_message: Message[Any]) -> None:
        raise ValueError("no use")

    client = lab.client()
    client.admin.create_topic("t")
    client.simple_consumer("t", group="nobody", create_group=True)
    async with lab.working(app):
        sent = await app.publish("t", {"n": 1}, tag="x")
        await counted(lab, "done", succeed=1)
        await counted(lab, "waiting", fail=1)
        await counted(lab, "dead", dead=1)
        await counted(lab, "busy", lease=1)
        view = await app.admin.message(sent)
        go_on.set()

    states = {state.group: state for state in view.states}
    assert {name: state.state for name, state in states.items()} == {
        "done": "committed",
        "busy": "inflight",
        "waiting": "waiting_retry",
        "dead": "dead",
        "nobody": "ready",
    }
    assert states["waiting"].attempt == 2
    assert "no use" in states["dead"].explain
    assert (view.body, view.tag, view.topic) == ({"n": 1}, "x", "t")
    assert view.timeline[0].event == "publish"
    assert {event.event for event in view.timeline} == {"publish", "lease", "succeed", "fail"}


async def test_an_unknown_message_is_an_error(lab: Lab) -> None:
    with pytest.raises(MessageNotFound, match="'nothing'"):
        await lab.app().admin.message("nothing")
