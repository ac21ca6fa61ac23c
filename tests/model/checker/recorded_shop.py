"""The app that a checked run works with; its handlers write down what they do."""

import os
import time
from pathlib import Path
from typing import Any

from rqretry import App, ConsumeResult, Message, RetryPolicy
from tests.model.checker.recording import recorded

MAX_RETRIES = 3

app = App()


@app.consumer(
    "t",
    group="g",
    visibility=1.0,
    concurrency=4,
    policy=RetryPolicy.fixed("50ms", max_retries=MAX_RETRIES),
)
@recorded(Path(os.environ.get("CHECKED_RUN", ".")))
def handle(message: Message[Any]) -> ConsumeResult:
    """Fail as often as the body says; hang at the first attempt if it says so."""
    if message.body.get("hangs") and message.attempt == 1:
        time.sleep(600)
    if message.attempt <= message.body.get("fails", 0):
        raise ValueError("not yet")
    return ConsumeResult.SUCCESS
