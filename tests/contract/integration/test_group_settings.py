"""Group metadata: who sets it, who wins, and what it does to what waits."""

import asyncio
import logging
from itertools import pairwise
from typing import Any

import pytest

from rqretry import App, ConfigError, ConsumeResult, InvalidArgument, Message, RetryPolicy
from rqretry.core import retry_policy
from rqretry.core.delay_levels import DEFAULT_LEVELS
from rqretry.core.parts import parts_of
from rqretry.supervision.supervisor import apply_settings
from rqretry.testing import Lab as VirtualLab
from tests.contract.integration.harness import Lab, Seen, counted


async def test_the_last_explicit_start_wins_for_all_instances_at_once(lab: Lab) -> None:
    one, two, seen = lab.app(), lab.app(), Seen()

    async def handle(message: Message[Any]) -> ConsumeResult:
        seen.add(message)
        return ConsumeResult.FAILURE

    one.consumer("t", group="g", max_retries=5, policy=RetryPolicy.fixed("1h"))(handle)
    two.consumer("t", group="g", max_retries=0)(handle)
    async with lab.working(one):
        await one.publish("t", 1)
        await counted(lab, "g", fail=1, dead=0)
        async with lab.working(two):
            pass  # it has started, and is gone again
        info = await one.admin.group("g")
        assert (info.max_retries, info.policy) == (0, "fixed:1h")  # what it did not name is kept
        await one.publish("t", 2)
        await counted(lab, "g", fail=2, dead=1)
        before = info.changed_at_ms
        async with lab.working(one):
            info = await one.admin.group("g")
    assert info.max_retries == 5
    assert info.changed_at_ms >= before
    assert info.changed_by


@pytest.mark.parametrize("supervised", [False, True], ids=["alone", "supervised"])
@pytest.mark.parametrize(
    "second",
    [
        {"topics": "grown", "group": "h"},
        {"topics": "t", "group": "h", "broadcast": True},
        {"topics": "t", "group": "h", "ordered": True},
        {"topics": "three", "group": "h", "max_inflight": 2},
        {"topics": "u", "group": "g", "ordered": True},
        {"topics": "%DLQ%o", "group": "h"},
    ],
)
async def test_a_worker_that_is_refused_for_one_consumer_has_set_nothing_for_another(
    lab: Lab, second: dict[str, Any], supervised: bool
) -> None:
    client = lab.client()
    client.admin.create_topic("grown", partitions=1)
    client.publish("t", 1)
    client.admin.create_group("g", "t", max_retries=7)
    client.admin.create_group("h", "t", kind="push")
    client.admin.create_group("o", "t", ordered=False)
    app = lab.app()
    app.topic("grown", partitions=2)
    app.topic("three", partitions=3)
    app.consumer("t", group="g", max_retries=3)(lambda _: None)
    app.consumer("new", group="new")(lambda _: None)
    app.consumer(**second)(lambda _: None)
    before = everything(lab)
    parts = parts_of(app)
    with pytest.raises((ConfigError, InvalidArgument)):
        if supervised:
            await asyncio.to_thread(apply_settings, parts.settings, parts.consumers, parts.topics)
        else:
            await parts.worker().run()
    assert everything(lab) == before


async def test_a_start_that_names_nothing_changes_nothing(lab: Lab) -> None:
    app, other = lab.app(), lab.app()
    app.consumer("t", group="g", max_retries=3, rate_limit="9/s", max_inflight=7)(lambda _: None)
    other.consumer("t", group="g")(lambda _: None)
    async with lab.working(app):
        before = await app.admin.group("g")
    async with lab.working(other):
        assert await app.admin.group("g") == before


async def test_a_partial_change_keeps_the_rest(lab: Lab) -> None:
    client = lab.client()
    client.publish("t", 1)
    client.simple_consumer("t", group="s", create_group=True, max_retries=4)
    client.admin.set_group("s", policy="fixed:7s", rate_limit="5/m", max_inflight=2)
    info = client.admin.set_group("s", max_retries=2)
    assert (info.max_retries, info.policy) == (2, "fixed:7s")
    assert (info.rate_limit, info.max_inflight) == ("5/m", 2)


async def test_a_pinned_value_survives_starts_that_disagree_and_they_warn(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    app = lab.app()
    app.consumer("t", group="g", max_retries=3, policy=RetryPolicy.fixed(1))(lambda _: None)
    async with lab.working(app):
        await app.admin.set_group("g", max_retries=9, pin=True)
    with caplog.at_level(logging.WARNING):
        async with lab.working(app):
            info = await app.admin.group("g")
    assert (info.max_retries, info.policy, info.pinned) == (9, "fixed:1s", ("max_retries",))
    assert "max_retries is pinned to 9, not 3" in caplog.text
    await app.admin.set_group("g", pin=False)
    async with lab.working(app):
        assert (await app.admin.group("g")).max_retries == 3


async def test_a_paused_group_gets_nothing_loses_nothing_and_goes_on(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    app.consumer("t", group="g")(seen.add)
    async with lab.working(app):
        await app.publish("t", 1)
        await seen.count(1)
        await app.admin.pause("g")
        await app.publish_many("t", range(2, 12))
        assert lab.stats("g").ready == 10
        assert len(seen.messages) == 1
        await app.admin.resume("g")
        await seen.count(11)
        await counted(lab, "g", succeed=11)


async def test_minus_one_is_refused_as_a_limit(lab: Lab) -> None:
    client = lab.client()
    client.publish("t", 1)
    client.simple_consumer("t", group="s", create_group=True)
    with pytest.raises(InvalidArgument, match='use "unlimited"'):
        client.admin.set_group("s", max_retries=-1)


# -- what it would do to the messages that wait ------------------------------------------------


async def waiting(lab: Lab, count: int = 5) -> App:
    """Messages of group g that have failed once and wait an hour."""
    app = lab.app()

    @app.consumer("t", group="g", max_retries=3, policy=RetryPolicy.fixed("1h"))
    async def handle(message: Message[Any]) -> ConsumeResult:
        return ConsumeResult.FAILURE

    async with lab.working(app):
        await app.publish_many("t", range(count))
        await counted(lab, "g", fail=count)
    return app


async def test_a_dry_run_says_what_next_failures_would_mean_and_writes_nothing(lab: Lab) -> None:
    app = await waiting(lab)
    await app.publish("t", "new")
    before = await app.admin.group("g")
    state = lab.redis.hgetall("rqretry:test:{t:0}:group:g:config")
    foreseen = await app.admin.set_group("g", max_retries=1, policy="ladder:10s 30s", dry_run=True)
    assert (foreseen.max_retries, foreseen.policy) == (1, "ladder:10s 30s")
    forecast = foreseen.forecast
    assert forecast is not None
    assert (forecast.waiting, forecast.unfinished, forecast.dead_at_next_failure) == (5, 6, 5)
    rows = [(r.attempt, r.count, r.wait_before_s, r.wait_after_s) for r in forecast.attempts]
    assert rows == [(1, 1, 3600.0, 10.0), (2, 5, 3600.0, None)]
    assert await app.admin.group("g") == before
    assert lab.redis.hgetall("rqretry:test:{t:0}:group:g:config") == state
    assert [line.verb for line in await app.admin.audit()] == []


async def test_a_dry_run_refuses_what_the_change_would_refuse(lab: Lab) -> None:
    app = await waiting(lab, 1)
    with pytest.raises(InvalidArgument, match="ladder"):
        await app.admin.set_group("g", policy="ladder:", dry_run=True)


def test_a_message_that_waits_is_delivered_once_more_when_the_limit_is_below_its_count() -> None:
    app, attempts = App("redis://localhost:6379/0"), []

    @app.consumer("t", group="g", policy=RetryPolicy.fixed("10s", max_retries=10))
    def handle(message: Message[Any]) -> bool:
        attempts.append(message.attempt)
        return False

    with VirtualLab(app) as lab:
        lab.publish("t", 1)
        lab.advance("35s")
        assert attempts == [1, 2, 3, 4]
        lab.admin.set_group("g", max_retries=1)
        lab.advance("4s")
        assert attempts == [1, 2, 3, 4]
        lab.advance("1h")
        assert attempts == [1, 2, 3, 4, 5]
        (dead_letter,) = lab.admin.dead_letters("g")
        assert dead_letter.attempt == 5


@pytest.mark.parametrize(
    ("policy", "waits_s"),
    [
        (RetryPolicy.ladder("1s 5s 1m"), [1, 5, 60, 60, 60]),
        (RetryPolicy.fixed("7s"), [7, 7, 7, 7, 7]),
        (RetryPolicy.exponential(1000, 2, "2h", jitter=0), [1000, 2000, 4000, 7200, 7200]),
        (RetryPolicy.rocketmq(), [10, 30, 60, 120, 180]),
    ],
    ids=["ladder", "fixed", "exponential", "rocketmq"],
)
def test_each_policy_waits_as_it_says(policy: RetryPolicy, waits_s: list[int]) -> None:
    app, at = App("redis://localhost:6379/0"), []
    with VirtualLab() as lab:

        @app.consumer("t", group="g", policy=policy)
        def handle(message: Message[Any]) -> bool:
            at.append(lab.now)
            return False

        lab.app(app)
        lab.publish("t", 1)
        lab.run_until_idle()
        lab.advance(sum(waits_s))
        waited = [after - before for before, after in pairwise(at)]
        assert waited == waits_s


def test_jitter_stays_within_its_share() -> None:
    app, at = App("redis://localhost:6379/0"), []
    policy = RetryPolicy.exponential(100, 1, "2h", jitter=0.5, max_retries=20)
    with VirtualLab() as lab:

        @app.consumer("t", group="g", policy=policy)
        def handle(message: Message[Any]) -> bool:
            at.append(lab.now)
            return False

        lab.app(app)
        lab.publish("t", 1)
        lab.advance(20 * 150)
    waited = [after - before for before, after in pairwise(at)]
    assert len(waited) >= 19
    assert all(50 <= wait <= 150 for wait in waited)
    assert len(set(waited)) > 10


def test_an_exponential_policy_does_not_overflow_at_attempt_10_000() -> None:
    compiled = retry_policy.compiled(
        RetryPolicy.exponential(5, 1000, "2h", jitter=0), DEFAULT_LEVELS.ms
    )
    assert compiled.delay_ms(10_000) == 7_200_000
    assert compiled.total_ms(10_000) < 10_000 * 7_200_000


# -- fair lanes ----------------------------------------------------------------------------------


async def test_neither_lane_waits_for_the_other_to_drain(lab: Lab) -> None:
    count = 1000
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g", policy=RetryPolicy.fixed("1h"), concurrency=8)
    async def handle(message: Message[Any]) -> ConsumeResult:
        if message.attempt == 1 and message.body == "retry":
            return ConsumeResult.FAILURE
        seen.add(message)
        return ConsumeResult.SUCCESS

    async with lab.working(app):
        await app.publish_many("t", ["retry"] * count)
        await counted(lab, "g", fail=count)
    await app.admin.promote("g")
    await app.publish_many("t", ["new"] * count)
    stats = lab.stats("g")
    assert (stats.ready, stats.retry) == (count, count)
    async with lab.working(app):
        await seen.count(2 * count)
        await counted(lab, "g", succeed=2 * count)
    for part in (200, 600, 1000, 1400):
        retries = seen.bodies[:part].count("retry")
        assert 0.25 < retries / part < 0.75


def everything(lab: Lab) -> dict[bytes, bytes | None]:
    """All that is stored."""
    return {key: lab.redis.dump(key) for key in lab.redis.scan_iter("*")}
