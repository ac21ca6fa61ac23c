"""Publishing the demo's input: claims, and their arrivals a little later, never too late.

The ladder of a claim lasts 17.1 s, so its arrival must be in the book well before. Flights go in
blocks: the claims of a block, then, when a part of them has been delivered and so has failed at
least once, their arrivals. The next block waits until the workers have nearly caught up, and
blocks are sized by how fast they do: a slow machine gets smaller blocks, not later arrivals.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from rqretry.client import Client
from rqretry.core.message import OutgoingMessage
from rqretry.demo.flights import Flight
from rqretry.demo.topology import ARRIVALS, FLIGHTS, Progress

DELIVERED_FIRST = 0.3
"""The part of a block's claims that is delivered before the arrivals are published."""
LEFT_OVER = 0.3
"""The part of a block that may be unfinished when the next one is published."""


Watch = Callable[[], Progress]
"""Reads and shows the progress, and raises when the workers have ended; takes a few ms."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The sizes of blocks, in flights, and how long workers should take for one, in seconds."""

    seconds: float = 0.4
    first: int = 500
    smallest: int = 100
    largest: int = 4_000


class Ingest(Protocol):
    """Publishes flights in another way than through the client; answers how many."""

    @property
    def pace(self) -> Pace:
        """The sizes of blocks that suit it."""

    def arrivals(self, flights: Sequence[Flight]) -> Future[int]:
        """Publish their arrivals, to be delivered a little later; each has one."""

    def claims(self, flights: Sequence[Flight]) -> Future[int]:
        """Publish their claims, with their ids."""


class Feed:
    """Publishes flights with back-pressure.

    Args:
        client: What publishes, where there is no `ingest`.
        watch: Called again and again while it waits.
        ingest: What publishes in the place of the client.

    Attributes:
        claims, arrivals: How many were published.
        ingesting: Something is on its way to the server, so nothing may move for a while.
    """

    def __init__(self, client: Client, watch: Watch, ingest: Ingest | None = None) -> None:
        self._client = client
        self._watch = watch
        self._ingest = ingest
        self._pace = Pace() if ingest is None else ingest.pace
        self.claims = 0
        self.arrivals = 0
        self.ingesting = False

    def publish_all(self, flights: Sequence[Flight]) -> None:
        """Publish the claim of every flight, and the arrival of every one that arrived."""
        pace, done = self._pace, 0
        size = pace.first
        while done < len(flights):
            block = flights[done : done + size]
            done += len(block)
            took = max(0.001, time.monotonic() - self._publish_block(block))
            size = round(size * min(2.0, max(0.5, pace.seconds / took)))
            size = min(pace.largest, max(pace.smallest, size))

    def publish_claims(self, flights: Iterable[Flight]) -> None:
        """Publish claims: the schedule and the departure."""
        claims = [OutgoingMessage(body=flight.claim, id=flight.id) for flight in flights]
        ids = self._client.publish_many(FLIGHTS, claims)
        self.claims += sum(not id_.duplicate for id_ in ids)

    def publish_arrivals(self, bodies: Iterable[object]) -> None:
        """Publish arrivals."""
        ids = self._client.publish_many(ARRIVALS, bodies)
        self.arrivals += sum(not id_.duplicate for id_ in ids)

    def _publish_block(self, block: Sequence[Flight]) -> float:
        """Publish a block, and wait for the workers; answers when the time began that they took."""
        started = time.monotonic()
        if self._ingest is None:
            self.publish_claims(block)
            self._until(lambda now: now.claims.ready <= (1 - DELIVERED_FIRST) * len(block))
            self.publish_arrivals(flight.arrival for flight in block if flight.arrival)
        else:
            # The arrivals first, with a delay: a job that takes long must not make them late.
            arrived = [flight for flight in block if flight.arrival]
            self.arrivals += self._answer(self._ingest.arrivals(arrived)) if arrived else 0
            self.claims += self._answer(self._ingest.claims(block))
            started = time.monotonic()  # what a job costs says nothing about the workers
        self._until(lambda now: _nearly_done(now, LEFT_OVER * len(block)))
        return started

    def _answer(self, under_way: Future[int]) -> int:
        self.ingesting = True
        while not under_way.done():
            self._watch()
            time.sleep(0.01)
        self.ingesting = False
        return under_way.result()

    def _until(self, reached: Callable[[Progress], bool]) -> None:
        while not reached(self._watch()):
            time.sleep(0.002)


def _nearly_done(now: Progress, most: float) -> bool:
    book = now.book.ready + now.book.retry + now.book.inflight + now.book.waiting_count
    return book <= most and now.claims.ready <= most and now.claims.retry <= most
