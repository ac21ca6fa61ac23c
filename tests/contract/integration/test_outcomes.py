"""What a handler answers or raises, and what becomes of the message."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from rqretry import ConsumeResult, DeadLetter, Message, Postpone, Retry, RetryPolicy
from rqretry.core.dead_letter import DeadLetterRecord
from tests.contract.integration.harness import Lab, Seen, counted

SOON = RetryPolicy.fixed("1ms", max_retries=1)
Handler = Callable[[Message[Any]], Any]


async def committed(lab: Lab, handler: Handler, **options: Any) -> None:
    """Run one message through a handler that must succeed."""
    app = lab.app()
    app.consumer("t", group="g", policy=SOON, **options)(handler)
    async with lab.working(app):
        await app.publish("t", "body")
        await counted(lab, "g", succeed=1, fail=0)


async def dead(
    lab: Lab, handler: Handler, *, deliveries: int = 2, **options: Any
) -> DeadLetterRecord:
    """Run one message through a handler until it is dead; the worker must still work then."""
    app = lab.app()
    app.consumer("t", group="g", policy=SOON, **options)(handler)
    app.consumer("after", group="after")(lambda _: None)
    async with lab.working(app):
        await app.publish("t", "body")
        await counted(lab, "g", dead=1, succeed=0, fail=deliveries)
        await app.publish("after", 1)
        await counted(lab, "after", succeed=1)
        (dead_letter,) = await app.admin.dead_letters("g")
    assert dead_letter.attempt == deliveries
    return dead_letter


def returning(value: Any, annotation: Any) -> tuple[Handler, Handler]:
    """The same answer from an async and from a sync handler."""

    async def handle_async(_message: Message[Any]) -> Any:
        return value

    def handle_sync(_message: Message[Any]) -> Any:
        return value

    for handler in (handle_async, handle_sync):
        handler.__annotations__["return"] = annotation
        if annotation is Ellipsis:
            del handler.__annotations__["return"]
    return handle_async, handle_sync


@pytest.mark.parametrize("kind", [0, 1], ids=["async", "sync"])
@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (ConsumeResult.SUCCESS, ConsumeResult),
        (None, None),
        (None, ...),
        (True, bool),
        (0, int),
        (0, ...),  # equal to False, and not it
        ("anything", str),
    ],
)
async def test_a_success_is_committed(lab: Lab, kind: int, value: Any, annotation: Any) -> None:
    await committed(lab, returning(value, annotation)[kind])


@pytest.mark.parametrize("kind", [0, 1], ids=["async", "sync"])
@pytest.mark.parametrize(
    ("value", "annotation", "reason"),
    [
        (ConsumeResult.FAILURE, ConsumeResult, "handler reported failure"),
        (ConsumeResult.failure("no seat"), ConsumeResult, "no seat"),
        (None, ConsumeResult, "handler returned None where it promised a result"),
        (None, bool, "handler returned None where it promised a result"),
        (False, bool, "handler returned False"),
        (False, ..., "handler returned False"),
        (False, None, "handler returned False"),
        (False, ConsumeResult, "handler returned False"),
        (False, int, "handler returned False"),
    ],
)
async def test_a_failure_is_retried_and_then_dead(
    lab: Lab, kind: int, value: Any, annotation: Any, reason: str
) -> None:
    dead_letter = await dead(lab, returning(value, annotation)[kind])

    assert (dead_letter.cause, dead_letter.error) == ("failure", reason)
    assert [error.attempt for error in dead_letter.errors] == [1, 2]
    assert dead_letter.body == "body"


async def test_an_unawaited_coroutine_is_a_failure_with_advice(lab: Lab) -> None:
    async def inner() -> None:
        raise AssertionError("nobody runs this")

    made = inner()
    dead_letter = await dead(lab, lambda _message: made)
    made.close()

    assert "nobody ran" in dead_letter.error


class Odd(BaseException):
    """Not even an Exception."""


def recurse() -> None:
    recurse()


RAISED = [
    ValueError("x"),
    Odd("odd"),
    SystemExit(3),
    KeyboardInterrupt(),
    MemoryError("big"),
    StopIteration(),
    StopAsyncIteration(),
    asyncio.CancelledError(),
    TimeoutError("slow"),
    GeneratorExit(),
]


@pytest.mark.parametrize("kind", ["async", "sync"])
@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
async def test_whatever_a_handler_raises_is_a_failure_and_the_worker_goes_on(
    lab: Lab, kind: str, error: BaseException
) -> None:
    async def handle_async(_message: Message[Any]) -> None:
        raise error

    def handle_sync(_message: Message[Any]) -> None:
        raise error

    handler: Handler = handle_async if kind == "async" else handle_sync
    dead_letter = await dead(lab, handler, concurrency=1)

    assert dead_letter.cause == "failure"
    name = type(error).__name__
    # Python itself turns a StopIteration that leaves a coroutine into a RuntimeError.
    of_coroutines = name.startswith("Stop") or name == "GeneratorExit"
    assert dead_letter.errors[-1].type in {name, "RuntimeError" if of_coroutines else name}
    assert dead_letter.fingerprint


async def test_a_recursion_error_is_a_failure(lab: Lab) -> None:
    limit = sys.getrecursionlimit()

    async def handle(_message: Message[Any]) -> None:
        recurse()

    dead_letter = await dead(lab, handle)

    assert dead_letter.errors[-1].type == "RecursionError"
    assert sys.getrecursionlimit() == limit


async def test_an_inner_task_that_was_cancelled_fails_the_attempt_and_not_the_slot(
    lab: Lab,
) -> None:
    async def handle(_message: Message[Any]) -> None:
        inner = asyncio.ensure_future(asyncio.sleep(60))
        await asyncio.sleep(0)
        inner.cancel()
        await inner

    dead_letter = await dead(lab, handle, concurrency=1)

    assert dead_letter.errors[-1].type == "CancelledError"


async def test_an_exception_that_cannot_be_shown_is_a_failure(lab: Lab) -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    async def handle(_message: Message[Any]) -> None:
        raise Rude

    assert "Rude" in (await dead(lab, handle)).errors[-1].type


@pytest.mark.parametrize(
    "outcome",
    [ConsumeResult.dead_letter("bad claim"), ConsumeResult.retry(level=-1, reason="bad claim")],
)
async def test_a_dead_letter_result_needs_no_retry(lab: Lab, outcome: ConsumeResult) -> None:
    handler, _ = returning(outcome, ConsumeResult)
    dead_letter = await dead(lab, handler, deliveries=1)

    assert (dead_letter.cause, dead_letter.error) == ("rejected", "bad claim")


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_dead_letter_can_be_raised_from_far_below(lab: Lab, kind: str) -> None:
    def below() -> None:
        raise DeadLetter("bad claim")

    async def handle_async(_message: Message[Any]) -> None:
        below()

    def handle_sync(_message: Message[Any]) -> None:
        below()

    handler: Handler = handle_async if kind == "async" else handle_sync
    dead_letter = await dead(lab, handler, deliveries=1)

    assert (dead_letter.cause, dead_letter.error) == ("rejected", "bad claim")


async def test_retry_after_waits_what_the_handler_says(lab: Lab) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g")  # the group's own first wait would be 10 s
    async def handle(message: Message[Any]) -> ConsumeResult:
        seen.add(message)
        if message.attempt == 1:
            raise Retry(after="150ms", reason="not yet")
        if message.attempt == 2:
            return ConsumeResult.retry(after=0.05)
        return ConsumeResult.SUCCESS

    async with lab.working(app):
        await app.publish("t", 1)
        await seen.count(3)
        await counted(lab, "g", succeed=1, fail=2)

    first, second = (after - before for before, after in zip(seen.at, seen.at[1:], strict=False))
    assert 0.145 <= first < 0.4
    assert 0.045 <= second < 0.3
    assert seen.attempts == [1, 2, 3]


async def test_a_retry_level_is_that_level_and_above_the_table_its_last(lab: Lab) -> None:
    app, seen = lab.app(delay_levels="20ms 40ms 3s 1h"), Seen()
    levels = {"second": 2, "last": 99, "automatic": 0}

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> ConsumeResult:
        seen.add(message)
        if message.attempt > 1:
            return ConsumeResult.SUCCESS
        return ConsumeResult.retry(level=levels[message.body])

    async with lab.working(app):
        ids = {name: await app.publish("t", name) for name in levels}
        await seen.count(4)  # the second level comes back soon
        stats = await counted(lab, "g", succeed=1, fail=3)
        waits = {rung.level: rung.count for rung in stats.waiting}
        (last,) = (await app.admin.message(ids["last"])).states

    assert seen.messages[-1].body == "second"
    assert waits == {4: 1, 3: 1}  # automatic: level 3 after the first delivery
    assert (last.state, last.attempt) == ("waiting_retry", 2)


async def test_postponing_is_not_counted_and_waits_the_given_time(lab: Lab) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g", max_retries=0)
    async def handle(message: Message[Any]) -> ConsumeResult:
        seen.add(message)
        if len(seen.messages) == 1:
            raise Postpone("60ms")
        if len(seen.messages) == 2:
            return ConsumeResult.postpone(0.03)
        return ConsumeResult.SUCCESS

    async with lab.working(app):
        await app.publish("t", 1)
        await counted(lab, "g", succeed=1, fail=0, release=2)

    assert seen.attempts == [1, 1, 1]
    assert seen.at[1] - seen.at[0] >= 0.055
    assert seen.at[2] - seen.at[1] >= 0.025
    tokens = [message.fencing_token for message in seen.messages]
    assert tokens == sorted(set(tokens))


async def test_a_message_that_is_postponed_too_often_fails(lab: Lab) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g", max_retries=0, max_postpones=3)
    async def handle(message: Message[Any]) -> ConsumeResult:
        seen.add(message)
        return ConsumeResult.postpone(0.001)

    async with lab.working(app):
        await app.publish("t", 1)
        await counted(lab, "g", dead=1, release=3, fail=1)
        (dead_letter,) = await app.admin.dead_letters("g")

    assert seen.attempts == [1, 1, 1, 1]
    assert dead_letter.error == "postponed too often"


async def test_two_groups_of_one_process_postpone_the_same_message_each_by_its_own_limit(
    lab: Lab,
) -> None:
    app = lab.app()

    def postponing(group: str, most: int) -> None:
        @app.consumer("t", group=group, max_retries=0, max_postpones=most)
        async def handle(_message: Message[Any]) -> ConsumeResult:
            return ConsumeResult.postpone(0.001)

    postponing("few", 2)
    postponing("many", 40)
    async with lab.working(app):
        await app.publish_many("t", range(20))
        await counted(lab, "few", dead=20, release=40, fail=20, expire=0)
        await counted(lab, "many", dead=20, release=800, fail=20, expire=0)


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"not msgpack" * 50, b"\xc1", b"cos\nsystem\n"])
async def test_a_body_that_cannot_be_decoded_is_dead_at_once_and_stops_nothing(
    lab: Lab, garbage: bytes
) -> None:
    app, seen = lab.app(), Seen()
    await app.admin.create_topic("t")
    bad = await app.publish("t", "bad")
    lab.redis.hset("rqretry:test:{t:0}:bodies", bad, garbage)
    await app.publish("t", "good")
    app.consumer("t", group="g")(seen.add)

    async with lab.working(app):
        await counted(lab, "g", dead=1, succeed=1)
        (dead_letter,) = await app.admin.dead_letters("g")

    assert (dead_letter.id, dead_letter.cause, dead_letter.attempt) == (bad, "undecodable", 1)
    assert dead_letter.raw == garbage
    assert seen.bodies == ["good"]


async def test_what_a_handler_sees_of_its_message(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    app.consumer("t", group="g", max_retries=7, visibility=20)(seen.add)
    async with lab.working(app):
        sent = await app.publish("t", {"n": 1}, tag="eu", keys=["k1", "k2"], headers={"h": "v"})
        (message,) = await seen.count(1)

    assert (message.id, message.topic, message.group, message.body) == (sent, "t", "g", {"n": 1})
    assert (message.tag, message.keys, dict(message.headers)) == ("eu", ("k1", "k2"), {"h": "v"})
    assert (message.attempt, message.reconsume_times, message.max_retries) == (1, 0, 7)
    assert 0 < message.remaining() <= 20
    assert message.published_at is not None
    assert not message.cancelled
