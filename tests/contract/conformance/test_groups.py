"""Group metadata."""

import pytest

from rqretry import App, ConsumeResult, InvalidArgument, Message, RetryPolicy
from rqretry.testing import Lab
from tests.contract.integration.harness import Lab as LiveLab
from tests.contract.integration.harness import Seen, counted


def failing(lab: Lab, **options: object) -> App:
    """An app in the lab whose group billing fails every message."""
    app = lab.app(App())

    @app.consumer("orders", group="billing", **options)  # type: ignore[call-overload, untyped-decorator]
    async def bill(message: Message[int]) -> bool:
        return False

    return app


def test_16_retries_are_the_default_and_0_is_one_delivery(lab: Lab) -> None:
    failing(lab)
    app = lab.app(App())

    @app.consumer("orders", group="once", max_retries=0)
    async def once(message: Message[int]) -> bool:
        return False

    order = lab.publish("orders", 1)
    lab.advance("5h")
    assert lab.admin.group("billing").max_retries == 16
    assert len(lab.attempts(order, group="billing")) == 17
    assert len(lab.attempts(order, group="once")) == 1
    lab.assert_dead(order, group="once")


def test_minus_one_is_refused_wherever_a_limit_is_named(lab: Lab) -> None:
    failing(lab)
    lab.run_until_idle()
    app = App("redis://localhost")
    for name in (
        lambda: app.consumer("orders", group="g", max_retries=-1)(print),
        lambda: app.task(max_retries=-1)(print),
        lambda: RetryPolicy.fixed(1, max_retries=-1),
        lambda: lab.admin.set_group("billing", max_retries=-1),
        lambda: lab.client.simple_consumer("orders", group="g", create_group=True, max_retries=-1),
    ):
        with pytest.raises(InvalidArgument, match='-1 is refused: use "unlimited"'):
            name()
    assert [group.name for group in lab.admin.groups()] == ["billing"]
    assert lab.admin.group("billing").max_retries == 16
    assert lab.admin.set_group("billing", max_retries="unlimited").max_retries is None


def test_a_start_changes_the_limit_of_all_instances_at_once_and_says_who_and_when(
    lab: Lab,
) -> None:
    failing(lab, max_retries=16)
    order = lab.publish("orders", 1)
    lab.advance("40s")
    before = lab.admin.group("billing")
    failing(lab, max_retries=3)
    lab.run_until_idle()
    after = lab.admin.group("billing")
    assert (before.max_retries, after.max_retries) == (16, 3)
    assert after.changed_at_ms - before.changed_at_ms == 40_000
    assert after.changed_by
    lab.advance("5h")
    assert len(lab.attempts(order)) == 4


def test_a_start_that_names_nothing_changes_nothing(lab: Lab) -> None:
    failing(lab, max_retries=2, policy=RetryPolicy.fixed("5s"))
    lab.run_until_idle()
    before = lab.admin.group("billing")
    lab.advance("1m")
    failing(lab)
    lab.run_until_idle()
    assert lab.admin.group("billing") == before
    lab.admin.set_group("billing", policy="fixed:7s")
    order = lab.publish("orders", 1)
    lab.advance("1m")
    assert [attempt.at for attempt in lab.attempts(order)] == [60, 67, 74]


def test_a_limit_lowered_below_the_count_lets_what_waits_be_delivered_once(lab: Lab) -> None:
    failing(lab)
    waiting = lab.publish("orders", 1)
    lab.advance("100s")
    assert [attempt.at for attempt in lab.attempts(waiting)] == [0, 10, 40, 100]
    lab.admin.set_group("billing", max_retries=1)
    assert lab.history(waiting)[-1] == "waiting_retry"
    fresh = lab.publish("orders", 2)
    lab.advance("5h")
    assert [attempt.at for attempt in lab.attempts(waiting)] == [0, 10, 40, 100, 220]
    assert [attempt.at for attempt in lab.attempts(fresh)] == [100, 110]
    lab.assert_dead(waiting)
    lab.assert_dead(fresh)


def test_a_pause_lets_running_handlers_finish_and_stops_the_rest(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing", concurrency=1)
    def bill(message: Message[int]) -> ConsumeResult:
        if message.body == 1:
            lab.admin.pause("billing")
        return ConsumeResult.SUCCESS

    orders = lab.publish_many("orders", [1, 2, 3])
    assert lab.run_until_idle() == 1
    lab.assert_committed(orders[0])
    assert lab.admin.group("billing").paused
    assert lab.advance("1h") == 0
    assert [lab.history(order) for order in orders[1:]] == [["ready"], ["ready"]]
    lab.admin.resume("billing")
    assert lab.run_until_idle() == 2
    for order in orders:
        lab.assert_committed(order)


def test_the_first_group_gets_what_was_before_it_and_a_later_one_what_comes(lab: Lab) -> None:
    early = lab.publish("orders", 1)
    app = lab.app(App())

    @app.consumer("orders", group="first")
    async def first(message: Message[int]) -> bool:
        return message.body != 1 or message.attempt > 1

    lab.run_until_idle()  # the early one is stored still: it waits to be retried
    assert len(lab.attempts(early)) == 1

    later = lab.app(App())

    @later.consumer("orders", group="later")
    async def second(message: Message[int]) -> None: ...

    held = lab.publish("orders", 2, delay="1h")
    lab.run_until_idle()
    late = lab.publish("orders", 3)
    lab.advance("1h")
    for order in (late, held):
        lab.assert_committed(order, group="later")
        lab.assert_committed(order, group="first")
    lab.assert_committed(early, group="first")
    assert lab.admin.stats("orders", group="later").topics[0].groups[0].counters["lease"] == 2


async def test_two_instances_share_one_truth(live: LiveLab) -> None:
    one, two, seen = live.app(), live.app(), Seen()

    for app in (one, two):

        @app.consumer("t", group="g", policy=RetryPolicy.fixed("10ms"), concurrency=2)
        async def handle(message: Message[int]) -> bool:
            seen.add(message)
            return False

    async with live.working(one), live.working(two):
        await one.admin.set_group("g", max_retries=2)
        await one.publish_many("t", range(40))
        await counted(live, "g", fail=120, dead=40)
    assert sorted(seen.attempts) == [1] * 40 + [2] * 40 + [3] * 40
