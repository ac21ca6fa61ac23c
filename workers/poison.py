"""Messages that can never be handled: they block nothing, and end in the dead-letter queue.

    rqretry worker workers.poison:app           in one shell
    python -m workers.poison                    in another: one good order and two bad ones

The order without items raises at every delivery: 4 of them, then the dead-letter queue with the
error. The order without a total is dead-lettered at once, by the handler. The good
one is billed meanwhile. `rqretry dlq list billing --by message` shows both, with their reasons.
"""

import sys
from typing import Any

from rqretry import App, DeadLetter, Message, RetryPolicy

if __name__ == "__main__":  # what ends this program is one line, and status 1
    sys.excepthook = lambda kind, error, _: print(f"{kind.__name__}: {error}", file=sys.stderr)

app = App()


@app.consumer("orders", group="billing", policy=RetryPolicy.fixed("200ms", max_retries=3))
async def bill(message: Message[dict[str, Any]]) -> None:
    """Bill an order. Any exception is a failed attempt; DeadLetter means that no retry can help."""
    order = message.body
    if "total" not in order:
        raise DeadLetter("the order has no total")
    print(f"billed {order['total'] / order['items']} per item", flush=True)


def main() -> None:
    """Publish."""
    with app.client as client:
        client.publish("orders", {"total": 10, "items": 0}, id="poison")
        client.publish("orders", {"items": 1}, id="hopeless")
        client.publish("orders", {"total": 10, "items": 4}, id="good")


if __name__ == "__main__":
    main()
