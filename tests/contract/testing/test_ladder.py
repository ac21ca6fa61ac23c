"""What a message does in the lab is what it does in production, to the millisecond."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rqretry import App, ConsumeResult, Message, Postpone, Retry, RetryPolicy
from rqretry.core.parts import parts_of
from rqretry.protocol.command import Command
from rqretry.protocol.keys import partition_keys
from rqretry.testing import Attempt, Lab

# 17 deliveries: the first, and after each failure but the last the wait of RocketMQ's ladder.
TIMES = [
    0, 10, 40, 100, 220, 400, 640, 940, 1300, 1720, 2200, 2740, 3340, 4540, 6340, 9940, 17140,
]  # fmt: skip


@asynccontextmanager
async def _lifespan(app: App) -> AsyncIterator[str]:
    yield "a pool"


def test_a_whole_ladder_takes_less_than_a_second(lab: Lab) -> None:
    app = lab.app(App())
    seen = []

    @app.consumer("orders", group="billing")
    async def bill(message: Message[int]) -> None:
        seen.append((message.attempt, lab.now))
        raise ValueError("no money")

    used = time.process_time()
    order = lab.publish("orders", 12)
    assert lab.advance("4h46m") == 17
    assert time.process_time() - used < 1
    assert seen == list(enumerate(TIMES, start=1))
    assert lab.now == 17160
    lab.assert_dead(order, reason="ValueError: no money")
    lab.assert_path(order, "ready inflight waiting_retry ... dead")
    assert lab.attempts(order) == [
        Attempt(number, at, "failure", "ValueError: no money") for number, at in seen
    ]


def test_a_plain_handler_that_succeeds_the_third_time_is_committed(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing")
    def bill(message: Message[int]) -> bool:
        return message.attempt == 3

    order = lab.publish("orders", 1)
    assert lab.run_until_idle() == 1
    assert lab.history(order) == ["ready", "inflight", "waiting_retry"]
    assert lab.advance(9.999) == 0
    assert lab.advance(0.001) == 1
    assert lab.advance_to_next_due() == 1
    assert lab.now == 40
    lab.assert_committed(order)
    again = "ready inflight waiting_retry"
    lab.assert_path(order, f"{again} {again} ready inflight committed")
    assert [(a.number, a.at, a.outcome) for a in lab.attempts(order)] == [
        (1, 0, "failure"),
        (2, 10, "failure"),
        (3, 40, "success"),
    ]
    assert lab.advance_to_next_due() == 0
    assert lab.now == 40


def test_a_postponed_message_keeps_its_attempt(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing")
    async def bill(message: Message[int]) -> None:
        if lab.now < 60:
            raise Postpone("30s")

    order = lab.publish("orders", 1)
    assert lab.advance("10m") == 3
    assert [(a.number, a.at, a.outcome) for a in lab.attempts(order)] == [
        (1, 0, "postponed"),
        (1, 30, "postponed"),
        (1, 60, "success"),
    ]


def test_a_message_postponed_too_often_fails(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing", max_postpones=1, max_retries=0)
    async def bill(message: Message[int]) -> None:
        raise Postpone("30s")

    order = lab.publish("orders", 1)
    lab.advance("10m")
    lab.assert_dead(order, reason="postponed too often")


def test_a_dead_letter_says_why(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing")
    async def bill(message: Message[int]) -> ConsumeResult:
        return ConsumeResult.dead_letter("a negative amount")

    order = lab.publish("orders", -1)
    lab.run_until_idle()
    lab.assert_dead(order, reason="a negative amount")
    lab.assert_dead(order, reason="rejected")
    lab.assert_path(order, "ready inflight dead")
    assert lab.attempts(order) == [Attempt(1, 0, "rejected", "a negative amount")]
    assert lab.admin.redrive("billing", all=True) == 1
    lab.run_until_idle()
    lab.assert_path(order, "ready inflight dead ready inflight dead")


def test_each_group_has_its_own_path(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing")
    async def bill(message: Message[int]) -> None: ...

    @app.consumer("orders", group="mail", policy=RetryPolicy.fixed(5), max_retries=1)
    def mail(message: Message[int]) -> None:
        raise OSError("no route")

    order = lab.publish("orders", 1)
    assert lab.advance("1m") == 3
    lab.assert_committed(order, group="billing")
    lab.assert_path(order, "ready inflight committed", group="billing")
    lab.assert_dead(order, group="mail", reason="OSError: no route")
    assert [a.at for a in lab.attempts(order, group="mail")] == [0, 5]
    with pytest.raises(AssertionError, match="group mail: expected committed, it is dead"):
        lab.assert_committed(order)


def test_a_scheduled_message_comes_at_its_time(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing")
    async def bill(message: Message[int]) -> None: ...

    order = lab.publish("orders", 1, delay="2h")
    assert lab.history(order) == ["scheduled"]
    assert lab.advance("1h59m59s") == 0
    assert lab.advance("1s") == 1
    lab.assert_path(order, "scheduled ready inflight committed")
    assert lab.attempts(order) == [Attempt(1, 7200, "success")]


def test_handlers_publish_into_the_lab(lab: Lab) -> None:
    app = lab.app(App())
    shipped = []

    @app.consumer("orders", group="billing")
    async def bill(message: Message[int]) -> None:
        await app.publish("parcels", message.body, delay=60)

    @app.consumer("parcels", group="shipping")
    def ship(message: Message[int]) -> None:
        shipped.append((message.body, lab.now))
        if message.body:
            app.client.publish("parcels", 0)

    lab.publish_many("orders", [1, 2])
    assert lab.advance("5m") == 6
    assert shipped == [(1, 60), (2, 60), (0, 60), (0, 60)]


def test_a_chosen_delay_and_level_are_kept(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing")
    async def bill(message: Message[int]) -> ConsumeResult:
        if message.attempt == 1:
            raise Retry(after=7)
        return ConsumeResult.retry(level=4) if message.attempt == 2 else ConsumeResult.SUCCESS

    order = lab.publish("orders", 1)
    lab.advance("1h")
    assert [a.at for a in lab.attempts(order)] == [0, 7, 37]


def test_jitter_is_the_same_in_every_run(lab_redis: Lab, lab_fakeredis: Lab) -> None:
    times = []
    for lab in (lab_redis, lab_fakeredis):
        app = lab.app(App())

        @app.consumer("orders", group="billing", policy=RetryPolicy.exponential(jitter=0.5))
        async def bill(message: Message[int]) -> bool:
            return False

        order = lab.publish("orders", 1)
        lab.advance("1h")
        times.append([a.at for a in lab.attempts(order)])
    assert times[0] == times[1]
    assert len(set(times[0])) > 5


def test_a_message_waits_while_its_group_has_no_consumer_in_the_lab(lab: Lab) -> None:
    order = lab.publish("orders", 1)
    assert lab.advance("1h") == 0
    assert lab.history(order) == ["ready"]
    app = lab.app(App())

    @app.consumer("orders", group="billing")
    async def bill(message: Message[int]) -> None: ...

    assert lab.run_until_idle() == 1
    lab.assert_committed(order)


def test_an_endless_loop_is_reported(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing")
    async def bill(message: Message[int]) -> None:
        raise Postpone(0)

    order = lab.publish("orders", 1)
    with pytest.raises(AssertionError, match=f"not idle after 20 attempts: message {order} of ord"):
        lab.run_until_idle(max_steps=20)


def test_the_app_gets_its_own_server_back(lab: Lab) -> None:
    app = App("redis://shop.invalid:6379/3", namespace="shop", delay_levels="1s 2s")
    before = (parts_of(app).settings, app.client, app.async_client)
    with Lab(app, "fakeredis") as inner:

        @app.consumer("orders", group="billing")
        async def bill(message: Message[int]) -> bool:
            return False

        order = inner.publish("orders", 1)
        inner.advance(3)
        assert "shop.invalid" not in repr(app)
        assert [a.at for a in inner.attempts(order)][:2] == [0, 2]  # the app's own level table
    assert (parts_of(app).settings, app.client, app.async_client) == before
    assert "shop.invalid:6379/3 namespace shop" in repr(app)


def test_lifespan_middleware_and_events_are_those_of_the_app(lab: Lab) -> None:
    shown: list[str] = []
    app = App(lifespan=_lifespan)
    lab.app(app)

    @app.middleware
    async def around(message, call_next):  # type: ignore[no-untyped-def]
        shown.append("before")
        return await call_next(message)

    @app.on("dead_letter")
    def died(event) -> None:  # type: ignore[no-untyped-def]
        shown.append(f"{event.group}: {event.reason}")

    @app.consumer("orders", group="billing", max_retries=0)
    async def bill(message: Message[int]) -> None:
        shown.append(app.state)
        raise ValueError("no")

    lab.publish("orders", 1)
    lab.run_until_idle()
    assert shown == ["before", "a pool", "billing: ValueError: no"]
    assert app.state is None


def test_a_run_starts_and_stops_the_worker(lab: Lab) -> None:
    app = lab.app(App(lifespan=_lifespan))
    shown = []

    @app.on("started")
    @app.on("stopped")
    async def stated(event) -> None:  # type: ignore[no-untyped-def]
        shown.append((event.name, app.state))

    lab.run_until_idle()
    lab.advance(1)
    assert shown == [("started", "a pool"), ("stopped", "a pool")] * 2


def test_a_paused_group_gets_nothing_and_its_waits_go_on(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing")
    async def bill(message: Message[int]) -> bool:
        return message.attempt > 1

    first = lab.publish("orders", 1)
    lab.run_until_idle()
    lab.crash()
    second, third = lab.publish("orders", 2), lab.publish("orders", 3, delay="40s")
    lab.run_until_idle()
    pause(lab, "1")
    assert lab.advance("1m") == 0
    assert [lab.history(id_)[-1] for id_ in (first, second, third)] == ["ready"] * 3
    pause(lab, "0")
    lab.run_until_idle()
    assert [a.at for a in lab.attempts(first)] == [0, 60]
    assert [a.at for a in lab.attempts(second)] == [0, 60]
    assert [a.at for a in lab.attempts(third)] == [60]


def pause(lab: Lab, on: str) -> None:
    config = partition_keys(lab.namespace, "orders", 0).group("billing", 18).config
    parts_of(lab.client).store.run(
        Command("pause", (), (), int, arguments=("HSET", config, "paused", on))
    )


def test_typed_bodies_and_tasks_run_as_in_a_worker(lab: Lab) -> None:
    app = lab.app(App())
    sent = []

    @app.task()
    async def send_email(to: str, copies: int = 1) -> None:
        sent.append((to, copies))

    first = send_email.send_sync("a@example.org", copies=2)
    second = lab.publish("send_email", {"kwargs": {"to": 7}})
    lab.run_until_idle()
    assert sent == [("a@example.org", 2)]
    lab.assert_committed(first)
    lab.assert_dead(second, reason="mismatch")


def test_ids_count_up_so_that_every_run_has_the_same_order(lab: Lab) -> None:
    bare = [lab.publish("t", number) for number in range(3)]
    full = [lab.client.publish("t", number, tag="a") for number in range(2)]
    bulk = lab.client.publish_many("t", [1, 2, 3])

    numbers = [int(id_[7:]) for id_ in (*bare, *full, *bulk)]
    assert numbers == list(range(numbers[0], numbers[0] + 8))
