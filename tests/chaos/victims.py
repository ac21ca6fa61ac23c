"""The app that the chaos tests run in processes of their own; it says in Redis what it does."""

import json
import os
import time
from typing import Any

import redis

from rqretry import App, ConsumeResult, Message, RetryPolicy
from rqretry.core.parts import parts_of

VISIBILITY_S = 1.0
LEDGER = "ledger"

app = App()


def note(message: Message[Any], what: str) -> None:
    """Write a line that survives this process."""
    path = parts_of(app).settings.url.redis_kwargs()["path"]
    line = {"pid": os.getpid(), "id": message.id, "attempt": message.attempt, "what": what}
    with redis.Redis(unix_socket_path=str(path)) as client:
        client.rpush(LEDGER, json.dumps(line))


@app.consumer(
    "t",
    group="g",
    visibility=VISIBILITY_S,
    concurrency=4,
    policy=RetryPolicy.fixed("50ms", max_retries=100),
)
def handle(message: Message[Any]) -> ConsumeResult:
    """Work as long as the body says: [seconds at the first attempt, seconds later]."""
    note(message, "start")
    time.sleep(message.body[0 if message.attempt == 1 else 1])
    note(message, "end")
    return ConsumeResult.SUCCESS
