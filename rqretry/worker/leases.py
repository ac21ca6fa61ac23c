"""What a worker process holds: places it leases from, and the deliveries it has under lease."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from rqretry.core.receipt import Receipt
from rqretry.observability.observer import Attempt
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.lease import Failure


class Delivery:
    """One lease of one message in this process.

    `sent_at` is the monotonic time at which the lease, or its last renewal, was *sent*: the server
    counts from later, so what is trusted here ends before it ends there (reliability.md R23).
    """

    __slots__ = (
        "attempt",
        "data",
        "error",
        "id",
        "lease_no",
        "leased_at",
        "lost",
        "message",
        "place",
        "sent_at",
        "settled",
        "task",
        "told_at",
        "watch",
    )  # fmt: skip

    def __init__(
        self,
        place: "Place",
        id_: str,
        data: bytes,
        numbers: tuple[int, int],
        sent_at: float,
        error: str = "",
    ) -> None:
        self.place = place
        self.id = id_
        self.data = data
        self.error = error
        self.lease_no, self.attempt = numbers
        self.leased_at = self.sent_at = sent_at
        self.message: Any = None
        self.task: asyncio.Task[Any] | None = None
        self.watch: Attempt | None = None
        self.settled = False
        self.lost = False
        self.told_at = 0.0
        """Monotonic time at which its result was told first, of one whose call failed."""

    @property
    def receipt(self) -> Receipt:
        """What the scripts compare."""
        return Receipt(self.id, self.lease_no)


class Place:
    """One partition of one topic for one consumer: where it leases from and settles to."""

    def __init__(self, topic: str, partition: int, keys: GroupKeys, visibility_s: float) -> None:
        self.topic = topic
        self.partition = partition
        self.keys = keys
        self.visibility_s = visibility_s
        self.broadcast = False
        """Nothing is leased from it: its messages are read from a stream."""
        self.leases: dict[str, Delivery] = {}
        """By id, from the lease until it is settled; the heartbeat thread reads it too."""

        # What fetching knows.
        self.empty = False
        self.prefer = "ready"
        self.rated = False
        """Its group has a rate limit: a lease needs tokens."""
        self.looked_at = 0.0
        """Monotonic time of the last lease or upkeep."""

        # What upkeep knows: monotonic times at which something is due; None for nothing.
        self.due_at: float | None = None
        self.deadline_at: float | None = None
        self.scheduled_at: float | None = None
        self.seen: tuple[int, float] | None = None
        """Server time in ms and monotonic time of the last look, to notice a clock that jumps."""

        # What waits to be settled.
        self.succeeded: list[Delivery] = []
        self.failed: list[tuple[Delivery, Failure]] = []
        self.released: list[tuple[Delivery, int | str]] = []
        self.tracebacks: dict[str, str] = {}
        self.doubts: list[Any] = []
        """Results of which nobody knows here whether they were taken (recollecting.Doubt)."""
        self.told: set[str] = set()
        """Fingerprints whose traceback the server has."""

    @property
    def simple(self) -> bool:
        """A lease needs nothing before it: no tokens, and no look at another group's letters."""
        return not self.rated and not self.keys.source

    @property
    def unsettled(self) -> int:
        """Finished deliveries that the server does not know of yet."""
        return len(self.succeeded) + len(self.failed) + len(self.released)


class Ending(Protocol):
    """What a consumer tells how its attempts ended."""

    def succeed(self, delivery: Delivery) -> None:
        """The attempt succeeded."""
        ...

    def fail(self, delivery: Delivery, failure: Failure) -> None:
        """The attempt failed."""
        ...

    def release(self, delivery: Delivery, delay_ms: int | str) -> None:
        """The message is given back, uncounted."""
        ...

    def postpone(self, delivery: Delivery, delay_ms: int, most: int, limit: Failure) -> None:
        """It is given back for later; more than `most` times, it fails with `limit`."""
        ...


Lost = Callable[[Delivery], None]
