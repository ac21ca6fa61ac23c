"""Delay claims that wait for another message: the demo in small, RocketMQ's own use case.

    rqretry worker workers.flights:app          in one shell
    python -m workers.flights                   in another: two claims, and one arrival 2 s later

A claim can be settled only when the arrival of its flight is known. The claim of UA1545 fails, is
retried, and is settled at the first retry after 2 s. AA1141 never arrives: its claim is delivered
five times and ends in the dead-letter queue; see `rqretry dlq list flights-claims`.
"""

import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from rqretry import App, ConsumeResult, Message, RetryPolicy

BOOK = Path(tempfile.gettempdir()) / "rqretry-flights.sqlite"

if __name__ == "__main__":  # what ends this program is one line, and status 1
    sys.excepthook = lambda kind, error, _: print(f"{kind.__name__}: {error}", file=sys.stderr)

app = App()


@app.consumer("flights-arrivals", group="flights-book")
def record(message: Message[dict[str, str]]) -> None:
    """Record an arrival. Recording it again changes nothing, so a repeated delivery is harmless."""
    with closing(open_book()) as book, book:
        book.execute("INSERT OR IGNORE INTO arrivals VALUES (?)", (message.body["flight"],))


@app.consumer(
    "flights-claims", group="flights-claims", policy=RetryPolicy.ladder("500ms 1s 2s 4s", 4)
)
def settle(message: Message[dict[str, str]]) -> ConsumeResult:
    """Settle a claim, or fail with the reason and be called again."""
    flight = message.body["flight"]
    with closing(open_book()) as book:
        known = book.execute("SELECT 1 FROM arrivals WHERE flight = ?", (flight,)).fetchone()
    if known is None:
        return ConsumeResult.failure("no arrival yet")
    print(f"claim of {flight} settled, delivery {message.attempt}", flush=True)
    return ConsumeResult.SUCCESS


def open_book() -> sqlite3.Connection:
    """The application's database, shared by all worker processes."""
    book = sqlite3.connect(BOOK)
    book.execute("CREATE TABLE IF NOT EXISTS arrivals (flight TEXT PRIMARY KEY)")
    return book


def main() -> None:
    """Publish."""
    with app.client as client:
        client.publish_many("flights-claims", [{"flight": "UA1545"}, {"flight": "AA1141"}])
        client.publish("flights-arrivals", {"flight": "UA1545"}, delay="2s")


if __name__ == "__main__":
    main()
