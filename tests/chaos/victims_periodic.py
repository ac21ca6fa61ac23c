"""An app with a schedule whose handler notes each slot."""

from typing import Any

from rqretry import App, Message
from tests.chaos.victims import note

app = App()


@app.cron(every="1s", catch_up="all", visibility=1.0)
def tick(message: Message[Any]) -> None:
    """Note it."""
    note(message, "start")
