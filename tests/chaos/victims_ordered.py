"""An app with an ordered consumer, for the chaos tests; it says in Redis what it does."""

import json
import os
import time
from functools import cache
from typing import Any

import redis

from rqretry import App, Message, RetryPolicy
from rqretry.core.parts import parts_of

FAILURES = 2
"""How often a message fails whose body says so."""

app = App()


@cache
def connection(_pid: int) -> redis.Redis:
    """A connection of this process."""
    return redis.Redis(unix_socket_path=str(parts_of(app).settings.url.redis_kwargs()["path"]))


def note(what: str, message: Message[Any]) -> None:
    """Write a line that survives this process."""
    line = {
        "what": what, "pid": os.getpid(), "name": message.message_group, "n": message.body["n"],
        "attempt": message.attempt,
    }  # fmt: skip
    connection(os.getpid()).rpush("ledger", json.dumps(line))


@app.consumer(
    "t",
    group="g",
    ordered=True,
    visibility=3.0,
    concurrency=16,
    policy=RetryPolicy.fixed("20ms", max_retries=100),
)
def handle(message: Message[Any]) -> bool:
    """Work a little; fail twice where the body says so."""
    note("start", message)
    time.sleep(0.001)
    failing = message.body["fails"]
    if failing and connection(os.getpid()).hincrby("failed", message.id, 1) <= FAILURES:
        note("fail", message)
        return False
    note("end", message)
    return True
