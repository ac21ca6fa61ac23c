"""The Python workers of a group that clients of other languages share."""

import json
import os
from pathlib import Path
from typing import Any

from rqretry import App, ConsumeResult, Message, RetryPolicy
from tests.model.checker.recording import recorded

MAX_RETRIES = 3

app = App()


@app.consumer(
    "orders",
    group="billing",
    concurrency=8,
    policy=RetryPolicy.fixed("1s", max_retries=MAX_RETRIES),
)
@recorded(Path(os.environ.get("CHECKED_RUN", ".")))
async def bill(message: Message[Any]) -> ConsumeResult:
    """Fail as often as the order says."""
    if message.attempt <= json.loads(message.body)["fails"]:
        raise ValueError("the bank did not answer")
    return ConsumeResult.SUCCESS
