"""Push consumers: what no other test proves as a whole."""

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

from rqretry import App, ConsumeResult, Message, Retry, RetryPolicy
from rqretry.core.parts import parts_of
from rqretry.protocol.command import Command
from rqretry.testing import Lab
from tests.contract.integration.harness import Lab as LiveLab
from tests.contract.integration.harness import Seen, counted, until
from tests.support.lua_hooks import CLOCK_KEY, virtual_time

DEADLINES = "rqretry:test:{t:0}:group:g:inflight"
START_MS = 1_000_000_000


def stored(lab: Lab, topic: str = "orders") -> int:
    """How many bodies a topic keeps."""
    return lab.admin.stats(topic).topics[0].stored


def times(lab: Lab, id_: str) -> list[float]:
    """When each attempt of a message ran, in virtual seconds."""
    return [attempt.at for attempt in lab.attempts(id_)]


async def test_a_delivery_has_a_deadline_that_a_renewal_moves(live: LiveLab) -> None:
    app, seen, free = live.app(), Seen(), asyncio.Event()

    @app.consumer("t", group="g", visibility=0.6)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        await free.wait()

    async with live.working(app):
        assert await app.publish("t", 1)
        await seen.count(1)
        assert (live.stats("g").ready, live.stats("g").inflight) == (0, 1)
        ((_, first),) = live.redis.zrange(DEADLINES, 0, -1, withscores=True)
        seconds, micros = live.redis.time()
        assert 0 < first - (seconds * 1000 + micros / 1000) <= 600
        await until(lambda: live.redis.zrange(DEADLINES, 0, -1, withscores=True)[0][1] > first)
        free.set()
        await counted(live, "g", lease=1, succeed=1)


def test_the_body_is_there_until_the_last_group_has_finished(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="quick")
    async def quick(message: Message[int]) -> None: ...

    @app.consumer("orders", group="slow")
    async def slow(message: Message[int]) -> bool:
        return message.attempt == 2

    order = lab.publish("orders", 12)
    lab.run_until_idle()
    lab.assert_committed(order, group="quick")
    assert stored(lab) == 1
    lab.advance("10s")
    lab.assert_committed(order)
    assert stored(lab) == 0


@pytest.mark.parametrize(
    ("none_is", "promised", "committed"),
    [
        (None, True, False),
        (None, False, True),
        ("success", True, True),
        ("failure", False, False),
        ("success", False, True),
        ("failure", True, False),
    ],
)
def test_none_is_a_failure_only_where_a_result_is_promised_or_by_option(
    lab: Lab, none_is: str | None, promised: bool, committed: bool
) -> None:
    app = lab.app(App())
    options: dict[str, Any] = {} if none_is is None else {"none_is": none_is}

    async def promises(message: Message[int]) -> ConsumeResult:
        return None  # type: ignore[return-value]

    async def says_nothing(message: Message[int]):  # type: ignore[no-untyped-def]
        pass

    handler = promises if promised else says_nothing
    app.consumer("orders", group="billing", **options)(handler)
    order = lab.publish("orders", 1)
    lab.run_until_idle()
    assert lab.history(order)[-1] == ("committed" if committed else "waiting_retry")


async def test_the_interval_starts_when_the_failure_is_reported(live: LiveLab) -> None:
    live.library = library = virtual_time()
    live.redis.set(CLOCK_KEY, START_MS)
    app, client = live.app(), live.client(library=library)

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> ConsumeResult:
        live.redis.set(CLOCK_KEY, START_MS + 7000)  # the handler takes 7 s
        return ConsumeResult.FAILURE

    async with live.working(app, library=library):
        client.publish("t", 1)
        # Whoever reads statistics by another clock would move what is due by that one.
        await until(lambda: live.redis.hget("rqretry:test:{t:0}:counters", "fail:g") == b"1")
        ((_, due),) = live.redis.zrange(
            "rqretry:test:{t:0}:group:g:delay:3", 0, -1, withscores=True
        )
    assert due == START_MS + 7000 + 10_000


def test_the_automatic_level_depends_on_the_count_alone(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing", max_retries=5)
    async def bill(message: Message[int]) -> ConsumeResult:
        chosen = {1: 1, 2: 0, 3: 99, 4: 0, 5: 2}
        if message.attempt == 5:
            raise Retry(level=2)
        return ConsumeResult.retry(level=chosen.get(message.attempt))

    order = lab.publish("orders", 1)
    lab.advance("5h")
    # Level 1 by choice, the second automatic one (level 4), above the table, the fourth automatic
    # one (level 6), level 2 by choice.
    assert times(lab, order) == [0, 1, 31, 7231, 7351, 7356]
    lab.assert_dead(order)


@pytest.mark.parametrize(
    ("policy", "at"),
    [
        (RetryPolicy.ladder("3s 5s 1m", max_retries=5), [0, 3, 8, 68, 128, 188]),
        (RetryPolicy.fixed("90s", max_retries=3), [0, 90, 180, 270]),
        (RetryPolicy.exponential(jitter=0, max_retries=4), [0, 5, 15, 35, 75]),
        (
            RetryPolicy.exponential("1s", 1000, "2h", jitter=0, max_retries=4),
            [0, 1, 1001, 8201, 15401],
        ),
    ],
    ids=["ladder", "fixed", "exponential", "capped"],
)
def test_each_policy_waits_exactly_its_steps(
    lab: Lab, policy: RetryPolicy, at: list[float]
) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing", policy=policy)
    async def bill(message: Message[int]) -> bool:
        return False

    order = lab.publish("orders", 1)
    lab.advance("10h")
    assert times(lab, order) == at
    lab.assert_dead(order)


def test_jitter_is_a_part_of_the_wait_and_not_all_of_it(lab: Lab) -> None:
    app = lab.app(App())
    policy = RetryPolicy.exponential("100s", 1, "100s", jitter=0.2, max_retries=60)

    @app.consumer("orders", group="billing", policy=policy)
    async def bill(message: Message[int]) -> bool:
        return False

    order = lab.publish("orders", 1)
    lab.advance("3h")
    found = times(lab, order)
    waits = [after - before for before, after in pairwise(found)]
    assert len(waits) == 60
    assert all(80 <= wait <= 120 for wait in waits)
    assert min(waits) < 95 < 105 < max(waits)


async def test_consume_timeout_counts_from_the_lease_and_is_15_minutes(live: LiveLab) -> None:
    app, go_on, ran = live.app(), asyncio.Event(), []

    @app.consumer("t", group="g", concurrency=1, visibility=30, consume_timeout=1, max_retries=0)
    async def handle(message: Message[Any]) -> None:
        if message.body == "first":
            await go_on.wait()
            return
        started = time.monotonic()
        try:
            await asyncio.sleep(60)
        finally:
            ran.append(time.monotonic() - started)

    async with live.working(app) as worker:
        worker._consumers[0]._slots._rate = 1000.0  # it believes that it is fast, and leases ahead
        await app.publish_many("t", ["first", "second"])
        await until(lambda: live.stats("g").inflight == 2)
        await asyncio.sleep(0.5)  # the second one spends half of its time in the buffer
        go_on.set()
        await counted(live, "g", succeed=1, fail=1, dead=1)
        (dead_letter,) = await app.admin.dead_letters("g")

    assert dead_letter.cause == "timeout"
    assert ran[0] < 1  # it would be 1 s at least, were it counted from the start
    plain = App("redis://localhost")
    plain.consumer("t", group="g")(print)
    assert parts_of(plain).consumers[0].consume_timeout_ms == 15 * 60 * 1000


async def test_an_ordered_count_survives_its_workers(live: LiveLab) -> None:
    seen = Seen()

    def consumer() -> App:
        app = live.app()

        @app.consumer("t", group="g", ordered=True, max_retries=2, policy=RetryPolicy.fixed("30s"))
        async def handle(message: Message[Any]) -> bool:
            seen.add(message)
            return bool(message.body != "bad")

        return app

    for attempt in (1, 2, 3):  # each of them by another worker
        app = consumer()
        if attempt == 1:
            await app.publish("t", "bad", message_group="x")
            await app.publish("t", "next", message_group="x")
        else:
            assert await app.admin.promote("g") == 1
        async with live.working(app):
            await counted(live, "g", fail=attempt)
            await seen.count(attempt if attempt < 3 else 4)
            if attempt == 3:
                await counted(live, "g", succeed=1, dead=1)

    assert [(m.body, m.attempt) for m in seen.messages] == [
        ("bad", 1),
        ("bad", 2),
        ("bad", 3),
        ("next", 1),
    ]


def test_an_ordered_group_waits_one_second_whatever_the_count(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing", ordered=True, max_retries=4)
    async def bill(message: Message[int]) -> ConsumeResult:
        return ConsumeResult.retry(level=9) if message.attempt == 2 else ConsumeResult.FAILURE

    first = lab.publish("orders", 1, message_group="x")
    second = lab.publish("orders", 2, message_group="x")
    other = lab.publish("orders", 3, message_group="y")
    lab.advance("1m")
    assert times(lab, first) == [0, 1, 2, 3, 4]
    assert times(lab, second) == [4, 5, 6, 7, 8]
    assert times(lab, other) == [0, 1, 2, 3, 4]


def test_a_failure_of_an_ordered_group_blocks_no_other_group(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="stuck", ordered=True, max_retries="unlimited")
    async def stuck(message: Message[int]) -> bool:
        return False

    @app.consumer("orders", group="fine", ordered=True)
    async def fine(message: Message[int]) -> None: ...

    orders = [lab.publish("orders", n, message_group="x") for n in range(3)]
    lab.advance("10s")
    for order in orders:
        lab.assert_committed(order, group="fine")
    assert len(lab.attempts(orders[0], group="stuck")) == 11
    assert lab.history(orders[1], group="stuck") == ["ready"]


def test_a_retry_stores_no_second_body(lab: Lab) -> None:
    app = lab.app(App())
    body = "a body like no other " * 20

    @app.consumer("orders", group="billing")
    async def bill(message: Message[str]) -> bool:
        return False

    lab.publish("orders", body)
    for _ in range(18):
        lab.advance_to_next_due()
        assert copies(lab, body.encode()) == 1


def copies(lab: Lab, marker: bytes) -> int:
    """How often the bytes are in the namespace, whatever key holds them."""

    def ask(*request_parts: str) -> Any:
        return parts_of(lab.client).store.run(
            Command("read", (), (), lambda reply: reply, arguments=request_parts)
        )

    readers = {
        "hash": lambda key: ask("HGETALL", key),
        "list": lambda key: ask("LRANGE", key, "0", "-1"),
        "zset": lambda key: ask("ZRANGE", key, "0", "-1"),
        "stream": lambda key: ask("XRANGE", key, "-", "+"),
        "string": lambda key: ask("GET", key),
    }
    found = 0
    for key in ask("KEYS", f"rqretry:{lab.namespace}:*"):
        kind = ask("TYPE", key)
        kind = kind.decode() if isinstance(kind, bytes) else str(kind)
        found += flat(readers[kind](key)).count(marker)
    return found


def flat(reply: Any) -> bytes:
    """All bytes of a reply."""
    if isinstance(reply, dict):
        reply = [part for item in reply.items() for part in item]
    if isinstance(reply, list | tuple | set):
        return b"\n".join(map(flat, reply))
    return reply if isinstance(reply, bytes) else str(reply).encode()
