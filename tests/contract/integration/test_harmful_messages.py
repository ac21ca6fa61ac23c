"""What is wrong with one message, or with its error, harms no other and ends no worker."""

import asyncio
import sys
from typing import Any

import pytest

from rqretry import CallNext, ConsumeResult, Message, RetryPolicy
from tests.contract.integration.harness import NAMESPACE, Lab, Seen, counted

PARTITION = f"rqretry:{NAMESPACE}:{{t:0}}:"
GROUP = f"{PARTITION}group:g:"
GOOD = 20


class Exits(Exception):
    """Its text ends the process."""

    def __str__(self) -> str:
        return str(sys.exit(3))

    __repr__ = __str__


def harmful(name: str) -> BaseException:
    """An exception of a handler that is hard to describe."""
    if name == "surrogate":
        return FileNotFoundError("no such file: 'caf\udce9'")
    if name == "exits":
        return Exits()
    odd: type[Exception] = type("Caf\udce9", (Exception,), {})
    return odd()


def raises(message: Message[Any]) -> None:
    """A handler that fails as its message says."""
    if message.body != "fine":
        raise harmful(message.body)


@pytest.mark.parametrize("name", ["surrogate", "exits", "type"])
async def test_an_exception_that_cannot_be_spelled_fails_its_own_message(
    lab: Lab, name: str
) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g", policy=RetryPolicy.ladder("10ms", max_retries=2))
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        if message.body == "bad":
            raise harmful(name)

    async with lab.working(app):
        await app.publish_many("t", ["bad", *range(GOOD)])
        await counted(lab, "g", succeed=GOOD, dead=1, fail=3, expire=0)
    (dead_letter,) = await app.admin.dead_letters("g")
    assert dead_letter.errors[-1].type


async def test_such_an_exception_in_a_process_of_its_own_fails_its_own_message(lab: Lab) -> None:
    app = lab.app()
    app.consumer("t", group="g", process=True, max_retries=0)(raises)
    async with lab.working(app):
        await app.publish_many("t", ["surrogate", "exits", "fine"])
        await counted(lab, "g", succeed=1, dead=2, fail=2, expire=0)


async def test_an_id_that_is_not_utf_8_ends_no_worker_and_harms_no_other(lab: Lab) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g", visibility=0.1, max_retries=0)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    async with lab.working(app):
        lab.redis.hset(f"{PARTITION}bodies", b"caf\xe9", b"1")
        lab.redis.rpush(f"{GROUP}ready", b"caf\xe9")
        await app.publish_many("t", range(GOOD))
        await counted(lab, "g", succeed=GOOD, expire=1, dead=1)
    assert len(seen.messages) == GOOD
    lab.redis.flushall()  # no command can name it


@pytest.mark.parametrize("damage", ["gar bage", "", "1", "x:y:z:w", "\udce9"])
async def test_a_damaged_delivery_state_begins_anew_and_harms_no_other(
    lab: Lab, damage: str
) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g", policy=RetryPolicy.ladder("10ms", max_retries=2))
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        if message.body == "bad" and len([m for m in seen.messages if m.body == "bad"]) == 1:
            raise ValueError("once")

    await app.admin.create_topic("t")
    bad = await app.publish("t", "bad")
    lab.redis.hset(f"{GROUP}attempts", bad, damage.encode(errors="surrogateescape"))
    async with lab.working(app):
        await app.publish_many("t", range(GOOD))
        await counted(lab, "g", succeed=GOOD + 1, fail=1, expire=0, dead=0)
    assert len(seen.messages) == GOOD + 2


class Spoilt(Exception):
    """Nothing of it can be asked for."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Returned:
    """Nothing of it can be asked for either."""

    __class__ = property(lambda _: sys.exit(3))


async def misbehaves(message: Message[Any]) -> Any:
    """A handler that spoils the task it runs in, as its message says."""
    task = asyncio.current_task()
    assert task is not None
    if message.body == "cancels":
        task.cancel()
        await asyncio.sleep(0)
    elif message.body == "cancels later":
        task.cancel()
        return False
    elif message.body == "raises":
        raise Spoilt
    elif message.body == "exits":
        sys.exit(3)
    return Returned() if message.body == "returns" else None


WAYS = ["cancels", "cancels later", "raises", "exits", "returns"]


@pytest.mark.parametrize("around", ["", "middleware"])
@pytest.mark.parametrize("batch", [0, 1])
async def test_what_a_handler_does_to_its_task_fails_its_own_message(
    lab: Lab, batch: int, around: str
) -> None:
    app, seen = lab.app(), Seen()
    options: dict[str, Any] = {"max_retries": 0, "concurrency": 1, "visibility": 0.5}

    async def one(message: Message[Any]) -> Any:
        seen.add(message)
        return await misbehaves(message)

    async def several(messages: list[Message[Any]]) -> Any:
        return await one(messages[0])

    if around:
        app.middleware(_passes)
    if batch:
        app.consumer("t", group="g", batch=1, **options)(several)
    else:
        app.consumer("t", group="g", **options)(one)
    async with lab.working(app):
        await app.publish_many("t", [*WAYS, *range(GOOD)])
        await counted(lab, "g", succeed=GOOD, dead=len(WAYS))
    assert len(seen.messages) == GOOD + len(WAYS)


async def _passes(message: Message[Any], call_next: CallNext) -> ConsumeResult:
    return await call_next(message)
