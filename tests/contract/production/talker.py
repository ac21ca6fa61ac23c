"""An app whose handlers log: in the event loop, in threads, in processes."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rqretry import App, Message, RetryPolicy

log = logging.getLogger("talker")
SOON = RetryPolicy.fixed("10ms")


@asynccontextmanager
async def lifespan(app: App) -> AsyncIterator[None]:
    log.info("outside of any attempt")
    yield


app = App(lifespan=lifespan)


def say(how: str, message: Message[Any]) -> None:
    """Log; fail at the first attempt, and log again in the second."""
    log.info("%s %s %d", how, message.id, message.attempt)
    if message.attempt == 1:
        raise ValueError("once")
    log.info("%s %s %d again", how, message.id, message.attempt)


@app.consumer("talk-async", group="g-async", concurrency=2, policy=SOON)
async def in_the_loop(message: Message[Any]) -> None:
    """Others run in between."""
    await asyncio.sleep(0)
    say("async", message)


@app.consumer("talk-thread", group="g-thread", concurrency=2, policy=SOON)
def in_a_thread(message: Message[Any]) -> None:
    """In a thread."""
    say("thread", message)


@app.consumer("talk-process", group="g-process", concurrency=1, process=True, policy=SOON)
def in_a_process(message: Message[Any]) -> None:
    """In a process."""
    say("process", message)
