"""An app whose handler ends its own process, in each way that a message can bring about."""

import ctypes
import os
import signal
from typing import Any

from rqretry import App, Message, RetryPolicy
from tests.chaos.victims import note

app = App()
RETRIES = RetryPolicy.fixed("10ms", max_retries=1)


def die(how: str) -> None:
    """End this process, as the body says."""
    if how == "exit":
        os._exit(9)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "segfault":
        ctypes.string_at(0)


@app.consumer("t", group="g", visibility=1.0, concurrency=4, policy=RETRIES)
def handle(message: Message[Any]) -> None:
    """Work, or die."""
    note(message, "start")
    die(message.body)


@app.consumer("beside", group="b", visibility=1.0, concurrency=1, policy=RETRIES)
async def hurry(message: Message[Any]) -> None:
    """Nothing, in no time; or die."""
    die(message.body)


@app.consumer("apart", group="p", visibility=1.0, process=True, concurrency=1, policy=RETRIES)
def compute(message: Message[Any]) -> None:
    """The same in a process of its own."""
    die(message.body)
