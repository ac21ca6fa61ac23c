"""The app of these tests; it says in Redis what it does, and misbehaves when a body says so."""

import asyncio
import json
import os
import time
from typing import Any

import redis

from rqretry import App, DeadLetter, Message, Postpone, RetryPolicy
from rqretry.core.parts import parts_of

app = App()
held: list[bytes] = []


def note(message: Message[Any], what: str) -> None:
    """Write a line that survives this process."""
    line = {"pid": os.getpid(), "id": message.id, "attempt": message.attempt, "what": what}
    with connected() as client:
        client.rpush("ledger", json.dumps(line))


def connected() -> Any:
    """A client of the app's server."""
    return redis.Redis(unix_socket_path=str(parts_of(app).settings.url.redis_kwargs()["path"]))


def is_first(message: Message[Any]) -> bool:
    """Whether no process has asked this of the message before."""
    with connected() as client:
        return bool(client.sadd("postponed", message.id))


@app.consumer("t", group="g", concurrency=4, policy=RetryPolicy.fixed("50ms"))
def handle(message: Message[Any]) -> None:
    """Work as many seconds as the body says."""
    note(message, "start")
    time.sleep(message.body)
    note(message, "end")


@app.consumer("odd", group="odd", concurrency=4)
async def misbehave(message: Message[Any]) -> None:
    """Block the event loop, hold memory, or die of a reason with control characters."""
    note(message, "start")
    match message.body:
        case ["block", seconds]:
            time.sleep(seconds)  # noqa: ASYNC251 - that is the misbehaviour
        case ["hold", size]:
            held.append(b"x" * size)
        case ["die", reason]:
            raise DeadLetter(reason)
        case _:
            await asyncio.sleep(0)


@app.consumer("many", group="many", policy=RetryPolicy.fixed("10ms"))
async def hurry(message: Message[Any]) -> None:
    """Nothing, as often as possible; every fifth message fails once."""
    if message.attempt == 1 and message.body % 5 == 0:
        raise ValueError("once")


@app.consumer("mixed", group="mixed", policy=RetryPolicy.fixed("10ms", max_retries=2))
async def everything(message: Message[Any]) -> None:
    """Succeed, fail once, fail to death, refuse, or postpone, as the body says."""
    match message.body % 5:
        case 1 if message.attempt == 1:
            raise ValueError("once")
        case 2:
            raise KeyError("always")
        case 3:
            raise DeadLetter("no")
        case 4 if is_first(message):
            raise Postpone("10ms")
        case _:
            await app.publish("done", message.id)
