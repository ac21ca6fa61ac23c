"""A handler that runs longer than its lease: the worker renews it, so there is one delivery.

    rqretry worker workers.long_with_renew:app  in one shell
    python -m workers.long_with_renew           in another: one report

The lease is 1 s and the handler runs 3 s. `rqretry status` shows the message in flight all the
time, and "delivery 1" is printed once. Kill the worker with `kill -9` in the middle and start
another one: when the last lease has ended, within a second, it prints "delivery 2".
"""

import asyncio
import sys

from rqretry import App, Message

STEPS, STEP_S = 6, 0.5

if __name__ == "__main__":  # what ends this program is one line, and status 1
    sys.excepthook = lambda kind, error, _: print(f"{kind.__name__}: {error}", file=sys.stderr)

app = App()


@app.consumer("reports", group="long-with-renew", visibility="1s")
async def write_report(message: Message[str]) -> None:
    """Take three times as long as the lease."""
    print(f"{message.body}: delivery {message.attempt} begins", flush=True)
    for _ in range(STEPS):
        await asyncio.sleep(STEP_S)  # cancelled here if the lease is lost nevertheless
    print(f"{message.body}: delivery {message.attempt} is done", flush=True)


def main() -> None:
    """Publish."""
    with app.client as client:
        client.publish("reports", "annual report")


if __name__ == "__main__":
    main()
