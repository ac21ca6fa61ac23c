"""Crashes, lost leases and duplicates, as production makes them, at the moment the test chooses."""

import logging

import pytest

from rqretry import App, InvalidArgument, Message, RetryPolicy
from rqretry.testing import Lab


def outcomes(lab: Lab, id_: str) -> list[tuple[int, float, str]]:
    return [(a.number, a.at, a.outcome) for a in lab.attempts(id_)]


def test_after_a_crash_the_message_comes_again_at_once_and_after_the_second_by_the_ladder(
    lab: Lab,
) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing", visibility=20)
    async def bill(message: Message[int]) -> None: ...

    lab.crash()
    lab.crash("billing")
    order = lab.publish("orders", 1)
    assert lab.run_until_idle() == 1
    lab.assert_path(order, "ready inflight")
    assert lab.advance("19.999s") == 0
    assert lab.advance("1ms") == 1
    assert lab.advance("1h") == 1
    assert outcomes(lab, order) == [(1, 0, "expired"), (2, 20, "expired"), (3, 70, "success")]
    waits = "ready inflight ready inflight waiting_retry ready inflight committed"
    lab.assert_path(order, waits)


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_handler_that_crashes_its_worker_is_left_there_and_then(lab: Lab, kind: str) -> None:
    app = lab.app(App())
    steps = []

    def work(message: Message[int]) -> None:
        try:
            steps.append("before")
            if message.attempt == 1:
                lab.crash()
            steps.append("after")
        except Exception:  # noqa: BLE001 - what a user's handler may have
            steps.append("caught")

    if kind == "async":

        @app.consumer("orders", group="billing")
        async def bill(message: Message[int]) -> None:
            work(message)
    else:
        app.consumer("orders", group="billing")(work)
    order = lab.publish("orders", 1)
    lab.advance("30s")
    assert steps == ["before", "before", "after"]
    assert outcomes(lab, order) == [(1, 0, "expired"), (2, 30, "success")]


def test_a_crash_after_the_handler_runs_it_twice(lab: Lab) -> None:
    app = lab.app(App())
    charged = []

    @app.consumer("orders", group="billing")
    def bill(message: Message[int]) -> None:
        charged.append(message.fencing_token)

    lab.crash(after_handler=True)
    order = lab.publish("orders", 1)
    lab.run_until_idle()
    assert charged == [1]
    lab.assert_path(order, "ready inflight")
    lab.advance("1m")
    assert charged == [1, 2]
    lab.assert_committed(order)


def test_what_always_crashes_its_worker_is_dead_in_the_end(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing", max_retries=2)
    async def bill(message: Message[int]) -> None: ...

    order = lab.publish("orders", 1)
    with lab.crashing():
        assert lab.advance("1h") == 3
    lab.assert_dead(order, reason="expired")
    assert [a.at for a in lab.attempts(order)] == [0, 30, 90]
    assert lab.admin.redrive("billing", all=True) == 1
    assert lab.run_until_idle() == 1
    lab.assert_committed(order)


def test_only_the_named_worker_crashes(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing")
    async def bill(message: Message[int]) -> None: ...

    @app.consumer("orders", group="mail")
    async def mail(message: Message[int]) -> None:
        lab.crash("billing")  # another worker: this one goes on

    lab.crash("mail")
    order = lab.publish("orders", 1)
    lab.run_until_idle()
    lab.assert_committed(order, group="billing")
    assert lab.history(order, group="mail") == ["ready", "inflight"]
    lab.advance("30s")
    lab.assert_committed(order)
    expected = "worker 'post' is not a worker of this lab: billing, mail"
    with pytest.raises(InvalidArgument, match=expected):
        lab.crash("post")


def test_a_result_after_the_lease_was_lost_is_refused(lab: Lab) -> None:
    app = lab.app(App())
    lost, seen = [], []

    @app.on("lease_lost")
    def stated(event) -> None:  # type: ignore[no-untyped-def]
        lost.append((event.message_id, event.attempt))

    @app.consumer("orders", group="billing")
    async def bill(message: Message[int]) -> None:
        if message.attempt == 1:
            lab.lose_lease()
        seen.append((message.attempt, lab.now, message.cancelled))

    order = lab.publish("orders", 1)
    assert lab.run_until_idle() == 2
    assert seen == [(1, 30, True), (2, 30, False)]
    assert lost == [(order, 1)]
    assert outcomes(lab, order) == [(1, 0, "expired"), (2, 30, "success")]
    lab.assert_path(order, "ready inflight ready inflight committed")


def test_a_failure_after_the_lease_was_lost_counts_nothing(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing")
    def bill(message: Message[int]) -> None:
        if message.attempt == 1:
            raise ValueError("too late to matter")

    lab.lose_lease()
    order = lab.publish("orders", 1)
    lab.run_until_idle()
    assert outcomes(lab, order) == [(1, 0, "expired"), (2, 30, "success")]


def test_a_lease_that_is_lost_again_waits_by_the_ladder(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing")
    async def bill(message: Message[int]) -> None: ...

    order = lab.publish("orders", 1)
    lab.lose_lease(order)
    lab.lose_lease(order)
    lab.run_until_idle()
    assert lab.history(order)[-1] == "waiting_retry"
    lab.advance("1h")
    assert outcomes(lab, order) == [(1, 0, "expired"), (2, 30, "expired"), (3, 90, "success")]


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_duplicate_runs_while_the_first_handler_is_at_work(lab: Lab, kind: str) -> None:
    app = lab.app(App())
    steps = []

    @app.consumer("orders", group="async")
    async def bill(message: Message[int]) -> None:
        steps.append(f"start {message.attempt}")
        if message.attempt == 1:
            await lab.aduplicate()
        steps.append(f"end {message.attempt}")

    @app.consumer("parcels", group="plain", concurrency=1)
    def ship(message: Message[int]) -> None:
        steps.append(f"start {message.attempt}")
        if message.attempt == 1:
            lab.duplicate()
        steps.append(f"end {message.attempt}")

    message = lab.publish("orders" if kind == "async" else "parcels", 1)
    assert lab.run_until_idle() == 1  # the second one ran inside of the first
    assert steps == ["start 1", "start 2", "end 2", "end 1"]
    assert outcomes(lab, message) == [(1, 0, "expired"), (2, 30, "success")]
    lab.assert_committed(message)


def test_an_ordered_duplicate_lets_the_old_worker_come_last(lab: Lab) -> None:
    app = lab.app(App())
    balance = {"written_by": 0, "amount": 0}

    @app.consumer("orders", group="billing")
    def bill(message: Message[int]) -> None:
        if message.fencing_token > balance["written_by"]:
            balance["written_by"] = message.fencing_token
            balance["amount"] += message.body

    order = lab.publish("orders", 12)
    lab.duplicate(order)
    lab.run_until_idle()
    assert balance == {"written_by": 2, "amount": 12}
    lab.assert_committed(order)


def test_a_duplicate_that_has_to_wait_comes_by_the_ladder(lab: Lab) -> None:
    app = lab.app(App())
    steps = []

    @app.consumer("orders", group="billing")
    async def bill(message: Message[int]) -> None:
        steps.append((message.attempt, lab.now))
        if message.attempt == 2:
            await lab.aduplicate()
            steps.append((message.attempt, lab.now))

    lab.crash()
    lab.publish("orders", 1)
    lab.advance("30s")
    assert steps == [(2, 30), (3, 90), (2, 90)]


def test_there_is_no_duplicate_of_the_last_attempt(lab: Lab) -> None:
    app = lab.app(App())
    ran = []

    @app.consumer("orders", group="billing", max_retries=0)
    async def bill(message: Message[int]) -> None:
        await lab.aduplicate()
        ran.append(message.attempt)

    order = lab.publish("orders", 1)
    lab.run_until_idle()
    assert ran == [1]
    lab.assert_dead(order, reason="expired")


def test_other_messages_are_not_hit(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing")
    async def bill(message: Message[int]) -> None: ...

    first, second = lab.publish_many("orders", [1, 2])
    lab.lose_lease(second)
    lab.run_until_idle()
    assert [a.number for a in lab.attempts(first)] == [1]
    assert [a.number for a in lab.attempts(second)] == [1, 2]


def test_an_async_handler_is_reported_to_await_the_duplicate(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing", max_retries=0)
    async def bill(message: Message[int]) -> None:
        lab.duplicate()

    order = lab.publish("orders", 1)
    lab.run_until_idle()
    lab.assert_dead(order, reason="write: await lab.aduplicate()")


async def test_aduplicate_outside_of_a_handler_is_refused(lab: Lab) -> None:
    with pytest.raises(InvalidArgument, match="in a handler; else call"):
        await lab.aduplicate()


@pytest.mark.parametrize("verb", ["run_until_idle", "advance_to_next_due"])
def test_a_handler_cannot_run_the_lab(lab: Lab, verb: str) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing", max_retries=0)
    def bill(message: Message[int]) -> None:
        getattr(lab, verb)()

    order = lab.publish("orders", 1)
    lab.run_until_idle()
    lab.assert_dead(order, reason="the lab is already running")


def test_a_message_that_died_of_an_expired_lease_is_a_warning_as_any_other(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing", policy=RetryPolicy.fixed("1s", max_retries=1))
    async def bill(message: Message[int]) -> None: ...

    lab.crash()
    lab.crash()
    order = lab.publish("orders", 1)
    with caplog.at_level(logging.WARNING):
        lab.advance("5m")
    (record,) = [r for r in caplog.records if r.getMessage().startswith("dead letter")]
    assert record.getMessage() == (
        f"dead letter: message {order} of orders, group billing, after 2 deliveries: expired"
    )
    assert vars(record)["message_id"] == order
