"""The app of the tests that run `rqretry worker`."""

from typing import Any

from rqretry import App, Message, RetryPolicy

app = App()


@app.consumer("many", group="many", policy=RetryPolicy.fixed("10ms"))
async def hurry(message: Message[Any]) -> None:
    """Nothing, as often as possible; every fifth message fails once."""
    if message.attempt == 1 and message.body % 5 == 0:
        raise ValueError("once")
