"""A worker process with a batch handler: it hangs in its first batch, or works."""

import asyncio
import sys
import time
from typing import Any

from rqretry import App, Message

app = App()


@app.consumer("t", group="g", batch=10, visibility="1s", concurrency=1)
def handle(messages: list[Message[Any]]) -> None:
    """Write each message and its attempt."""
    if sys.argv[1] == "hangs":
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        time.sleep(60)
    sys.stdout.writelines(f"{message.id} {message.attempt}\n" for message in messages)
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(app.run())
