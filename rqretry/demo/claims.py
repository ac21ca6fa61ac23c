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
from rqretry.core.parts import parts_of
from rqretry.core.retry_policy import RetryPolicy
from rqretry.demo.book import Book
from rqretry.demo.topology import (
    ARRIVALS,
    BOOK_GROUP,
    CLAIMS_GROUP,
    FLIGHTS,
    LEVELS,
    MAX_RETRIES,
)

CONCURRENCY = 256
VISIBILITY_S = 3
"""Short, so that the arrivals a killed worker held are booked well within the ladder."""

app = App(delay_levels=LEVELS)
_books: list[Book] = []


@app.consumer(ARRIVALS, group=BOOK_GROUP, concurrency=CONCURRENCY, visibility=VISIBILITY_S)
async def record(message: Message[dict[str, Any]]) -> None:
    """Record the arrival of a flight."""
    await _book().record(message)


@app.consumer(
    FLIGHTS,
    group=CLAIMS_GROUP,
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
        _books.append(Book(parts_of(app.async_client).store, parts_of(app).settings.namespace))
    return _books[0]
