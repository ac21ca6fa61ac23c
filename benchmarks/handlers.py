"""The handlers that scenarios run in worker processes. Each records what it handles."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rqretry import App, ConsumeResult, Message

ROUNDS = 600_000


@dataclass(slots=True)
class Tally:
    """What a process handled: ids, and when each handler started (monotonic seconds)."""

    ids: list[str] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)
    """The same as milliseconds since the epoch, where a scenario compares with the server's."""
    attempts: list[int] = field(default_factory=list)


Handler = Callable[[Message[Any]], Any]


def noop(tally: Tally) -> Handler:
    """Read a field, and record the id."""
    saw, started = tally.ids.append, tally.starts.append

    async def handle(message: Message[Any]) -> None:
        started(time.monotonic())
        message.body["n"]
        saw(message.id)

    return handle


def fails_once(tally: Tally) -> Handler:
    """Raise at the first attempt, succeed at the second."""
    saw, started, attempt = tally.ids.append, tally.starts.append, tally.attempts.append

    async def handle(message: Message[Any]) -> None:
        started(time.monotonic())
        attempt(message.attempt)
        saw(message.id)
        if message.attempt == 1:
            raise ValueError("the first attempt fails")
        message.body["n"]

    return handle


def always_fails(tally: Tally) -> Handler:
    """Raise at every attempt."""
    saw, started = tally.ids.append, tally.starts.append

    async def handle(message: Message[Any]) -> None:
        started(time.monotonic())
        saw(message.id)
        raise ValueError(f"attempt {message.attempt} fails")

    return handle


def punctual(tally: Tally) -> Handler:
    """Fail first, asking for the delay that the body names; record when it came back."""

    async def handle(message: Message[Any]) -> ConsumeResult:
        now_ms = time.time_ns() / 1e6
        if message.attempt == 1:
            return ConsumeResult.retry(max(0.001, (message.body["at_ms"] - now_ms) / 1000))
        tally.walls.append(now_ms)
        tally.starts.append(time.monotonic())
        tally.ids.append(message.id)
        return ConsumeResult.SUCCESS

    return handle


def timed(tally: Tally) -> Handler:
    """Record when each message was seen, in the server's kind of time."""

    async def handle(message: Message[Any]) -> None:
        tally.walls.append(time.time_ns() / 1e6)
        tally.starts.append(time.monotonic())
        tally.ids.append(message.id)
        tally.attempts.append(message.attempt)

    return handle


def hangs(tally: Tally) -> Handler:
    """Record, and never finish: for a worker that will be killed."""

    async def handle(message: Message[Any]) -> None:
        tally.ids.append(message.id)
        await asyncio.Event().wait()

    return handle


def burn(tally: Tally) -> Handler:  # noqa: ARG001 - it runs in another process, and counts there
    """About 50 ms of one core, in a process of its own."""
    return burn_one


def burn_one(_message: Message[Any]) -> None:
    """The handler of `burn`."""
    count_up()


def count_up() -> int:
    """About 50 ms of pure Python."""
    total = 0
    for number in range(ROUNDS):
        total += number
    return total


HANDLERS: dict[str, Callable[[Tally], Handler]] = {
    function.__name__: function
    for function in (noop, fails_once, always_fails, punctual, timed, hangs, burn)
}


def register(
    app: App, name: str, tally: Tally, topics: list[str], group: str, **options: Any
) -> None:
    """Register a handler by its name."""
    app.consumer(topics, group=group, **options)(HANDLERS[name](tally))
