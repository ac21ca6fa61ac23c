"""The app of the demo: `rqretry worker rqretry.demo.claims:app`.

A flight's delay claim can be settled only when its arrival is known, and the arrival comes by
another topic, a little later or never. So the handler of the claims fails while the arrival is not
in the book, and the ladder brings the claim back. The ladder is RocketMQ's, 16 retries of 10 s to
2 h, at 1/1000 of its times.
"""

from typing import Any

from rqretry.app import App
from rqretry.core.consume_result import ConsumeResult
from rqretry.core.message import Message
from rqretry.core.retry_policy import RetryPolicy
from rqretry.demo.book import Book

LEVELS = (
    "1ms 5ms 10ms 30ms 60ms 120ms 180ms 240ms 300ms 360ms 420ms 480ms 540ms 600ms 1200ms 1800ms"
    " 3600ms 7200ms"
)
"""RocketMQ's 18 delay levels, a thousand times as fast."""
MAX_RETRIES = 16
CONCURRENCY = 256
VISIBILITY_S = 3
"""Short, so that the arrivals a killed worker held are booked well within the ladder."""

app = App(delay_levels=LEVELS)
_books: list[Book] = []


@app.consumer("arrivals", group="arrival-book", concurrency=CONCURRENCY, visibility=VISIBILITY_S)
async def record(message: Message[dict[str, Any]]) -> None:
    """Record the arrival of a flight."""
    await _book().record(message)


@app.consumer(
    "flights",
    group="claims",
    max_retries=MAX_RETRIES,
    policy=RetryPolicy.rocketmq(),
    concurrency=CONCURRENCY,
    visibility=VISIBILITY_S,
)
async def settle(message: Message[dict[str, Any]]) -> ConsumeResult:
    """Settle the delay claim of a flight, if it is known when it arrived."""
    if await _book().settle(message):
        return ConsumeResult.SUCCESS
    return ConsumeResult.failure(
        "cancelled" if message.body["dep_time"] is None else "no arrival delay"
    )


def _book() -> Book:
    """One book for each process, made when the app knows its server and namespace."""
    if not _books:
        _books.append(Book(app.async_client.store, app.settings.namespace))
    return _books[0]
