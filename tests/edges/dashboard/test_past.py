"""A week of numbers outlives the dashboard that shows them."""

import re
from contextlib import suppress
from typing import Any

import httpx
import pytest

from rqretry import AsyncClient
from rqretry.admin.series import SeriesWriter, series
from rqretry.admin.views import Stats
from rqretry.cli.exporter import Metrics
from rqretry.core.parts import parts_of
from rqretry.dashboard.access import Rights
from rqretry.dashboard.site import make_site
from rqretry.protocol.keys import NamespaceKeys
from rqretry.protocol.series import Recorded
from tests.contract.admin.bench import Bench
from tests.edges.cli.shell import Shell

PLACE: Any = {"group": "billing", "topic": "orders"}


def keys_of(bench: Bench) -> NamespaceKeys:
    return parts_of(bench.client).catalog.keys


def a_minute_later(bench: Bench) -> None:
    """What was recorded until now was a minute earlier."""
    for field in ("minute", "since"):
        bench.redis.hincrby(keys_of(bench).series, field, -1)


def work(bench: Bench, *bodies: int) -> None:
    bench.publish(*bodies, topic="orders")
    bench.succeed(bench.lease(len(bodies), **PLACE), **PLACE)


def recorded(bench: Bench, *stats: Stats) -> bool:
    store, context = parts_of(bench.admin)
    return store.perform(SeriesWriter().round(context, *stats))


def done(bench: Bench) -> int:
    """What all groups together have succeeded with, as far as that is recorded."""
    store, context = parts_of(bench.admin)
    return sum(point.succeeded for point in store.perform(series(context))[None])


async def page_of(bench: Bench) -> str:
    """The week of a group on a dashboard that was just started."""
    async with AsyncClient(bench.url) as ours:
        site = httpx.ASGITransport(make_site(ours, Rights(), fresh_s=0.0))
        async with httpx.AsyncClient(transport=site, base_url="http://127.0.0.1") as browser:
            await browser.get("/")  # takes a sample
            return (await browser.get("/group/billing?span=week")).text


async def test_a_dashboard_an_exporter_and_a_reaper_record_each_minute_once_and_all_read_it(
    bench: Bench,
) -> None:
    shell = Shell(bench.url)
    exporter = Metrics(bench.client).text
    exporter()
    work(bench, 1, 2, 3)
    a_minute_later(bench)
    assert recorded(bench, bench.admin.stats())
    assert not recorded(bench)  # it is taken
    work(bench, 4)
    a_minute_later(bench)
    exporter = Metrics(bench.client).text
    exporter()
    bench.publish(5, 6, topic="orders")
    work(bench, 7)
    a_minute_later(bench)
    shown = r"Attempts per second, at most 0\.0\d"  # 5 a minute, or in two
    assert re.search(shown, await page_of(bench))
    assert done(bench) == 3 + 1 + 1
    assert re.search(shown, await page_of(bench))  # of another process, after a restart
    (topic,) = shell.json("status", "--since", "1h")["topics"]
    points = topic["groups"][0]["history"]
    assert sum(point["succeeded"] for point in points) == 5
    assert max(point["due"] for point in points) == 2
    shown = r"orders  billing +5 +0 +2$"
    assert re.search(shown, shell.ok("status", "--since", "7d"), re.MULTILINE)


def test_a_group_that_leaves_a_topic_takes_its_numbers_along(bench: Bench) -> None:
    bench.group("billing", "orders", "refunds")
    bench.publish(1, topic="orders")
    bench.publish(2, topic="refunds")
    assert recorded(bench)
    keys = keys_of(bench)

    def known() -> set[str]:
        fields = {f for key in (keys.series, *keys.rings) for f in bench.redis.hkeys(key)}
        return {field.decode() for field in fields if b"/" in field}

    assert known() == {"orders/billing", "refunds/billing"}
    bench.admin.unsubscribe("billing", "orders")
    assert known() == {"refunds/billing"}
    bench.admin.delete_group("billing", force=True)
    assert known() == set()


def test_what_may_not_be_written_is_left_out_and_tried_again_in_the_next_minute(
    bench: Bench,
) -> None:
    now = [0.0]
    writer = SeriesWriter(lambda: now[0])
    store, context = parts_of(bench.admin)
    bench.redis.execute_command("ACL", "SETUSER", "default", "-hsetnx")
    try:
        assert store.perform(writer.round(context)) is False
    finally:
        bench.redis.execute_command("ACL", "SETUSER", "default", "+@all")
    assert store.perform(writer.round(context)) is False  # it waits
    now[0] = 60.0
    assert store.perform(writer.round(context)) is True


@pytest.mark.parametrize("given", [("--since", "8d"), ("--since", "1s"), ("--since", "x")])
def test_a_time_that_is_not_recorded_is_refused(bench: Bench, given: tuple[str, str]) -> None:
    assert "--since" in Shell(bench.url).fails("status", *given, status=2)


def test_what_was_recorded_while_a_group_left_is_forgotten_within_an_hour(bench: Bench) -> None:
    store, context = parts_of(bench.admin)
    keys = keys_of(bench)
    bench.redis.hset(keys.series, "orders/gone", "1 0")
    bench.redis.hset(keys.rings[0], "orders/gone", b"x")
    writer, taken = SeriesWriter(), Recorded("29923200", 0, 0, 0)
    round_ = writer.round(context, bench.admin.stats())
    next(round_)  # asks for the minute
    step = round_.send([taken])
    with suppress(StopIteration):
        while True:
            answer = store.perform(iter_of(step))
            step = round_.send(answer)
    assert not bench.redis.hexists(keys.series, "orders/gone")
    assert not bench.redis.hexists(keys.rings[0], "orders/gone")


def iter_of(step: Any) -> Any:
    """One step as an operation."""
    return (yield step)
