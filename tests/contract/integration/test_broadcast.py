"""Broadcast consumers through the public API."""

import asyncio
import time
from typing import Any

import pytest
from redis.exceptions import ResponseError

from rqretry import App, ConfigError, ConsumeResult, InvalidArgument, Message, RetryPolicy
from rqretry.core.middleware import Event
from rqretry.core.parts import parts_of
from rqretry.worker import broadcast
from tests.contract.integration.harness import Lab, Seen, counted, until

STREAM = "rqretry:test:{t:0}:broadcast"


@pytest.fixture(autouse=True)
def _count_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "TALLY_EVERY_S", 0.01)


def listening(app: App, **options: Any) -> Seen:
    seen = Seen()

    @app.consumer("t", group="b", broadcast=True, **options)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    return seen


def named(app: App, name: str) -> Seen:
    seen = Seen()

    @app.consumer("t", group="b", broadcast=name)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    return seen


async def test_every_running_consumer_gets_every_message(lab: Lab) -> None:
    one, two = lab.app(), lab.app()
    first, second = listening(one), listening(two)
    lab.client().publish("t", "before")
    async with lab.working(one), lab.working(two):
        await one.publish_many("t", list(range(600)))
        await first.count(600)
        await second.count(600)
        await counted(lab, "b", succeed=1200, lease=1200)
        assert lab.stats("b").workers == 2
    assert first.bodies == second.bodies == list(range(600))
    assert {message.attempt for message in first.messages} == {1}
    assert lab.stats("b").kind == "broadcast"


async def test_a_consumer_begins_with_what_is_published_after_its_start(lab: Lab) -> None:
    app = lab.app()
    seen = listening(app)
    async with lab.working(app):
        await app.publish("t", 1)
        await seen.count(1)
    await app.publish("t", "while nobody listens")
    async with lab.working(app):
        await app.publish("t", 2)
        await seen.count(2)
    assert seen.bodies == [1, 2]


async def test_a_consumer_with_a_name_goes_on_where_it_was(lab: Lab) -> None:
    app, other = lab.app(), lab.app()
    seen, unnamed = named(app, "cache-1"), named(other, "cache-2")
    async with lab.working(app):
        await app.publish("t", 1)
        await seen.count(1)
    await app.publish_many("t", [2, 3])
    async with lab.working(app), lab.working(other):
        await app.publish("t", 4)
        await seen.count(4)
        await unnamed.count(1)
        await counted(lab, "b", gap=0)
    assert (seen.bodies, unnamed.bodies) == ([1, 2, 3, 4], [4])


async def test_what_a_named_consumer_has_not_finished_comes_again(lab: Lab) -> None:
    app, begun, stop = lab.app(), Seen(), asyncio.Event()

    @app.consumer("t", group="b", broadcast="cache-1", concurrency=1)
    async def handle(message: Message[Any]) -> None:
        begun.add(message)
        if message.body == "slow" and len(begun.messages) == 2:
            await stop.wait()

    async with lab.working(app):
        await app.publish("t", "quick")
        await begun.count(1)
        await app.publish("t", "slow")
        await begun.count(2)
        await counted(lab, "b", succeed=1)
    async with lab.working(app):
        await begun.count(3)
    assert begun.bodies == ["quick", "slow", "slow"]


@pytest.mark.parametrize("name", ["", "a b", "x" * 121])
def test_a_name_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="broadcast"):
        App().consumer("t", group="b", broadcast=name)(print)


async def test_beside_other_groups_each_message_is_handled_once_by_them(lab: Lab) -> None:
    app, queue = lab.app(), Seen()
    seen = listening(app)

    @app.consumer("t", group="g")
    async def work(message: Message[Any]) -> None:
        queue.add(message)

    async with lab.working(app):
        await app.publish_many("t", [1, 2, 3])
        await seen.count(3)
        await queue.count(3)
        await counted(lab, "g", succeed=3)
    assert sorted(queue.bodies) == [1, 2, 3]
    assert lab.client().admin.stats("t").topics[0].stored == 0


@pytest.mark.parametrize("way", ["raises", "failure", "postpone", "retry", "timeout"])
async def test_what_does_not_succeed_is_logged_counted_and_not_tried_again(
    lab: Lab, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, calls = lab.app(), []
    events: list[Event] = []
    app.on("failure")(events.append)

    @app.consumer("t", group="b", broadcast=True, consume_timeout=0.05)
    async def handle(message: Message[Any]) -> ConsumeResult:
        calls.append(message.body)
        if way == "raises":
            raise ValueError("no")
        if way == "timeout":
            await asyncio.sleep(60)
        results = {
            "failure": ConsumeResult.failure("no"),
            "postpone": ConsumeResult.postpone(1),
            "retry": ConsumeResult.retry(after=0),
        }
        return results[way]

    async with lab.working(app, hooks=parts_of(app).hooks):
        await app.publish("t", 1)
        await counted(lab, "b", fail=1)
        await until(lambda: bool(events))
    assert calls == [1]
    assert (events[0].group, events[0].next_due_ms) == ("b", None)
    assert "failed in broadcast group b, which does not retry" in caplog.text
    assert lab.stats("b").dead == 0


async def test_plain_functions_middleware_and_typed_bodies_work_as_elsewhere(lab: Lab) -> None:
    app = lab.app()
    seen: list[Any] = []

    @app.middleware
    async def around(message: Message[Any], call_next: Any) -> ConsumeResult:
        seen.append("before")
        result: ConsumeResult = await call_next(message)
        return result

    @app.consumer("t", group="b", broadcast=True)
    def handle(body: int) -> None:
        seen.append(body)

    async with lab.working(app, hooks=parts_of(app).hooks):
        await app.publish("t", 7)
        await app.publish("t", "no number")
        await counted(lab, "b", succeed=1, fail=1)
    assert seen == ["before", 7, "before"]


async def test_tags_choose_and_the_rest_is_counted(lab: Lab) -> None:
    app = lab.app()
    seen = listening(app, tags="red || blue")
    async with lab.working(app):
        for tag in ("red", "green", "blue", None):
            await app.publish("t", tag, tag=tag)
        await counted(lab, "b", succeed=2, filtered=2)
    assert seen.bodies == ["red", "blue"]


async def test_delayed_and_transactional_messages_come_when_they_are_ready(lab: Lab) -> None:
    app = lab.app()
    seen = listening(app)
    async with lab.working(app):
        started = time.monotonic()
        await app.publish("t", "later", delay=0.3)
        async with app.transaction("t") as tx:
            await tx.publish("together")
        await seen.count(2)
        assert time.monotonic() - started < 3  # not at the next look, which is after 6 s
    assert seen.bodies == ["together", "later"]


async def test_several_partitions_and_topics(lab: Lab) -> None:
    lab.client().admin.create_topic("t", partitions=3)
    app, seen = lab.app(), Seen()

    @app.consumer(["t", "u"], group="b", broadcast=True)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    async with lab.working(app):
        await app.publish_many("t", list(range(30)))
        await app.publish("u", "u")
        await seen.count(31)
    assert sorted(map(str, seen.bodies)) == sorted([*map(str, range(30)), "u"])


async def test_messages_that_were_trimmed_before_they_were_read_are_counted_and_logged(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    app, inside, go_on = lab.app(), asyncio.Event(), asyncio.Event()
    got: list[Any] = []

    @app.consumer("t", group="b", broadcast=True, concurrency=1)
    async def handle(message: Message[Any]) -> None:
        got.append(message.body)
        inside.set()
        await go_on.wait()

    async with lab.working(app):
        await app.publish("t", 0)
        await inside.wait()
        for n in range(1, 50):  # more than is read ahead
            await app.publish("t", n)
        lab.redis.xtrim(STREAM, maxlen=2, approximate=False)
        go_on.set()
        await until(lambda: got[-1] == 49)
        missed = 50 - len(got)
        await counted(lab, "b", gap=missed, succeed=len(got))
    assert missed > 0
    assert "has missed" in caplog.text


async def test_a_broken_connection_loses_nothing(lab: Lab) -> None:
    app = lab.app()
    seen = listening(app)
    async with lab.working(app):
        await app.publish("t", 1)
        await seen.count(1)
        for one in lab.redis.client_list():
            if one["cmd"] == "xread":
                lab.redis.client_kill_filter(_id=one["id"])
        await app.publish("t", 2)
        await seen.count(2)
    assert seen.bodies == [1, 2]


async def test_an_idle_consumer_is_blocked_and_does_not_poll(lab: Lab) -> None:
    app = lab.app()
    seen = listening(app)
    async with lab.working(app):
        await app.publish("t", 1)
        await seen.count(1)
        await counted(lab, "b", succeed=1)
        before = lab.redis.info("commandstats")["cmdstat_xread"]["calls"]
        await asyncio.sleep(0.3)
        assert lab.redis.info("commandstats")["cmdstat_xread"]["calls"] <= before + 1


async def test_without_a_broadcast_group_nothing_is_written_for_one(lab: Lab) -> None:
    lab.client().publish("t", 1)
    assert lab.redis.exists(STREAM) == 0
    with pytest.raises(ResponseError):
        lab.redis.xinfo_stream(STREAM)


async def test_a_group_is_of_one_kind(lab: Lab) -> None:
    app, other = lab.app(), lab.app()
    listening(app)
    async with lab.working(app):
        pass

    @other.consumer("t", group="b")
    async def work(message: Message[Any]) -> None:
        pass

    with pytest.raises(ConfigError, match="group of a broadcast consumer and cannot also be push"):
        async with lab.working(other):
            pass
    with pytest.raises(ConfigError, match="broadcast consumer and cannot also be simple"):
        lab.client().simple_consumer("t", group="b")


@pytest.mark.parametrize(
    "option",
    [
        {"max_retries": 3},
        {"policy": RetryPolicy.fixed(1)},
        {"visibility": 10},
        {"rate_limit": "1/s"},
        {"max_inflight": 1},
        {"max_postpones": 1},
        {"retry_on": ValueError},
        {"dead_letter_on": ValueError},
        {"ordered": True},
    ],
    ids=lambda option: next(iter(option)),
)
async def test_options_about_leases_are_refused(lab: Lab, option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(InvalidArgument, match=f"{name} cannot be given with broadcast=True"):
        listening(lab.app(), **option)


async def test_a_broadcast_consumer_cannot_begin_with_what_is_stored(lab: Lab) -> None:
    app = lab.app()
    with pytest.raises(
        InvalidArgument, match="start='earliest' cannot be given with broadcast=True"
    ):
        listening(app, start="earliest")
    assert parts_of(app).registry.consumers == []
    listening(app, start="latest")
    assert [spec.group for spec in parts_of(app).registry.consumers] == ["b"]


async def test_broadcast_is_true_false_or_a_name(lab: Lab) -> None:
    app = lab.app()
    with pytest.raises(InvalidArgument, match="broadcast 1"):
        app.consumer("t", group="b", broadcast=1)(print)  # type: ignore[call-overload]


async def test_an_operator_cannot_set_or_pause_what_a_broadcast_group_does_not_have(
    lab: Lab,
) -> None:
    app = lab.app()
    listening(app)
    async with lab.working(app):
        pass
    admin = lab.client().admin
    with pytest.raises(ConfigError, match="group 'b' is a broadcast group"):
        admin.pause("b")
    with pytest.raises(ConfigError, match="group 'b' is a broadcast group"):
        admin.set_group("b", max_retries=3)
    admin.delete_group("b")
    assert admin.groups() == []


async def test_a_worker_that_is_stopped_lets_handlers_finish_and_reports_what_it_did(
    lab: Lab,
) -> None:
    app, inside = lab.app(), asyncio.Event()
    done: list[Any] = []

    @app.consumer("t", group="b", broadcast=True, concurrency=1)
    async def handle(message: Message[Any]) -> None:
        inside.set()
        await asyncio.sleep(0.05)
        done.append(message.body)

    async with lab.working(app):
        await app.publish_many("t", [1, 2])
        await inside.wait()
    assert done == [1]
    counters = lab.stats("b").counters
    assert (counters["succeed"], counters["release"]) == (1, 1)
